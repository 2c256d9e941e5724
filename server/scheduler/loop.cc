#include "server/scheduler/loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::server::scheduler {

absl::Status Stopping() {
  return MakeError(ErrorKind::kServerStopping, "the coordinator is shutting down; retry later");
}

absl::Status Inbox::RejectionReason() const {
  if (stopping_) return Stopping();
  if (static_cast<int64_t>(events_.size()) < events_max_) return absl::OkStatus();
  return MakeError(ErrorKind::kQueueFull,
                   absl::StrCat("coordinator: ", events_.size(), " requests wait, at most ",
                                events_max_, " are accepted; wait and retry"));
}

Inbox::Done Inbox::TakeRequest(uint64_t request) {
  const auto it = requests_.find(request);
  TESSERA_CHECK(it != requests_.end()) << "request " << request << " is answered twice";
  Done done = std::move(it->second);
  requests_.erase(it);
  return done;
}

std::optional<Inbox::Arrival> Inbox::Next(absl::Time now) {
  if (stopping_) return std::nullopt;
  if (!timer_due_ && timer_ <= now) {
    timer_due_ = true;
    before_timer_ = events_.size();
  }
  if (timer_due_ && before_timer_ == 0) {
    timer_due_ = false;
    timer_ = absl::InfiniteFuture();
    return Arrival{now, Tick{}};
  }
  if (events_.empty()) return std::nullopt;
  if (timer_due_) --before_timer_;
  Arrival next = std::move(events_.front());
  events_.pop_front();
  return next;
}

Stepper::Stepper(const Config& config, bool notes) : state_(Begin(config)) {
  state_.config.notes = notes;
}

std::vector<Effect> Stepper::Run(const Event& event, absl::Time came, const Clock::Moment& at) {
  // An event must not be earlier than the last step.
  last_ = std::max(came, last_);
  state_.wall_ahead = at.wall - at.now;
  state_.steady_ahead = at.steady - at.now;
  return Step(state_, event, last_);
}

}  // namespace tessera::server::scheduler
