// Programs that ended the processes that worked on them: after the second time they are refused.
// A pure value; the time is given. Not thread-safe.
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
  static constexpr absl::Duration kTime = absl::Hours(1);
  static constexpr size_t kProgramsMax = 4096;  // beyond it the one that struck least lately goes

  bool empty() const { return programs_.empty(); }
  // A program is named by its tenant, so that none can have another's refused, and its hash.
  void Strike(const std::string& tenant, const std::string& sha256, absl::Time now);
  // When the program may be tried again; the past if it may be now.
  absl::Time Until(const std::string& tenant, const std::string& sha256, absl::Time now) const;

 private:
  using Key = std::pair<std::string, std::string>;
  struct Program {
    int strikes = 0;
    absl::Time last;
    std::list<Key>::iterator place;
  };
  std::map<Key, Program> programs_;
  std::list<Key> order_;  // the one that struck least lately first
};

}  // namespace tessera::server::jail
