// Scopes and checks for programs that are correct but slow or dangerous. control_flow.cc, flat.cc
// and compile.cc call the checks, which look at traced functions and at plans.
#include "client/trace/strict.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/plan/text.h"
#include "client/sharding.h"
#include "ir/any_op.h"
#include "ir/op_def.h"

namespace tessera {
namespace {

constexpr int64_t kNoBudget = std::numeric_limits<int64_t>::max();
thread_local bool strict_predicates = false;
thread_local int64_t replicated_bytes_max = kNoBudget;

}  // namespace

strict_collectives::strict_collectives(bool strict)
    : saved_(std::exchange(strict_predicates, strict)) {}
strict_collectives::~strict_collectives() { strict_predicates = saved_; }

replication_budget::replication_budget(int64_t bytes)
    : saved_(std::exchange(replicated_bytes_max, bytes)) {}
replication_budget::~replication_budget() { replicated_bytes_max = saved_; }

namespace internal {
namespace {

const Site& SiteOfOp(const ir::Function& f, const ir::Op& op) {
  return f.sites[&op - f.ops.data()];
}
std::string SiteText(const Site& site) {
  return site.valid() ? absl::StrCat(" (", site.ToString(), ")") : "";
}
std::string AxesText(const ir::AxisSet& axes) {
  return absl::StrCat("'", absl::StrJoin(axes, "', '"), "'");
}

// Returns the first collective over some of the axes, as "psum over 'x' (model.cc:7)", or "" if
// there is none. Stores the axes concerned in `shared`.
std::string DescribeCollectiveOver(const ir::Function& f, const ir::AxisSet& axes,
                                   ir::AxisSet* shared) {
  std::string found;
  ir::AnyOp(f, [&](const ir::Function& g, const ir::Op& op) {
    if (op.def->collective == ir::CollectiveKind::kNone ||
        op.def->collective == ir::CollectiveKind::kAxisIndex)
      return false;
    for (const std::string& axis : op.attrs.Strings("axes"))
      if (axes.contains(axis)) shared->insert(axis);
    if (shared->empty()) return false;
    found = absl::StrCat(ToAbsl(op.def->lax_name), " over ", AxesText(*shared),
                         SiteText(SiteOfOp(g, op)));
    return true;
  });
  return found;
}

bool IsAllReduce(const ir::Op& op) { return op.def->collective == ir::CollectiveKind::kAllReduce; }

}  // namespace

void CheckPredicate(const char* name, const Type& predicate,
                    const std::vector<ir::FunctionRef>& functions, const Site& site) {
  if (predicate.varying.empty()) return;
  for (const ir::FunctionRef& f : functions) {
    ir::AxisSet shared;
    const std::string collective = DescribeCollectiveOver(*f, predicate.varying, &shared);
    if (collective.empty()) continue;
    const std::string text =
        absl::StrCat(name, ": the predicate varies over ", AxesText(shared),
                     ", and the code that it controls contains ", collective,
                     ": devices that decide differently wait for each other forever. Make the "
                     "predicate equal along ",
                     AxesText(shared), ", by a pmax, or move the collective out");
    if (strict_predicates) ThrowError(ErrorKind::kValueError, site, text);
    AddDiagnostic(text, site);
    return;
  }
}

void ReportInsertedPsums(const ir::Function& linear, const ir::Function& transposed,
                         const Site& site) {
  std::set<std::string> own_sites;
  ir::AnyOp(linear, [&](const ir::Function& f, const ir::Op& op) {
    if (IsAllReduce(op)) own_sites.insert(SiteOfOp(f, op).ToString());
    return false;
  });
  ir::AnyOp(transposed, [&](const ir::Function& f, const ir::Op& op) {
    const Site& at = SiteOfOp(f, op);
    if (!IsAllReduce(op) || own_sites.count(at.ToString()) > 0) return false;
    const Type& type = f.types[op.results[0]];
    const std::vector<std::string>& axes = op.attrs.Strings("axes");
    AddDiagnostic(
        absl::StrCat(
            "differentiation inserts a psum over ", AxesText(ir::AxisSet(axes.begin(), axes.end())),
            " of a cotangent, ", type.ToString(), ", ",
            BytesText(static_cast<double>(type.num_bytes())),
            " a device: the value that it belongs to is the same along these axes and is combined "
            "with a varying value",
            SiteText(at),
            ". Cast the value to varying first, by pcast, to get cotangents that are not summed"),
        at.valid() ? at : site);
    return false;
  });
}

bool HasReplicationBudget() { return replicated_bytes_max != kNoBudget; }

// Looks at the all_gathers and the results of the plan, and names the largest value that exceeds
// the budget in the error. An all_gather at a call site of the user's own all_gather is intended
// and is not counted; neither is a result with a given sharding.
void CheckReplication(const TracedProgram& traced, const api::CompileReply& plan,
                      const std::string& name, const Site& site) {
  if (!HasReplicationBudget()) return;
  std::set<std::string> gather_sites;
  ir::AnyOp(*traced.fn(), [&](const ir::Function& f, const ir::Op& op) {
    if (op.def->collective == ir::CollectiveKind::kAllGather)
      gather_sites.insert(SiteOfOp(f, op).ToString());
    return false;
  });
  double largest = static_cast<double>(replicated_bytes_max);
  std::string what;
  const nlohmann::json explained = nlohmann::json::parse(plan.explain_json, nullptr,
                                                         /*allow_exceptions=*/false);
  for (const nlohmann::json& collective : explained.value("collectives", nlohmann::json::array())) {
    const std::string at = collective.value("site", "");
    const double group = collective.value("group", 1.0);
    if (collective.value("op", "") != "all_gather" || group < 2 || gather_sites.count(at) > 0)
      continue;
    // A device sends its part once to each of the other devices of its group, so the whole value
    // has `group` such parts.
    const double bytes = collective.value("bytes_sent", 0.0) * group / (group - 1);
    if (bytes <= largest) continue;
    largest = bytes;
    what = absl::StrCat("it gathers ", BytesText(bytes), " along '",
                        absl::StrJoin(collective.value("axes", std::vector<std::string>{}), "', '"),
                        "'", at.empty() ? "" : absl::StrCat(", for the op at ", at));
  }
  for (size_t i = 0; i < plan.out.size(); ++i) {
    const api::ArraySpec& out = plan.out[i];
    const bool has_out_sharding =
        i < traced.program.out_shardings.size() && traced.program.out_shardings[i];
    const auto is_cut = [](const ir::AxisList& axes) { return !axes.empty(); };
    if (has_out_sharding || out.placement.devices.size() < 2 ||
        std::any_of(out.placement.spec.dims.begin(), out.placement.spec.dims.end(), is_cut))
      continue;
    const auto bytes = static_cast<double>(ir::MakeType(out.dtype, out.shape).num_bytes());
    if (bytes <= largest) continue;
    largest = bytes;
    what = absl::StrCat(ir::ResultText(traced.program, i), ", ",
                        ir::MakeType(out.dtype, out.shape).ToString(), " of ", BytesText(bytes),
                        ", is whole on each");
  }
  if (what.empty()) return;
  ThrowError(ErrorKind::kLimitExceeded, site, name, ": the plan for ", traced.mesh.ToString(),
             " replicates more than replication_budget, ",
             BytesText(static_cast<double>(replicated_bytes_max)), ": ", what,
             ". Constrain it with with_sharding_constraint or out_shardings, or allow more; "
             "explain shows the plan");
}

}  // namespace internal
}  // namespace tessera
