// Shared by the ops with regions.  Internal to ir/ops; functions throw StatusException unless they
// return a status.
#pragma once
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/op_def.h"
#include "ir/ops/family.h"
#include "ir/transform/partial_eval.h"

namespace tessera::ir::ops {

// The region's cost: the sum over its ops, nested regions included.
Cost CostOf(const Function& f);
// Checks that the region is in `scope` and takes as many params as there are operands.
absl::Status CheckRegion(const InferContext& c, const Scope& scope);

std::vector<bool> IsValid(Values values);
std::vector<Value> DropAbsent(Values values);
template <class T>
std::vector<T> Concat(std::vector<T> a, absl::Span<const T> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline std::vector<Value> Concat(std::vector<Value> a, Values b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
// The values at the indices where `mask` is set, absent ones elsewhere.
std::vector<Value> ScatterByMask(Values values, const std::vector<bool>& mask);
// `out` is the primal results, one per entry of `active`, then the tangents of the active ones.
// Returns the same with an absent tangent for each of the others.
std::vector<Value> SpreadTangents(std::vector<Value> out, const std::vector<bool>& active);

// The known part of a split region without the residuals that are its params or, with
// `search_results`, its other results.
struct DedupedResiduals {
  FunctionRef known;  // the first `num_out` results, then the residuals that remain
  struct Source {
    bool is_param;
    int index;  // of a param of `known`, or of one of its results
  };
  std::vector<Source> sources;  // of each residual
};
DedupedResiduals DedupeResiduals(const Function& known, int num_out, bool search_results = true);

}  // namespace tessera::ir::ops
