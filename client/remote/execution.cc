#include "client/remote/execution.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "ir/serial/service.h"

namespace tessera::remote {

Execution::Execution(v1::ProgramService::Stub* stub, std::unique_ptr<grpc::ClientContext> context,
                     const v1::ExecuteProgramRequest& request)
    : context_(std::move(context)),
      reader_(stub->AsyncExecuteAndWatch(context_.get(), request, &queue_, &queue_)) {
  reader_->Read(&event_, &event_);
}

Execution::~Execution() { Leave(); }

void Execution::Leave() {
  context_->TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) continue;
}

grpc::Status Execution::Accept(api::ExecuteReply* reply) {
  void* tag = nullptr;
  bool ok = false;
  // Everything ends by the context's deadline. A call that did not start fails its read as well.
  while (queue_.Next(&tag, &ok) && tag != &event_) continue;
  if (ok && event_.has_accepted()) {
    *reply = ir::serial::FromProto(event_.accepted());
    event_.Clear();
    reader_->Read(&event_, &event_);  // the event that says how the run ended
    return grpc::Status::OK;
  }
  {
    absl::MutexLock lock(&mu_);
    over_ = true;
  }
  if (ok)
    return grpc::Status(grpc::StatusCode::INTERNAL, "the coordinator did not say what it ran");
  const grpc::Status status = Finish();
  if (status.ok()) {
    return grpc::Status(grpc::StatusCode::INTERNAL, "the coordinator did not say what it ran");
  }
  return status;
}

grpc::Status Execution::Finish() {
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  reader_->Finish(&status, nullptr);
  queue_.Next(&tag, &ok);
  return status;
}

bool Execution::AwaitEnd(absl::Time deadline) {
  {
    absl::MutexLock lock(&mu_);
    const auto free = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return over_ || !polling_; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&free), deadline - SteadyNow())) return false;
    if (over_) return true;
    polling_ = true;
  }
  void* tag = nullptr;
  bool ok = false;
  const auto next = queue_.AsyncNext(&tag, &ok, WallDeadline(deadline - SteadyNow()));
  absl::MutexLock lock(&mu_);
  polling_ = false;
  if (next == grpc::CompletionQueue::TIMEOUT) return false;
  KeepEnd(next == grpc::CompletionQueue::GOT_EVENT && ok);
  return true;
}

void Execution::KeepEnd(bool ok) {
  over_ = true;
  if (!ok) failure_ = Finish();
  if (!ok || !event_.has_ended()) return;
  absl::StatusOr<api::Completion> end = ir::serial::FromProto(event_.ended());
  if (!end.ok()) return;  // the results are then read by ticket
  for (auto& [array, value] : end->results) results_.insert_or_assign(array, std::move(value));
}

std::optional<ir::Array> Execution::ResultOf(uint64_t array) const {
  absl::MutexLock lock(&mu_);
  const auto it = results_.find(array);
  if (it == results_.end()) return std::nullopt;
  return it->second;
}

grpc::Status Execution::failure() const {
  absl::MutexLock lock(&mu_);
  return failure_;
}

}  // namespace tessera::remote
