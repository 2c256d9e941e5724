// The rows that a state has committed, as a store would keep them, and whether they say what the
// state is.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "server/scheduler/effects.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

class CommittedRows {
 public:
  void Take(const Commit& commit);
  // What a restart would find.
  std::vector<RowChange> All() const;
  // "" if the rows are those of the state; else what differs.
  std::string FirstDifference(const State& state) const;

 private:
  std::map<RowKey, RowChange> rows_;
};

}  // namespace tessera::server::scheduler
