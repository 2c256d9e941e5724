// Imports shardings and code that runs on shards: Shardy's ops, the custom calls of GSPMD, and the
// shardings of main's arguments and results.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/registry.h"
#include "ir/spec.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;
using Specs = std::vector<PartitionSpec>;

bool Contains(const AxisList& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// Returns the sharding of a whole value. A value that is a pending sum along some axes becomes the
// sum; the planner decides when it is added up, and where its summands lie until then.
PartitionSpec SpecOfSum(PartitionSpec spec) {
  if (spec.unreduced.empty()) return spec;
  spec.unreduced.clear();
  spec.open.assign(spec.dims.size(), true);
  return spec;
}

// Returns the value with a sharding constraint, if the sharding says anything.
Value Constrained(Value v, const PartitionSpec& given) {
  const PartitionSpec spec = SpecOfSum(given);
  const std::vector<MeshAxis>& axes = v.builder().mesh().axes;
  const bool all_manual = std::all_of(
      axes.begin(), axes.end(), [](const MeshAxis& a) { return a.type == AxisType::kManual; });
  return v.rank() == 0 || all_manual || IsUnconstrained(spec) ? v : ShardingConstraint(v, spec);
}

// Returns the part of a boundary's sharding that concerns the manual axes.
PartitionSpec AlongManual(const PartitionSpec& spec, const AxisList& manual) {
  PartitionSpec out;
  for (const AxisList& axes : spec.dims) {
    AxisList& dim = out.dims.emplace_back();
    for (const std::string& axis : axes)
      if (Contains(manual, axis)) dim.push_back(axis);
  }
  while (!out.dims.empty() && out.dims.back().empty()) out.dims.pop_back();
  return out;
}
bool HasOtherAxes(const PartitionSpec& spec, const AxisList& manual) {
  return std::any_of(spec.dims.begin(), spec.dims.end(), [&](const AxisList& axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const std::string& axis) { return !Contains(manual, axis); });
  });
}

Results ImportManualComputation(const OpReader& op) {
  const AxisList manual = op.shardings().ManualAxes(
      op.Find("manual_axes"), {op.Find("in_shardings"), op.Find("out_shardings")},
      op.Where("manual_axes"));
  const Specs in =
      op.shardings().Specs(op.Find("in_shardings"), op.in.size(), op.Where("in_shardings"));
  const Specs out =
      op.shardings().Specs(op.Find("out_shardings"), op.num_results(), op.Where("out_shardings"));
  if (!op.Captures({0}).empty()) op.Malformed("uses values from outside its region");
  const FunctionRef body =
      op.RegionInScope(0, ManualScope(op.b().scope(), manual, /*check_vma=*/false));
  return EmitManual(op.b(), body, op.in, in, out, manual);
}

// Leaves a dim open whose size the axes do not divide. A constraint only says where a value is best
// placed, and XLA pads such a dim.
PartitionSpec WithIndivisibleDimsOpen(PartitionSpec spec, Value v) {
  const Mesh& mesh = v.builder().mesh();
  for (size_t d = 0; d < spec.dims.size() && d < v.type().shape.size(); ++d) {
    if (v.type().shape[d] % mesh.SizeOf(spec.dims[d]) == 0) continue;
    spec.dims[d].clear();
    spec.open.resize(spec.dims.size());
    spec.open[d] = true;
  }
  return spec;
}

Results ImportConstraint(const OpReader& op) {
  if (op.in.size() != 1) op.Malformed("does not have exactly one operand");
  const PartitionSpec spec = op.shardings().Spec(op.Find("sharding"), op.Where());
  return {Constrained(op.in[0], WithIndivisibleDimsOpen(spec, op.in[0]))};
}

// A sharding group is a hint that values be sharded alike. It is ignored.
Results ImportGroup(const OpReader&) { return {}; }

constexpr ImportRow kShardyRows[] = {
    {"manual_computation", ImportManualComputation},
    {"reshard", ImportConstraint},
    {"sharding_constraint", ImportConstraint},
    {"sharding_group", ImportGroup},
};

// Opens the dims that a Sharding call leaves unspecified: "unspecified_dims=[0,1]".
void OpenDims(const OpReader& op, PartitionSpec* spec) {
  if (!op.Has("backend_config") || op.KindOf("backend_config") != AttrKind::kString) return;
  std::string_view text = op.Text("backend_config");
  constexpr std::string_view kBegin = "unspecified_dims=[";
  const size_t begin = text.find(kBegin), end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return;
  text = text.substr(begin + kBegin.size(), end - begin - kBegin.size());
  spec->dims.resize(std::max<size_t>(spec->dims.size(), op.in[0].rank()));
  spec->open.assign(spec->dims.size(), false);
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    uint32_t dim = 0;
    if (!absl::SimpleAtoi(word, &dim) || dim >= spec->open.size())
      op.Malformed("has unspecified dims that do not exist");
    spec->open[dim] = true;
  }
}

}  // namespace

