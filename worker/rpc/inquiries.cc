// Answers the coordinator's inquiries about a worker's processes: metrics, options, log levels and
// flight recorders. WorkerDaemon (worker_daemon.cc) passes on the inquiries and the executors'
// answers. A thread of its own waits for the executors, because neither gRPC's threads nor the
// supervisors' may block.
#include "worker/rpc/inquiries.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "ir/serial/process_report.h"
#include "ir/serial/status.h"

namespace tessera::worker::rpc {
namespace {

std::string ToMessage(const v1::Inquiry& inquiry) {
  v1::Envelope envelope;
  envelope.set_kind(v1::MESSAGE_KIND_INQUIRY);
  inquiry.SerializeToString(envelope.mutable_body());
  return envelope.SerializeAsString();
}

}  // namespace

Inquiries::Inquiries(std::string worker, int32_t num_executors, SendFn send,
                     ir::serial::ProcessSources sources, FlightFn flight, AnswerFn send_answer)
    : worker_(std::move(worker)),
      send_(std::move(send)),
      sources_(std::move(sources)),
      flight_(std::move(flight)),
      send_answer_(std::move(send_answer)),
      num_executors_(static_cast<size_t>(num_executors)) {
  answers_.resize(num_executors);
  thread_ = std::thread([this] { Run(); });
}

void Inquiries::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Inquiries::Enqueue(v1::Inquiry inquiry) {
  absl::MutexLock lock(&mu_);
  if (queue_.size() >= kQueueMax) queue_.pop_front();
  queue_.push_back(std::move(inquiry));
}

bool Inquiries::TakeAnswer(int32_t executor, const std::string& message) {
  v1::Envelope envelope;
  if (!envelope.ParseFromString(message) || envelope.kind() != v1::MESSAGE_KIND_INQUIRY_ANSWER)
    return false;
  v1::InquiryAnswer answer;
  if (!answer.ParseFromString(envelope.body()) || answer.processes_size() != 1) return true;
  absl::MutexLock lock(&mu_);
  if (answer.id() != question_id_ || num_missing_ == 0 || answers_[executor]) return true;
  answers_[executor] = std::move(*answer.mutable_processes(0));
  --num_missing_;
  return true;
}

void Inquiries::SendLogLevel(int32_t executor) {
  if (!level_changed_) return;
  const LogLevelState state = CurrentLogLevel();
  v1::Inquiry inquiry;
  inquiry.set_log_level(std::string(LogLevelName(state.level)));
  if (state.reverts_in < absl::InfiniteDuration())
    *inquiry.mutable_log_level_time() = ir::serial::ToProto(state.reverts_in);
  send_(executor, ToMessage(inquiry));
}

void Inquiries::Run() {
  NameThread("inquiries");
  while (true) {
    v1::Inquiry inquiry;
    {
      absl::MutexLock lock(&mu_);
      const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || !queue_.empty();
      };
      mu_.Await(absl::Condition(&wanted));
      if (stopping_) return;
      inquiry = std::move(queue_.front());
      queue_.pop_front();
    }
    send_answer_(MakeAnswer(inquiry));
  }
}

void Inquiries::AwaitAnswers(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stopping_ || num_missing_ == 0;
  };
  mu_.AwaitWithTimeout(absl::Condition(&done), timeout);
}

// Answers one inquiry for the daemon and for all executors. An executor may be stuck or have no
// process, so the wait is bounded by the inquiry, and a missing answer becomes an error in that
// executor's report. The flight recorders are read by the daemon from shared memory: they matter
// most if an executor does not answer.
v1::InquiryAnswer Inquiries::MakeAnswer(const v1::Inquiry& inquiry) {
  v1::InquiryAnswer answer;
  answer.set_id(inquiry.id());
  v1::ProcessReport* const daemon_report = answer.add_processes();
  daemon_report->set_process(worker_);
  const size_t lines = inquiry.flight_lines() / (1 + num_executors_);
  v1::Inquiry question = inquiry;
  question.set_flight_lines(static_cast<int32_t>(lines));
  ir::serial::AnswerInquiry(question, sources_, daemon_report);
  if (!inquiry.log_level().empty()) level_changed_ = true;
  question.set_flight_lines(0);
  {
    absl::MutexLock lock(&mu_);
    question.set_id(++question_id_);
    num_missing_ = num_executors_;
    for (auto& report : answers_) report.reset();
  }
  const std::string message = ToMessage(question);
  std::vector<bool> asked(num_executors_);
  for (size_t e = 0; e < num_executors_; ++e) {
    asked[e] = send_(static_cast<int32_t>(e), message);
    absl::MutexLock lock(&mu_);
    if (!asked[e]) --num_missing_;
  }
  AwaitAnswers(ir::serial::FromProto(inquiry.timeout()));
  absl::MutexLock lock(&mu_);
  num_missing_ = 0;
  for (size_t e = 0; e < num_executors_; ++e) {
    v1::ProcessReport* const report = answer.add_processes();
    if (answers_[e]) *report = std::move(*answers_[e]);
    report->set_process(absl::StrCat(worker_, "/", e));
    if (lines > 0) report->set_flight_recorder(flight_(static_cast<int32_t>(e), lines));
    if (answers_[e]) continue;
    *report->mutable_status() = ir::serial::ToProto(
        asked[e]
            ? MakeError(ErrorKind::kDeadlineExceeded,
                        absl::StrCat("executor ", report->process(), " did not answer in time"))
            : MakeError(ErrorKind::kWorkerLost,
                        absl::StrCat("executor ", report->process(), " has no process")));
  }
  return answer;
}

}  // namespace tessera::worker::rpc
