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

std::string TimesAndSite(int64_t times, const Site& site) {
  return absl::StrCat(times > 1 ? absl::StrCat(" in ", times, " runs") : "",
                      site.valid() ? absl::StrCat("  (", site.ToString(), ")") : "");
}

std::string Axes(const ir::AxisList& axes) {
  return absl::StrCat("[", absl::StrJoin(axes, ","), "]");
}

bool IsSharded(const OpExplanation& n) {
  return std::any_of(n.results.begin(), n.results.end(),
                     [](const std::string& t) { return t.find('@') != std::string::npos; });
}

// Returns whether two adjacent ops can share a line. They can if they have the same call site and
// depth and equal shardings that the same thing decided, and no operand or result of theirs is
// moved.
bool CanShareLine(const OpExplanation& a, const OpExplanation& b) {
  auto sharding = [](const OpExplanation& n) {
    const std::string last = n.results.empty() ? "" : n.results.back();
    return last.substr(std::min(last.find('['), last.size()));
  };
  return a.depth == b.depth && a.site == b.site && a.why == b.why && sharding(a) == sharding(b) &&
         a.moves.empty() && b.moves.empty() && IsSharded(a) == IsSharded(b);
}

// Appends one line for the ops of `notes` and one line for each move, and returns 0. If nothing is
// sharded or moved, appends nothing and returns the number of ops.
int64_t AppendNotes(absl::Span<const OpExplanation> notes, std::string* out) {
  const OpExplanation& last = notes.back();
  if (!IsSharded(last) && last.moves.empty()) return static_cast<int64_t>(notes.size());
  const std::string indent(2 + 2 * last.depth, ' ');
  absl::StrAppend(
      out, indent,
      absl::StrJoin(notes, ", ", [](std::string* o, const OpExplanation& n) { *o += n.op; }), " : ",
      absl::StrJoin(last.results, ", "));
  if (last.site.valid()) absl::StrAppend(out, "  (", last.site.ToString(), ")");
  if (!last.why.empty()) absl::StrAppend(out, "  <- ", last.why);
  *out += "\n";
  for (const std::string& m : last.moves) absl::StrAppend(out, indent, "    moves ", m, "\n");
  return 0;
}

// Returns a text such as "f32[8,4] P('x', None) 64 B a device".
std::string PlacementText(const ir::Type& type, const ir::PartitionSpec& spec,
                          const ir::Type& local) {
  return absl::StrCat(type.ToString(), " ", spec.ToString(), " ", local.num_bytes(), " B a device");
}

// Appends one line for all values with the same placement, in the order of their first values.
void AppendRows(const char* what, const std::vector<std::string>& placements,
                const std::vector<std::string>& names, std::string* out) {
  std::vector<std::string> display_names;
  for (size_t i = 0; i < placements.size(); ++i)
    display_names.push_back(i < names.size() && !names[i].empty() ? names[i]
                                                                  : absl::StrCat(what, " ", i));
  for (const CollapsedName& row : CollapseByKey(display_names, placements)) {
    const size_t count = row.indices.size();
    absl::StrAppend(out, "  ", row.text, count > 1 ? absl::StrCat(" (", count, ")") : "", ": ",
                    placements[row.indices[0]], "\n");
  }
}

void AppendHostOps(const ir::Function& f, bool cpu_code, const char* what, std::string* out) {
  bool first = true;
  for (const HostUse& u : HostOpsOf(f)) {
    if (u.cpu_code != cpu_code) continue;
    if (std::exchange(first, false)) absl::StrAppend(out, what, ":\n");
    absl::StrAppend(out, "  ", u.op, " ", u.bytes, " B", TimesAndSite(u.times, u.site), "\n");
  }
}

std::string LinkText(const AxisLink& link) {
  return absl::StrCat(core::RateText(link.figures.bytes_per_s, "B/s"), " ",
                      core::SecondsText(link.figures.latency_s),
                      link.measured ? " (measured)" : " (assumed)");
}

