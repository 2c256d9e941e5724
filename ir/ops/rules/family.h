// Helpers that all op files share: rules that many families use, and small checks whose errors
// begin with the op's name in jax.lax (OpDef::lax_name). Stateless; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::ir::ops {

// ValueError, TypeError and ShardingError return an error of the kind that is their name. The text
// of the error is the op's lax name and the message, as in "mul: <message>". Builder adds the
// source location.
template <class... Parts>
absl::Status ValueError(const InferContext& c, const Parts&... parts) {
  return MakeError(ErrorKind::kValueError, absl::StrCat(ToAbsl(c.def.lax_name), ": ", parts...));
}
template <class... Parts>
absl::Status TypeError(const InferContext& c, const Parts&... parts) {
  return MakeError(ErrorKind::kTypeError, absl::StrCat(ToAbsl(c.def.lax_name), ": ", parts...));
}
template <class... Parts>
absl::Status ShardingError(const InferContext& c, const Parts&... parts) {
  return MakeError(ErrorKind::kShardingTypeError,
                   absl::StrCat(ToAbsl(c.def.lax_name), ": ", parts...));
}

// Returns NOT_IMPLEMENTED, with the list of the dtypes that have kernels, if `dtype` has none.
absl::Status CheckComputable(const InferContext& c, DType dtype);

// Adds to `s` a new factor of kind `kind` for every dim of `t`. Returns the factors of each dim of
// `t`.
TensorFactors AddFactors(Signature* s, const Type& t, FactorKind kind);
// The signature of elementwise ops: one pass-through factor per dim of the result. Operands of the
// same rank share the factors; operands of rank 0 have none.
Signature PointwiseFactors(const InferContext&, absl::Span<const Type> out);
// Gives every dim of operands and results a factor of its own of kind kReplicated, so that nothing
// may be sharded.
Signature ReplicatedFactors(const InferContext&, absl::Span<const Type> out);
// The `varying` rule of ops of one array: gives the results the manual axes type (the varying,
// unreduced and reduced axes) of operand 0.
absl::Status SameVmaAsFirst(const InferContext&, std::vector<Type>* out);
// A `sharding` or `varying` rule that changes nothing, for ops whose infer rule gives complete
// types.
absl::Status KeepInferredTypes(const InferContext&, std::vector<Type>* out);
// Returns a cost of zero, for ops whose work is too little to count, such as casts.
Cost NoCost(const InferContext&, absl::Span<const Type> out);
// Returns the op's regions, so that a rule can emit the op again.
inline std::vector<FunctionRef> RegionsOf(const RuleContext& c) {
  return {c.regions.begin(), c.regions.end()};
}

}  // namespace tessera::ir::ops
