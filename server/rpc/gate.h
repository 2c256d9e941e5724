// The gate authenticates and authorizes a call before its handler reads the request.  Every call
// passes it first:
//
//   absl::StatusOr<core::Caller> caller = gate_->Admit(context, Method::kArrayService_GetArray);
//   if (!caller.ok()) return Refuse(reactor, caller.status());
//
// Thread-safe. The gate outlives the server whose builder got its CallInterceptor(). Rejected calls
// are logged, up to a limited rate, with the name of the caller's token and the reason, but never
// with the text of a token.
#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "ir/serial/grpc_status.h"
#include "server/core/caller.h"
#include "server/core/tokens.h"

namespace tessera::server::rpc {

using ir::serial::ToGrpc;

// The methods: one enumerator for each row of methods.def.
enum class Method : int {
#define TESSERA_METHOD(service, method, least, ...) k##service##_##method,
#include "server/rpc/methods.def"
#undef TESSERA_METHOD
};

// A caller that shows a worker's certificate and no token has a token_name too: this prefix,
// followed by the worker's name. No token has such a name. Revoking a token with the worker's name
// disables the certificate too.
inline constexpr char kCertificateCaller[] = "certificate:";

struct GateOptions {
  // The tokens that callers may show. If null, every caller is the default tenant's administrator.
  core::TokenStore* tokens = nullptr;
  int64_t calls_per_second = 0;  // rate and burst size of each tenant; 0 means unlimited
  int64_t calls_max = 10'000;    // largest number of open calls of a tenant
};

class Gate {
 public:
  explicit Gate(const Clock* clock, GateOptions options = {});
  ~Gate();

  // Admits a call and returns its caller.  The call counts as open until it ends.  Errors are
  // TOKEN_MISSING, TOKEN_UNKNOWN, TOKEN_EXPIRED, TOKEN_REVOKED, ROLE_MISSING and RATE_LIMITED.
  absl::StatusOr<core::Caller> Admit(grpc::CallbackServerContext* context, Method method)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Admits another request of a stream that was admitted before. The possible errors are
  // RATE_LIMITED, because each request counts as a call, and TOKEN_EXPIRED and TOKEN_REVOKED,
  // because the token may have become invalid since the stream began.
  absl::Status AdmitAnother(const core::Caller& caller) ABSL_LOCKS_EXCLUDED(mu_);

  // Cancels the open calls whose tokens are no longer valid.  Called when a token is revoked. The
  // gate's thread also calls it every few seconds, for tokens that have expired.
  void CancelCallsWithInvalidTokens() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns an interceptor for the server's builder.  It tells the gate when calls begin and end.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallInterceptor();

  // Returns the worker that the client's certificate names.  Returns "" if the client has no
  // certificate, or if the certificate is not a worker's.
  static std::string WorkerOfCertificate(const grpc::CallbackServerContext& context);

  core::TokenStore* tokens() const { return options_.tokens; }
  const Clock& clock() const { return *clock_; }
  // Returns the number of open calls that were admitted for the tenant.
  int64_t calls_open(const std::string& tenant) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  class CallWatch;
  class WatchFactory;
  // The token bucket that bounds the rate of a tenant's calls, and the number of its open calls.
  struct Bucket {
    int64_t open = 0;       // number of open calls
    double calls_left = 0;  // number of calls that may start now
    absl::Time filled_at;   // time up to which calls_left is counted
  };
  // One call, from its first byte to its end.
  struct Call {
    grpc::ServerContextBase* context = nullptr;
    Bucket* bucket = nullptr;      // bucket of its tenant; null until the call is admitted
    std::string token_name;        // name of the token with which the call came
    std::thread::id cancelled_by;  // thread that is cancelling the call; End waits for it
    bool ended = false;
  };

  absl::StatusOr<core::Caller> Identify(const grpc::CallbackServerContext& context, absl::Time now);
  // Returns OK if the token with this name is still valid.
  absl::Status CheckToken(const std::string& token_name, absl::Time now) const;
  // Checks the limits of the caller's tenant and counts the call as open.
  absl::Status OpenCall(const grpc::CallbackServerContext* context, const core::Caller& caller,
                        absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes one call from the bucket of the caller's tenant.
  absl::Status TakeFromBucket(const core::Caller& caller, absl::Time now, Bucket* bucket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Bucket& BucketOf(const core::Caller& caller, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double RateOf(const core::Caller& caller) const;
  // Logs that the call was rejected, unless too many rejections have been logged just now.
  void LogRejection(const grpc::CallbackServerContext& context, Method method,
                    const std::string& token, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Begin(grpc::ServerContextBase* context) ABSL_LOCKS_EXCLUDED(mu_);
  void End(grpc::ServerContextBase* context) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(Call& call) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void FlushTokens();

  const Clock* const clock_;
  const GateOptions options_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_map<const grpc::ServerContextBase*, std::shared_ptr<Call>> calls_
      ABSL_GUARDED_BY(mu_);
  // The bucket of each tenant. Only tokens name tenants.
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mu_);
  Bucket log_bucket_ ABSL_GUARDED_BY(mu_);         // bounds the rate of log lines
  int64_t num_unlogged_ ABSL_GUARDED_BY(mu_) = 0;  // rejections that were not logged
  std::thread canceller_;
};

// The reactor of a rejected stream. It finishes the stream with the error.
template <class Reactor>
class RefusedStream final : public Reactor {
 public:
  explicit RefusedStream(const absl::Status& why) { this->Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

// Return the names of a method's service and of the method: "tessera.v1.ArrayService" and
// "tessera.v1.ArrayService/GetArray".
std::string ServiceName(Method method);
std::string MethodName(Method method);

}  // namespace tessera::server::rpc
