// The timers of the state machine, in order of their times.
//
// Most runs end soon after they have begun, and then the timer that was armed last is disarmed. The
// last armed timer is therefore kept beside the others, and moves among them only when another
// timer is armed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/time/time.h"

namespace tessera::server::scheduler {

class Timers {
 public:
  // The time of a timer and its purpose (TimerKind, id); see machine.h.
  using Timer = std::pair<absl::Time, std::pair<int, uint64_t>>;

  // Arming a timer that is armed already changes nothing.
  void Arm(const Timer& timer) {
    if (Has(timer)) return;
    if (newest_) others_.insert(*newest_);
    newest_ = timer;
  }
  // Disarming a timer that is not armed changes nothing.
  void Disarm(const Timer& timer) {
    if (newest_ == timer) {
      newest_.reset();
    } else {
      others_.erase(timer);
    }
  }
  bool empty() const { return !newest_ && others_.empty(); }
  size_t size() const { return others_.size() + (newest_ ? 1 : 0); }
  // Returns the timer that is due first. Requires: a timer is armed.
  const Timer& first() const {
    return others_.empty() || (newest_ && *newest_ < *others_.begin()) ? *newest_
                                                                       : *others_.begin();
  }
  bool Has(const Timer& timer) const {
    if (newest_ == timer) return true;
    // A newly armed timer is often later than all others.
    return !others_.empty() && timer <= *others_.rbegin() && others_.contains(timer);
  }
  // Returns the number of timers that are due. Takes time in proportion to this number.
  int64_t NumDue(absl::Time now) const {
    int64_t due = newest_ && newest_->first <= now ? 1 : 0;
    for (auto it = others_.begin(); it != others_.end() && it->first <= now; ++it) ++due;
    return due;
  }
  // Returns whether a timer of this kind is armed for this time.
  bool HasAny(absl::Time when, int kind) const {
    const Timer least(when, {kind, 0});
    const auto it = others_.lower_bound(least);
    const auto is_one = [&](const Timer& t) { return t.first == when && t.second.first == kind; };
    return (newest_ && is_one(*newest_)) || (it != others_.end() && is_one(*it));
  }

 private:
  std::optional<Timer> newest_;  // timer that was armed last; it is not among others_
  absl::btree_set<Timer> others_;
};

}  // namespace tessera::server::scheduler
