// Detects the end of launches and breaks off launches that do not end. CompletionPoller calls
// Launch::Poll. Everything here is decided from events and times, so that a device that hangs never
// blocks the polling thread.
#include "worker/device/launch.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
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
// not come, which the device library cannot do. The communicators of collectives that have ended
// are left alone, because later launches of all tenants use them.
void CollectiveAborter::Abort(const RunContext& context,
                              std::shared_ptr<std::vector<WatchedCollective>> collectives,
                              size_t first, bool stuck, absl::Status why,
                              std::function<void(const absl::Status&)> on_cause) {
  auto abort = [device = device_, on_abort = on_abort_, context,
                collectives = std::move(collectives), first, stuck, why = std::move(why),
                on_cause = std::move(on_cause)] {
    absl::Status cause = why;
    if (stuck && context.collectives != nullptr) {
      // All ranks that wait in this collective come here at about the same time. The barrier's
      // error therefore names the ranks that do not wait in it.
      const WatchedCollective& at = (*collectives)[first];
      const absl::Status barrier =
          context.collectives->Run({.kind = ir::CollectiveKind::kBarrier,
                                    .rank = at.comm->group[at.comm->position],
                                    .group = at.comm->group,
                                    .key = at.key,
                                    .awaits_launch = false,
                                    .measures_links = false});
      if (!barrier.ok()) cause = barrier;
    }
    // The other ranks hear of the failed launch first, so that they do not take the abort of its
    // communicators for that of another launch.
    if (context.collectives != nullptr)
      context.collectives->AbortLaunch(context.launch, StatusForPeers(cause));
    std::vector<GroupCommRef> comms;
    for (size_t i = first; i < collectives->size(); ++i) {
      const GroupCommRef& comm = (*collectives)[i].comm;
      if (comm->MarkAborted(context.collectives)) comms.push_back(comm);
    }
    on_cause(cause);
    for (const GroupCommRef& comm : comms) AbortTimed(*device, *comm, on_abort);
  };
  absl::MutexLock lock(&mu_);
  threads_.emplace_back(std::move(abort));
}

