// Mutual TLS between executors. Each side has a certificate that is signed by the cluster's CA and
// names its worker.
//
// Only TLS 1.3 is used, without session tickets or renegotiation, so that after the handshake a
// read never waits for a write. A context is immutable and shared. A stream may have one reader and
// one writer at a time. No function here blocks: the caller polls the socket, which outlives the
// stream.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker {

class TlsContext;

// The event of the socket for which the caller must wait before it repeats a call.
enum class TlsWant { kNothing, kRead, kWrite };

class TlsStream {
 public:
  virtual ~TlsStream() = default;

  // Returns true once the handshake is done. Otherwise sets `*want`; kNothing means that the
  // handshake failed, and Reason() says why.
  virtual bool Handshake(TlsWant* want) = 0;
  // Returns whether the peer's certificate names `worker`. Requires: the handshake is done.
  virtual bool PeerIs(const std::string& worker) const = 0;
  // Like recv and send: returns the number of bytes, 0 at the end, or -1 with `*want` set. A
  // `*want` of kNothing means that the call failed. A write that would block must be repeated with
  // the same bytes.
  virtual ptrdiff_t Read(void* into, size_t size, TlsWant* want) = 0;
  virtual ptrdiff_t Write(const void* from, size_t size, TlsWant* want) = 0;
  virtual std::string Reason() const = 0;
};

// Makes a context from PEM texts. The error is VALUE_ERROR and names the invalid argument.
absl::StatusOr<std::shared_ptr<const TlsContext>> MakeTlsContext(
    const std::string& certificates, const std::string& key, const std::string& ca_certificates);
// `connects` says that this side is the TLS client.
std::unique_ptr<TlsStream> MakeTlsStream(const TlsContext& context, int fd, bool connects);

}  // namespace tessera::worker
