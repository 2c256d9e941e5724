// Transforms of programs: each is one generic walk Function -> Function that applies every op's
// rule, region bodies included. None names an op. All return errors that name the op and its source
// location. Results are new immutable functions.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::ir {

// Jvp: takes f's params followed by one tangent for each param with `active[i]`; returns f's
// results followed by one tangent for each result with `out_active[i]`.  Integer results are never
// active. `instantiate`: give every inexact result a tangent, zeros where it has none.
struct JvpResult {
  FunctionRef fn;
  std::vector<bool> out_active;
};
absl::StatusOr<JvpResult> Jvp(const Function& f, const std::vector<bool>& active,
                              bool instantiate = false);
// As Jvp, but exactly the results with `want[i]` get a tangent (zeros if need be). Used for
// carries.
absl::StatusOr<JvpResult> JvpWithOutputs(const Function& f, const std::vector<bool>& active,
                                         const std::vector<bool>& want);

// Splits f by which params are known first.
//   known:   known params -> known results, then residuals
//   unknown: residuals, then unknown params -> unknown results
// out_known[i] says whether result i is known.  A residual that is itself a known param is passed
// through as a residual too.  Under `checkpoint` the unknown function recomputes.  Result i is
// unknown in any case if `force_unknown_out[i]`.
struct PartialEvalOptions {
  bool split_loops = true;    // else a loop is on one side as a whole
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

// jvp then partial evaluation: forward: params -> results, residuals.
// linear: residuals, tangents of the active params -> tangents of the active (inexact) results.
struct Linearized {
  FunctionRef forward, linear;
  std::vector<bool> out_active;
  int num_residuals = 0;
};
absl::StatusOr<Linearized> Linearize(const Function& f, const std::vector<bool>& active);

// Transposes f, which is linear in the params with linear[i].  Returns: non-linear params, then one
// cotangent per result -> one cotangent per linear param (zeros where none).
absl::StatusOr<FunctionRef> TransposeFunction(const Function& f, const std::vector<bool>& linear);

// vmap: param i carries the batch at dims[i], or is not batched when -1.  Results carry it at
// out_dims[i], or are unbatched when -1.  `force_out`: -2 leaves the choice, else the dim wanted.
// The result's scope is f's without the mapped axis, its last one if `axis` stands in a scope;
// collectives over it become ops on the batch dim.
struct BatchResult {
  FunctionRef fn;
  std::vector<int> out_dims;
};
absl::StatusOr<BatchResult> Batch(const Function& f, const std::vector<int>& dims,
                                  const MappedAxis& axis, const std::vector<int>& force_out = {});

// Dead-code elimination, in regions too: of an op with regions, what its unused results need goes.
// `keep_params`: false also drops unused params; `kept`, if not null, gets
// which params remain.
FunctionRef Dce(const Function& f, bool keep_params = true, std::vector<bool>* kept = nullptr);
// What is run of a function that nobody differentiates any more: each op with derivative rules
// (RegionRole::kRule) is replaced by its body, in regions too. Errors: an op that is only a rule,
// of a derivative that must be transposed and was not, with the reason of its `partition`.
absl::StatusOr<FunctionRef> DropRules(FunctionRef f);
// f without ops that have effects; those with regions lose them there.
FunctionRef DropEffects(FunctionRef f);
// f with one more result, a bool scalar: whether any of its results has a NaN.
FunctionRef WithNanFlag(const Function& f);
// f's params -> two s32 scalars: the index of its first op that makes a NaN, which is in a result
// though in none of the operands, and the index of the first param that has one; -1: none. An op
// with regions counts as one.
FunctionRef FirstNan(const Function& f);
// The same body typed in another scope (axes that become Manual, check_vma), every op inferred anew
// from the given param types.
absl::StatusOr<FunctionRef> Rescope(const Function& f, const Scope& scope,
                                    const std::vector<Type>& params);

}  // namespace tessera::ir
