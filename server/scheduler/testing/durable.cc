#include "server/scheduler/testing/durable.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/core/caller.h"

namespace tessera::server::scheduler {
namespace {

// What the next life has to know of a record.
std::string Text(std::monostate) { return "(none)"; }
std::string Text(const Session& s) {
  return absl::StrCat(s.tenant, " ", s.display_name, " ", s.own, " ",
                      absl::FormatDuration(s.lease));
}
std::string Text(const ArrayRecord& a) {
  std::string out =
      absl::StrCat(a.tenant, " ", a.session, " state=", static_cast<int>(a.state),
                   " deleted=", a.deleted, " donated_to=", a.donated_to, " ", a.error.ToString());
  for (const auto& [device, incarnation] : a.holders)
    absl::StrAppend(&out, " ", device, "#", incarnation);
  return out;
}
std::string Text(const Operation& op) {
  return absl::StrCat(op.tenant, " ", op.name, " state=", static_cast<int>(op.state), " ",
                      op.error.ToString(), " sequence=", op.sequence, " generation=", op.generation,
                      " (", absl::StrJoin(op.args, ","), ")->(", absl::StrJoin(op.results, ","),
                      ") inputs_gone=", op.inputs_gone,
                      op.ended() && !op.outstanding.empty() ? " lingers" : "");
}
std::string Text(const Executable& x) {
  return absl::StrCat(x.tenant, " ", x.key, " ", x.plan != nullptr);
}
std::string Text(const NamedMesh& m) {
  return absl::StrCat(m.mesh.ToString(), " ", absl::StrJoin(m.devices, ","));
}
std::string Text(const Worker& w) {
  return absl::StrCat(w.host, " ", w.host_memory_bytes, " ", w.cordoned, w.draining, " ",
                      w.cordon_reason);
}
std::string Text(const Executor& x) {
  return absl::StrCat(x.worker, " #", x.info.incarnation, " ", x.first_device, "x",
                      x.info.num_devices, x.alive() || x.away ? "" : " lost");
}
std::string Text(const AnswerRecord& a) {
  return absl::StrCat(a.tenant, " ", static_cast<int>(a.call), " ", a.request_id, " '", a.payload,
                      "' made ", a.made, " (", absl::StrJoin(a.arrays, ","), ")");
}
std::string Text(const UploadedProgram& p) { return *p.bytes; }
std::string Text(const RowChange& row) {
  return std::visit([](const auto& record) { return Text(record); }, row.record);
}
std::string Text(const RowKey& key) {
  return absl::StrCat(ToAbsl(core::NameOf(key.kind)), " ",
                      key.name.empty() ? absl::StrCat(key.id) : key.name);
}

std::vector<RowKey> KeysOf(const State& s) {
  using core::RowKind;
  std::vector<RowKey> keys;
  const auto add = [&](RowKind kind, uint64_t id, const std::string& tenant) {
    if (tenant != core::kSystemTenant) keys.push_back({kind, id});
  };
  for (const auto& [id, session] : s.ownership.sessions())
    add(RowKind::kSession, id, session.tenant);
  for (const auto& [id, a] : s.catalogue.arrays()) add(RowKind::kArray, id, a.tenant);
  for (const auto& [id, op] : s.order.operations()) add(RowKind::kOperation, id, op.tenant);
  for (const auto& [id, x] : s.catalogue.executables())
    if (x.state == ExecutableState::kPlanned && !x.plan_only)
      add(RowKind::kExecutable, id, x.tenant);
  for (const auto& [number, answer] : s.answers.all()) add(RowKind::kAnswer, number, answer.tenant);
  for (const auto& [name, mesh] : s.catalogue.meshes())
    keys.push_back({RowKind::kMesh, 0, NameInRow(name)});
  for (const auto& [name, program] : s.uploads.programs())
    keys.push_back({RowKind::kProgram, 0, NameInRow(name)});
  for (const auto& [name, worker] : s.cluster.workers())
    if (!name.empty()) keys.push_back({RowKind::kWorker, 0, name});
  for (const auto& [name, x] : s.cluster.executors())
    if (!name.empty()) keys.push_back({RowKind::kExecutor, 0, name});
  return keys;
}

}  // namespace

void CommittedRows::Take(const Commit& commit) {
  for (const RowChange& row : commit.rows) {
    if (std::holds_alternative<std::monostate>(row.record)) {
      rows_.erase(row.key);
    } else {
      rows_.insert_or_assign(row.key, row);
    }
  }
}

std::vector<RowChange> CommittedRows::All() const {
  std::vector<RowChange> all;
  for (const auto& [key, row] : rows_) all.push_back(row);
  return all;
}

std::string CommittedRows::FirstDifference(const State& state) const {
  size_t found = 0;
  for (const RowKey& key : KeysOf(state)) {
    const auto row = rows_.find(key);
    if (row == rows_.end()) return absl::StrCat(Text(key), " is in no row");
    ++found;
    const std::string is = Text(RowOf(state, key)), says = Text(row->second);
    if (is != says) return absl::StrCat(Text(key), " is ", is, "; its row says ", says);
  }
  const RowKey ids{core::RowKind::kExecutor};
  if (found + rows_.count(ids) == rows_.size()) return "";
  for (const auto& [key, row] : rows_)
    if (key != ids && std::holds_alternative<std::monostate>(RowOf(state, key).record))
      return absl::StrCat(Text(key), " is gone, and has a row");
  return absl::StrCat(rows_.size(), " rows for ", found, " records");
}

}  // namespace tessera::server::scheduler
