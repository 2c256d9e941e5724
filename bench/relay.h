// The baseline of bench-dispatch: a gRPC relay of three processes that only forwards bytes.
//
//   client -unary-> A -message of one bidirectional stream-> B -message-> A -reply-> client
//
// The relay has the shape of an execute. B connects to A and keeps one stream open, as a worker
// does with the coordinator. A uses gRPC's callback interface, as the coordinator does. No message
// is parsed.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace tessera::bench {

// Run the processes A and B. A prints its address on stdout, and "ready" once B is connected. B
// dials A at `address`. Both return at SIGTERM.
int RunRelayA();
int RunRelayB(const std::string& address);

// The client's side of the relay. Thread-safe.
class RelayClient {
 public:
  static std::unique_ptr<RelayClient> Connect(const std::string& address);
  virtual ~RelayClient() = default;
  // Sends `bytes` to B by way of A, and waits until B has sent the same bytes back.
  virtual absl::Status RoundTrip(const std::string& bytes) = 0;
  // Sends `bytes` to A, which replies at once and then forwards them to B. A drops B's reply.
  virtual absl::Status Post(const std::string& bytes) = 0;
};

}  // namespace tessera::bench
