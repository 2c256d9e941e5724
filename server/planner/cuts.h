// Decides two things about each op of a function, so that few bytes are sent. The first is by which
// mesh axes the op is cut: along such an axis, each device computes a part of the op. The second is
// which sums over shards wait. Some ops leave each device with a summand of the result, which is
// then a pending sum. The summands may be added up over the devices later: after each device has
// added several pending sums, or where each device needs only its block of the sum (a
// reduce-scatter instead of an all-reduce). A value with an unreduced type is a pending sum for all
// its readers. Reference: docs/decisions/0017.
#pragma once
#include <optional>
#include <vector>

#include "ir/derive/factors.h"
#include "ir/program.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// How an op without planned regions is cut. `factor_axes` has the mesh axes by which each factor is
// cut. `pending_axes` are the axes along which the operands are pending sums. The results are then
// pending sums along these axes, too. Along those that are unreduced in the result's type, the
// result remains a pending sum. Along the others the sum is completed at once, or left to the
// reader of the result (CutPlan::complete_to).
struct OpCut {
  std::vector<ir::AxisList> factor_axes;
  ir::AxisList pending_axes;
};
struct CutPlan {
  std::vector<OpCut> ops;  // one for each op
  // For each value: the sharding of the sum, if the value's op makes a pending sum that is
  // completed right after the op; otherwise nullopt. A value has nullopt if its op makes no pending
  // sum, or if its reader takes the pending sum as it is.
  std::vector<std::optional<ir::DimAxes>> complete_to;
};

// Decides the cuts of a function. `wanted` has the shardings of the results. Requires: `s` is the
// result of Propagate.
CutPlan PlanCuts(const ir::Function& f, const FunctionShardings& s,
                 const std::vector<ir::DimAxes>& wanted);

}  // namespace tessera::server::planner
