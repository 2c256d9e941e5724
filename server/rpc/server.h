// The coordinator's gRPC server: every service, health and reflection, on one listener.
#pragma once
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/coordinator.h"

namespace tessera::server::rpc {

struct ServeOptions {
  std::string listen = "127.0.0.1:0";  // port 0: any free one
  // Plain text beyond loopback is refused without it.
  bool insecure = false;
};

// Thread-safe.  The coordinator outlives it.  The destructor shuts down.
class Server {
 public:
  virtual ~Server() = default;
  // "127.0.0.1:41234".
  virtual const std::string& address() const = 0;
  virtual int port() const = 0;
  // Refuses new calls, gives those in progress `grace`, then cancels them.  Health says
  // NOT_SERVING.
  virtual void Shutdown(absl::Duration grace) = 0;
};

// VALUE_ERROR: not an address, or not loopback and not `insecure`.  UNAVAILABLE: cannot bind.
absl::StatusOr<std::unique_ptr<Server>> Serve(const ServeOptions& options,
                                              Coordinator* coordinator);

}  // namespace tessera::server::rpc
