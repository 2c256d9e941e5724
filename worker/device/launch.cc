// Detects the end of launches and breaks off launches that do not end. CompletionPoller calls
// Launch::Poll. Everything here is decided from events and times, so that a device that hangs never
// blocks the polling thread.
#include "worker/device/launch.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker::device {

void LaunchEnd::OnDone(std::function<void(const absl::Status&)> done) {
  std::optional<absl::Status> status;
  {
    absl::MutexLock lock(&mu_);
    if (!status_) {
      done_ = std::move(done);
      return;
    }
    status = status_;
  }
  done(*status);
}

void LaunchEnd::Set(const absl::Status& status) {
  std::function<void(const absl::Status&)> done;
  {
    absl::MutexLock lock(&mu_);
    status_ = status;
    done = std::move(done_);
  }
  if (done) done(status);
}

// ---- The aborter. -------------------------------------------------------------------------------

CollectiveAborter::~CollectiveAborter() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mu_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void CollectiveAborter::Abandon() {
  absl::MutexLock lock(&mu_);
  for (std::thread& thread : threads_) thread.detach();
  threads_.clear();
}

// Aborts the communicators of a launch on a new thread. If a collective is stuck, the thread first
// runs a barrier among its ranks on the host. The barrier has a timeout and names the ranks that do
// not come, which the device library cannot do.
void CollectiveAborter::Abort(const RunContext& context,
                              std::shared_ptr<std::vector<WatchedCollective>> collectives,
                              int stuck_index, absl::Status why,
                              std::function<void(const absl::Status&)> on_cause) {
  auto abort = [device = device_, context, collectives = std::move(collectives), stuck_index,
                why = std::move(why), on_cause = std::move(on_cause)] {
    absl::Status cause = why;
    if (stuck_index >= 0 && context.collectives != nullptr) {
      // All ranks that wait in this collective come here at about the same time. The barrier's
      // error therefore names the ranks that do not wait in it.
      const WatchedCollective& at = (*collectives)[stuck_index];
      const absl::Status barrier =
          context.collectives->Run({.kind = ir::CollectiveKind::kBarrier,
                                    .rank = at.comm->group[at.comm->position],
                                    .group = at.comm->group,
                                    .key = at.key,
                                    .awaits_launch = false});
      if (!barrier.ok()) cause = barrier;
    }
    on_cause(cause);
    for (const WatchedCollective& collective : *collectives) {
      if (!collective.comm->MarkAborted()) continue;
      static_cast<void>(device->api().comm_abort(collective.comm->handle.get()));
    }
  };
  absl::MutexLock lock(&mu_);
  threads_.emplace_back(std::move(abort));
}

// ---- The launch. --------------------------------------------------------------------------------

Launch::Launch(const Device* device, CollectiveAborter* aborter, LaunchTimeouts timeouts,
               std::function<void(const absl::Status&)> on_fatal, std::shared_ptr<LaunchEnd> end,
               Work work)
    : device_(device),
      aborter_(aborter),
      timeouts_(timeouts),
      on_fatal_(std::move(on_fatal)),
      end_(std::move(end)),
      work_(std::move(work)),
      collectives_(std::make_shared<std::vector<WatchedCollective>>(std::move(work_.collectives))) {
}

bool Launch::End(const absl::Status& status) {
  work_.finish(status);
  work_.finish = nullptr;
  end_->Set(status);
  return true;
}

absl::Status Launch::AbortCause() const {
  absl::MutexLock lock(&abort_cause_->mu);
  return abort_cause_->status;
}

void Launch::Abort(absl::Time now, const absl::Status& why, int stuck_index) {
  aborting_ = true;
  {
    absl::MutexLock lock(&abort_cause_->mu);
    abort_cause_->status = why;
  }
  // If a collective is stuck, the barrier that finds the missing peer may take collective_timeout
  // before the communicators are aborted.
  grace_ = collectives_->empty() ? timeouts_.cancel_grace : timeouts_.abort_grace;
  give_up_at_ = now + grace_;
  if (stuck_index >= 0) give_up_at_ += timeouts_.collective_timeout;
  if (collectives_->empty()) return;
  aborter_->Abort(work_.context, collectives_, stuck_index, why,
                  [cause = abort_cause_](const absl::Status& status) {
                    absl::MutexLock lock(&cause->mu);
                    cause->status = status;
                  });
}

// Looks for a reason to abort the launch. A launch that was not wholly enqueued, or was cancelled,
// is aborted at once, since its collectives might wait for ever. Otherwise the first collective
// that has begun and not ended is timed: its time counts from its begin event, so that waiting for
// earlier work on the device does not count. Errors of events are left to Poll.
void Launch::PollCollectives(absl::Time now) {
  if (!work_.enqueue_status.ok()) return Abort(now, work_.enqueue_status, -1);
  if (work_.context.cancel->cancelled()) return Abort(now, work_.context.cancel->status(), -1);
  for (; next_collective_ < collectives_->size(); ++next_collective_) {
    const WatchedCollective& collective = (*collectives_)[next_collective_];
    const absl::StatusOr<bool> begun = device_->IsReached(collective.begin);
    if (!begun.ok() || !*begun) return;
    const absl::StatusOr<bool> ended = device_->IsReached(collective.end);
    if (!ended.ok()) return;
    if (*ended) {
      running_since_.reset();
      if (collective.comm->aborted())
        spoiled_.Update(collective.comm->AbortedError(collective.label));
      continue;
    }
    if (!running_since_) {
      running_since_ = now;
      work_.context.SetOp(collective.label, /*waiting=*/true);
    }
    if (now - *running_since_ <= timeouts_.collective_timeout) return;
    return Abort(now,
                 MakeError(ErrorKind::kCollectiveTimeout,
                           absl::StrCat(collective.label, " of ", ToAbsl(work_.context.program),
                                        ": ", device_->name(), " stood in it for ",
                                        absl::FormatDuration(timeouts_.collective_timeout),
                                        ", though every executor of its group is there")),
                 static_cast<int>(next_collective_));
  }
}

absl::Status Launch::FinalStatus() const {
  if (aborting_) return AbortCause();
  if (!spoiled_.ok()) return spoiled_;
  for (size_t i = next_collective_; i < collectives_->size(); ++i) {
    const WatchedCollective& collective = (*collectives_)[i];
    if (collective.comm->aborted()) return collective.comm->AbortedError(collective.label);
  }
  return absl::OkStatus();
}

bool Launch::Poll(absl::Time now) {
  if (!aborting_) PollCollectives(now);
  const absl::StatusOr<bool> reached = device_->IsReached(work_.end);
  if (!reached.ok()) {
    on_fatal_(reached.status());
    return End(aborting_ ? AbortCause() : reached.status());
  }
  if (*reached) return End(FinalStatus());
  if (now <= give_up_at_) return false;
  on_fatal_(MakeError(
      ErrorKind::kWorkerLost,
      absl::StrCat(device_->name(), ": launch ", work_.context.launch, " of ",
                   ToAbsl(work_.context.program), " did not leave the device within ",
                   absl::FormatDuration(grace_), " of the abort: ", AbortCause().message())));
  return End(AbortCause());
}

}  // namespace tessera::worker::device
