// Transforms of programs. Each is one generic walk Function -> Function that applies every op's
// rule, also in the bodies of regions; no transform names an op. Errors name the op and its source
// location. Results are new immutable functions. Stateless; thread-safe.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::ir {

// Forward differentiation. The result takes f's params followed by one tangent for each param with
// `active[i]`. It returns f's results followed by one tangent for each result with `out_active[i]`.
// Integer results are never active. With `instantiate`, every inexact result gets a tangent, which
// is zeros if nothing active reaches it.
struct JvpResult {
  FunctionRef fn;
  std::vector<bool> out_active;
};
absl::StatusOr<JvpResult> Jvp(const Function& f, const std::vector<bool>& active,
                              bool instantiate = false);
// Like Jvp, but exactly the results with `want[i]` get a tangent (zeros if nothing active reaches
// them). The rules of loops use it for carries.
absl::StatusOr<JvpResult> JvpWithOutputs(const Function& f, const std::vector<bool>& active,
                                         const std::vector<bool>& want);

// Splits f into a known function, which needs only the params that `known_in` marks, and an unknown
// function that does the rest:
//   known:   known params -> known results, then residuals
//   unknown: residuals, then unknown params -> unknown results
// out_known[i] says whether result i is known. A residual that is itself a known param is still
// passed through as a residual. Under `checkpoint` the unknown function recomputes values. Result i
// is always unknown if `force_unknown_out[i]`.
struct PartialEvalOptions {
  bool split_loops = true;    // if false, a loop is on one side as a whole
  bool hold_effects = false;  // ops with effects are unknown, whatever their operands are
  auto operator<=>(const PartialEvalOptions&) const = default;
};
struct PartialEvalResult {
  FunctionRef known, unknown;
  std::vector<bool> out_known;
  int num_residuals = 0;
};
absl::StatusOr<PartialEvalResult> PartialEval(const Function& f, const std::vector<bool>& known_in,
                                              const std::vector<bool>& force_unknown_out = {},
                                              PartialEvalOptions options = {});

// The jvp of a function, split by partial evaluation into two functions:
//   forward: params -> results, residuals
//   linear:  residuals, tangents of the active params -> tangents of the active (inexact) results
struct Linearized {
  FunctionRef forward, linear;
  std::vector<bool> out_active;
  int num_residuals = 0;
};
absl::StatusOr<Linearized> Linearize(const Function& f, const std::vector<bool>& active);

// Transposes f, which is linear in the params with linear[i]. The result maps the non-linear params
// and one cotangent per result to one cotangent per linear param (zeros if nothing reaches it).
absl::StatusOr<FunctionRef> TransposeFunction(const Function& f, const std::vector<bool>& linear);

// vmap. Param i carries the batch as its dim dims[i], or is not batched if dims[i] is -1. Results
// carry it as their dim out_dims[i], or are not batched if out_dims[i] is -1. `force_out[i]` is the
// wanted dim, -1 for a result that must not be batched, or -2 if any dim will do. The scope of the
// result is f's scope, but without `axis` if that is the last mapped axis listed there; collectives
// along `axis` become ops on the batch dim.
struct BatchResult {
  FunctionRef fn;
  std::vector<int> out_dims;
};
absl::StatusOr<BatchResult> Batch(const Function& f, const std::vector<int>& dims,
                                  const MappedAxis& axis, const std::vector<int>& force_out = {});

// Dead-code elimination, also in regions: the parts of an op with regions that only its unused
// results need are removed. With `keep_params` false, unused params are dropped, too. `kept`, if
// not null, receives which params remain.
FunctionRef Dce(const Function& f, bool keep_params = true, std::vector<bool>* kept = nullptr);
// Returns f in the form that runs, once no one differentiates it any more: each op with derivative
// rules (RegionRole::kRule) is replaced by its body, also in regions. An op that has rules but no
// body (custom_lin) stands for a derivative that should have been transposed. It is an error, whose
// text is the reason of the op's `partition` rule.
absl::StatusOr<FunctionRef> DropRules(FunctionRef f);
// Returns f without ops that have effects. Ops with regions lose such ops inside.
FunctionRef DropEffects(FunctionRef f);
// Returns f with one more result, a bool scalar: whether any of its results has a NaN.
FunctionRef WithNanFlag(const Function& f);
// Returns a function from f's params to two s32 scalars. The first is the index of the first op of
// f that makes a NaN: one of its results has a NaN although no operand has. The second is the index
// of the first param with a NaN. Each is -1 if there is none. An op with regions counts as one op.
FunctionRef FirstNanSearch(const Function& f);
// Returns the same body typed in another scope (axes that become Manual, check_vma). The types of
// all ops are inferred anew from the given param types.
absl::StatusOr<FunctionRef> Rescope(const Function& f, const Scope& scope,
                                    const std::vector<Type>& params);

}  // namespace tessera::ir
