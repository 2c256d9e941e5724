// Propagation: extends the shardings that the program gives to a sharding for every value, factor
// by factor of each op, until nothing changes.
//
// Pure.  A sharding only ever grows, so the fixpoint exists and does not depend on the order of
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

// The shardings of the values of one function over the mesh axes that are not Manual there.
struct FunctionShardings {
  std::vector<ir::DimAxes> of;  // per value, one entry per dim
  // Per value and mesh axis that shards it: the argument, result or op that decided so.
  std::vector<std::map<std::string, std::string>> why;
  std::vector<bool> fixed_sharding;  // given, and not extended
  bool settled = false;              // nothing has grown since the last Propagate
  // By op without planned regions, once Propagate has run.
  std::vector<ir::Signature> signatures;
  // When a value has last grown, and when an op was last visited: one that has nothing new to say
  // is not asked again.
  std::vector<int64_t> grown_at, visited_at;
  int64_t clock = 0;
  // By op index, of each region of an op whose regions are planned.
  std::map<int, std::vector<std::unique_ptr<FunctionShardings>>> regions;
};

// Starts from the program's in and out shardings, Explicit types and ops that fix a sharding.
// Errors: UNKNOWN_AXIS, INDIVISIBLE, VALUE_ERROR for specs that do not fit.
absl::Status Seed(const ir::Program& program, FunctionShardings* s);
// What decided the sharding of value `v`, human-readable; "" if it is not sharded.
std::string WhoDecided(const FunctionShardings& s, ir::ValueId v);
// Runs to the fixpoint.
void Propagate(const ir::Function& f, FunctionShardings* s);

// The axes of each factor of an op, as the shardings of its tensors suggest; conflicts go to the
// larger tensor, an axis is used once.  `operands` and `results` are per tensor, per dim.  Without
// `summed`, factors that are summed get none, and take none from others. Axes along which an
// operand is of terms cut nothing.
std::vector<ir::AxisList> ChooseFactorAxes(const ir::Function& f, const ir::Op& op,
                                           const ir::Signature& signature,
                                           const std::vector<ir::DimAxes>& operands,
                                           const std::vector<ir::DimAxes>& results,
                                           bool summed = true);
// The axes along which the shards of value `v` are terms, as its type says: unreduced ones that are
// not Manual in f. They cut none of its dims.
ir::AxisList TermsOf(const ir::Function& f, ir::ValueId v);
// The dim that the axis cuts; -1: none.
int DimOf(const ir::DimAxes& dims, const std::string& axis);

}  // namespace tessera::server::planner
