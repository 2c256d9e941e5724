// The handlers of AdminService: cordoning and draining workers, diagnostics, log levels and tokens.
// Each change is logged with the token of its caller, because it affects all tenants.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "ir/serial/process_report.h"
#include "server/rpc/handlers.h"
#include "server/rpc/inquiries.h"
#include "server/rpc/token_methods.h"

namespace tessera::server::rpc {

using scheduler::WorkerInfo;

void CordonWorker(const CallRef<v1::CordonWorkerRequest, v1::Worker>& call) {
  const v1::CordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is cordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  Answer<WorkerInfo>(call,
                     scheduler::Cordon{{0, call->caller()}, q.worker(), q.reason(), /*on=*/true},
                     FillWorker);
}

void UncordonWorker(const CallRef<v1::UncordonWorkerRequest, v1::Worker>& call) {
  const v1::UncordonWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is uncordoned" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  Answer<WorkerInfo>(call, scheduler::Cordon{{0, call->caller()}, q.worker(), "", /*on=*/false},
                     FillWorker);
}

void DrainWorker(const CallRef<v1::DrainWorkerRequest, v1::Worker>& call) {
  const v1::DrainWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is drained" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name) << Field("reason", q.reason());
  Answer<WorkerInfo>(call,
                     scheduler::Drain{{0, call->caller()},
                                      q.worker(),
                                      q.reason(),
                                      call->WaitTime(q.has_timeout(), q.timeout())},
                     FillWorker);
}

void DeleteWorker(const CallRef<v1::DeleteWorkerRequest, v1::Worker>& call) {
  const v1::DeleteWorkerRequest& q = call->request();
  TESSERA_LOG(INFO) << "worker is deleted" << Field("worker", q.worker())
                    << Field("token", call->caller().token_name);
  Answer<WorkerInfo>(call, scheduler::DeleteWorker{{0, call->caller()}, q.worker()}, FillWorker);
}

namespace {

// Returns a name for the processes of the target, for the log.
std::string TargetName(const InquiryTarget& target) {
  return target.all ? "all" : target.worker.empty() ? "coordinator" : target.worker;
}

template <class Q>
void InquireAndAnswer(const CallRef<Q, v1::Diagnostics>& call, v1::Inquiry inquiry) {
  const Q& q = call->request();
  Inquire(*call->context().workers, call->context().sources, {q.worker(), q.all()},
          std::move(inquiry), call->WaitTime(q.has_timeout(), q.timeout()),
          AnswerWith<v1::Diagnostics>(
              call, [](v1::Diagnostics& found, v1::Diagnostics* out) { *out = std::move(found); }));
}

}  // namespace

void GetDiagnostics(const CallRef<v1::GetDiagnosticsRequest, v1::Diagnostics>& call) {
  constexpr int kFlightLines = 100'000;  // about 10 MiB
  v1::Inquiry inquiry;
  if (!call->request().details()) return InquireAndAnswer(call, std::move(inquiry));
  inquiry.set_details(true);
  inquiry.set_flight_lines(kFlightLines);
  // Collecting the metrics waits for the scheduler for up to a second, so it runs on a thread for
  // inquiries.
  const v1::GetDiagnosticsRequest& q = call->request();
  const absl::Duration wait =
      std::min(call->WaitTime(q.has_timeout(), q.timeout()), kInquiryWaitMax);
  call->context().workers->inquiry_pool().Submit(
      wait, call->caller().tenant, /*bytes=*/0,
      [call, inquiry = std::move(inquiry)](const absl::StatusOr<absl::Duration>& left) {
        if (!left.ok()) return call->Finish(left.status());
        InquireAndAnswer(call, inquiry);
      });
}

void SetLogLevel(const CallRef<v1::SetLogLevelRequest, v1::Diagnostics>& call) {
  const v1::SetLogLevelRequest& q = call->request();
  const absl::StatusOr<LogLevelState> wanted =
      ir::serial::ReadLogLevel(q.level(), q.has_time() ? &q.time() : nullptr);
  if (!wanted.ok()) return call->Finish(wanted.status());
  // Logged as a warning, so that almost every log level shows which caller changed the level.
  TESSERA_LOG(WARNING) << "log level is changed" << Field("of", TargetName({q.worker(), q.all()}))
                       << Field("level", LogLevelName(wanted->level))
                       << Field("for", absl::FormatDuration(wanted->reverts_in))
                       << Field("token", call->caller().token_name);
  v1::Inquiry inquiry;
  inquiry.set_log_level(q.level());
  if (q.has_time()) *inquiry.mutable_log_level_time() = q.time();
  InquireAndAnswer(call, std::move(inquiry));
}

void CreateToken(const CallRef<v1::CreateTokenRequest, v1::CreateTokenResponse>& call) {
  call->Finish(rpc::CreateToken(*call->context().gate, call->request(), &call->response()));
}
void ListTokens(const CallRef<v1::ListTokensRequest, v1::ListTokensResponse>& call) {
  call->Finish(rpc::ListTokens(*call->context().gate, call->request(), &call->response()));
}
void RevokeToken(const CallRef<v1::RevokeTokenRequest, v1::Token>& call) {
  call->Finish(rpc::RevokeToken(*call->context().gate, call->request(), &call->response()));
}

}  // namespace tessera::server::rpc
