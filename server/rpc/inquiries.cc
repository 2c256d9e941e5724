// Collects reports from the processes of the cluster. The handlers of GetDiagnostics and
// SetLogLevel call Inquire; each worker's daemon answers over its stream (worker_streams.h) for
// itself and its executors.
#include "server/rpc/inquiries.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "grpcpp/alarm.h"
#include "ir/serial/process_report.h"
#include "ir/serial/status.h"
#include "server/rpc/worker_streams.h"

namespace tessera::server::rpc {
namespace {

// The part of the wait that daemons may spend waiting for their executors. The rest is for their
// answers to arrive.
constexpr double kDaemonShareOfWait = 0.75;

// Collects the answers of one round, until all have come or the time is over.
class InquiryRound final : public std::enable_shared_from_this<InquiryRound> {
 public:
  InquiryRound(v1::Diagnostics own, std::vector<std::string> names,
               std::function<void(absl::StatusOr<v1::Diagnostics>)> then)
      : reports_(std::move(own)), names_(std::move(names)), then_(std::move(then)) {
    answers_.resize(names_.size());
    num_missing_ = names_.size();
  }

  // Starts the timer. Must be called before any answer is taken.
  void Start(absl::Duration wait) {
    if (names_.empty()) return End();
    alarm_.Set(WallDeadline(wait), [self = shared_from_this()](bool) { self->End(); });
  }

  void TakeAnswer(size_t worker, absl::StatusOr<v1::InquiryAnswer> answer)
      ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ended_) return;
      answers_[worker] = std::move(answer);
      if (--num_missing_ > 0) return;
    }
    alarm_.Cancel();  // The alarm's callback ends the round.
  }

 private:
  void End() ABSL_LOCKS_EXCLUDED(mu_) {
    std::function<void(absl::StatusOr<v1::Diagnostics>)> then;
    v1::Diagnostics all;
    {
      absl::MutexLock lock(&mu_);
      if (std::exchange(ended_, true)) return;
      for (size_t w = 0; w < names_.size(); ++w) AddReports(names_[w], answers_[w]);
      then = std::move(then_);
      all = std::move(reports_);
    }
    then(std::move(all));
  }

  void AddReports(const std::string& worker,
                  const std::optional<absl::StatusOr<v1::InquiryAnswer>>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (answer && answer->ok()) {
      for (const v1::ProcessReport& report : (*answer)->processes())
        *reports_.add_processes() = report;
      return;
    }
    v1::ProcessReport* const silent = reports_.add_processes();
    silent->set_process(worker);
    *silent->mutable_status() = ir::serial::ToProto(
        answer ? answer->status()
               : MakeError(ErrorKind::kDeadlineExceeded,
                           absl::StrCat("worker ", worker, ": the daemon did not answer in time")));
  }

  absl::Mutex mu_;
  // At first the coordinator's own report. At the end of the round, all reports.
  v1::Diagnostics reports_ ABSL_GUARDED_BY(mu_);
  const std::vector<std::string> names_;  // names of the workers that are asked
  std::function<void(absl::StatusOr<v1::Diagnostics>)> then_ ABSL_GUARDED_BY(mu_);
  std::vector<std::optional<absl::StatusOr<v1::InquiryAnswer>>> answers_ ABSL_GUARDED_BY(mu_);
  size_t num_missing_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Alarm alarm_;
};

}  // namespace

// Asks all workers of the target at the same time. The coordinator's own report is made first, on
// this thread. Daemons are given a shorter wait than the round, so that a daemon with a silent
// executor can still report the others in time.
void Inquire(ConnectedWorkers& workers, const ir::serial::ProcessSources& sources,
             const InquiryTarget& target, v1::Inquiry inquiry, absl::Duration wait,
             std::function<void(absl::StatusOr<v1::Diagnostics>)> then) {
  const absl::Duration bounded_wait = std::min(wait, kInquiryWaitMax);
  std::vector<std::shared_ptr<WorkerStream>> streams;
  std::vector<std::string> names;
  if (target.all || !target.worker.empty()) {
    for (auto& [name, stream] : workers.StreamsByName()) {
      if (!target.all && name != target.worker) continue;
      names.push_back(name);
      streams.push_back(std::move(stream));
    }
    if (!target.all && names.empty())
      return then(MakeError(
          ErrorKind::kWorkerNotFound,
          absl::StrCat("worker '", target.worker, "' is not connected; list the workers")));
  }
  v1::Diagnostics own;
  if (target.all || target.worker.empty()) {
    v1::ProcessReport* const report = own.add_processes();
    report->set_process("coordinator");
    ir::serial::AnswerInquiry(inquiry, sources, report);
  }
  *inquiry.mutable_timeout() = ir::serial::ToProto(bounded_wait * kDaemonShareOfWait);
  const auto round =
      std::make_shared<InquiryRound>(std::move(own), std::move(names), std::move(then));
  round->Start(bounded_wait);
  for (size_t w = 0; w < streams.size(); ++w)
    streams[w]->Ask(inquiry, [round, w](absl::StatusOr<v1::InquiryAnswer> answer) {
      round->TakeAnswer(w, std::move(answer));
    });
}

}  // namespace tessera::server::rpc
