// Shared by the ops with regions: checks, the rules of ops that call a function, and the pieces of
// which the rules of loops are made. Internal to ir/ops. Functions throw StatusException unless
// they return a status. Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ir/op_def.h"
#include "ir/ops/rules/family.h"
#include "ir/transform/partial_eval.h"
#include "ir/transform/transform.h"

namespace tessera::ir::ops {

inline constexpr RegionRole kOneBody[] = {RegionRole::kBody};

// Checks that region `k` has the scope `scope` and `num_params` params.
absl::Status CheckRegion(const InferContext& c, size_t k, const Scope& scope, size_t num_params);
// Returns the error for a body whose result for carry `k` has the type `out` while its param for
// the carry has the type `in`. `function` names the body, "scan" or "while_loop body".
absl::Status CarryMismatchError(std::string_view function, int k, const Type& in, const Type& out);
// Returns ". This might be fixed by applying pcast(...) to <what>" if a cast would make the types
// `have` and `other` equal, else "". The cast makes a value of type `have` vary over more axes.
std::string PcastHint(const Type& have, const Type& other, std::string_view what);

// ---- Rules of ops that apply their first region to all operands, like call. ----
// Checks that the operands have the types of the region's params, except for `weak`, and returns
// the types of its results.
absl::StatusOr<std::vector<Type>> InferCall(const InferContext& c);
// Where the region returns one of its params unchanged, the op's result shares the factors of the
// operand for that param. All other dims have factors of their own.
Signature CallFactors(const InferContext& c, absl::Span<const Type> out);
DataFlow CallDataFlow(const InferContext& c);
Cost CallCost(const InferContext& c, absl::Span<const Type> out);
// Transposes the first region and emits the op `as` with the transposed function as its region.
// `as` must be an op that applies its only region to all operands.
std::vector<Value> TransposeCall(const RuleContext& c, Values cts, const std::vector<bool>& linear,
                                 const OpDef& as, const Attrs& attrs);
absl::StatusOr<std::vector<Shards>> EvalCall(const EvalContext& c, absl::Span<const Shards> in);

// ---- For ops with derivative rules. ----
// Checks that the params of region `k`, a derivative rule, have the types that the op's
// OpDef::rule_params returns. The error text calls the region `name`.
absl::Status CheckRuleParams(const InferContext& c, size_t k, std::string_view name);
// Returns the attribute num_consts after checking it. The constants are the first operands.
absl::StatusOr<int> CheckedNumConsts(const InferContext& c);

// Returns one data-flow edge for each param of the region, from the operands from `first_operand`
// on, in order, and one for each result of the region, to the op's result of the same number.
RegionDataFlow EdgesOf(const Function& region, int first_operand);

std::vector<bool> AreValid(Values values);
// Returns which of the types have tangents.
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
// Returns a list with the given values, in order, at the indices where `mask` is set, and absent
// values (Value()) elsewhere.
std::vector<Value> ScatterByMask(Values values, const std::vector<bool>& mask);
// `out` has the primal results, one for each entry of `active`, followed by the tangents of the
// active results. Returns the primal results followed by one tangent for each, which is absent for
// a result that is not active.
std::vector<Value> SpreadTangents(std::vector<Value> out, const std::vector<bool>& active);

// Returns the function with each result replaced by map(index of the result, result).
FunctionRef WithMappedResults(const Function& f, absl::FunctionRef<Value(int, Value)> map);
std::vector<bool> Flipped(std::vector<bool> mask);
// A partial evaluation rule that leaves the whole op to the unknown side.
void KeepUnknown(PartialEvalContext& c);
// Runs `f` on the shards of the evaluator whose numbers are in `shards`. in[param][shard] and
// (*out)[result][shard] have entries for all shards; the entries of other shards are neither read
// nor written.
absl::Status RunOnShards(Evaluator& evaluator, const Function& f, absl::Span<const Shards> in,
                         const std::vector<int>& shards, std::vector<Shards>* out);

// Returns the jvp of a loop's body. `active` says which params have tangents. A carry that gets a
// tangent in some iteration has one in all of them, so JvpOfBody sets its entry of `active` too.
// The carries are the `num_carry` params from `carry0` on, and the first `num_carry` results.
JvpResult JvpOfBody(const Function& body, int carry0, int num_carry, std::vector<bool>* active);
// The split of a loop's body into a known and an unknown part. A carry is known if it is known at
// the start and every iteration keeps it known. A carry that becomes unknown may make others
// unknown, so SplitBody splits the body again until no further carry changes.
struct BodySplit {
  std::vector<bool> known;  // per param
  PartialEvalResult pe;
};
BodySplit SplitBody(const Function& body, int carry0, int num_carry, std::vector<bool> known,
                    PartialEvalOptions options = {});

// The known part of a split region with fewer residuals, the values that it hands over to the
// unknown part. Residuals that are params of the known part are left out and, with
// `search_results`, also those that are among its other results.
struct DedupedResiduals {
  FunctionRef known;  // returns the first `num_out` results, then the remaining residuals
  struct Source {
    bool is_param;
    int index;  // index of a param of `known`, or of one of its results
  };
  std::vector<Source> sources;  // where to find each residual
};
DedupedResiduals DedupeResiduals(const Function& known, int num_out, bool search_results = true);

}  // namespace tessera::ir::ops