namespace {

// Returns the body with its pending sums along manual axes completed. An argument that is such a
// sum comes in on the first shard and as zeros on the others. A result that is such a sum is added
// up.
FunctionRef WithCompletedSums(const FunctionRef& body, const Specs& in_specs,
                              const Specs& out_specs, const AxisList& manual) {
  const auto along = [&](const PartitionSpec& spec) {
    AxisList axes;
    for (const std::string& axis : spec.unreduced)
      if (Contains(manual, axis)) axes.push_back(axis);
    return axes;
  };
  const auto has_sum = [&](const PartitionSpec& spec) { return !along(spec).empty(); };
  if (std::none_of(in_specs.begin(), in_specs.end(), has_sum) &&
      std::none_of(out_specs.begin(), out_specs.end(), has_sum))
    return body;
  Builder b(body->scope, body->name);
  Results args;
  for (const Type& type : body->param_types()) args.push_back(b.Param(type));
  for (size_t i = 0; i < std::min(args.size(), in_specs.size()); ++i) {
    if (!has_sum(in_specs[i])) continue;
    const Value position = AxisIndex(b, along(in_specs[i]));
    args[i] = Select(Compare(position, FullLike(position, 0), "EQ"), args[i], FullLike(args[i], 0));
  }
  Results results = Inline(b, *body, args);
  for (size_t r = 0; r < std::min(results.size(), out_specs.size()); ++r)
    if (has_sum(out_specs[r])) results[r] = Psum(results[r], along(out_specs[r]));
  return b.Build(results);
}

}  // namespace

// A boundary's sharding along axes that stay with the planner becomes a constraint outside of the
// computation.
Results EmitManual(Builder& b, const FunctionRef& given, Results args, const Specs& in_specs,
                   const Specs& out_specs, const AxisList& manual) {
  const FunctionRef body = WithCompletedSums(given, in_specs, out_specs, manual);
  Specs in, out;
  for (size_t i = 0; i < in_specs.size(); ++i) {
    if (i < args.size() && HasOtherAxes(in_specs[i], manual))
      args[i] = Constrained(args[i], in_specs[i]);
    in.push_back(AlongManual(in_specs[i], manual));
  }
  for (const PartitionSpec& spec : out_specs) out.push_back(AlongManual(spec, manual));
  Results results = ManualComputation(b, body, args, in, out, manual, /*check_vma=*/false);
  for (size_t r = 0; r < results.size(); ++r)
    if (HasOtherAxes(out_specs[r], manual)) results[r] = Constrained(results[r], out_specs[r]);
  return results;
}

const ImportRow* FindShardy(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kShardyRows), std::end(kShardyRows),
                                       [&](const ImportRow& r) { return r.name == name; });
  return row != std::end(kShardyRows) ? row : nullptr;
}

std::vector<Value> ImportShardingCall(const OpReader& op) {
  if (op.in.size() != 1) op.Malformed("does not have exactly one operand");
  if (op.b().mesh().empty() || op.shardings().IsManual(op.carried(), op.Where())) return op.in;
  std::optional<PartitionSpec> spec = op.shardings().Carried(op.carried(), op.Where());
  if (!spec) return op.in;
  OpenDims(op, &*spec);
  return {Constrained(op.in[0], WithIndivisibleDimsOpen(*std::move(spec), op.in[0]))};
}

// ---- The function main. -------------------------------------------------------------------------
namespace {

// Returns the shardings that a list of dictionaries gives for `values`. A tuple stands for several
// arrays and has no sharding. `sums` receives the axes of pending sums, and `other_placements` the
// values that lie elsewhere; both may be null.
std::vector<std::optional<PartitionSpec>> SpecsOfValues(
    const Artifact& a, const Shardings& in, uint32_t list, const std::vector<uint32_t>& values,
    std::string_view what, std::vector<AxisList>* sums,
    std::vector<std::optional<OtherPlacement>>* other_placements) {
  std::vector<std::optional<PartitionSpec>> out;
  absl::Span<const uint32_t> each;
  if (list != kNone && a.attrs[list].kind == AttrKind::kArray)
    each = Slice(a.refs, a.attrs[list].refs);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t type = a.code.value_types[values[i]];
    out.resize(out.size() + (IsArray(a, type) ? 1 : ArrayTypesOf(a, type, what).size()));
    if (sums != nullptr) sums->resize(out.size());
    if (other_placements != nullptr) other_placements->resize(out.size());
    if (i >= each.size() || !IsArray(a, type)) continue;
    const std::string name = absl::StrCat(ToAbsl(what), " ", i);
    if (other_placements != nullptr) {
      other_placements->back() = in.CarriedOtherPlacement(each[i], name);
      if (other_placements->back()) continue;
    }
    auto spec = in.Carried(each[i], name);
    if (!spec) continue;
    if (sums != nullptr && !spec->unreduced.empty()) {
      sums->back() = std::exchange(spec->unreduced, {});
      spec->open.clear();
    }
    if (*spec = SpecOfSum(*std::move(spec)); !IsUnconstrained(*spec)) out.back() = std::move(spec);
  }
  return out;
}

