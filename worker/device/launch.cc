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

void CollectiveAborter::Escalate(const RunContext& context,
                                 std::shared_ptr<std::vector<WatchedCollective>> exchanges,
                                 int stuck, absl::Status why,
                                 std::function<void(const absl::Status&)> done) {
  auto climb = [device = device_, context, exchanges = std::move(exchanges), stuck,
                why = std::move(why), done = std::move(done)] {
    absl::Status verdict = why;
    if (stuck >= 0 && context.collectives != nullptr) {
      // Whoever stands at the same exchange comes here at about the same time. Who does not come
      // within the host's own timeout is named.
      const WatchedCollective& at = (*exchanges)[stuck];
      const absl::Status asked =
          context.collectives->Run({.kind = ir::CollectiveKind::kBarrier,
                                    .rank = at.comm->group[at.comm->position],
                                    .group = at.comm->group,
                                    .key = at.key});
      if (!asked.ok()) verdict = asked;
    }
    done(verdict);
    for (const WatchedCollective& exchange : *exchanges) {
      if (exchange.comm->aborted.exchange(true)) continue;
      static_cast<void>(device->api().comm_abort(exchange.comm->handle.get()));
    }
  };
  absl::MutexLock lock(&mu_);
  threads_.emplace_back(std::move(climb));
}

// ---- The launch. --------------------------------------------------------------------------------

Launch::Launch(const Device* device, CollectiveAborter* aborter, LaunchBounds bounds,
               std::function<void(const absl::Status&)> fatal, std::shared_ptr<LaunchEnd> end,
               Work work)
    : device_(device),
      aborter_(aborter),
      bounds_(bounds),
      fatal_(std::move(fatal)),
      end_(std::move(end)),
      work_(std::move(work)),
      collectives_(std::make_shared<std::vector<WatchedCollective>>(std::move(work_.exchanges))) {}

bool Launch::End(const absl::Status& status) {
  work_.finish(status);
  work_.finish = nullptr;
  end_->Set(status);
  return true;
}

absl::Status Launch::BrokenStatus() const {
  absl::MutexLock lock(&verdict_->mu);
  return verdict_->status;
}

void Launch::Break(absl::Time now, const absl::Status& why, int stuck) {
  broken_ = true;
  {
    absl::MutexLock lock(&verdict_->mu);
    verdict_->status = why;
  }
  // The question who is missing has the host's timeout; then the abort has its own.
  grace_ = collectives_->empty() ? bounds_.cancel_grace : bounds_.abort_grace;
  give_up_at_ = now + grace_;
  if (stuck >= 0) give_up_at_ += bounds_.collective_timeout;
  if (collectives_->empty()) return;
  aborter_->Escalate(work_.context, collectives_, stuck, why,
                     [verdict = verdict_](const absl::Status& status) {
                       absl::MutexLock lock(&verdict->mu);
                       verdict->status = status;
                     });
}

void Launch::Watch(absl::Time now) {
  if (!work_.broken.ok()) return Break(now, work_.broken, -1);
  if (work_.context.cancel->cancelled()) return Break(now, work_.context.cancel->status(), -1);
  for (; next_ < collectives_->size(); ++next_) {
    const WatchedCollective& exchange = (*collectives_)[next_];
    const absl::StatusOr<bool> begun = device_->Reached(exchange.begin);
    if (!begun.ok() || !*begun) return;
    const absl::StatusOr<bool> left = device_->Reached(exchange.end);
    if (!left.ok()) return;
    if (*left) {
      standing_since_.reset();
      continue;
    }
    if (!standing_since_) {
      standing_since_ = now;
      if (work_.context.in_flight != nullptr) {
        work_.context.in_flight->SetOp(exchange.label, /*waiting=*/true);
      }
    }
    if (now - *standing_since_ <= bounds_.collective_timeout) return;
    return Break(now,
                 MakeError(ErrorKind::kCollectiveTimeout,
                           absl::StrCat(exchange.label, " of ", ToAbsl(work_.context.program), ": ",
                                        device_->name(), " stood in it for ",
                                        absl::FormatDuration(bounds_.collective_timeout),
                                        ", though every executor of its group is there")),
                 static_cast<int>(next_));
  }
}

bool Launch::Poll(absl::Time now) {
  if (!broken_) Watch(now);
  const absl::StatusOr<bool> reached = device_->Reached(work_.end);
  if (!reached.ok()) {
    fatal_(reached.status());
    return End(broken_ ? BrokenStatus() : reached.status());
  }
  if (*reached) return End(broken_ ? BrokenStatus() : absl::OkStatus());
  if (now <= give_up_at_) return false;
  fatal_(MakeError(ErrorKind::kWorkerLost,
                   absl::StrCat(device_->name(), ": launch ", work_.context.launch, " of ",
                                ToAbsl(work_.context.program), " did not leave the device within ",
                                absl::FormatDuration(grace_),
                                " of being broken off: ", BrokenStatus().message())));
  return End(BrokenStatus());
}

}  // namespace tessera::worker::device
