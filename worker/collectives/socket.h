// Socket functions whose writes and waits end at a deadline, or when a Signal (below) is raised.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/tls.h"

struct iovec;

namespace tessera::worker {

// A flag that poll(2) can wait for. Once raised it stays raised. Thread-safe.
class Signal {
 public:
  Signal();
  void Raise();
  // Returns the descriptor, or -1 if the process may open no more files.
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A connection to a peer, with or without TLS. Move-only. One thread may read while another writes.
struct Connection {
  UniqueFd fd;
  std::unique_ptr<TlsStream> tls;  // null if the connection is plaintext
  bool ok() const { return fd.ok(); }
};

// A reader with a buffer, so that it needs few system calls. Thread-compatible.
class BufferedReader {
 public:
  // `tls` may be null. Both arguments outlive the reader.
  explicit BufferedReader(int fd, TlsStream* tls = nullptr)
      : fd_(fd), tls_(tls), buffer_(new std::byte[kBufferBytes]) {}

  // Reads exactly `size` bytes. Returns false at the end of the stream, on an error, or when the
  // socket is shut down; Reason() then says which.
  bool Read(void* into, size_t size);
  std::string Reason() const;

 private:
  static constexpr size_t kBufferBytes = 64 << 10;

  // Returns the number of bytes, 0 at the end of the stream, or -1 on an error.
  ptrdiff_t Receive(std::byte* into, size_t size);

  int fd_;
  TlsStream* tls_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int error_ = 0;
  std::string tls_reason_;
};

// Writes all of `parts`, and advances them over the bytes that are written. Returns false on an
// error, at the deadline, or when the socket is full and `stop_fd` (the fd of a Signal) is raised.
// After one of the last two, another call with the same parts continues where this call stopped.
bool WriteAll(int fd, TlsStream* tls, absl::Span<iovec> parts, const Deadline& deadline,
              int stop_fd);

// Reads exactly `size` bytes. Returns false on an error, at the deadline, or once `stop_fd` is
// raised.
bool ReadAll(int fd, TlsStream* tls, void* into, size_t size, const Deadline& deadline,
             int stop_fd);

// Does the TLS handshake. Returns false in the same cases as ReadAll.
bool Handshake(int fd, TlsStream& tls, const Deadline& deadline, int stop_fd);

// Waits for `stop_fd`. Returns true if it was raised, and false at the deadline.
bool AwaitSignal(int stop_fd, const Deadline& deadline);

// Connects to "host:port" or "[::1]:80". Returns UNAVAILABLE with the reason if it cannot.
absl::StatusOr<UniqueFd> Connect(const std::string& endpoint, const Deadline& deadline,
                                 int stop_fd);

// Sets the options of a connection: small frames are sent without delay, and the kernel sends
// keep-alives, so that a vanished peer is noticed.
void TuneSocket(int fd);

}  // namespace tessera::worker
