// Counts and times the calls of an executor's data service. DataServer (data_server.cc) installs
// the factory in its gRPC server; gRPC makes one interceptor for each call. The metrics are looked
// up once for every method and code, so that a call costs only atomic additions.
#include "worker/rpc/data_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "grpcpp/support/status.h"

namespace tessera::worker::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

struct MethodMetrics {
  Counter started;
  UpDownCounter in_flight;
  std::vector<Histogram> durations;  // by status code
};

// Observes one call. gRPC deletes it when the call has ended.
class Interceptor final : public grpc::experimental::Interceptor {
 public:
  explicit Interceptor(const MethodMetrics* method) : method_(method), began_(AgeGauge::Now()) {
    method_->started.Add();
    method_->in_flight.Add(1);
  }
  ~Interceptor() override {
    method_->in_flight.Add(-1);
    const size_t code =
        code_ < method_->durations.size() ? code_ : static_cast<size_t>(grpc::StatusCode::UNKNOWN);
    method_->durations[code].Observe(absl::Nanoseconds(AgeGauge::Now() - began_));
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = static_cast<size_t>(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  const MethodMetrics* const method_;
  const int64_t began_;
  // A call that ends without having sent a status was cut off by its client.
  size_t code_ = static_cast<size_t>(grpc::StatusCode::CANCELLED);
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(MetricsPage* page) {
    const MetricInfo& duration = InfoOf(Metric::kDataRpcDuration);
    // The domain lists the status codes in the order of their numbers.
    const std::vector<std::string>& codes =
        duration.labels[duration.LabelIndex("code")].domain->values;
    for (const std::string& name : duration.labels[duration.LabelIndex("method")].domain->values) {
      MethodMetrics& method = methods_[name];
      method.started = page->counter(Metric::kDataRpcStarted, {name});
      method.in_flight = page->up_down_counter(Metric::kDataRpcInFlight, {name});
      for (const std::string& code : codes) {
        method.durations.push_back(page->histogram(Metric::kDataRpcDuration, {name, code}));
      }
    }
  }

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view path = info->method() == nullptr ? "" : info->method();
    const size_t slash = path.rfind('/');
    auto it = methods_.find(slash == std::string_view::npos ? path : path.substr(slash + 1));
    if (it == methods_.end()) it = methods_.find(std::string_view(kOtherLabel));
    return new Interceptor(&it->second);
  }

 private:
  std::map<std::string, MethodMetrics, std::less<>> methods_;  // immutable once made
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeDataInterceptorFactory(
    MetricsPage* page) {
  return std::make_unique<Factory>(page);
}

std::string GrpcVersion() { return grpc::Version(); }

}  // namespace tessera::worker::rpc
