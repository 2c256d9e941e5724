// Metrics of every call on a gRPC server: the calls that are started, open and rejected, and their
// durations and status codes. An interceptor counts them.
//
// Thread-safe. `metrics` outlives the server. Methods of unknown services count as "other", so that
// the label values are bounded.
#pragma once
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/rpc/gate.h"

namespace tessera::server::rpc {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MetricsInterceptor(
    Metrics* metrics);

class MethodMetrics;

// Counts each request of a stream, in the way in which the interceptor counts a call of the method.
class RequestMetrics {
 public:
  // If `metrics` is null, nothing is counted.
  RequestMetrics(Metrics* metrics, Method method);
  ~RequestMetrics();
  void Begin() const;
  // Counts that a request has been answered after `time`.
  void End(const absl::Status& answer, absl::Duration time) const;

 private:
  Metrics* const metrics_;
  std::unique_ptr<MethodMetrics> method_;
};

// Returns the version of the gRPC library, such as "1.51.1".
std::string GrpcVersion();

}  // namespace tessera::server::rpc
