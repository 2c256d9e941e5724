// Replaces each op that has derivative rules by its body, since only the body runs. The planner
// (MakePlan) does this first, so that no later step has to know about rules (docs/decisions/0015).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/builder.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

bool HasRules(const Function& f) {
  return std::any_of(f.ops.begin(), f.ops.end(), [](const Op& op) {
    return op.def->has_rules() ||
           std::any_of(op.regions.begin(), op.regions.end(),
                       [](const FunctionRef& region) { return HasRules(*region); });
  });
}

[[noreturn]] void ThrowNothingToRun(const OpDef& def, const Site& site) {
  std::string text = absl::StrCat(ToAbsl(def.lax_name), ": ", ToAbsl(def.partition.reason));
  if (site.valid()) absl::StrAppend(&text, " (", site.ToString(), ")");
  Throw(ErrorKind::kTypeError, std::move(text));
}

FunctionRef WithoutRules(const FunctionRef& f);

// Copies `f` into `b` without rules, with `env` in place of its params, and returns its results.
std::vector<Value> InlineWithoutRules(Builder& b, const Function& f, std::vector<Value> env) {
  env.resize(f.types.size());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    SiteScope site(b, f.sites[i]);
    const std::vector<Value> in = ElementsAt(env, op.operands);
    std::vector<Value> out;
    if (!op.def->has_rules()) {
      std::vector<FunctionRef> regions;
      for (const FunctionRef& region : op.regions) regions.push_back(WithoutRules(region));
      out = b.Emit(*op.def, in, op.attrs, std::move(regions));
    } else if (!op.def->has_planned_regions()) {
      ThrowNothingToRun(*op.def, f.sites[i]);
    } else {
      const RegionDataFlow edges = DataFlowOf(f, op).regions.at(0);
      const Function& body = *op.regions[0];
      std::vector<Value> args(body.num_params);
      for (const DataFlowEdge& e : edges.operands) args[e.inner] = in[e.outer];
      const std::vector<Value> results = InlineWithoutRules(b, body, std::move(args));
      out.resize(op.results.size());
      for (const DataFlowEdge& e : edges.results) out[e.outer] = results[e.inner];
    }
    for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
  }
  return ElementsAt(env, f.results);
}

FunctionRef WithoutRules(const FunctionRef& f) {
  if (!HasRules(*f)) return f;
  Builder b(f->scope, f->name);
  std::vector<Value> params;
  for (const Type& t : f->param_types()) params.push_back(b.Param(t));
  return b.Build(InlineWithoutRules(b, *f, std::move(params)));
}

}  // namespace

absl::StatusOr<FunctionRef> DropRules(FunctionRef f) {
  if (!HasRules(*f)) return f;
  // Dce removes the ops that only the rules needed.
  return CatchStatusOr([&] { return Dce(*WithoutRules(f)); });
}

}  // namespace tessera::ir
