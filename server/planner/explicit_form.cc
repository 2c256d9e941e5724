// Finds the explicit form of an op by type inference: it tries forms, the simplest first, until the
// inferred types have the plan's shardings. The partitioner calls it for the explanations that
// `--as-explicit` shows.
#include "server/planner/explicit_form.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace tessera::server::planner {
namespace {

using ir::DimAxes;

ir::PartitionSpec SpecFrom(const DimAxes& dims) {
  ir::PartitionSpec spec;
  spec.dims = dims;
  return spec;
}

ir::Type WithSharding(ir::Type type, const DimAxes& dims) {
  type.sharding = dims;
  ir::Normalize(&type);
  return type;
}

bool TakesOutSharding(const ir::OpDef& def) {
  return std::any_of(def.attrs.begin(), def.attrs.end(), [](const ir::AttrSpec& attr) {
    return attr.name == std::string_view("out_sharding");
  });
}

class ExplicitFormFinder {
 public:
  ExplicitFormFinder(const ir::Function& f, const ir::Op& op, const std::vector<DimAxes>& operands,
                     const std::vector<DimAxes>& results)
      : f_(f), op_(op), operands_(operands), results_(results), scope_(f.scope) {
    scope_.mesh = f.scope.mesh.WithAxisType(f.scope.mesh.AxesOfType(ir::AxisType::kAuto),
                                            ir::AxisType::kExplicit);
  }

  // Returns the form with the operands at the shardings `at`, or nullopt if type inference refuses
  // these operands.
  std::optional<ExplicitForm> FormWith(const std::vector<DimAxes>& at) const {
    ExplicitForm form;
    std::vector<ir::Type> in;
    for (size_t i = 0; i < at.size(); ++i) {
      in.push_back(WithSharding(f_.type(op_.operands[i]), at[i]));
      if (at[i] != operands_[i]) form.operands.emplace_back(i, SpecFrom(at[i]));
    }
    const std::optional<std::vector<int>> differ = DifferingResults(in, op_.attrs);
    if (differ && differ->empty()) return form;
    if (results_.size() == 1 && TakesOutSharding(*op_.def)) {
      ir::Attrs attrs = op_.attrs;
      attrs.Set("out_sharding", SpecFrom(results_[0]));
      if (const auto still_differ = DifferingResults(in, attrs);
          still_differ && still_differ->empty()) {
        form.out_sharding = SpecFrom(results_[0]);
        return form;
      }
    }
    if (!differ) return std::nullopt;
    for (int r : *differ) form.results.emplace_back(r, SpecFrom(results_[r]));
    return form;
  }

 private:
  // Returns the results whose inferred sharding differs from the plan's, or nullopt if type
  // inference refuses the operands.
  std::optional<std::vector<int>> DifferingResults(const std::vector<ir::Type>& in,
                                                   const ir::Attrs& attrs) const {
    const absl::StatusOr<std::vector<ir::Type>> types =
        ir::InferTypes(*op_.def, scope_, in, attrs, op_.regions);
    if (!types.ok()) return std::nullopt;
    std::vector<int> out;
    for (size_t r = 0; r < types->size(); ++r)
      if (WithSharding((*types)[r], results_[r]).sharding != (*types)[r].sharding)
        out.push_back(static_cast<int>(r));
    return out;
  }

  const ir::Function& f_;
  const ir::Op& op_;
  const std::vector<DimAxes>& operands_;
  const std::vector<DimAxes>& results_;
  ir::Scope scope_;
};

}  // namespace

ExplicitForm ExplicitFormOf(const ir::Function& f, const ir::Op& op,
                            const std::vector<DimAxes>& operands,
                            const std::vector<DimAxes>& wanted,
                            const std::vector<DimAxes>& results) {
  const ExplicitFormFinder finder(f, op, operands, results);
  std::vector<DimAxes> whole;
  for (const DimAxes& dims : operands) whole.emplace_back(dims.size());
  // Prefers operands with the shardings that they have, if no result then needs a reshard. Next
  // come operands with the shardings to which the plan moves them, and at last gathered operands.
  const std::optional<ExplicitForm> unmoved = finder.FormWith(operands);
  if (unmoved && unmoved->results.empty()) return *unmoved;
  const std::optional<ExplicitForm> moved = finder.FormWith(wanted);
  if (moved && (!unmoved || moved->results.empty())) return *moved;
  if (unmoved) return *unmoved;
  return finder.FormWith(whole).value_or(ExplicitForm());
}

}  // namespace tessera::server::planner
