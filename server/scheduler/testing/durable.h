// The rows that a state has committed, as a store would keep them, and whether they say what the
// state is.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/scheduler/effects.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// A commit whose rows several may keep.
struct SharedCommit {
  explicit SharedCommit(Commit commit);
  uint64_t number = 0;
  std::vector<std::shared_ptr<const RowChange>> rows;
};

class CommittedRows {
 public:
  void Take(const Commit& commit) { Take(SharedCommit(commit)); }
  void Take(const SharedCommit& commit);
  bool empty() const { return rows_.empty(); }
  // What a restart would find.
  std::vector<RowChange> All() const;
  // "" if the rows are those of the state; else what differs.
  std::string FirstDifference(const State& state) const;

 private:
  std::map<RowKey, std::shared_ptr<const RowChange>> rows_;
};

}  // namespace tessera::server::scheduler
