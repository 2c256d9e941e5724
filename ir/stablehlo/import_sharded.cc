// What is said about shardings, and what runs on shards.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;
using Specs = std::vector<PartitionSpec>;

constexpr std::string_view kFrontendIn = "xla.sdy.in_shardings";
constexpr std::string_view kFrontendOut = "xla.sdy.out_shardings";
constexpr std::string_view kFrontendManual = "xla.sdy.manual_axes";

bool Contains(const AxisList& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The value with a sharding, if that says anything.
Value Constrained(Value v, const PartitionSpec& spec) {
  const std::vector<MeshAxis>& axes = v.builder().mesh().axes;
  const bool all_manual = std::all_of(
      axes.begin(), axes.end(), [](const MeshAxis& a) { return a.type == AxisType::kManual; });
  return v.rank() == 0 || all_manual || SaysNothing(spec) ? v : ShardingConstraint(v, spec);
}

// A boundary's sharding along the manual axes.
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
bool SaysMore(const PartitionSpec& spec, const AxisList& manual) {
  return std::any_of(spec.dims.begin(), spec.dims.end(), [&](const AxisList& axes) {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const std::string& axis) { return !Contains(manual, axis); });
  });
}

// A manual_computation. What a boundary says of axes that stay with the planner is a constraint
// outside of it.
Results EmitManual(Builder& b, const FunctionRef& body, Results args, const Specs& in_specs,
                   const Specs& out_specs, const AxisList& manual) {
  Specs in, out;
  for (size_t i = 0; i < in_specs.size(); ++i) {
    if (i < args.size() && SaysMore(in_specs[i], manual))
      args[i] = Constrained(args[i], in_specs[i]);
    in.push_back(AlongManual(in_specs[i], manual));
  }
  for (const PartitionSpec& spec : out_specs) out.push_back(AlongManual(spec, manual));
  Results results = ManualComputation(b, body, args, in, out, manual, /*check_vma=*/false);
  for (size_t r = 0; r < results.size(); ++r)
    if (SaysMore(out_specs[r], manual)) results[r] = Constrained(results[r], out_specs[r]);
  return results;
}

Results ImportManualComputation(const OpReader& op) {
  const AxisList manual = op.shardings().ManualAxes(op.Find("manual_axes"), op.What("manual_axes"));
  const Specs in = op.shardings().Specs(op.Find("in_shardings"), op.What("in_shardings"));
  const Specs out = op.shardings().Specs(op.Find("out_shardings"), op.What("out_shardings"));
  if (!op.Captures({0}).empty()) op.Malformed("uses values of outside its region");
  const FunctionRef body = op.Within(0, ManualScope(op.b().scope(), manual, /*check_vma=*/false));
  return EmitManual(op.b(), body, op.in, in, out, manual);
}

Results ImportConstraint(const OpReader& op) {
  if (op.in.size() != 1) op.Malformed("has not one operand");
  return {Constrained(op.in[0], op.shardings().Spec(op.Find("sharding"), op.What()))};
}

constexpr ImportRow kShardyRows[] = {
    {"manual_computation", ImportManualComputation},
    {"reshard", ImportConstraint},
    {"sharding_constraint", ImportConstraint},
};

// Dims of a Sharding call that are left open: "unspecified_dims=[0,1]".
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
      op.Malformed("has unspecified dims that are none");
    spec->open[dim] = true;
  }
}

}  // namespace

const ImportRow* FindShardy(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kShardyRows), std::end(kShardyRows),
                                       [&](const ImportRow& r) { return r.name == name; });
  return row != std::end(kShardyRows) ? row : nullptr;
}

std::vector<Value> ImportShardingCall(const OpReader& op) {
  if (op.in.size() != 1) op.Malformed("has not one operand");
  if (op.b().mesh().empty() || op.shardings().IsManual(op.carried(), op.What())) return op.in;
  std::optional<PartitionSpec> spec = op.shardings().Carried(op.carried(), op.What());
  if (!spec) return op.in;
  OpenDims(op, &*spec);
  return {Constrained(op.in[0], *spec)};
}

