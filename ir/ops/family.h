// Shared by the op files: constructors that fill in a family's rules, and small checks whose errors
// use the op's lax name.
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

// "mul: <message>" as VALUE_ERROR or TYPE_ERROR; Builder adds the source location.
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

// NOT_IMPLEMENTED, with the list of dtypes that have kernels, if `dtype` has none.
absl::Status CheckComputable(const InferContext& c, DType dtype);

// Adds a factor of this kind for every dim of `t`, and returns them.
TensorFactors AddFactors(Signature* s, const Type& t, FactorKind kind);
// The elementwise signature: one pass-through factor per dim of the result, shared by every operand
// of that rank (rank-0 operands have none).
Signature Pointwise(const InferContext&, absl::Span<const Type> out);
// Every dim of operands and results has its own need-replication factor: nothing may be sharded.
Signature ReplicateAll(const InferContext&, absl::Span<const Type> out);
// Gives the results the manual axes type of operand 0 (ops of one array).
absl::Status SameVmaAsFirst(const InferContext&, std::vector<Type>* out);
// Adds nothing: infer gave the types in full.
absl::Status Inferred(const InferContext&, std::vector<Type>* out);
// Zero, for casts.
Cost NoCost(const InferContext&, absl::Span<const Type> out);

}  // namespace tessera::ir::ops
