// Remembers the programs that ended a jailed process which worked on them; each such end is a
// strike. After kStrikes strikes the program is refused for kRefusalTime. Callers pass in the time.
// Not thread-safe.
#pragma once
#include <list>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace tessera::server::jail {

class Quarantine {
 public:
  static constexpr int kStrikes = 2;
  static constexpr absl::Duration kRefusalTime = absl::Hours(1);
  // The largest number of programs that are remembered. Beyond it, the program whose last strike is
  // oldest is forgotten.
  static constexpr size_t kProgramsMax = 4096;

  bool empty() const { return programs_.empty(); }
  // Counts a strike against a program. A program is identified by its tenant and its hash: with the
  // hash alone, one tenant could have another's program refused.
  void Strike(const std::string& tenant, const std::string& sha256, absl::Time now);
  // Returns the time until which the program is refused. Returns a time in the past if it is not
  // refused now.
  absl::Time RefusedUntil(const std::string& tenant, const std::string& sha256,
                          absl::Time now) const;

 private:
  using Key = std::pair<std::string, std::string>;
  struct Program {
    int strikes = 0;  // number of strikes
    absl::Time last_strike;
    std::list<Key>::iterator place;  // in order_
  };
  std::map<Key, Program> programs_;
  std::list<Key> order_;  // all programs, the one with the oldest last strike first
};

}  // namespace tessera::server::jail
