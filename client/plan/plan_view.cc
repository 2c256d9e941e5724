// Reads the planner's explanation, a JSON text, into a PlanView. The tracer, show/ and the command
// line call it with the reply to a compilation.
#include "client/plan/plan_view.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/words.h"
#include "client/plan/shards.h"
#include "client/plan/text.h"
#include "ir/dtype.h"

namespace tessera::internal {
namespace {

using Json = nlohmann::json;

// Helpers that read JSON. An absent field reads as empty or 0.
const Json& ChildOf(const Json& object, const char* key) {
  static const auto* const none = new Json();
  if (!object.is_object()) return *none;
  const auto it = object.find(key);
  return it == object.end() ? *none : *it;
}
std::string TextOf(const Json& value) {
  return value.is_string() ? ReplaceControlChars(value.get<std::string>()) : "";
}
std::string TextOf(const Json& object, const char* key) { return TextOf(ChildOf(object, key)); }
int64_t IntOf(const Json& object, const char* key) {
  const Json& child = ChildOf(object, key);
  return child.is_number() ? child.get<int64_t>() : 0;
}
double NumberOf(const Json& object, const char* key) {
  const Json& child = ChildOf(object, key);
  return child.is_number() ? child.get<double>() : 0;
}

absl::StatusOr<ir::PartitionSpec> ReadSpec(const Json& text, const ir::Mesh& mesh) {
  std::optional<ir::PartitionSpec> spec = ParseSpec(TextOf(text));
  if (!spec) return MakeError(ErrorKind::kInternal, "the plan contains an invalid partition spec");
  for (const ir::AxisList& axes : spec->dims) {
    for (const std::string& axis : axes) {
      if (!mesh.Has(axis)) {
        return MakeError(ErrorKind::kInternal,
                         absl::StrCat("the plan names axis ", axis, ", which the mesh ",
                                      mesh.ToString(), " does not have"));
      }
    }
  }
  return *std::move(spec);
}

// Reads an op. Absent fields get defaults, but dtypes and specs must be valid: the drawing code
// relies on them.
absl::StatusOr<PlanView::Op> ReadOp(const Json& json, const ir::Mesh& mesh) {
  PlanView::Op op;
  op.op = TextOf(json, "op");
  op.site = TextOf(json, "site");
  op.decided_by = TextOf(json, "decided_by");
  op.name = TextOf(json, "name");
  op.depth = static_cast<int>(IntOf(json, "depth"));
  for (const Json& axis : ChildOf(json, "manual")) op.manual.push_back(TextOf(axis));
  for (const Json& value : ChildOf(json, "values")) {
    const std::optional<ir::DType> dtype = ir::ParseDType(TextOf(value, "dtype"));
    if (!dtype) return MakeError(ErrorKind::kInternal, "the plan contains an unknown dtype");
    ir::Dims shape;
    for (const Json& size : ChildOf(value, "shape"))
      shape.push_back(size.is_number() ? size.get<int64_t>() : 0);
    PlanArray array;
    array.type = ir::MakeType(*dtype, std::move(shape));
    for (const Json& axis : ChildOf(value, "varying")) array.type.varying.insert(TextOf(axis));
    TESSERA_ASSIGN_OR_RETURN(array.spec, ReadSpec(ChildOf(value, "spec"), mesh));
    op.values.push_back(std::move(array));
  }
  const Json& explicit_changes = ChildOf(json, "explicit");
  for (const auto& [key, reshards] :
       {std::pair("operands", &op.reshard_operands), std::pair("results", &op.reshard_results)}) {
    for (const Json& reshard : ChildOf(explicit_changes, key)) {
      TESSERA_ASSIGN_OR_RETURN(ir::PartitionSpec spec, ReadSpec(ChildOf(reshard, "spec"), mesh));
      reshards->emplace_back(static_cast<int>(IntOf(reshard, "index")), std::move(spec));
    }
  }
  if (const Json& spec = ChildOf(explicit_changes, "out_sharding"); !spec.is_null()) {
    TESSERA_ASSIGN_OR_RETURN(op.out_sharding, ReadSpec(spec, mesh));
  }
  return op;
}

// Merges arrays with equal types and placements, in the order of their first occurrence.
std::vector<PlanArray> CollapseEqual(const std::vector<PlanArray>& arrays) {
  std::vector<std::string> names, keys;
  for (const PlanArray& a : arrays) {
    names.push_back(a.name);
    keys.push_back(absl::StrCat(a.type.ToString(), a.spec.ToString()));
  }
  std::vector<PlanArray> out;
  for (CollapsedName& row : CollapseByKey(names, keys)) {
    out.push_back(arrays[row.indices[0]]);
    out.back().name = std::move(row.text);
    out.back().count = row.indices.size();
  }
  return out;
}

// Reads the arrays of `explain`'s list `key`. The program gives their types and names; an array
// without a name is called `prefix` and its index.
absl::StatusOr<std::vector<PlanArray>> ReadArrays(const Json& explain, const char* key,
                                                  const ir::Mesh& mesh,
                                                  const std::vector<ir::Type>& types,
                                                  const std::vector<std::string>& names,
                                                  const char* prefix, bool is_result) {
  const Json& specs = ChildOf(explain, key);
  if (specs.size() != types.size()) {
    return MakeError(ErrorKind::kInternal, absl::StrCat("the plan has ", specs.size(), " ", key,
                                                        ", but the program has ", types.size()));
  }
  std::vector<PlanArray> out;
  for (size_t i = 0; i < types.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(ir::PartitionSpec spec, ReadSpec(specs[i], mesh));
    const bool named = i < names.size() && !names[i].empty();
    out.push_back(
        {named ? names[i] : absl::StrCat(prefix, i), types[i], std::move(spec), is_result});
  }
  return CollapseEqual(out);
}

}  // namespace

// The explanation has specs and figures, the program has types and names; both are joined by index.
// The text comes from the coordinator, so control characters are replaced.
absl::StatusOr<PlanView> MakePlanView(const ir::Program& program, const std::string& explain_json) {
  const Json explain = Json::parse(explain_json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (explain.is_discarded()) return MakeError(ErrorKind::kInternal, "the plan is not valid JSON");
  PlanView plan;
  plan.program = program.entry->name;
  plan.mesh = program.mesh();
  TESSERA_ASSIGN_OR_RETURN(plan.arguments,
                           ReadArrays(explain, "arguments", plan.mesh, program.entry->param_types(),
                                      program.in_names, "%", /*is_result=*/false));
  TESSERA_ASSIGN_OR_RETURN(plan.results,
                           ReadArrays(explain, "results", plan.mesh, program.entry->result_types(),
                                      program.out_names, "result ", /*is_result=*/true));
  for (const Json& c : ChildOf(explain, "collectives")) {
    PlanView::Collective& out = plan.collectives.emplace_back();
    out.op = TextOf(c, "op");
    out.site = TextOf(c, "site");
    for (const Json& axis : ChildOf(c, "axes"))
      if (axis.is_string() && plan.mesh.Has(axis.get<std::string>()))
        out.axes.push_back(axis.get<std::string>());
    out.bytes_sent = IntOf(c, "bytes_sent");
    out.repeats = IntOf(c, "times");
  }
  for (const Json& op : ChildOf(explain, "ops")) {
    TESSERA_ASSIGN_OR_RETURN(PlanView::Op read, ReadOp(op, plan.mesh));
    plan.ops.push_back(std::move(read));
    for (const Json& move : ChildOf(op, "moves")) {
      if (move.is_string()) {
        plan.reshards.push_back(
            {TextOf(op, "op"), ReplaceControlChars(move.get<std::string>()), TextOf(op, "site")});
      }
    }
  }
  const Json& memory = ChildOf(explain, "memory");
  plan.peak_bytes = IntOf(memory, "peak_bytes");
  plan.argument_bytes = IntOf(memory, "argument_bytes");
  plan.result_bytes = IntOf(memory, "result_bytes");
  plan.absent_device_bytes = IntOf(memory, "absent_device_bytes");
  const Json& predicted = ChildOf(explain, "predicted");
  plan.compute_time = absl::Seconds(NumberOf(predicted, "compute_seconds"));
  plan.collective_time = absl::Seconds(NumberOf(predicted, "collective_seconds"));
  plan.measured_devices = ChildOf(predicted, "measured") == true;
  plan.last_run = absl::Seconds(NumberOf(explain, "last_run_seconds"));
  return plan;
}

}  // namespace tessera::internal