// Adds constraints to those results that already have another sharding.
FunctionRef WithResultShardings(const Program& program) {
  const Function& f = *program.entry;
  std::vector<const PartitionSpec*> given(f.types.size());
  for (int i = 0; i < f.num_params; ++i)
    if (program.in_shardings[i]) given[i] = &*program.in_shardings[i];
  for (const Op& op : f.ops)
    if (op.def == FindOp("sharding_constraint")) given[op.results[0]] = &op.attrs.Spec("sharding");
  std::vector<bool> differs(f.results.size());
  for (size_t r = 0; r < f.results.size(); ++r) {
    const std::optional<PartitionSpec>& spec = program.out_shardings[r];
    if (!spec) continue;
    const PartitionSpec*& before = given[f.results[r]];
    differs[r] = before != nullptr && *before != *spec;
    if (before == nullptr) before = &*spec;
  }
  if (std::find(differs.begin(), differs.end(), true) == differs.end()) return program.entry;
  Builder b(f.scope, f.name);
  std::vector<Value> args;
  for (int i = 0; i < f.num_params; ++i) args.push_back(b.Param(f.types[i]));
  std::vector<Value> results = Inline(b, f, args);
  for (size_t r = 0; r < results.size(); ++r)
    if (differs[r]) results[r] = ShardingConstraint(results[r], *program.out_shardings[r]);
  return b.Build(results);
}

}  // namespace

// Imports "main" and attaches the shardings of its arguments and results. For a host it also
// records pending sums and arguments that lie elsewhere, which a plan cannot express. Replicas are
// refused: they are another program model than partitions.
Program Importer::ImportMain() {
  if (shardings_.num_replicas() > 1)
    Throw(ErrorKind::kNotImplemented,
          absl::StrCat("StableHLO: mhlo.num_replicas is ", shardings_.num_replicas(),
                       ": Tessera runs partitions of one program, not replicas; write it with "
                       "shard_map instead of pmap"));
  Program program;
  program.entry = Function("main", Scope{shardings_.mesh()});
  if (shardings_.mesh().empty()) return program;
  const uint32_t op = func_ops_.find("main")->second;
  const RawRegion& body = a_.code.regions[a_.code.ops[op].regions.begin];
  std::vector<uint32_t> args(body.args.size);
  std::iota(args.begin(), args.end(), body.args.begin);
  // The last op of the body returns the results.
  uint32_t last = body.begin;
  while (a_.code.ops[last].end != body.end) last = a_.code.ops[last].end;
  const absl::Span<const uint32_t> returned = Slice(a_.code.operands, a_.code.ops[last].operands);
  program.in_shardings = SpecsOfValues(a_, shardings_, a_.Find(op, "arg_attrs"), args, "argument",
                                       for_host() ? &for_host_->in_sums : nullptr,
                                       for_host() ? &for_host_->in_other_placements : nullptr);
  for (size_t i = 0; for_host() && i < for_host_->in_other_placements.size(); ++i) {
    const std::optional<OtherPlacement>& at = for_host_->in_other_placements[i];
    if (at && FindSpecFault(at->spec, at->mesh, program.entry->types.at(i).shape))
      Malformed(absl::StrCat("argument ", i),
                absl::StrCat("is sharded as ", at->spec.ToString(), " on the mesh ",
                             at->mesh.ToString(), ", which does not divide its shape (",
                             DimsToString(program.entry->types[i].shape), ")"));
  }
  program.out_shardings = SpecsOfValues(
      a_, shardings_, a_.Find(op, "res_attrs"), {returned.begin(), returned.end()}, "result",
      for_host() ? &for_host_->out_sums : nullptr, /*other_placements=*/nullptr);
  // The artifact does not say where the operands and results of host calls lie.
  if (for_host() && !for_host_->calls.empty()) {
    program.in_shardings.resize(program.entry->num_params);
    program.out_shardings.resize(program.entry->results.size());
  }
  program.entry = WithResultShardings(program);
  return program;
}

}  // namespace tessera::ir::stablehlo
