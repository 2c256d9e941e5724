// Propagation extends the shardings that the program gives to a sharding for every value. Op by op,
// it passes mesh axes along the op's factors from the dims that are sharded to the other dims with
// the same factor. Propagation ends when no sharding changes any more.
//
// Pure. A sharding only ever grows, so propagation ends. The result of propagation depends on the
// order of the ops in the program and on nothing else. The reason of every decision is kept.
// Reference: Shardy's propagation over factors.
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
  std::vector<bool> fixed_sharding;  // for each value: given, must not grow
  bool settled = false;              // whether nothing has grown since the last Settle
  // The signature (factors of each dim) of each op without planned regions; empty before Propagate.
  // An op has planned regions if the planner also plans the functions in it: a loop, a branch, a
  // call or a shard_map (OpDef::data_flow). The computation of a reduction is no planned region.
  std::vector<ir::Signature> signatures;
  // When each value's sharding has last grown, and when each op was last visited. Times are values
  // of `clock`, which counts the growths. An op is visited again only if the sharding of an operand
  // or a result, or something in its regions, has grown since its last visit.
  std::vector<int64_t> grown_at, visited_at;
  int64_t clock = 0;
  // For each op with planned regions, by its index: the shardings of each region.
  std::map<int, std::vector<std::unique_ptr<FunctionShardings>>> regions;
};

// Sets the shardings that the program gives: its in and out shardings, Explicit types, and ops that
// fix a sharding. Errors for specs that do not fit are UNKNOWN_AXIS, INDIVISIBLE, VALUE_ERROR and
// SHARDING_TYPE_ERROR.
absl::Status Seed(const ir::Program& program, FunctionShardings* s);
// Returns a text that says what decided the sharding of value `v`; "" if `v` is not sharded.
std::string OriginText(const FunctionShardings& s, ir::ValueId v);
// Propagates the shardings until nothing changes. Requires: Seed has succeeded.
void Propagate(const ir::Function& f, FunctionShardings* s);

// Returns the mesh axes by which each factor of an op is to be cut, as the shardings of its tensors
// (operands and results) suggest. If tensors disagree, the larger one decides. Each axis is given
// to one factor only. `operands` and `results` have the sharding of each tensor. Without `summed`,
// factors that are summed (that no result has) get no axes, and take none away from other factors.
// Axes along which an operand is a pending sum are given to no factor.
std::vector<ir::AxisList> ChooseFactorAxes(const ir::Function& f, const ir::Op& op,
                                           const ir::Signature& signature,
                                           const std::vector<ir::DimAxes>& operands,
                                           const std::vector<ir::DimAxes>& results,
                                           bool summed = true);
// Returns the axes along which value `v` is a pending sum because of its type: the unreduced axes
// that are not Manual in f. The value is the sum of its shards along them. These axes cut none of
// its dims.
ir::AxisList PendingSumAxes(const ir::Function& f, ir::ValueId v);
// Returns the dim that the axis cuts, or -1 if it cuts none.
int DimOf(const ir::DimAxes& dims, const std::string& axis);

}  // namespace tessera::server::planner
