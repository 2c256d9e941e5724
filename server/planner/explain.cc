// Prints the explanation of a plan. MakePlan calls it when the request asks for one; clients see it
// through `tessera explain`, and the coordinator adds the time of the last run (core/plan_time.h).
#include "server/planner/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "base/words.h"
#include "server/core/plan_time.h"
#include "server/planner/uses.h"

namespace tessera::server::planner {
namespace {

std::string RunsAndSite(int64_t runs, const Site& site) {
  return absl::StrCat(runs > 1 ? absl::StrCat(" in ", runs, " runs") : "",
                      site.valid() ? absl::StrCat("  (", site.ToString(), ")") : "");
}

std::string AxesText(const ir::AxisList& axes) {
  return absl::StrCat("[", absl::StrJoin(axes, ","), "]");
}

bool IsSharded(const OpExplanation& op) {
  return std::any_of(op.results.begin(), op.results.end(),
                     [](const std::string& type) { return type.find('@') != std::string::npos; });
}

// Returns whether two adjacent ops can share a line. Their call sites, their depths, their
// shardings and the reasons of their shardings must be equal. The plan must not move an operand or
// a result of either op.
bool CanShareLine(const OpExplanation& a, const OpExplanation& b) {
  auto sharding = [](const OpExplanation& op) {
    const std::string last = op.results.empty() ? "" : op.results.back();
    return last.substr(std::min(last.find('['), last.size()));
  };
  return a.depth == b.depth && a.site == b.site && a.decided_by == b.decided_by &&
         sharding(a) == sharding(b) && a.moves.empty() && b.moves.empty() &&
         IsSharded(a) == IsSharded(b);
}

// Appends one line for all the ops, which can share a line, and one line for each move.
void AppendOps(absl::Span<const OpExplanation> ops, std::string* out) {
  const OpExplanation& last = ops.back();
  const std::string indent(2 + 2 * last.depth, ' ');
  absl::StrAppend(
      out, indent,
      absl::StrJoin(ops, ", ", [](std::string* o, const OpExplanation& op) { *o += op.op; }), " : ",
      absl::StrJoin(last.results, ", "));
  if (last.site.valid()) absl::StrAppend(out, "  (", last.site.ToString(), ")");
  if (!last.decided_by.empty()) absl::StrAppend(out, "  <- ", last.decided_by);
  *out += "\n";
  for (const std::string& m : last.moves) absl::StrAppend(out, indent, "    moves ", m, "\n");
}

// Returns a text such as "f32[8,4] P('x', None) 64 B a device".
std::string PlacementText(const ir::Type& type, const ir::PartitionSpec& spec,
                          const ir::Type& local) {
  return absl::StrCat(type.ToString(), " ", spec.ToString(), " ", local.num_bytes(), " B a device");
}

// Appends one line for each placement, with the names of all values that have it. The lines are in
// the order of the first value of each placement. A value without a name is called `kind` and its
// index.
void AppendPlacements(const char* kind, const std::vector<std::string>& placements,
                      const std::vector<std::string>& names, std::string* out) {
  std::vector<std::string> display_names;
  for (size_t i = 0; i < placements.size(); ++i)
    display_names.push_back(i < names.size() && !names[i].empty() ? names[i]
                                                                  : absl::StrCat(kind, " ", i));
  for (const CollapsedName& row : CollapseByKey(display_names, placements)) {
    const size_t count = row.indices.size();
    absl::StrAppend(out, "  ", row.text, count > 1 ? absl::StrCat(" (", count, ")") : "", ": ",
                    placements[row.indices[0]], "\n");
  }
}

// Appends the heading and the ops that the host runs and whose `cpu_code` is as given. Appends
// nothing if there is no such op.
void AppendHostOps(const ir::Function& f, bool cpu_code, const char* heading, std::string* out) {
  bool first = true;
  for (const HostOp& u : HostOpsOf(f)) {
    if (u.cpu_code != cpu_code) continue;
    if (std::exchange(first, false)) absl::StrAppend(out, heading, ":\n");
    absl::StrAppend(out, "  ", u.op, " ", u.bytes, " B", RunsAndSite(u.runs, u.site), "\n");
  }
}

std::string LinkText(const AxisLink& link) {
  return absl::StrCat(core::RateText(link.figures.bytes_per_s, "B/s"), " ",
                      core::SecondsText(link.figures.latency_s),
                      link.measured ? " (measured)" : " (assumed)");
}

// Appends the predicted time, the ops that take longest, and the speeds that the prediction uses.
// Mesh axes of size 1 have no links and are left out.
void AppendTime(const ir::Mesh& mesh, const Speeds& speeds, const PredictedTime& time,
                std::string* out) {
  absl::StrAppend(out, "predicted time: ", core::SecondsText(time.seconds()), " (compute ",
                  core::SecondsText(time.compute_s), ", collectives ",
                  core::SecondsText(time.collective_s), ")",
                  time.has_unknown_loops ? ", if each while loop runs once" : "", "\n");
  for (const OpTime& op : time.largest)
    absl::StrAppend(out, "  ", op.op, " ", core::SecondsText(op.seconds),
                    RunsAndSite(op.runs, op.site), "\n");
  absl::StrAppend(out, "  at ", core::RateText(speeds.flops_per_s, "FLOP/s"), ", ",
                  core::RateText(speeds.bytes_per_s, "B/s"), " of memory (",
                  speeds.measured ? "measured" : absl::StrCat("assumed for a ", speeds.kind), ")");
  std::string links;
  for (const ir::MeshAxis& axis : mesh.axes)
    if (const auto link = speeds.links.find(axis.name); axis.size > 1 && link != speeds.links.end())
      absl::StrAppend(&links, links.empty() ? "; links " : ", ", axis.name, " ",
                      LinkText(link->second));
  absl::StrAppend(out, links, "\n");
}

// Returns the prediction as JSON. `while_loops_run_once` says whether the program has while loops.
// Each run of such a loop counts as one iteration.
nlohmann::json TimeJson(const Speeds& speeds, const PredictedTime& time) {
  nlohmann::json j = {{"seconds", time.seconds()},
                      {"compute_seconds", time.compute_s},
                      {"collective_seconds", time.collective_s},
                      {"flops", time.flops},
                      {"bytes_accessed", time.bytes},
                      {"while_loops_run_once", time.has_unknown_loops},
                      {"flops_per_second", speeds.flops_per_s},
                      {"memory_bytes_per_second", speeds.bytes_per_s},
                      {"measured", speeds.measured},
                      {"largest", nlohmann::json::array()}};
  for (const OpTime& op : time.largest)
    j["largest"].push_back({{"op", op.op},
                            {"seconds", op.seconds},
                            {"times", op.runs},
                            {"collective", op.is_collective},
                            {"site", op.site.valid() ? op.site.ToString() : ""}});
  for (const auto& [axis, link] : speeds.links)
    j["links"].push_back({{"axis", axis},
                          {"bytes_per_second", link.figures.bytes_per_s},
                          {"latency_seconds", link.figures.latency_s},
                          {"measured", link.measured}});
  return j;
}

}  // namespace

// Writes the explanation for people. A program may have thousands of ops, so adjacent ops of one
// source line share a line if their shardings agree, and ops without any sharding are only counted.
std::string ExplainText(const ExplainedPlan& plan) {
  const auto& [program, partitioned, memory, speeds, time, absent_device_memory_bytes] = plan;
  const bool absent = absent_device_memory_bytes > 0;
  std::string out =
      absl::StrCat("plan of ", program.entry->name, " on mesh ", program.mesh().ToString(),
                   absent ? ", for absent devices" : "", "\n");
  std::vector<std::string> placements;
  for (size_t i = 0; i < partitioned.in.size(); ++i)
    placements.push_back(
        PlacementText(program.entry->types[i], partitioned.in[i], partitioned.fn->types[i]));
  AppendPlacements("argument", placements, program.in_names, &out);
  const std::vector<OpExplanation>& ops = partitioned.explanations;
  size_t num_unsharded = 0;
  for (size_t i = 0; i < ops.size();) {
    size_t end = i + 1;
    while (end < ops.size() && CanShareLine(ops[end - 1], ops[end])) ++end;
    // All ops of a line are like its last one: sharded or not, moved or not.
    const OpExplanation& last = ops[end - 1];
    if (IsSharded(last) || !last.moves.empty()) {
      AppendOps({ops.data() + i, end - i}, &out);
    } else {
      num_unsharded += end - i;
    }
    i = end;
  }
  if (num_unsharded > 0)
    absl::StrAppend(&out, "  ", num_unsharded, num_unsharded == 1 ? " other op" : " other ops",
                    ": whole on every device\n");
  placements.clear();
  const std::vector<ir::Type> types = program.entry->result_types(),
                              local_types = partitioned.fn->result_types();
  for (size_t i = 0; i < partitioned.out.size(); ++i)
    placements.push_back(PlacementText(types[i], partitioned.out[i], local_types[i]));
  AppendPlacements("result", placements, program.out_names, &out);
  int64_t total = 0;
  out += "collectives:\n";
  for (const CollectiveUse& u : CollectivesOf(*partitioned.fn)) {
    absl::StrAppend(&out, "  ", u.op, AxesText(u.axes), " ", u.bytes, " B",
                    RunsAndSite(u.runs, u.site), "\n");
    total += u.bytes;
  }
  absl::StrAppend(&out, "bytes sent per device: ", total, "\n");
  AppendHostOps(*partitioned.fn, /*cpu_code=*/false,
                "evaluated by the host (a device other than a CPU copies the data to the host)",
                &out);
  AppendHostOps(
      *partitioned.fn, /*cpu_code=*/true,
      "compiled for a CPU (any other device copies the data to the host, which evaluates the op)",
      &out);
  absl::StrAppend(&out, "memory per device: at most ", memory.peak, " B",
                  absent ? absl::StrCat(" of ", absent_device_memory_bytes, " B") : "",
                  " (arguments ", memory.arguments, " B, results ", memory.results, " B)\n");
  AppendTime(program.mesh(), speeds, time, &out);
  return out;
}

namespace {
nlohmann::json ValueJson(const OpExplanation& op, size_t result) {
  const ir::Type& type = op.types[result];
  nlohmann::json value = {{"dtype", std::string(ir::DTypeName(type.dtype))},
                          {"shape", type.shape},
                          {"spec", op.specs[result].ToString()}};
  if (!type.varying.empty()) value["varying"] = type.varying;
  return value;
}
nlohmann::json ExplicitJson(const ExplicitForm& form) {
  nlohmann::json j = nlohmann::json::object();
  for (const auto& [key, reshards] :
       {std::pair("operands", &form.operands), std::pair("results", &form.results)})
    for (const auto& [index, spec] : *reshards)
      j[key].push_back({{"index", index}, {"spec", spec.ToString()}});
  if (form.out_sharding) j["out_sharding"] = form.out_sharding->ToString();
  return j;
}
}  // namespace

// Writes the explanation for tools. Every argument, result and op has an entry of its own, and
// times and rates are plain numbers, so that a tool need not parse the text.
std::string ExplainJson(const ExplainedPlan& plan) {
  const auto& [program, partitioned, memory, speeds, time, absent_device_memory_bytes] = plan;
  nlohmann::json j;
  j["program"] = program.entry->name;
  for (const ir::MeshAxis& a : program.mesh().axes)
    j["mesh"].push_back(
        {{"name", a.name}, {"size", a.size}, {"type", std::string(AxisTypeName(a.type))}});
  for (const ir::PartitionSpec& p : partitioned.in) j["arguments"].push_back(p.ToString());
  for (const ir::PartitionSpec& p : partitioned.out) j["results"].push_back(p.ToString());
  if (!program.in_names.empty()) j["argument_names"] = program.in_names;
  if (!program.out_names.empty()) j["result_names"] = program.out_names;
  for (const OpExplanation& op : partitioned.explanations) {
    nlohmann::json op_json = {{"op", op.op},
                              {"depth", op.depth},
                              {"site", op.site.valid() ? op.site.ToString() : ""},
                              {"results", op.results},
                              {"decided_by", op.decided_by},
                              {"moves", op.moves},
                              {"values", nlohmann::json::array()}};
    for (size_t r = 0; r < op.types.size(); ++r) op_json["values"].push_back(ValueJson(op, r));
    if (!op.name.empty()) op_json["name"] = op.name;
    if (!op.manual.empty()) op_json["manual"] = op.manual;
    if (!op.explicit_form.empty()) op_json["explicit"] = ExplicitJson(op.explicit_form);
    j["ops"].push_back(std::move(op_json));
  }
  j["collectives"] = nlohmann::json::array();
  for (const CollectiveUse& u : CollectivesOf(*partitioned.fn))
    j["collectives"].push_back({{"op", u.op},
                                {"axes", u.axes},
                                {"group", u.group},
                                {"bytes_sent", u.bytes},
                                {"times", u.runs},
                                {"site", u.site.valid() ? u.site.ToString() : ""}});
  j["host_ops"] = nlohmann::json::array();
  for (const HostOp& u : HostOpsOf(*partitioned.fn))
    j["host_ops"].push_back({{"op", u.op},
                             {"bytes_copied", u.bytes},
                             {"cpu_code", u.cpu_code},
                             {"times", u.runs},
                             {"site", u.site.valid() ? u.site.ToString() : ""}});
  j["memory"] = {{"peak_bytes", memory.peak},
                 {"argument_bytes", memory.arguments},
                 {"result_bytes", memory.results}};
  if (absent_device_memory_bytes > 0)
    j["memory"]["absent_device_bytes"] = absent_device_memory_bytes;
  j["predicted"] = TimeJson(speeds, time);
  // Names come from clients and may contain invalid UTF-8, which is replaced.
  return j.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera::server::planner
