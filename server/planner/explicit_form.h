// How an op is to be written on Explicit axes, where types decide, to give what the planner chose
// on Auto axes: nothing where the sharding follows from the operands' types, else an out_sharding,
// or reshards of operands and results. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ir/program.h"

namespace tessera::server::planner {

struct ExplicitForm {
  std::vector<std::pair<int, ir::PartitionSpec>> operands;  // to reshard before the op
  std::optional<ir::PartitionSpec> out_sharding;
  std::vector<std::pair<int, ir::PartitionSpec>> results;  // to reshard after it
  bool empty() const { return operands.empty() && !out_sharding && results.empty(); }
};

// `operands` and `results`: the plan's shardings; `wanted`: those that the plan moves the operands
// to for the op.
ExplicitForm ExplicitFormOf(const ir::Function& f, const ir::Op& op,
                            const std::vector<ir::DimAxes>& operands,
                            const std::vector<ir::DimAxes>& wanted,
                            const std::vector<ir::DimAxes>& results);

}  // namespace tessera::server::planner
