// The rows that a state has committed, as a store would keep them, and a check that they match the
// state.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/scheduler/effects.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// A commit whose rows several CommittedRows can share without copying them.
struct SharedCommit {
  explicit SharedCommit(Commit commit);
  uint64_t number = 0;
  std::vector<std::shared_ptr<const RowChange>> rows;
};

class CommittedRows {
 public:
  void Apply(const Commit& commit) { Apply(SharedCommit(commit)); }
  void Apply(const SharedCommit& commit);
  bool empty() const { return rows_.empty(); }
  // Returns the rows that a restart would find.
  std::vector<RowChange> All() const;
  // Returns "" if the rows match the state; otherwise describes the first difference.
  std::string FirstDifference(const State& state) const;

 private:
  std::map<RowKey, std::shared_ptr<const RowChange>> rows_;
};

}  // namespace tessera::server::scheduler
