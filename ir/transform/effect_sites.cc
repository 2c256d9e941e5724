// Finds the ops with effects in a program. It decides for each from where its operands are taken,
// and whether the record has to be a log.
#include "ir/transform/effect_sites.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/transform/apply_rule.h"

namespace tessera::ir {
namespace {

constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
// A constant of at most this many bytes is evaluated here and is no result of the program. The
// bound also holds for the values from which the constant is made.
constexpr int64_t kConstantBytesMax = 1 << 20;

// Returns the product of two numbers of iterations, each of which may be kUnbounded.
int64_t Product(int64_t a, int64_t b) {
  int64_t out = 0;
  if (a == 0 || b == 0) return 0;
  if (a == kUnbounded || b == kUnbounded || __builtin_mul_overflow(a, b, &out)) return kUnbounded;
  return out;
}

// Returns how often the body runs when the op of the use runs.
int64_t TripCount(const FunctionUse& use) {
  const int64_t n = use.owner == nullptr ? 1 : use.owner->flow.trip_count;
  return n == kUnknownTripCount ? kUnbounded : n;
}

// Returns the value outside of the region that the region's value `v` is in every iteration, if
// there is one.
std::optional<ValueId> SameValueOutside(const FunctionUse& use, ValueId v) {
  if (use.outer == nullptr || v >= use.f.num_params || use.IsManual()) return std::nullopt;
  const RegionDataFlow& flow = use.owner->flow.regions[use.region];
  for (const auto& [param, result] : flow.carries)
    if (param == v && use.f.results[result] != v) return std::nullopt;
  for (const DataFlowEdge& edge : flow.operands)
    if (edge.inner == v && !edge.leading_dim) return use.outer->f.ops[use.op].operands[edge.outer];
  return std::nullopt;
}

// Refuses effects where their operands cannot be recorded.
void CheckRegions(const Function& f, size_t i) {
  const Op& op = f.ops[i];
  const std::string site = f.sites[i].valid() ? absl::StrCat(" (", f.sites[i].ToString(), ")") : "";
  for (size_t k = 0; k < op.regions.size(); ++k) {
    if (!op.regions[k]->has_effects) continue;
    if (op.def->RoleOf(k) == RegionRole::kPredicate)
      Throw(ErrorKind::kNotImplemented,
            absl::StrCat(ToAbsl(op.def->lax_name),
                         ": cond_fun has an effect (a print or a callback), which is not "
                         "implemented; print in body_fun instead",
                         site));
    if (!op.def->has_planned_regions() || op.def->RoleOf(k) == RegionRole::kRule)
      Throw(ErrorKind::kNotImplemented,
            absl::StrCat(ToAbsl(op.def->lax_name),
                         ": its function of scalars has an effect (a print or a callback), which "
                         "is not implemented; print the operands or the results instead",
                         site));
  }
}

// Returns the elements of a value that cheap ops make from constants alone, or nullopt for any
// other value. Finds the ops that the value needs, from the last one to the first, and evaluates
// them.
std::optional<Array> ConstantOf(const Function& f, ValueId v) {
  std::vector<bool> needed(f.types.size(), false);
  std::vector<size_t> ops;
  needed[v] = true;
  for (size_t i = f.ops.size(); i-- > 0;) {
    const Op& op = f.ops[i];
    if (std::none_of(op.results.begin(), op.results.end(),
                     [&](ValueId result) { return needed[result]; }))
      continue;
    const Family family = op.def->family;
    if (!op.regions.empty() || (family != Family::kElementwise && family != Family::kDataMovement &&
                                family != Family::kCast))
      return std::nullopt;
    for (const ValueId result : op.results)
      if (f.types[result].num_bytes() > kConstantBytesMax) return std::nullopt;
    for (const ValueId operand : op.operands) needed[operand] = true;
    ops.push_back(i);
  }
  if (std::find(needed.begin(), needed.begin() + f.num_params, true) !=
      needed.begin() + f.num_params)
    return std::nullopt;
  Builder b(f.scope, "constant");
  std::vector<Value> env(f.types.size());
  for (auto i = ops.rbegin(); i != ops.rend(); ++i) {
    const Op& op = f.ops[*i];
    const std::vector<Value> out = walk::EmitPlain(b, op, ElementsAt(env, op.operands));
    for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
  }
  absl::StatusOr<std::vector<Array>> value = Evaluator().Run(*b.Build({env[v]}), {});
  if (!value.ok()) return std::nullopt;
  return std::move(value->at(0));
}

// Returns from where the record takes the operand `v` of a site. A value that is the same in all
// iterations is taken from outside of the loops, if it exists there. Any other value is taken from
// as far outside as the function that writes the log, so that no branch has to return it.
EffectSource SourceOf(const EffectSite& site, ValueId v) {
  EffectSource logged, out;
  out.depth = site.use().depth;
  out.value = v;
  logged = out;
  while (const std::optional<ValueId> outside =
             SameValueOutside(*site.path[out.depth], out.value)) {
    --out.depth;
    out.value = *outside;
    if (out.depth >= site.log_depth) logged = out;
  }
  out.constant = ConstantOf(site.path[out.depth]->f, out.value);
  const auto is_loop = [](const FunctionUse* use) { return use->IsLoop(); };
  const bool in_loop = std::any_of(site.path.begin(), site.path.begin() + out.depth + 1, is_loop);
  if (in_loop && !out.constant) return logged;
  out.is_logged = false;
  return out;
}

// Returns the function that has the effect of `op`. It stands in no mesh: it gets the shards of
// one device.
FunctionRef EffectOf(const Op& op, const std::vector<Type>& operands) {
  Builder b(Scope{}, "effect");
  std::vector<Value> params;
  for (const Type& t : operands) params.push_back(b.Param(MakeType(t.dtype, t.shape)));
  b.Emit(*op.def, params, op.attrs);
  return b.Build({});
}

}  // namespace

EffectFinder::EffectFinder(const Function& entry, const RecordLimits& limits)
    : limits_(limits), entry_(std::make_unique<FunctionUse>(entry)) {
  Visit(*entry_, {entry_.get()}, /*group=*/0);
}

// Adds the sites of the use and of the uses in it. `path` leads to the use. All sites in one op
// of the entry form a group, whose number is the index of that op. The order of the sites is that
// of the program, so the sites in the regions of an op are consecutive.
void EffectFinder::Visit(FunctionUse& use, const std::vector<const FunctionUse*>& path, int group) {
  for (size_t i = 0; i < use.f.ops.size(); ++i) {
    const Op& op = use.f.ops[i];
    if (!HasEffects(op)) continue;
    if (use.depth == 0) group = static_cast<int>(i);
    if (op.def->has_effect) {
      AddSite(use, path, i, group);
      continue;
    }
    CheckRegions(use.f, i);
    OpWithEffects& inner = use.ops[i];
    inner.def = op.def;
    inner.flow = DataFlowOf(use.f, op);
    inner.first_site = num_sites();
    inner.uses.resize(op.regions.size());
    for (size_t k = 0; k < op.regions.size(); ++k) {
      if (!op.regions[k]->has_effects) continue;
      inner.uses[k] = std::make_unique<FunctionUse>(*op.regions[k]);
      FunctionUse& region = *inner.uses[k];
      region.owner = &inner;
      region.outer = &use;
      region.op = i;
      region.region = k;
      region.depth = use.depth + 1;
      region.manual_depth = use.manual_depth + (region.IsManual() ? 1 : 0);
      std::vector<const FunctionUse*> inner_path = path;
      inner_path.push_back(&region);
      Visit(region, inner_path, group);
    }
    inner.end_site = num_sites();
    if (use.depth == 0) OrderSites(inner.first_site);
  }
}

// Adds the site of op `i` of the use, unless the op never runs.
void EffectFinder::AddSite(FunctionUse& use, const std::vector<const FunctionUse*>& path, size_t i,
                           int group) {
  EffectSite site;
  site.path = path;
  site.op = i;
  int64_t bound = 1;
  for (const FunctionUse* around : path) {
    bound = Product(bound, TripCount(*around));
    if (around->IsLoop() || (around->IsManual() && site.has_log())) site.log_depth = around->depth;
  }
  if (bound == 0) return;
  const Function& f = use.f;
  const Op& op = f.ops[i];
  const std::vector<Type> types = ElementsAt(f.types, op.operands);
  EffectRecord& record = site.record;
  record.site = f.sites[i];
  record.group = group;
  if (op.def->num_calls != nullptr)
    record.calls = op.def->num_calls({*op.def, f.scope, types, op.attrs, op.regions});
  for (const ValueId v : op.operands) {
    site.sources.push_back(SourceOf(site, v));
    const EffectSource& source = site.sources.back();
    if (!source.constant && source.is_logged) record.bytes += f.types[v].num_bytes();
  }
  for (const FunctionUse* around : path)
    if (around->IsManual())
      record.devices.push_back(around->f.scope.mesh.SizeOf(around->owner->flow.manual_axes));
  record.effect = EffectOf(op, types);
  SetCapacity(site, bound);
  use.sites[i] = num_sites();
  sites_.push_back(std::move(site));
}

// Decides how many runs of the op the record has room for. `bound` is the largest number of runs.
void EffectFinder::SetCapacity(EffectSite& site, int64_t bound) const {
  EffectRecord& record = site.record;
  const bool may_not_run = site.DepthOfInnermostBranch(0) >= 0;
  if (!site.has_log()) {
    site.is_exact = !may_not_run;
    return;
  }
  site.is_exact = !may_not_run && bound < kEffectCountMax;
  if (site.is_exact) {
    record.capacity = site.rows = bound;
    return;
  }
  const int64_t calls = std::max<int64_t>(record.calls, 1);
  record.capacity = bound < kEffectCountMax ? bound : std::max<int64_t>(limits_.calls / calls, 1);
  if (record.bytes > 0)
    record.capacity = std::min(record.capacity, std::max<int64_t>(limits_.bytes / record.bytes, 1));
  record.is_limited = record.capacity < bound;
  // Iterations in which the op does not run, or finds no room, write the last row.
  site.rows = record.capacity + 1;
}

// Decides whether the sites from `first` on, those of one op of the entry, need a clock. They
// need none if nothing repeats, because then they run in the order in which they stand, or if
// there is only one.
void EffectFinder::OrderSites(int first) {
  bool repeats = false;
  for (int s = first; s < num_sites(); ++s) repeats = repeats || sites_[s].has_log();
  for (int s = first; s < num_sites(); ++s)
    sites_[s].is_ordered = repeats && num_sites() - first > 1;
}

}  // namespace tessera::ir
