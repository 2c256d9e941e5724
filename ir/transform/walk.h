// Helpers of the generic walks: the rule's view of an op, the types that a derivative must have,
// and the renumbering of a function's params and results. Internal to ir/; may throw
// StatusException.
#pragma once
#include <vector>

#include "absl/types/span.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// Returns `op` of `f` as its rules see it, with operands and results mapped into `b`.
RuleContext Context(Builder& b, const Function& f, const Op& op, std::vector<Value> in,
                    std::vector<Value> out);
// Emits `op` on mapped operands.
std::vector<Value> EmitPlain(Builder& b, const Op& op, Values in);

// MatchTangent casts `v` to the manual axes type of `want`: by `pvary` over axes along which only
// `want` varies, and by `psum` over axes along which only `v` varies (the transpose of an implicit
// pvary). MatchCotangent does so for the type of the cotangents of `primal`. An absent `v` stays
// absent.
Value MatchTangent(Value v, const Type& want);
Value MatchCotangent(Value v, const Type& primal);

// Returns the function whose params and results are these values of `f`, in this order, without
// dead ops. Results may repeat. Requires: the remaining ops use no param that is left out.
FunctionRef Extract(Function f, absl::Span<const ValueId> params,
                    absl::Span<const ValueId> results);
// Like Extract, but `results` are indices into f.results.
FunctionRef Reorder(const Function& f, absl::Span<const int> params, absl::Span<const int> results);
// Returns which params the results depend on.
std::vector<bool> UsedParams(const Function& f);
// Iota returns 0 .. n-1. Where returns the indices at which `mask` is `value`.
std::vector<int> Iota(int n);
std::vector<int> Where(const std::vector<bool>& mask, bool value = true);

// Returns the type with a dim of `size` inserted before `dim`, unsharded.
Type InsertDim(Type type, int dim, int64_t size);
// Returns the type without `dim`.
Type DropDim(Type type, int dim);

// Returns the regions of an op of `def` in a scope with these mapped axes. The axes do not affect
// types.
std::vector<FunctionRef> RegionsUnder(const OpDef& def, std::vector<FunctionRef> regions,
                                      const std::vector<MappedAxis>& mapped);

// Returns the axes that `v` lacks in a batch inside a shard_map whose Manual axes cut the batch
// (MappedAxis::spmd): those of the axes over which `v` does not vary.
AxisSet CutMissing(const MappedAxis& axis, Value v);
// Returns `v`, which is the same for the whole batch, with a batch dim at `dim`.
Value WithBatchDim(const MappedAxis& axis, Value v, int dim);
// Returns the sum over the batch of a value that carries it at `dim`. The sum is the same for all
// members.
Value SumOfBatch(const MappedAxis& axis, Value v, int dim);

}  // namespace tessera::ir::walk
