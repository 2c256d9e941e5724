// Proves that Timers behaves like an ordered set: random calls go to a Timers and to a std::set,
// and after each call both must agree on what is armed and what is due.
#include "server/scheduler/timers.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <set>

namespace tessera::server::scheduler {
namespace {

// Timers must agree with the set in whatever order timers are armed and disarmed.
TEST(Timers, BehaveLikeStdSet) {
  std::mt19937 random(1);
  Timers timers;
  std::set<Timers::Timer> set;
  for (int i = 0; i < 20'000; ++i) {
    const Timers::Timer timer(absl::UnixEpoch() + absl::Seconds(random() % 4),
                              {static_cast<int>(random() % 3), random() % 3});
    if (random() % 2 == 0) {
      timers.Arm(timer);
      set.insert(timer);
    } else {
      timers.Disarm(timer);
      set.erase(timer);
    }
    ASSERT_EQ(timers.size(), set.size());
    ASSERT_EQ(timers.empty(), set.empty());
    ASSERT_EQ(timers.Has(timer), set.count(timer) == 1);
    const auto& [when, what] = timer;
    const auto least = set.lower_bound({when, {what.first, 0}});
    ASSERT_EQ(timers.HasAny(when, what.first),
              least != set.end() && least->first == when && least->second.first == what.first);
    const auto after = set.upper_bound({when, {3, 0}});
    ASSERT_EQ(timers.NumDue(when), std::distance(set.begin(), after));
    if (!set.empty()) {
      ASSERT_EQ(timers.first(), *set.begin());
    }
  }
}

}  // namespace
}  // namespace tessera::server::scheduler
