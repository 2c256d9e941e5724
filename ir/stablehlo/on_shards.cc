// Collects a section of ops on shards and emits it as one manual_computation. Importer::EmitRegion
// calls it at the first custom call that makes shards; the section ends at the first op that needs
// an assembled value.
#include "ir/stablehlo/on_shards.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr std::string_view kFullToShard = "SPMDFullToShardShape";
constexpr std::string_view kShardToFull = "SPMDShardToFullShape";
constexpr std::string_view kGlobalToLocal = "xla.sdy.GlobalToLocalShape";
constexpr std::string_view kLocalToGlobal = "xla.sdy.LocalToGlobalShape";

// Returns the target of a custom call, or "" for another op.
std::string_view TargetOf(const Artifact& a, uint32_t op) {
  if (a.form(a.code.ops[op]).name != "custom_call") return "";
  return TextOf(a, a.Find(op, "call_target_name"), "custom_call: call_target_name");
}

// Returns "SPMDFullToShardShape (model.py:7)".
std::string Where(const Artifact& a, uint32_t op, std::string_view target) {
  const std::string site = SiteOf(a, a.code.ops[op].location).ToString();
  return absl::StrCat(ToAbsl(target), site.empty() ? "" : " (", site, site.empty() ? "" : ")");
}

bool ContainsAny(const std::set<uint32_t>& set, const std::vector<uint32_t>& values) {
  return std::any_of(values.begin(), values.end(), [&](uint32_t v) { return set.contains(v); });
}

bool Begins(std::string_view target) { return target == kFullToShard || target == kGlobalToLocal; }
bool Ends(std::string_view target) { return target == kShardToFull || target == kLocalToGlobal; }

}  // namespace

bool ShardCodeImporter::IsBoundary(std::string_view target) {
  return Begins(target) || Ends(target);
}
bool ShardCodeImporter::BeginsAt(const Artifact& artifact, uint32_t op) {
  return Begins(TargetOf(artifact, op));
}

bool ShardCodeImporter::Take(uint32_t op) {
  const std::string_view name = a_.form(a_.code.ops[op]).name, target = TargetOf(a_, op);
  const std::vector<uint32_t> uses = UsesOf(op);
  if (name == "return" || ContainsAny(later_values_, uses)) return false;
  if (BeginsAt(a_, op)) {
    Enter(op, target);
  } else if (Ends(target)) {
    Leave(op, target);
  } else if (ContainsAny(shard_values_, uses) || name == "partition_id" || name == "replica_id") {
    AddToBody(op, uses);
  } else {
    in_.EmitAndKeep(op);
  }
  return true;
}

std::vector<uint32_t> ShardCodeImporter::UsesOf(uint32_t op) const {
  const std::vector<RawOp>& ops = a_.code.ops;
  const absl::Span<const RawRegion> regions = Slice(a_.code.regions, ops[op].regions);
  const uint32_t first = regions.empty() ? 0 : regions.front().first_value;
  const uint32_t end = regions.empty() ? 0 : regions.back().end_value;
  std::vector<uint32_t> uses;
  for (uint32_t i = op; i < ops[op].end; ++i)
    for (const uint32_t value : Slice(a_.code.operands, ops[i].operands))
      if (value < first || value >= end) uses.push_back(value);
  return uses;
}

PartitionSpec ShardCodeImporter::CarriedSpec(uint32_t op, std::string_view what) const {
  if (op != kNone && !TargetOf(a_, op).empty())
    if (const auto spec = in_.shardings().Carried(a_.code.ops[op].attrs, what)) return *spec;
  Malformed(what, "has no sharding of the whole value");
}