// ---- The function main. -------------------------------------------------------------------------
namespace {

// What a list of dictionaries says of each of `n` values.
std::vector<std::optional<PartitionSpec>> CarriedByEach(const Artifact& a, const Shardings& in,
                                                        uint32_t list, size_t n,
                                                        std::string_view what) {
  std::vector<std::optional<PartitionSpec>> out(n);
  if (list == kNone || a.attrs[list].kind != AttrKind::kArray) return out;
  const absl::Span<const uint32_t> each = Slice(a.refs, a.attrs[list].refs);
  for (size_t i = 0; i < std::min(n, each.size()); ++i)
    out[i] = in.Carried(each[i], absl::StrCat(ToAbsl(what), " ", i));
  return out;
}

// Constraints on those results that already have another sharding.
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

Program Importer::Main() {
  if (shardings_.num_replicas() > 1)
    Throw(ErrorKind::kNotImplemented,
          absl::StrCat("StableHLO: mhlo.num_replicas is ", shardings_.num_replicas(),
                       ": Tessera runs partitions of one program, not replicas; write it with "
                       "shard_map instead of pmap"));
  Program program;
  program.entry = Function("main", Scope{shardings_.mesh()});
  if (shardings_.mesh().empty()) return program;
  const uint32_t op = ops_.find("main")->second;
  const ir::Function& f = *program.entry;
  program.in_shardings =
      CarriedByEach(a_, shardings_, a_.Find(op, "arg_attrs"), f.num_params, "argument");
  program.out_shardings =
      CarriedByEach(a_, shardings_, a_.Find(op, "res_attrs"), f.results.size(), "result");
  program.entry = WithResultShardings(program);
  return program;
}

// ---- Shards between custom calls. ---------------------------------------------------------------
// Calls say that values become shards, and that shards become values again; the ops between them
// run once per shard.
std::string_view Importer::TargetOf(uint32_t op) const {
  if (a_.form(a_.code.ops[op]).name != "custom_call") return "";
  return TextOf(a_, a_.Find(op, "call_target_name"), "custom_call: call_target_name");
}

bool Importer::EntersShards(uint32_t op) const {
  const std::string_view target = TargetOf(op);
  return target == "SPMDFullToShardShape" || target == "xla.sdy.GlobalToLocalShape";
}

uint32_t Importer::RunOnShards(uint32_t begin, uint32_t end) {
  const std::vector<RawOp>& ops = a_.code.ops;
  const Site site = SiteOf(a_, ops[begin].location);
  std::vector<uint32_t> entering, shards, body, leaving, assembled, constants;
  Specs in_specs, out_specs;
  AxisList manual;
  std::set<uint32_t> inside, after, known;
  const auto add_spec = [&](Specs* specs, Specs more, size_t values, std::string_view what) {
    if (more.size() != values)
      Throw(ErrorKind::kMalformedProgram,
            absl::StrCat("StableHLO: ", ToAbsl(what), " has not one sharding for each value"));
    specs->insert(specs->end(), more.begin(), more.end());
  };
  // Of what custom calls of GSPMD carry.
  const auto carried = [&](uint32_t op, std::string_view what) -> Specs {
    if (op != kNone && !TargetOf(op).empty())
      if (std::optional<PartitionSpec> spec = shardings_.Carried(ops[op].attrs, what))
        return {*spec};
    return {};
  };
  uint32_t i = begin;
  for (; i < end; i = ops[i].end) {
    const absl::Span<const uint32_t> operands = Slice(a_.code.operands, ops[i].operands);
    const std::string_view name = a_.form(ops[i]).name, target = TargetOf(i);
    // What the op uses that it does not define itself.
    std::vector<uint32_t> uses;
    uint32_t first = 0, past = 0;
    if (const absl::Span<const RawRegion> regions = Slice(a_.code.regions, ops[i].regions);
        !regions.empty()) {
      first = regions.front().first_value;
      past = regions.back().end_value;
    }
    for (uint32_t j = i; j < ops[i].end; ++j)
      for (const uint32_t value : Slice(a_.code.operands, ops[j].operands))
        if (value < first || value >= past) uses.push_back(value);
    const auto any_of = [&](const std::set<uint32_t>& set) {
      return std::any_of(uses.begin(), uses.end(), [&](uint32_t v) { return set.contains(v); });
    };
    if (name == "return" || any_of(after)) break;
    if (EntersShards(i)) {
      AxisList axes;
      if (target == "SPMDFullToShardShape") {
        axes = shardings_.ManualOfText(
            TextOf(a_, InDictionary(a_, ops[i].attrs, "mhlo.sharding"), target), target);
        add_spec(&in_specs, carried(operands.empty() ? kNone : defined_by_[operands[0]], target), 1,
                 target);
      } else {
        axes = shardings_.CarriedAxes(ops[i].attrs, kFrontendManual, target);
        add_spec(&in_specs, shardings_.CarriedSpecs(ops[i].attrs, kFrontendIn, target),
                 operands.size(), target);
      }
      if (any_of(inside) || operands.size() != ops[i].results.size ||
          (i != begin && axes != manual))
        Throw(ErrorKind::kNotImplemented,
              absl::StrCat("StableHLO: ", ToAbsl(target),
                           " is within another, or of other axes than the one before it"));
      manual = axes;
      for (size_t k = 0; k < operands.size(); ++k) {
        entering.push_back(operands[k]);
        shards.push_back(ops[i].results.begin + k);
        inside.insert(shards.back());
      }
    } else if (target == "SPMDShardToFullShape" || target == "xla.sdy.LocalToGlobalShape") {
      if (target == "SPMDShardToFullShape") {
        add_spec(&out_specs, carried(i, target), operands.size(), target);
      } else {
        add_spec(&out_specs, shardings_.CarriedSpecs(ops[i].attrs, kFrontendOut, target),
                 operands.size(), target);
      }
      if (operands.size() != ops[i].results.size)
        Throw(ErrorKind::kMalformedProgram,
              absl::StrCat("StableHLO: ", ToAbsl(target), " has not a result for each operand"));
      for (size_t k = 0; k < operands.size(); ++k) {
        leaving.push_back(operands[k]);
        assembled.push_back(ops[i].results.begin + k);
        after.insert(assembled.back());
      }
    } else if (any_of(inside) || name == "partition_id" || name == "replica_id") {
      for (const uint32_t value : uses) {
        if (inside.contains(value) || !known.insert(value).second) continue;
        const uint32_t op = defined_by_[value];
        if (op == kNone || a_.form(ops[op]).name != "constant")
          Throw(ErrorKind::kNotImplemented,
                absl::StrCat("StableHLO: ", ToAbsl(name), " is of a shard and of a whole value"));
        constants.push_back(value);
      }
      body.push_back(i);
      for (uint32_t r = 0; r < ops[i].results.size; ++r) inside.insert(ops[i].results.begin + r);
    } else {
      EmitAndKeep(i);
    }
  }
  const FunctionRef f = BuildOf(
      ManualScope(builder_->scope(), manual, /*check_vma=*/false), "shards", constants, [&] {
        Spend(static_cast<int64_t>(shards.size()));
        for (const uint32_t shard : shards)
          values_[shard] = builder_->Param(TensorType(a_, a_.code.value_types[shard], "a shard"));
        for (const uint32_t value : constants) values_[value] = Emit(defined_by_[value])[0];
        for (const uint32_t op : body) EmitAndKeep(op);
        return ValuesOf(leaving, "a value of shards");
      });
  for (const uint32_t value : inside) values_[value] = Value();
  builder_->SetSite(site);
  const Results args = ValuesOf(entering, "a shard");
  const Results results = EmitManual(*builder_, f, args, in_specs, out_specs, manual);
  for (size_t r = 0; r < results.size(); ++r) {
    const Type declared = TensorType(a_, a_.code.value_types[assembled[r]], "a value of shards");
    if (!SameShapeAndDType(results[r].type(), declared))
      Throw(ErrorKind::kMalformedProgram,
            absl::StrCat("StableHLO: a value of shards is declared ", declared.ToString(),
                         " and is ", results[r].type().ToString()));
    values_[assembled[r]] = results[r];
  }
  return i;
}

}  // namespace tessera::ir::stablehlo
