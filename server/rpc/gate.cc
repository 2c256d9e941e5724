// Decides for each call who the caller is and what it may do. Unary calls and streams pass Admit on
// gRPC's threads before a byte of the request is decoded. An interceptor reports the begin and the
// end of every call to the gate, so that calls of a revoked token can be found and cancelled.
#include "server/rpc/gate.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/identity.h"

namespace tessera::server::rpc {
namespace {

using core::Caller;
using core::Role;

constexpr absl::Duration kSweepEvery = absl::Seconds(5);
constexpr absl::Duration kFlushEvery = absl::Minutes(5);  // interval of saving tokens' last uses
constexpr int kRejectionLinesPerSecond = 50;
// The calls per second of all unauthenticated callers together.
constexpr int kAnyoneCallsPerSecond = 100;
constexpr char kAnyoneTenant[] = "";
constexpr char kBearer[] = "Bearer ";

// The minimum role of a method, as in methods.def.
enum class LeastRole { kViewer, kUser, kOperator, kAdmin, kWorker, kAnyone };

struct MethodRow {
  const char* service;
  const char* method;
  LeastRole least_role;
};
constexpr MethodRow kMethods[] = {
#define TESSERA_METHOD(service, method, least, ...) {#service, #method, LeastRole::least},
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
};

const MethodRow& RowOf(Method method) { return kMethods[static_cast<size_t>(method)]; }

// Returns whether callers with the role may call a method that requires `least_role`.
bool MayCall(Role role, LeastRole least_role) {
  if (least_role == LeastRole::kAnyone) return true;
  if (least_role == LeastRole::kWorker || role == Role::kWorker)
    return least_role == LeastRole::kWorker && role == Role::kWorker;
  return static_cast<int>(role) >= static_cast<int>(least_role);
}

absl::string_view LeastRoleName(LeastRole least_role) {
  return core::RoleName(static_cast<Role>(least_role));
}

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// Returns the bearer token of the call, or "" if it has none.
absl::string_view BearerOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return "";
  const absl::string_view value = View(found->second);
  return absl::StartsWithIgnoreCase(value, kBearer) ? value.substr(sizeof(kBearer) - 1) : value;
}

}  // namespace

std::string ServiceName(Method method) {
  return absl::StrCat("tessera.v1.", RowOf(method).service);
}
std::string MethodName(Method method) {
  return absl::StrCat(ServiceName(method), "/", RowOf(method).method);
}

// Observes the begin and the end of one call for the gate.
class Gate::CallWatch final : public grpc::experimental::Interceptor {
 public:
  CallWatch(Gate* gate, grpc::ServerContextBase* context) : gate_(gate), context_(context) {
    gate_->Begin(context_);
  }
  ~CallWatch() override { gate_->End(context_); }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    // After this hook the call may no longer be cancelled, so the gate forgets the call here.
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::POST_RECV_CLOSE))
      gate_->End(context_);
    methods->Proceed();
  }

 private:
  Gate* const gate_;
  grpc::ServerContextBase* const context_;
};

class Gate::WatchFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit WatchFactory(Gate* gate) : gate_(gate) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallWatch(gate_, info->server_context());
  }

 private:
  Gate* const gate_;
};

Gate::Gate(const Clock* clock, GateOptions options)
    : clock_(clock), options_(options), canceller_([this] { Run(); }) {}

Gate::~Gate() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  canceller_.join();
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Gate::CallInterceptor() {
  return std::make_unique<WatchFactory>(this);
}

std::string Gate::WorkerOfCertificate(const grpc::CallbackServerContext& context) {
  // Only an identity that the TLS handshake has verified counts.
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return "";
  for (const grpc::string_ref& uri : auth->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    absl::string_view name = View(uri);
    if (absl::ConsumePrefix(&name, api::kWorkerUriPrefix)) return std::string(name);
  }
  return "";
}

absl::StatusOr<Caller> Gate::Identify(const grpc::CallbackServerContext& context, absl::Time now) {
  if (options_.tokens == nullptr) return Caller{};
  if (const absl::string_view token = BearerOf(context); !token.empty())
    return options_.tokens->Authenticate(token, now);
  if (const std::string worker = WorkerOfCertificate(context); !worker.empty()) {
    Caller caller{core::kSystemTenant, Role::kWorker, absl::StrCat(kCertificateCaller, worker)};
    TESSERA_RETURN_IF_ERROR(CheckToken(caller.token_name, now));
    return caller;
  }
  return MakeError(ErrorKind::kTokenMissing,
                   "the call carries no token; send the metadata \"authorization: Bearer TOKEN\"");
}