// Handles a custom call that makes shards of its operands, in GSPMD's form or in the form that
// Shardy writes. It records the manual axes and the spec of each operand. All such calls of a
// section must have the same manual axes, since they become one computation.
void ShardCodeImporter::Enter(uint32_t index, std::string_view target) {
  const RawOp& op = a_.code.ops[index];
  const std::string what = Where(a_, index, target);
  const Shardings& shardings = in_.shardings();
  const absl::Span<const uint32_t> operands = Slice(a_.code.operands, op.operands);
  AxisList manual;
  if (target == kFullToShard) {
    if (operands.size() != 1) Malformed(what, "does not have exactly one operand");
    manual = shardings.ManualAxesFromText(
        TextOf(a_, InDictionary(a_, op.attrs, "mhlo.sharding"), what), what);
    // The op that defines the operand carries the sharding of the whole value.
    in_specs_.push_back(CarriedSpec(in_.defined_by_[operands[0]], what));
  } else {
    constexpr std::string_view kShardings = "xla.sdy.in_shardings";
    manual = shardings.CarriedAxes(op.attrs, "xla.sdy.manual_axes", kShardings, what);
    for (PartitionSpec& spec : shardings.CarriedSpecs(op.attrs, kShardings, what))
      in_specs_.push_back(std::move(spec));
  }
  if (!outer_args_.empty() && manual != manual_)
    NotSupported(what, "has other manual axes than the one before it");
  manual_ = std::move(manual);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (shard_values_.contains(operands[i])) NotSupported(what, "has an operand that is a shard");
    outer_args_.push_back(operands[i]);
    shard_args_.push_back(op.results.begin + i);
    shard_values_.insert(shard_args_.back());
  }
  if (op.results.size != operands.size() || in_specs_.size() != outer_args_.size())
    Malformed(what, "does not have one result and one sharding for each operand");
}

void ShardCodeImporter::Leave(uint32_t index, std::string_view target) {
  const RawOp& op = a_.code.ops[index];
  const std::string what = Where(a_, index, target);
  const absl::Span<const uint32_t> operands = Slice(a_.code.operands, op.operands);
  if (target == kShardToFull) {
    out_specs_.push_back(CarriedSpec(index, what));
  } else {
    for (PartitionSpec& spec :
         in_.shardings().CarriedSpecs(op.attrs, "xla.sdy.out_shardings", what))
      out_specs_.push_back(std::move(spec));
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    body_results_.push_back(operands[i]);
    outer_results_.push_back(op.results.begin + i);
    later_values_.insert(outer_results_.back());
  }
  if (op.results.size != operands.size() || out_specs_.size() != body_results_.size())
    Malformed(what, "does not have one result and one sharding for each operand");
}

void ShardCodeImporter::AddToBody(uint32_t op, const std::vector<uint32_t>& uses) {
  for (const uint32_t value : uses) {
    if (shard_values_.contains(value) || !known_constants_.insert(value).second) continue;
    const uint32_t from = in_.defined_by_[value];
    if (from == kNone || a_.form(a_.code.ops[from]).name != "constant")
      NotSupported(a_.form(a_.code.ops[op]).name, "uses both a shard and a whole value");
    constants_.push_back(value);
  }
  body_ops_.push_back(op);
  const Range results = a_.code.ops[op].results;
  for (uint32_t r = 0; r < results.size; ++r) shard_values_.insert(results.begin + r);
}

void ShardCodeImporter::Emit() {
  const FunctionRef body = in_.BuildFunction(
      ManualScope(in_.b().scope(), manual_, /*check_vma=*/false), "shards", constants_, [&] {
        in_.ChargeOps(static_cast<int64_t>(shard_args_.size() + constants_.size()));
        for (const uint32_t shard : shard_args_)
          in_.values_[shard] = in_.b().Param(TensorType(a_, a_.code.value_types[shard], "a shard"));
        for (const uint32_t value : constants_)
          in_.values_[value] = in_.Emit(in_.defined_by_[value])[0];
        for (const uint32_t op : body_ops_) in_.EmitAndKeep(op);
        return in_.ValuesOf(body_results_, "a value of shards");
      });
  for (const uint32_t value : shard_values_) in_.Forget(value, value + 1);
  const std::vector<Value> results = EmitManual(in_.b(), body, in_.ValuesOf(outer_args_, "a shard"),
                                                in_specs_, out_specs_, manual_);
  for (size_t r = 0; r < results.size(); ++r) {
    const Type declared =
        TensorType(a_, a_.code.value_types[outer_results_[r]], "a value of shards");
    if (!SameShapeAndDType(results[r].type(), declared))
      Malformed("a value of shards", absl::StrCat("is declared ", declared.ToString(), " and is ",
                                                  results[r].type().ToString()));
    in_.values_[outer_results_[r]] = results[r];
  }
}

uint32_t Importer::EmitOpsOnShards(uint32_t begin, uint32_t end) {
  const Site site = SiteOf(a_, a_.code.ops[begin].location);
  ShardCodeImporter section(*this);
  uint32_t op = begin;
  while (op < end && section.Take(op)) op = a_.code.ops[op].end;
  builder_->SetSite(site);
  section.Emit();
  return op;
}

}  // namespace tessera::ir::stablehlo
