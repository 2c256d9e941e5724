// Says how an op has to be written when Auto axes become Explicit ones, so that the types give its
// results the shardings that the planner has chosen. If the shardings follow from the operands'
// types, the op stays as it is. Otherwise it needs the attribute out_sharding, or reshards of
// operands and results. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace tessera::server::planner {

struct ExplicitForm {
  std::vector<std::pair<int, ir::PartitionSpec>> operands;  // operands to reshard before the op
  std::optional<ir::PartitionSpec> out_sharding;
  std::vector<std::pair<int, ir::PartitionSpec>> results;  // results to reshard after the op
  bool empty() const { return operands.empty() && !out_sharding && results.empty(); }
};

// Returns the explicit form of the op. `operands` and `results` are the shardings of the op's
// operands and results in the plan. `wanted` are the shardings to which the plan reshards the
// operands for this op.
ExplicitForm ExplicitFormOf(const ir::Function& f, const ir::Op& op,
                            const std::vector<ir::DimAxes>& operands,
                            const std::vector<ir::DimAxes>& wanted,
                            const std::vector<ir::DimAxes>& results);

}  // namespace tessera::server::planner
