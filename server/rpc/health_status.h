// What grpc.health.v1 says, from the coordinator's three checks (docs/health.md).
#pragma once

namespace grpc {
class HealthCheckServiceInterface;
}

namespace tessera::server::rpc {

struct HealthStatus {
  bool live = true, ready = true, progressing = true;
};

// "" and the services whose work devices do serve while it progresses; the others while it is live.
// The names "live", "ready" and "progressing" ask for one check each.
void SetHealth(const HealthStatus& status, grpc::HealthCheckServiceInterface* service);

}  // namespace tessera::server::rpc
