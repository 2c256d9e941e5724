// Compares committed rows with the state that they were made of. step_test.cc and the simulation
// (tests/sim/process.cc) use it to find a change that no commit contains, which a restart would
// lose.
#include "server/scheduler/testing/durable.h"

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/core/caller.h"
#include "server/scheduler/commit.h"

namespace tessera::server::scheduler {
namespace {

// The facts of a record that the next life has to know.
auto Facts(const Session& s) { return std::tie(s.tenant, s.display_name, s.own, s.lease); }
auto Facts(const ArrayRecord& a) {
  return std::tie(a.tenant, a.session, a.state, a.deleted, a.donated_to, a.error, a.holders);
}
auto Facts(const Operation& op) {
  const bool lingers = op.ended() && !op.outstanding.empty();
  return std::tuple_cat(std::tie(op.tenant, op.name, op.state, op.error, op.sequence, op.generation,
                                 op.args, op.results, op.inputs_gone, op.peer_error),
                        std::tuple(lingers));
}
auto Facts(const Executable& x) {
  return std::tuple_cat(std::tie(x.tenant, x.key), std::tuple(x.plan != nullptr));
}
auto Facts(const NamedMesh& m) { return std::tie(m.mesh, m.devices); }
auto Facts(const Worker& w) {
  return std::tie(w.host, w.host_memory_bytes, w.cordoned, w.draining, w.cordon_reason);
}
auto Facts(const Executor& x) {
  return std::tuple_cat(std::tie(x.worker, x.info.incarnation, x.first_device, x.info.num_devices,
                                 x.fault, x.fault_accepted),
                        std::tuple(x.alive() || x.away));
}
auto Facts(const AnswerRecord& a) {
  return std::tie(a.tenant, a.call, a.request_id, a.payload, a.made, a.arrays);
}
auto Facts(const UploadedProgram& p) { return std::tie(*p.bytes); }

std::string Text(const std::string& text) { return absl::StrCat("'", text, "'"); }
std::string Text(const absl::Status& status) { return status.ToString(); }
std::string Text(absl::Duration time) { return absl::FormatDuration(time); }
std::string Text(const ir::Mesh& mesh) { return mesh.ToString(); }
std::string Text(const IdMap<uint64_t>& holders) {
  return absl::StrCat("{", absl::StrJoin(holders, ",", absl::PairFormatter("#")), "}");
}
template <class Number>
std::string Text(const std::vector<Number>& ids) {
  return absl::StrCat("(", absl::StrJoin(ids, ","), ")");
}
template <class Number>
std::enable_if_t<std::is_arithmetic_v<Number> || std::is_enum_v<Number>, std::string> Text(
    Number number) {
  return absl::StrCat(static_cast<int64_t>(number));
}
template <class... Fact>
std::string Text(const std::tuple<Fact...>& facts) {
  return std::apply([](const auto&... fact) { return absl::StrJoin({Text(fact)...}, " "); }, facts);
}
std::string Text(const RowKey& key) {
  return absl::StrCat(ToAbsl(core::NameOf(key.kind)), " ",
                      key.name.empty() ? absl::StrCat(key.id) : key.name);
}

// Describes how a record difference from its row: the facts of both, or that the row holds another
// record. Returns "" if they are equal.
template <class Record>
std::string Difference(const Record& record, const RowChange& row) {
  const auto* const row_record = std::get_if<Record>(&row.record);
  if (row_record != nullptr && Facts(record) == Facts(*row_record)) return "";
  return absl::StrCat(Text(row.key), " is ", Text(Facts(record)), "; its row says ",
                      row_record == nullptr ? "something else" : Text(Facts(*row_record)));
}

// Calls `check(key, record)` for each record that has a row, mostly in the order of the keys, until
// `check` returns a text.
template <class Check>
std::string CheckRecords(const State& s, const Check& check) {
  using core::RowKind;
  std::string found;
  const auto of_tenant = [&](RowKind kind, const auto& records) {
    for (const auto& [id, record] : records)
      if (found.empty() && record.tenant != core::kSystemTenant)
        found = check(RowKey{kind, id, {}}, record);
  };
  const auto named = [&](RowKind kind, const auto& records, const auto& name_of) {
    for (const auto& [name, record] : records)
      if (const std::string key = name_of(name); found.empty() && !key.empty())
        found = check(RowKey{kind, 0, key}, record);
  };
  const auto own_name = [](const std::string& name) { return name; };
  of_tenant(RowKind::kSession, s.ownership.sessions());
  of_tenant(RowKind::kArray, s.catalogue.arrays());
  of_tenant(RowKind::kOperation, s.order.operations());
  for (const auto& [id, x] : s.catalogue.executables())
    if (found.empty() && x.tenant != core::kSystemTenant && x.state == ExecutableState::kPlanned &&
        !x.plan_only)
      found = check(RowKey{RowKind::kExecutable, id, {}}, x);
  named(RowKind::kProgram, s.uploads.programs(), NameInRow);
  named(RowKind::kMesh, s.catalogue.meshes(), NameInRow);
  named(RowKind::kWorker, s.cluster.workers(), own_name);
  named(RowKind::kExecutor, s.cluster.executors(), own_name);
  of_tenant(RowKind::kAnswer, s.answers.all());
  return found;
}

}  // namespace

SharedCommit::SharedCommit(Commit commit) : number(commit.number) {
  rows.reserve(commit.rows.size());
  for (RowChange& row : commit.rows)
    rows.push_back(std::make_shared<const RowChange>(std::move(row)));
}

void CommittedRows::Apply(const SharedCommit& commit) {
  for (const std::shared_ptr<const RowChange>& row : commit.rows) {
    if (std::holds_alternative<std::monostate>(row->record)) {
      rows_.erase(row->key);
    } else {
      rows_.insert_or_assign(row->key, row);
    }
  }
}

std::vector<RowChange> CommittedRows::All() const {
  std::vector<RowChange> all;
  all.reserve(rows_.size());
  for (const auto& [key, row] : rows_) all.push_back(*row);
  return all;
}

std::string CommittedRows::FirstDifference(const State& state) const {
  size_t found = 0;
  // The row that most probably belongs to the next record: rows and records are both in the order
  // of their keys.
  auto row = rows_.begin();
  std::string difference = CheckRecords(state, [&](const RowKey& key, const auto& record) {
    if (row != rows_.end() && row->first < key) ++row;
    if (row == rows_.end() || row->first != key) row = rows_.find(key);
    if (row == rows_.end()) return absl::StrCat(Text(key), " is in no row");
    ++found;
    return Difference(record, *row->second);
  });
  const RowKey ids{core::RowKind::kExecutor};
  if (!difference.empty() || found + rows_.count(ids) == rows_.size()) return difference;
  for (const auto& [key, row] : rows_)
    if (key != ids && std::holds_alternative<std::monostate>(RowOf(state, key).record))
      return absl::StrCat(Text(key), " is gone, and has a row");
  return absl::StrCat(rows_.size(), " rows for ", found, " records");
}

}  // namespace tessera::server::scheduler