void AbortTimed(const Device& device, const GroupComm& comm,
                const std::function<void(absl::Duration)>& on_abort) {
  const absl::Time began = SteadyNow();
  static_cast<void>(device.api().comm_abort(comm.handle.get()));
  if (on_abort) on_abort(SteadyNow() - began);
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

bool Launch::AborterUsesContext() const {
  absl::MutexLock lock(&abort_cause_->mu);
  return abort_cause_->uses_context;
}

void Launch::Abort(absl::Time now, const absl::Status& why, bool stuck) {
  aborting_ = true;
  const bool all_ended = next_collective_ == collectives_->size();
  {
    absl::MutexLock lock(&abort_cause_->mu);
    abort_cause_->status = why;
    abort_cause_->uses_context = !all_ended;
  }
  // If a collective is stuck, the barrier that finds the missing peer may take collective_timeout
  // before the communicators are aborted.
  grace_ = all_ended ? timeouts_.cancel_grace : timeouts_.abort_grace;
  give_up_at_ = now + grace_;
  if (stuck) give_up_at_ += timeouts_.collective_timeout;
  if (all_ended) return;
  aborter_->Abort(work_.context, collectives_, next_collective_, stuck, why,
                  [cause = abort_cause_](const absl::Status& status) {
                    absl::MutexLock lock(&cause->mu);
                    cause->status = status;
                    cause->uses_context = false;
                  });
}

// The time of a collective begins when Poll has seen it begin or, if it has ended since the last
// Poll, at that Poll. The times of collectives that had ended before the first Poll are unknown:
// they ran beside earlier launches.
void Launch::RecordExchange(const WatchedCollective& collective, absl::Time ended) const {
  Collectives* const host = work_.context.collectives;
  if (host == nullptr) return;
  const std::optional<absl::Time> began = running_since_ ? running_since_ : last_poll_;
  host->RecordDeviceExchange({.kind = collective.kind,
                              .rank = collective.comm->group[collective.comm->position],
                              .group = collective.comm->group,
                              .in_bytes = collective.in_bytes,
                              .time = began ? ended - *began : absl::ZeroDuration()});
}

bool Launch::SkipEndedCollectives(absl::Time now) {
  for (; next_collective_ < collectives_->size(); ++next_collective_) {
    const WatchedCollective& collective = (*collectives_)[next_collective_];
    if (collective.end.get() == nullptr) return true;  // it was not wholly enqueued
    const absl::StatusOr<bool> ended = device_->IsReached(collective.end);
    if (!ended.ok()) return false;
    if (!*ended) return true;
    if (collective.comm->aborted()) {
      spoiled_.Update(collective.comm->AbortedError(collective.label));
    } else {
      RecordExchange(collective, now);
    }
    running_since_.reset();
    left_since_.reset();
  }
  return true;
}

// The library may find out long before the timeout that a collective cannot end, for example
// because the connection to a peer is broken. The library's error then says more than a timeout.
absl::Status Launch::FailureOfCollective(absl::Time now) {
  constexpr absl::Duration kCheckInterval = absl::Milliseconds(100);
  if (now < next_error_check_) return absl::OkStatus();
  next_error_check_ = now + kCheckInterval;
  const WatchedCollective& next = (*collectives_)[next_collective_];
  const int code = device_->api().comm_error(next.comm->handle.get());
  if (code == TESSERA_OK) return absl::OkStatus();
  const absl::Status failure = device_->Check(code, next.label.c_str());
  return next.comm->aborted() ? next.comm->AbortedError(next.label) : failure;
}

// An exchange that is about to end at all ranks is not aborted here because a rank that has ended
// it has aborted the communicator for a later launch: it gets a moment to end.
absl::Status Launch::ReasonToAbort(absl::Time now) {
  const RunContext& context = work_.context;
  TESSERA_RETURN_IF_ERROR(work_.enqueue_status);
  TESSERA_RETURN_IF_ERROR(context.cancel->status());
  if (next_collective_ == collectives_->size() || context.collectives == nullptr)
    return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(context.collectives->LaunchFailure(context.launch));
  const WatchedCollective& next = (*collectives_)[next_collective_];
  if (!next.comm->IsAbortedAnywhere(context.collectives) &&
      !next.comm->IsAskedInVain(context.collectives, context.launch))
    return FailureOfCollective(now);
  if (!left_since_) left_since_ = now;
  if (!next.comm->aborted() && now - *left_since_ < timeouts_.peer_abort_delay)
    return absl::OkStatus();
  return next.comm->AbortedError(next.label);
}

// Looks for a reason to abort the launch. A launch that was not wholly enqueued, that was cancelled
// or that has failed at a peer is aborted at once, since its collectives might wait for ever. This
// function is called once all earlier launches of the device have ended, so their collectives are
// not aborted with it. Otherwise the first collective that has begun and not ended is timed: its
// time counts from its begin event, so that waiting for earlier work on the device does not count.
void Launch::PollCollectives(absl::Time now) {
  const bool ok = SkipEndedCollectives(now);
  last_poll_ = now;
  if (!ok) return;
  if (const absl::Status why = ReasonToAbort(now); !why.ok())
    return Abort(now, why, /*stuck=*/false);
  if (next_collective_ == collectives_->size()) return;
  const WatchedCollective& collective = (*collectives_)[next_collective_];
  const absl::StatusOr<bool> begun = device_->IsReached(collective.begin);
  if (!begun.ok() || !*begun) return;
  if (!running_since_) {
    running_since_ = now;
    work_.context.SetOp(collective.label, /*waiting=*/true);
  }
  if (now - *running_since_ <= timeouts_.collective_timeout) return;
  Abort(now,
        MakeError(ErrorKind::kCollectiveTimeout,
                  absl::StrCat(collective.label, " of ", ToAbsl(work_.context.program), ": ",
                               device_->name(), " stood in it for ",
                               absl::FormatDuration(timeouts_.collective_timeout),
                               ", though every executor of its group is there")),
        /*stuck=*/true);
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
  if (*reached) return AborterUsesContext() ? false : End(FinalStatus());
  if (now <= give_up_at_) return false;
  on_fatal_(MakeError(
      ErrorKind::kWorkerLost,
      absl::StrCat(device_->name(), ": launch ", work_.context.launch, " of ",
                   ToAbsl(work_.context.program), " did not leave the device within ",
                   absl::FormatDuration(grace_), " of the abort: ", AbortCause().message())));
  return End(AbortCause());
}

}  // namespace tessera::worker::device
