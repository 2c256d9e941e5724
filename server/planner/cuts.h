// How each op of a function is cut by mesh axes, so that little is sent, and which sums over shards
// wait: where an op leaves each shard with a term of the result, the sum may be taken later, when
// terms have been added up, or when each shard wants only its block of the sum (a reduce-scatter in
// place of an all-reduce). A value whose type is unreduced is of terms in any case, and for all its
// readers.
#pragma once
#include <optional>
#include <vector>

#include "ir/derive/factors.h"
#include "ir/program.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// By which axes an op without planned regions is cut, and what of its operands' sums it leaves to
// its reader: `carried` are the axes along which operands are terms, and then so is the result.
// What of these the result's type does not name is added up, or left to its reader.
struct OpCut {
  std::vector<ir::AxisList> factor_axes;
  ir::AxisList carried;
};
struct CutPlan {
  std::vector<OpCut> ops;  // by op
  // By value that is of terms when its op has run: the sharding that it is completed to at once, or
  // nullopt, if its reader goes on with terms. Nullopt for all others, too.
  std::vector<std::optional<ir::DimAxes>> complete_to;
};

// Requires: `s` is the result of Propagate. `wanted` are the shardings of the results.
CutPlan PlanCuts(const ir::Function& f, const FunctionShardings& s,
                 const std::vector<ir::DimAxes>& wanted);

}  // namespace tessera::server::planner
