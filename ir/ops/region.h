// Shared by the ops with regions.  Internal to ir/ops; functions throw StatusException unless they
// return a status.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/op_def.h"
#include "ir/ops/family.h"
#include "ir/transform/partial_eval.h"
#include "ir/transform/transform.h"

namespace tessera::ir::ops {

inline constexpr RegionRole kOneBody[] = {RegionRole::kBody};

// The region's cost: the sum over its ops, nested regions included.
Cost CostOf(const Function& f);
// Checks that region `k` is in `scope` and takes this many params.
absl::Status CheckRegion(const InferContext& c, size_t k, const Scope& scope, size_t num_params);
// The error of a carry that a body, "scan" or "while_loop body", does not return as it takes it.
absl::Status CarryMismatch(std::string_view function, int k, const Type& in, const Type& out);
// ". This might be fixed by applying pcast(...) to <what>" if that makes the manual axes type of a
// value of type `have` that of both; else "".
std::string PcastHint(const Type& have, const Type& other, std::string_view what);

// ---- Rules of ops that apply their first region to all operands, as call does. ----
// The types of the operands are those of its params but for `weak`.
absl::StatusOr<std::vector<Type>> InferCall(const InferContext& c);
// Results that are params share their factors; other dims have factors of their own.
Signature CallFactors(const InferContext& c, absl::Span<const Type> out);
DataFlow CallDataFlow(const InferContext& c);
Cost CallCost(const InferContext& c, absl::Span<const Type> out);
// Emits `as`, an op that applies its one region, with the transposed region.
std::vector<Value> TransposeCall(const RuleContext& c, Values cts, const std::vector<bool>& linear,
                                 const OpDef& as, const Attrs& attrs);
absl::StatusOr<std::vector<Shards>> EvalCall(const EvalContext& c, absl::Span<const Shards> in);

// ---- For ops with derivative rules. ----
// Checks that rule `k`, called `name` in the error, takes what the op's rule_params says.
absl::Status CheckRuleParams(const InferContext& c, size_t k, std::string_view name);
// The attribute num_consts, checked: the consts are the first operands.
absl::StatusOr<int> CheckedNumConsts(const InferContext& c);

// Edges between the operands from `first_operand` on and the region's params, in order, and between
// its results and those of the op.
RegionDataFlow EdgesOf(const Function& region, int first_operand);

std::vector<bool> IsValid(Values values);
// Which of the types have tangents.
std::vector<bool> AreInexact(absl::Span<const Type> types);
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
template <class T>
std::vector<T> Part(const std::vector<T>& v, int begin, int count) {
  return {v.begin() + begin, v.begin() + begin + count};
}
// The values at the indices where `mask` is set, absent ones elsewhere.
std::vector<Value> ScatterByMask(Values values, const std::vector<bool>& mask);
// `out` is the primal results, one per entry of `active`, then the tangents of the active ones.
// Returns the same with an absent tangent for each of the others.
std::vector<Value> SpreadTangents(std::vector<Value> out, const std::vector<bool>& active);

// The function with `map` of each result, given its index, in its place.
FunctionRef WithMappedResults(const Function& f, absl::FunctionRef<Value(int, Value)> map);
std::vector<bool> Flipped(std::vector<bool> mask);
// A partial evaluation that leaves the op to the unknown side.
void KeepUnknown(PartialEvalContext& c);
// Runs `f` on some of the current shards; in[param][shard] and (*out)[result][shard] are of all.
absl::Status RunOnShards(Evaluator& evaluator, const Function& f, absl::Span<const Shards> in,
                         const std::vector<int>& shards, std::vector<Shards>* out);

// The jvp of a loop's body with tangents for the carries that some iteration gives one, which are
// added to `active`. The carries are the params from `carry0` on, and the first results.
JvpResult JvpOfBody(const Function& body, int carry0, int num_carry, std::vector<bool>* active);
// The split of a loop's body at the least fixpoint of "a carry is known"; other carries are forced
// to be unknown.
struct BodySplit {
  std::vector<bool> known;  // per param
  PartialEvalResult pe;
};
BodySplit SplitBody(const Function& body, int carry0, int num_carry, std::vector<bool> known,
                    PartialEvalOptions options = {});

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
