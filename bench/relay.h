// The baseline of dispatch: a gRPC relay of three processes that only forwards bytes.
//
//   client -unary-> A -message of one bidirectional stream-> B -message-> A -reply-> client
//
// It has the shape of an execute: B dials A and keeps one stream, as a worker does; A uses gRPC's
// callback interface, as the coordinator does. No message is parsed.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace tessera::bench {

// The processes. A prints its address on stdout, and "ready" once B is connected. Both return at
// SIGTERM.
int RunRelayA();
int RunRelayB(const std::string& address);

// Thread-safe.
class RelayClient {
 public:
  static std::unique_ptr<RelayClient> Connect(const std::string& address);
  virtual ~RelayClient() = default;
  // Sends `bytes` to B, which sends `reply_bytes` back.
  virtual absl::Status RoundTrip(const std::string& bytes) = 0;
  // A replies at once and forwards the bytes to B, whose reply it drops.
  virtual absl::Status Post(const std::string& bytes) = 0;
};

}  // namespace tessera::bench