// Appends the predicted time, the ops that take longest, and the figures used. Mesh axes of size 1
// have no links and are left out.
void AppendTime(const ir::Mesh& mesh, const Figures& figures, const PredictedTime& time,
                std::string* out) {
  absl::StrAppend(out, "predicted time: ", core::SecondsText(time.seconds()), " (compute ",
                  core::SecondsText(time.compute_s), ", collectives ",
                  core::SecondsText(time.exchange_s), ")",
                  time.has_unknown_loops ? ", if each while loop runs once" : "", "\n");
  for (const OpTime& op : time.largest)
    absl::StrAppend(out, "  ", op.op, " ", core::SecondsText(op.seconds),
                    TimesAndSite(op.runs, op.site), "\n");
  absl::StrAppend(out, "  at ", core::RateText(figures.flops_per_s, "FLOP/s"), ", ",
                  core::RateText(figures.bytes_per_s, "B/s"), " of memory (",
                  figures.measured ? "measured" : absl::StrCat("assumed for a ", figures.kind),
                  ")");
  std::string links;
  for (const ir::MeshAxis& axis : mesh.axes)
    if (const auto link = figures.links.find(axis.name);
        axis.size > 1 && link != figures.links.end())
      absl::StrAppend(&links, links.empty() ? "; links " : ", ", axis.name, " ",
                      LinkText(link->second));
  absl::StrAppend(out, links, "\n");
}

nlohmann::json TimeJson(const Figures& figures, const PredictedTime& time) {
  nlohmann::json j = {{"seconds", time.seconds()},
                      {"compute_seconds", time.compute_s},
                      {"collective_seconds", time.exchange_s},
                      {"flops", time.flops},
                      {"bytes_accessed", time.bytes},
                      {"while_loops_run_once", time.has_unknown_loops},
                      {"flops_per_second", figures.flops_per_s},
                      {"memory_bytes_per_second", figures.bytes_per_s},
                      {"measured", figures.measured},
                      {"largest", nlohmann::json::array()}};
  for (const OpTime& op : time.largest)
    j["largest"].push_back({{"op", op.op},
                            {"seconds", op.seconds},
                            {"times", op.runs},
                            {"collective", op.is_exchange},
                            {"site", op.site.valid() ? op.site.ToString() : ""}});
  for (const auto& [axis, link] : figures.links)
    j["links"].push_back({{"axis", axis},
                          {"bytes_per_second", link.figures.bytes_per_s},
                          {"latency_seconds", link.figures.latency_s},
                          {"measured", link.measured}});
  return j;
}

}  // namespace

// Writes the explanation for people. A program may have thousands of ops, so adjacent ops of one
// source line share a line if their shardings agree, and ops without any sharding are only counted.
std::string ExplainText(const Explained& plan) {
  const auto& [program, device, memory, figures, time, absent_device_memory_bytes] = plan;
  const bool absent = absent_device_memory_bytes > 0;
  std::string out =
      absl::StrCat("plan of ", program.entry->name, " on mesh ", program.mesh().ToString(),
                   absent ? ", for absent devices" : "", "\n");
  std::vector<std::string> placements;
  for (size_t i = 0; i < device.in.size(); ++i)
    placements.push_back(PlacementText(program.entry->types[i], device.in[i], device.fn->types[i]));
  AppendRows("argument", placements, program.in_names, &out);
  int64_t num_unsharded = 0;
  for (size_t i = 0; i < device.notes.size();) {
    size_t end = i + 1;
    while (end < device.notes.size() && CanShareLine(device.notes[end - 1], device.notes[end]))
      ++end;
    num_unsharded += AppendNotes({device.notes.data() + i, end - i}, &out);
    i = end;
  }
  if (num_unsharded > 0)
    absl::StrAppend(&out, "  ", num_unsharded, num_unsharded == 1 ? " other op" : " other ops",
                    ": whole on every device\n");
  placements.clear();
  const std::vector<ir::Type> types = program.entry->result_types(),
                              local_types = device.fn->result_types();
  for (size_t i = 0; i < device.out.size(); ++i)
    placements.push_back(PlacementText(types[i], device.out[i], local_types[i]));
  AppendRows("result", placements, program.out_names, &out);
  int64_t total = 0;
  out += "collectives:\n";
  for (const CollectiveUse& u : CollectivesOf(*device.fn)) {
    absl::StrAppend(&out, "  ", u.op, Axes(u.axes), " ", u.bytes, " B",
                    TimesAndSite(u.times, u.site), "\n");
    total += u.bytes;
  }
  absl::StrAppend(&out, "bytes sent per device: ", total, "\n");
  AppendHostOps(*device.fn, /*cpu_code=*/false,
                "evaluated by the host (a device that is not a CPU copies the data to it)", &out);
  AppendHostOps(
      *device.fn, /*cpu_code=*/true,
      "compiled on a CPU; otherwise evaluated by the host, to which the device copies the data",
      &out);
  absl::StrAppend(&out, "memory per device: ", memory.peak, " B at most",
                  absent ? absl::StrCat(" of ", absent_device_memory_bytes) : "", " (arguments ",
                  memory.arguments, ", results ", memory.results, ")\n");
  AppendTime(program.mesh(), figures, time, &out);
  return out;
}

