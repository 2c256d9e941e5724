// TLS over a socket between executors: both sides show a certificate of the cluster's authority
// that names their worker.
//
// TLS 1.3 alone, without tickets or renegotiation, so that after the handshake bytes flow as asked
// for: a read never waits for a write. A context is immutable and shared; a stream's calls may come
// from one reader and one writer at a time. Nothing here blocks: who is told to wait polls the
// socket, which outlives the stream.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker {

class TlsContext;

// What a call wants before it can go on.
enum class TlsWant { kNothing, kRead, kWrite };

class TlsStream {
 public:
  virtual ~TlsStream() = default;

  // True once it is done; false with what it waits for, or kNothing: it failed, see Reason().
  virtual bool Handshake(TlsWant* want) = 0;
  // Whether the other's certificate names this worker. After the handshake.
  virtual bool PeerIs(const std::string& worker) const = 0;
  // As recv and send: more than 0 bytes; 0: the end; -1 with what it waits for, or kNothing: it
  // failed. A write that waits is to be repeated with the same bytes.
  virtual ptrdiff_t Read(void* into, size_t size, TlsWant* want) = 0;
  virtual ptrdiff_t Write(const void* from, size_t size, TlsWant* want) = 0;
  virtual std::string Reason() const = 0;
};

// PEM texts. VALUE_ERROR says what is wrong with which.
absl::StatusOr<std::shared_ptr<const TlsContext>> MakeTlsContext(const std::string& certificates,
                                                                 const std::string& key,
                                                                 const std::string& authorities);
// `connects`: this side speaks first.
std::unique_ptr<TlsStream> MakeTlsStream(const TlsContext& context, int fd, bool connects);

}  // namespace tessera::worker
