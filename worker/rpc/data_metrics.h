// Metrics of the calls on an executor's DataService, recorded by an interceptor in the page that
// the daemon reads. `page` outlives the server. Thread-safe.
#pragma once
#include <memory>
#include <string>

#include "base/metrics_page.h"
#include "grpcpp/support/server_interceptor.h"

namespace tessera::worker::rpc {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeDataInterceptorFactory(
    MetricsPage* page);

// Returns the version of the gRPC library, as "1.51.1".
std::string GrpcVersion();

}  // namespace tessera::worker::rpc