namespace {
nlohmann::json ValueJson(const OpExplanation& n, size_t result) {
  const ir::Type& type = n.types[result];
  nlohmann::json value = {{"dtype", std::string(ir::DTypeName(type.dtype))},
                          {"shape", type.shape},
                          {"spec", n.specs[result].ToString()}};
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
std::string ExplainJson(const Explained& plan) {
  const auto& [program, device, memory, figures, time, absent_device_memory_bytes] = plan;
  nlohmann::json j;
  j["program"] = program.entry->name;
  for (const ir::MeshAxis& a : program.mesh().axes)
    j["mesh"].push_back(
        {{"name", a.name}, {"size", a.size}, {"type", std::string(AxisTypeName(a.type))}});
  for (const ir::PartitionSpec& p : device.in) j["arguments"].push_back(p.ToString());
  for (const ir::PartitionSpec& p : device.out) j["results"].push_back(p.ToString());
  if (!program.in_names.empty()) j["argument_names"] = program.in_names;
  if (!program.out_names.empty()) j["result_names"] = program.out_names;
  for (const OpExplanation& n : device.notes) {
    nlohmann::json op = {{"op", n.op},
                         {"depth", n.depth},
                         {"site", n.site.valid() ? n.site.ToString() : ""},
                         {"results", n.results},
                         {"decided_by", n.why},
                         {"moves", n.moves},
                         {"values", nlohmann::json::array()}};
    for (size_t r = 0; r < n.types.size(); ++r) op["values"].push_back(ValueJson(n, r));
    if (!n.name.empty()) op["name"] = n.name;
    if (!n.manual.empty()) op["manual"] = n.manual;
    if (!n.explicit_form.empty()) op["explicit"] = ExplicitJson(n.explicit_form);
    j["ops"].push_back(std::move(op));
  }
  j["collectives"] = nlohmann::json::array();
  for (const CollectiveUse& u : CollectivesOf(*device.fn))
    j["collectives"].push_back({{"op", u.op},
                                {"axes", u.axes},
                                {"group", u.group},
                                {"bytes_sent", u.bytes},
                                {"times", u.times},
                                {"site", u.site.valid() ? u.site.ToString() : ""}});
  j["host_ops"] = nlohmann::json::array();
  for (const HostUse& u : HostOpsOf(*device.fn))
    j["host_ops"].push_back({{"op", u.op},
                             {"bytes_copied", u.bytes},
                             {"cpu_code", u.cpu_code},
                             {"times", u.times},
                             {"site", u.site.valid() ? u.site.ToString() : ""}});
  j["memory"] = {{"peak_bytes", memory.peak},
                 {"argument_bytes", memory.arguments},
                 {"result_bytes", memory.results}};
  if (absent_device_memory_bytes > 0)
    j["memory"]["absent_device_bytes"] = absent_device_memory_bytes;
  j["predicted"] = TimeJson(figures, time);
  // Names come from clients and may contain invalid UTF-8, which is replaced.
  return j.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera::server::planner
