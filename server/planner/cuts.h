// Decides by which mesh axes each op of a function is cut, so that few bytes are sent, and which
// sums over shards wait. Some ops leave each shard with a term of the result. The sum may then be
// taken later: after several terms have been added up, or where each shard wants only its block of
// the sum (a reduce-scatter instead of an all-reduce). A value with an unreduced type consists of
// terms in any case, for all its readers. Reference: docs/decisions/0017.
#pragma once
#include <optional>
#include <vector>

#include "ir/derive/factors.h"
#include "ir/program.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// How an op without planned regions is cut. `factor_axes` has the mesh axes of each factor.
// `carried` are the axes along which the operands are terms; the result then consists of terms
// along them too. The result's type may name some of these axes. The sums along the others are
// completed at once, or left to the reader of the result (CutPlan::complete_to).
struct OpCut {
  std::vector<ir::AxisList> factor_axes;
  ir::AxisList carried;
};
struct CutPlan {
  std::vector<OpCut> ops;  // one for each op
  // For each value that consists of terms after its op has run: the sharding to which the sum is
  // completed at once, or nullopt if the value's reader goes on with the terms. All other values
  // have nullopt too.
  std::vector<std::optional<ir::DimAxes>> complete_to;
};

// Decides the cuts of a function. `wanted` has the shardings of the results. Requires: `s` is the
// result of Propagate.
CutPlan PlanCuts(const ir::Function& f, const FunctionShardings& s,
                 const std::vector<ir::DimAxes>& wanted);

}  // namespace tessera::server::planner