absl::Status Gate::CheckToken(const std::string& token_name, absl::Time now) const {
  absl::string_view name = token_name;
  const bool certificate = absl::ConsumePrefix(&name, kCertificateCaller);
  const absl::Status status = options_.tokens->Check(std::string(name), now);
  // A certificate needs no token of the worker's name. Only a revoked token of that name disables
  // it.
  return certificate && !status.ok() && KindOf(status) != ErrorKind::kTokenRevoked
             ? absl::OkStatus()
             : status;
}

absl::StatusOr<Caller> Gate::Admit(grpc::CallbackServerContext* context, Method method) {
  const MethodRow& row = RowOf(method);
  absl::StatusOr<Caller> caller = row.least_role == LeastRole::kAnyone
                                      ? Caller{kAnyoneTenant, Role::kViewer, ""}
                                      : Identify(*context, clock_->Wall());
  absl::Status status = caller.status();
  if (status.ok() && options_.tokens != nullptr && !MayCall(caller->role, row.least_role))
    status =
        MakeError(ErrorKind::kRoleMissing,
                  absl::StrCat(MethodName(method), " needs the role ",
                               LeastRoleName(row.least_role), "; '", caller->token_name, "' has ",
                               core::RoleName(caller->role), ". Ask for another token"));
  if (status.ok()) status = OpenCall(context, *caller, clock_->Steady());
  if (status.ok()) return caller;
  LogRejection(*context, method, caller.ok() ? caller->token_name : "", status);
  return status;
}

// Returns the number of calls per second that the caller's tenant may make, or 0 for no limit.
double Gate::RateOf(const Caller& caller) const {
  if (caller.role == Role::kWorker) return 0;
  return caller.tenant == kAnyoneTenant ? kAnyoneCallsPerSecond : options_.calls_per_second;
}

Gate::Bucket& Gate::BucketOf(const Caller& caller, absl::Time now) {
  const auto [found, first] = buckets_.try_emplace(caller.tenant);
  // The bucket starts full.
  if (first)
    found->second = {.calls_left = std::numeric_limits<double>::infinity(), .filled_at = now};
  return found->second;
}

absl::Status Gate::TakeFromBucket(const Caller& caller, absl::Time now, Bucket* bucket) {
  const double rate = RateOf(caller);
  if (rate <= 0) return absl::OkStatus();
  const double gained = std::max(0.0, absl::ToDoubleSeconds(now - bucket->filled_at)) * rate;
  bucket->calls_left = std::min(rate, bucket->calls_left + gained);
  bucket->filled_at = now;
  if (bucket->calls_left < 1)
    return MakeError(ErrorKind::kRateLimited,
                     absl::StrCat("tenant '", caller.tenant, "': more than ", rate,
                                  " calls per second (rate_limit_per_second); wait and retry"));
  bucket->calls_left -= 1;
  return absl::OkStatus();
}

absl::Status Gate::AdmitAnother(const Caller& caller) {
  if (options_.tokens != nullptr)
    TESSERA_RETURN_IF_ERROR(CheckToken(caller.token_name, clock_->Wall()));
  if (RateOf(caller) <= 0) return absl::OkStatus();
  const absl::Time now = clock_->Steady();
  absl::MutexLock lock(&mu_);
  return TakeFromBucket(caller, now, &BucketOf(caller, now));
}

absl::Status Gate::OpenCall(const grpc::CallbackServerContext* context, const Caller& caller,
                            absl::Time now) {
  absl::MutexLock lock(&mu_);
  Bucket& bucket = BucketOf(caller, now);
  if (bucket.open >= options_.calls_max && caller.role != Role::kWorker)
    return MakeError(ErrorKind::kRateLimited,
                     absl::StrCat("tenant '", caller.tenant, "': ", bucket.open,
                                  " calls are open (tenant_calls_max); end some and retry"));
  TESSERA_RETURN_IF_ERROR(TakeFromBucket(caller, now, &bucket));
  // Without an interceptor the call is unknown, as in tests that call a handler directly.
  if (const auto call = calls_.find(context); call != calls_.end()) {
    ++bucket.open;
    call->second->bucket = &bucket;
    call->second->token_name = caller.token_name;
  }
  return absl::OkStatus();
}

