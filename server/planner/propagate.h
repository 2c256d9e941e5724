// Propagation extends the shardings that the program gives to a sharding for every value. It works
// factor by factor of each op, until nothing changes.
//
// Pure.  A sharding only ever grows, so the fixpoint exists. It does not depend on the order of
// visits beyond the order of the program.  Every decision keeps its reason.  Reference: Shardy's
// propagation over factors.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ir/derive/factors.h"
#include "ir/program.h"

namespace tessera::server::planner {

// The shardings of the values of one function, over the mesh axes that are not Manual in it.
struct FunctionShardings {
  std::vector<ir::DimAxes> shardings;  // sharding of each value, with one entry per dim
  // For each value and each mesh axis that shards it: the argument, result or op that decided it.
  std::vector<std::map<std::string, std::string>> origins;
  std::vector<bool> fixed_sharding;  // true for values whose sharding is given and must not grow
  bool settled = false;              // true if nothing has grown since the fixpoint was reached
  // Signature of each op without planned regions; empty before Propagate.
  std::vector<ir::Signature> signatures;
  // When each value has last grown, and when each op was last visited, in ticks of `clock`. An op
  // whose tensors have not grown since its visit is not visited again.
  std::vector<int64_t> grown_at, visited_at;
  int64_t clock = 0;
  // For each op with planned regions, by its index: the shardings of each region.
  std::map<int, std::vector<std::unique_ptr<FunctionShardings>>> regions;
};

// Sets the shardings that the program gives: its in and out shardings, Explicit types, and ops that
// fix a sharding. Errors for specs that do not fit are UNKNOWN_AXIS, INDIVISIBLE, VALUE_ERROR and
// SHARDING_TYPE_ERROR.
absl::Status Seed(const ir::Program& program, FunctionShardings* s);
// Says in words for people what decided the sharding of value `v`. Returns "" if it is not sharded.
std::string WhoDecided(const FunctionShardings& s, ir::ValueId v);
// Propagates the shardings until nothing changes. Requires: Seed has succeeded.
void Propagate(const ir::Function& f, FunctionShardings* s);

// Returns the axes of each factor of an op, as the shardings of its tensors suggest. If tensors
// disagree, the larger one decides. Each axis is used only once.  `operands` and `results` have the
// sharding of each tensor.  Without `summed`, factors that are summed get no axes, and take none
// away from other factors. Axes along which an operand consists of terms cut nothing.
std::vector<ir::AxisList> ChooseFactorAxes(const ir::Function& f, const ir::Op& op,
                                           const ir::Signature& signature,
                                           const std::vector<ir::DimAxes>& operands,
                                           const std::vector<ir::DimAxes>& results,
                                           bool summed = true);
// Returns the axes along which the shards of value `v` are terms, as its type says: its unreduced
// axes that are not Manual in f. These axes cut none of its dims.
ir::AxisList TermsOf(const ir::Function& f, ir::ValueId v);
// Returns the dim that the axis cuts, or -1 if it cuts none.
int DimOf(const ir::DimAxes& dims, const std::string& axis);

}  // namespace tessera::server::planner
