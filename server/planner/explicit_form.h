// Says how to write an op on Explicit axes, where types decide, so that it gets the sharding that
// the planner chose on Auto axes. If the sharding follows from the operands' types, the op needs
// nothing. Otherwise it needs an out_sharding, or reshards of operands and results. Pure.
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

// Returns the explicit form of the op. `operands` and `results` are the plan's shardings. `wanted`
// has the shardings to which the plan moves the operands for the op.
ExplicitForm ExplicitFormOf(const ir::Function& f, const ir::Op& op,
                            const std::vector<ir::DimAxes>& operands,
                            const std::vector<ir::DimAxes>& wanted,
                            const std::vector<ir::DimAxes>& results);

}  // namespace tessera::server::planner