void Gate::LogRejection(const grpc::CallbackServerContext& context, Method method,
                        const std::string& token, const absl::Status& why) {
  int64_t num_unlogged = 0;
  {
    absl::MutexLock lock(&mu_);
    // The rate of these log lines is limited, so that rejected calls cannot fill the disk.
    const absl::Time now = clock_->Steady();
    const double gained =
        absl::ToDoubleSeconds(now - log_bucket_.filled_at) * kRejectionLinesPerSecond;
    log_bucket_.calls_left = std::clamp(log_bucket_.calls_left + gained, 0.0,
                                        static_cast<double>(kRejectionLinesPerSecond));
    log_bucket_.filled_at = now;
    if (log_bucket_.calls_left < 1) {
      ++num_unlogged_;
      return;
    }
    log_bucket_.calls_left -= 1;
    num_unlogged = std::exchange(num_unlogged_, 0);
  }
  TESSERA_LOG(WARNING) << "call refused" << Field("method", MethodName(method))
                       << Field("peer", context.peer()) << Field("token", token)
                       << Field("reason", ToAbsl(ReasonOf(why)))
                       << Field("not_logged_before", num_unlogged);
}

void Gate::Begin(grpc::ServerContextBase* context) {
  const auto call = std::make_shared<Call>();
  call->context = context;
  absl::MutexLock lock(&mu_);
  calls_[context] = call;
}

void Gate::End(grpc::ServerContextBase* context) {
  absl::MutexLock lock(&mu_);
  const auto found = calls_.find(context);
  if (found == calls_.end()) return;
  const std::shared_ptr<Call> call = found->second;
  // gRPC may free the context as soon as End returns, so End waits for a thread that is cancelling
  // the call. Cancelling may also end the call on the cancelling thread itself. That thread no
  // longer needs the context then, and End must not wait for it.
  const auto not_cancelled_elsewhere = [&call] {
    return call->cancelled_by == std::thread::id() ||
           call->cancelled_by == std::this_thread::get_id();
  };
  mu_.Await(absl::Condition(&not_cancelled_elsewhere));
  if (call->ended) return;
  call->ended = true;
  if (call->bucket != nullptr) --call->bucket->open;
  calls_.erase(context);
}

int64_t Gate::calls_open(const std::string& tenant) const {
  absl::MutexLock lock(&mu_);
  const auto found = buckets_.find(tenant);
  return found == buckets_.end() ? 0 : found->second.open;
}

void Gate::CancelCallsWithInvalidTokens() {
  if (options_.tokens == nullptr) return;
  const absl::Time now = clock_->Wall();
  std::vector<std::shared_ptr<Call>> to_cancel;
  {
    absl::MutexLock lock(&mu_);
    std::map<std::string, bool> is_valid;  // by token name
    for (const auto& [key, call] : calls_) {
      if (call->token_name.empty()) continue;
      const auto [known, first] = is_valid.try_emplace(call->token_name, true);
      if (first) known->second = CheckToken(call->token_name, now).ok();
      if (!known->second) to_cancel.push_back(call);
    }
  }
  for (const std::shared_ptr<Call>& call : to_cancel) Cancel(*call);
}

void Gate::Cancel(Call& call) {
  {
    absl::MutexLock lock(&mu_);
    if (call.ended || call.cancelled_by != std::thread::id()) return;
    call.cancelled_by = std::this_thread::get_id();
  }
  // Runs without the lock, because cancelling may call End on this thread.
  call.context->TryCancel();
  absl::MutexLock lock(&mu_);
  call.cancelled_by = std::thread::id();
}

void Gate::FlushTokens() {
  if (options_.tokens == nullptr) return;
  if (const absl::Status saved = options_.tokens->Flush(); !saved.ok())
    TESSERA_LOG(ERROR) << "the times of last use of tokens cannot be saved"
                       << Field("why", saved.message());
}

void Gate::Run() {
  const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
  absl::Time next_flush = clock_->Steady() + kFlushEvery;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping), kSweepEvery)) break;
    }
    CancelCallsWithInvalidTokens();
    if (clock_->Steady() < next_flush) continue;
    FlushTokens();
    next_flush = clock_->Steady() + kFlushEvery;
  }
  FlushTokens();
}

}  // namespace tessera::server::rpc
