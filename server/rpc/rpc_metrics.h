// Metrics of every call on a gRPC server, by an interceptor: what started, how long it took and how
// it ended, what is under way, what was refused.
//
// Thread-safe. `metrics` outlives the server. Methods that no service of this program has count as
// "other", so that the labels are those of our services.
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

// Counts the requests of streams as the interceptor counts calls, among those of the stream's
// method.
class RequestMetrics {
 public:
  // `metrics` may be null: nothing is counted.
  RequestMetrics(Metrics* metrics, Method method);
  ~RequestMetrics();
  void Begin() const;
  // The request that began so long ago has been answered.
  void End(const absl::Status& answer, absl::Duration time) const;

 private:
  class Counters;
  const std::unique_ptr<Counters> counters_;
};

// Of the gRPC library, "1.51.1".
std::string GrpcVersion();

}  // namespace tessera::server::rpc
