// Mutual TLS between executors: each side has a certificate, signed by the cluster's CA, that names
// its worker.
//
// TLS 1.3 only, without session tickets or renegotiation, so that after the handshake a read never
// waits for a write. A context is immutable and shared; a stream may have one reader and one writer
// at a time. Nothing here blocks: the caller polls the socket, which outlives the stream.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker {

class TlsContext;

// The socket event that a call waits for.
enum class TlsWant { kNothing, kRead, kWrite };

class TlsStream {
 public:
  virtual ~TlsStream() = default;

  // Returns true once it is done; else sets `*want`, to kNothing if it failed: see Reason().
  virtual bool Handshake(TlsWant* want) = 0;
  // Whether the peer's certificate names this worker. Requires: the handshake is done.
  virtual bool PeerIs(const std::string& worker) const = 0;
  // As recv and send: return the number of bytes, 0 at the end, or -1 with `*want` set, to kNothing
  // if it failed. A write that would block must be repeated with the same bytes.
  virtual ptrdiff_t Read(void* into, size_t size, TlsWant* want) = 0;
  virtual ptrdiff_t Write(const void* from, size_t size, TlsWant* want) = 0;
  virtual std::string Reason() const = 0;
};

// The arguments are PEM. VALUE_ERROR names the invalid one.
absl::StatusOr<std::shared_ptr<const TlsContext>> MakeTlsContext(
    const std::string& certificates, const std::string& key, const std::string& ca_certificates);
// `connects`: this side is the TLS client.
std::unique_ptr<TlsStream> MakeTlsStream(const TlsContext& context, int fd, bool connects);

}  // namespace tessera::worker
