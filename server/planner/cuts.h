// Decides two things about each op of a function, so that few bytes are sent. The first is by which
// mesh axes the op is cut: along such an axis, each device computes a part of the op. The second is
// which sums over shards wait. Some ops leave each device with a term, and the result is the sum of
// all devices' terms. The sum may be taken later: after several terms have been added up on each
// device, or where each device needs only its block of the sum (a reduce-scatter instead of an
// all-reduce). A value with an unreduced type consists of terms in any case: all its readers get
// terms. Reference: docs/decisions/0017.
#pragma once
#include <optional>
#include <vector>

#include "ir/derive/factors.h"
#include "ir/program.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// How an op without planned regions is cut. `factor_axes` has the mesh axes by which each factor is
// cut. `carried` are the axes along which the operands are terms; the result then consists of terms
// along these axes too. Along carried axes that are unreduced in the result's type, the result
// stays terms. Along the others the sum is completed at once, or left to the reader of the result
// (CutPlan::complete_to).
struct OpCut {
  std::vector<ir::AxisList> factor_axes;
  ir::AxisList carried;
};
struct CutPlan {
  std::vector<OpCut> ops;  // one for each op
  // For each value: the sharding of the sum, if the value's op leaves terms and they are added up
  // right after it; otherwise nullopt. A value has nullopt if its op leaves no terms, or if its
  // reader takes the terms as they are.
  std::vector<std::optional<ir::DimAxes>> complete_to;
};

// Decides the cuts of a function. `wanted` has the shardings of the results. Requires: `s` is the
// result of Propagate.
CutPlan PlanCuts(const ir::Function& f, const FunctionShardings& s,
                 const std::vector<ir::DimAxes>& wanted);

}  // namespace tessera::server::planner
