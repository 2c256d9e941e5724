// Turns the records that a step has marked as changed into the rows of a Commit. Finish (step.cc)
// calls CommitChanges at the end of each step. server/rows encodes the rows, and restore.cc reads
// them in the next life.
#include "server/scheduler/commit.h"

#include <algorithm>

#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

// Returns the row of a key: a copy of the record, or no record if the object is gone. Parts that
// begin anew in the next life are left out where a copy would be large or misleading: the arrays
// and operations of a session, plan-only executables, and the reason of an executor that is away.
RowChange RowOf(const State& state, const RowKey& key) {
  RowChange row{key, {}};
  switch (key.kind) {
    case core::RowKind::kSession:
      if (const Session* s = FindIn(state.ownership.sessions(), key.id)) {
        Session kept;
        kept.tenant = s->tenant;
        kept.display_name = s->display_name;
        kept.own = s->own;
        kept.lease = s->lease;
        row.record = std::move(kept);
      }
      break;
    case core::RowKind::kArray:
      if (const ArrayRecord* a = FindIn(state.catalogue.arrays(), key.id)) row.record = *a;
      break;
    case core::RowKind::kOperation:
      if (const Operation* op = FindIn(state.order.operations(), key.id)) row.record = *op;
      break;
    case core::RowKind::kExecutable:
      if (const Executable* x = FindIn(state.catalogue.executables(), key.id);
          x != nullptr && !x->plan_only)
        row.record = *x;
      break;
    case core::RowKind::kMesh:
      if (const NamedMesh* mesh = FindIn(state.catalogue.meshes(), OwnerAndName(key.name)))
        row.record = *mesh;
      break;
    case core::RowKind::kWorker:
      if (const Worker* w = FindIn(state.cluster.workers(), key.name)) row.record = *w;
      break;
    case core::RowKind::kExecutor:
      if (key.name.empty()) {
        Executor ids;
        ids.first_device = state.cluster.num_ids();
        row.record = std::move(ids);
      } else if (const Executor* x = FindIn(state.cluster.executors(), key.name)) {
        Executor record = *x;
        if (record.away) record.lost_reason.clear();  // so that it is away in the next life, too
        row.record = std::move(record);
      }
      break;
    case core::RowKind::kAnswer:
      if (const AnswerRecord* a = FindIn(state.answers.all(), key.id)) row.record = *a;
      break;
    case core::RowKind::kProgram:
      if (const UploadedProgram* p = state.uploads.FindProgram(OwnerAndName(key.name)))
        row.record = *p;
      break;
  }
  return row;
}

void Machine::CommitChanges() {
  if (changed_.empty()) return;
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  Commit commit{++s_.last_commit, {}};
  commit.rows.reserve(changed_.size());
  for (const RowKey& key : changed_) commit.rows.push_back(RowOf(s_, key));
  effects_.emplace_back(std::move(commit));
}

}  // namespace tessera::server::scheduler
