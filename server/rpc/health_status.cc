// Says which services each health check stands for. main.cc passes the health monitor's verdict to
// Server::SetHealth, which calls this function.
#include "server/rpc/health_status.h"

#include "grpcpp/health_check_service_interface.h"

namespace tessera::server::rpc {

void SetHealth(const HealthStatus& status, grpc::HealthCheckServiceInterface* service) {
  if (service == nullptr) return;
  for (const char* name : {"", "progressing", "tessera.v1.ArrayService",
                           "tessera.v1.OperationService", "tessera.v1.ProgramService"}) {
    service->SetServingStatus(name, status.progressing);
  }
  for (const char* name :
       {"live", "tessera.v1.AdminService", "tessera.v1.ClusterService",
        "tessera.v1.EnrollmentService", "tessera.v1.SessionService", "tessera.v1.WorkerService"}) {
    service->SetServingStatus(name, status.live);
  }
  service->SetServingStatus("ready", status.ready);
}

}  // namespace tessera::server::rpc
