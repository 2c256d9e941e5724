// The timers of the state machine, in order of their times.
//
// Most runs end soon after they have begun, and then the timer that was armed last is disarmed. So
// that one is kept beside the others, and only moves among them when another is armed.
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
  // When, and what for: (TimerKind, id), machine.h.
  using Timer = std::pair<absl::Time, std::pair<int, uint64_t>>;

  // Each is there at most once.
  void Arm(const Timer& timer) {
    if (Has(timer)) return;
    if (newest_) others_.insert(*newest_);
    newest_ = timer;
  }
  // One that is not there changes nothing.
  void Disarm(const Timer& timer) {
    if (newest_ == timer) {
      newest_.reset();
    } else {
      others_.erase(timer);
    }
  }
  bool empty() const { return !newest_ && others_.empty(); }
  size_t size() const { return others_.size() + (newest_ ? 1 : 0); }
  // The one that is due first. Requires: there is one.
  const Timer& first() const {
    return others_.empty() || (newest_ && *newest_ < *others_.begin()) ? *newest_
                                                                       : *others_.begin();
  }
  bool Has(const Timer& timer) const {
    if (newest_ == timer) return true;
    // Those that are armed are often the last.
    return !others_.empty() && timer <= *others_.rbegin() && others_.contains(timer);
  }
  // Takes time in proportion to the number.
  int64_t NumDue(absl::Time now) const {
    int64_t due = newest_ && newest_->first <= now ? 1 : 0;
    for (auto it = others_.begin(); it != others_.end() && it->first <= now; ++it) ++due;
    return due;
  }
  // Whether there is one of this kind at this time.
  bool HasAny(absl::Time when, int kind) const {
    const Timer least(when, {kind, 0});
    const auto it = others_.lower_bound(least);
    const auto is_one = [&](const Timer& t) { return t.first == when && t.second.first == kind; };
    return (newest_ && is_one(*newest_)) || (it != others_.end() && is_one(*it));
  }

 private:
  std::optional<Timer> newest_;  // not among the others
  absl::btree_set<Timer> others_;
};

}  // namespace tessera::server::scheduler
