// The interceptor that measures calls. server.cc installs it, so that gRPC makes one CallMeter
// for every call of every service, gRPC's own services included.
#include "server/rpc/rpc_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/status.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/status.h"

namespace tessera::server::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

constexpr size_t kNumCodes = 17;

}  // namespace

// The metrics of one method. They live as long as the server.
class MethodMetrics {
 public:
  MethodMetrics(Metrics* metrics, std::string service, std::string method)
      : metrics_(metrics),
        service_(std::move(service)),
        method_(std::move(method)),
        name_(absl::StrCat(service_, "/", method_)) {
    started_ = metrics->counter(Metric::kRpcStarted, {service_, method_});
    in_flight_ = metrics->up_down_counter(Metric::kRpcInFlight, {service_, method_});
  }

  // The name of the method, such as "tessera.v1.ArrayService/ListArrays".
  const std::string& name() const { return name_; }

  void Begin() {
    started_.Add();
    in_flight_.Add(1);
  }

  void End(size_t code, absl::Duration time) ABSL_LOCKS_EXCLUDED(mu_) {
    in_flight_.Add(-1);
    if (code >= kNumCodes) code = static_cast<size_t>(grpc::StatusCode::UNKNOWN);
    Histogram duration;
    {
      absl::MutexLock lock(&mu_);
      if (!durations_[code]) {
        const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
        durations_[code] = metrics_->histogram(Metric::kRpcDuration, {service_, method_, name});
      }
      duration = durations_[code];
    }
    duration.Observe(time);
  }

 private:
  Metrics* const metrics_;
  const std::string service_, method_, name_;
  Counter started_;
  UpDownCounter in_flight_;
  absl::Mutex mu_;
  std::array<Histogram, kNumCodes> durations_ ABSL_GUARDED_BY(mu_);
};

namespace {

// Counts a call that was rejected because of its caller or a limit. The reason in the status'
// details says which of the two. Other errors are not rejections and are not counted here. Only
// reasons from a fixed list become labels, so that no client can create time series.
void CountRejection(const grpc::Status& status, Metrics* metrics) {
  google::rpc::Status details;
  std::string reason;
  if (details.ParseFromString(status.error_details())) {
    reason = std::string(ReasonOf(ir::serial::FromProto(details)));
  }
  const auto count_as = [&](const char* why) {
    metrics->counter(Metric::kRpcRejected, {why}).Add();
  };
  static const auto* const auth =
      new std::map<std::string, const char*, std::less<>>{{"TOKEN_MISSING", "missing"},
                                                          {"TOKEN_UNKNOWN", "unknown"},
                                                          {"TOKEN_EXPIRED", "expired"},
                                                          {"TOKEN_REVOKED", "revoked"},
                                                          {"ROLE_MISSING", "role"}};
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED: {
      const auto why = auth->find(reason);
      metrics->counter(Metric::kAuthFailures, {why == auth->end() ? kOtherLabel : why->second})
          .Add();
      return count_as("auth");
    }
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (reason == "RATE_LIMITED") return count_as("quota");
      if (reason == "QUEUE_FULL") return count_as("overload");
      // gRPC's own status for a too large message has no reason.
      if (reason.empty() || reason == "LIMIT_EXCEEDED") return count_as("size");
      return;
    case grpc::StatusCode::UNAVAILABLE:
      if (reason == "SERVER_STOPPING") return count_as("draining");
      return;
    default:
      return;
  }
}

// Observes one call. gRPC deletes it when the call has ended.
class CallMeter final : public grpc::experimental::Interceptor {
 public:
  CallMeter(MethodMetrics* method, Metrics* metrics)
      : method_(method), metrics_(metrics), start_ns_(absl::GetCurrentTimeNanos()) {
    method_->Begin();
    RecordFlight(FlightKind::kCallBegin, method_->name(), call_number_);
  }
  ~CallMeter() override {
    const int64_t duration_ns = absl::GetCurrentTimeNanos() - start_ns_;
    method_->End(code_, absl::Nanoseconds(duration_ns));
    RecordFlight(FlightKind::kCallEnd, method_->name(), call_number_, code_,
                 static_cast<uint64_t>(std::max<int64_t>(duration_ns, 0)) / 1000);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      code_ = static_cast<size_t>(status.error_code());
      if (!status.ok()) CountRejection(status, metrics_);
    }
    methods->Proceed();
  }

 private:
  static uint64_t NextCallNumber() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

  MethodMetrics* const method_;
  Metrics* const metrics_;
  const int64_t start_ns_;
  const uint64_t call_number_ = NextCallNumber();
  // If a call ends without having sent a status, its client has cancelled it.
  size_t code_ = static_cast<size_t>(grpc::StatusCode::CANCELLED);
};

class CallMeterFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallMeterFactory(Metrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(ServerRpcInfo* info) override {
    return new CallMeter(MetricsOf(info->method()), metrics_);
  }

 private:
  // Returns the metrics of the method with this path, such as
  // "/tessera.v1.ClusterService/ListDevices". Unknown methods share one entry, so that a client
  // cannot create time series.
  MethodMetrics* MetricsOf(const char* path) ABSL_LOCKS_EXCLUDED(mu_) {
    const std::string_view key = path == nullptr ? "" : path;
    absl::MutexLock lock(&mu_);
    if (const auto it = methods_.find(key); it != methods_.end()) return it->second.get();
    const std::vector<std::string> parts = absl::StrSplit(ToAbsl(key), '/');
    const bool known =
        parts.size() == 3 && google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
                                 absl::StrCat(parts[1], ".", parts[2])) != nullptr;
    std::unique_ptr<MethodMetrics>& method = methods_[known ? std::string(key) : ""];
    if (method == nullptr) {
      method = std::make_unique<MethodMetrics>(metrics_, known ? parts[1] : kOtherLabel,
                                               known ? parts[2] : kOtherLabel);
    }
    return method.get();
  }

  Metrics* const metrics_;
  absl::Mutex mu_;
  std::map<std::string, std::unique_ptr<MethodMetrics>, std::less<>> methods_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MetricsInterceptor(
    Metrics* metrics) {
  return std::make_unique<CallMeterFactory>(metrics);
}

RequestMetrics::RequestMetrics(Metrics* metrics, Method method) : metrics_(metrics) {
  if (metrics == nullptr) return;
  const std::vector<std::string> names = absl::StrSplit(MethodName(method), '/');
  method_ = std::make_unique<MethodMetrics>(metrics, names[0], names[1]);
}

RequestMetrics::~RequestMetrics() = default;

void RequestMetrics::Begin() const {
  if (method_ != nullptr) method_->Begin();
}

void RequestMetrics::End(const absl::Status& answer, absl::Duration time) const {
  if (method_ == nullptr) return;
  const grpc::Status status = ir::serial::ToGrpc(answer);
  if (!status.ok()) CountRejection(status, metrics_);
  method_->End(static_cast<size_t>(status.error_code()), time);
}

std::string GrpcVersion() { return grpc::Version(); }

}  // namespace tessera::server::rpc
