// Derives the statuses of grpc.health.v1 from the coordinator's three checks (docs/health.md).
#pragma once

namespace grpc {
class HealthCheckServiceInterface;
}

namespace tessera::server::rpc {

struct HealthStatus {
  bool live = true, ready = true, progressing = true;
};

// Sets the status of all services. "" and the services that need devices are SERVING while
// `progressing` is true, the other services while `live` is true. The names "live", "ready" and
// "progressing" stand for one check each.
void SetHealth(const HealthStatus& status, grpc::HealthCheckServiceInterface* service);

}  // namespace tessera::server::rpc
