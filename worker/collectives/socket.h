// Sockets: writes and waits that end at a deadline or a signal.
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
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A connection to a peer, with TLS or without. Move-only; one thread may read while another writes.
struct Connection {
  UniqueFd fd;
  std::unique_ptr<TlsStream> tls;  // Null: plaintext.
  bool ok() const { return fd.ok(); }
};

// Buffers reads, for few system calls. Thread-compatible.
class BufferedReader {
 public:
  // `tls` may be null; both outlive this.
  explicit BufferedReader(int fd, TlsStream* tls = nullptr)
      : fd_(fd), tls_(tls), buffer_(new std::byte[kBufferBytes]) {}

  // Reads exactly `size` bytes. Returns false at the end of the stream, on an error, or when the
  // socket is shut down: Reason() says which.
  bool Read(void* into, size_t size);
  std::string Reason() const;

 private:
  static constexpr size_t kBufferBytes = 64 << 10;

  // 0 at the end, -1 on an error.
  ptrdiff_t Receive(std::byte* into, size_t size);

  int fd_;
  TlsStream* tls_;
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  int error_ = 0;
  std::string tls_reason_;
};

// Writes all of `parts`, and advances them over what is written. Returns false on an error, at the
// deadline, or once `stop` (a Signal's fd) is raised and the socket is full; a later call with the
// same parts then continues.
bool WriteAll(int fd, TlsStream* tls, absl::Span<iovec> parts, const Deadline& deadline, int stop);

// Reads exactly `size` bytes; false on an error, at the deadline, or once `stop` is raised.
bool ReadAll(int fd, TlsStream* tls, void* into, size_t size, const Deadline& deadline, int stop);

// Does the TLS handshake; false as for ReadAll.
bool Handshake(int fd, TlsStream& tls, const Deadline& deadline, int stop);

// Waits for `stop`. True if it was raised, false at the deadline.
bool AwaitSignal(int stop, const Deadline& deadline);

// Connects to "host:port" ("[::1]:80" too). UNAVAILABLE with the reason.
absl::StatusOr<UniqueFd> Connect(const std::string& endpoint, const Deadline& deadline, int stop);

// No delay for small frames; keep-alives for peers that vanish.
void TuneSocket(int fd);

}  // namespace tessera::worker
