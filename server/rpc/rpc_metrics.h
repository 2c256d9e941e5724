// Metrics of every call on a gRPC server, by an interceptor: what started, how long it took and how
// it ended, what is under way, what was refused.
//
// Thread-safe. `metrics` outlives the server. Methods that no service of this program has count as
// "other", so that the labels are those of our services.
#pragma once
#include <memory>
#include <string>

#include "base/metrics.h"
#include "grpcpp/support/server_interceptor.h"

namespace tessera::server::rpc {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MetricsInterceptor(
    Metrics* metrics);

// Of the gRPC library, "1.51.1".
std::string GrpcVersion();

}  // namespace tessera::server::rpc
