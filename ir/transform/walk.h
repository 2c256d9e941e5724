// What the generic walks share: the rule's view of an op, types that a derivative must have, and
// renumbering of a function's params and results.  Internal to ir/; may throw StatusException.
#pragma once
#include <vector>

#include "absl/types/span.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// `op` of `f` as its rules see it, with operands and results mapped into `b`.
RuleContext Context(Builder& b, const Function& f, const Op& op, std::vector<Value> in,
                    std::vector<Value> out);
// Emits `op` on mapped operands.
std::vector<Value> EmitPlain(Builder& b, const Op& op, Values in);

// `v` with the manual axes type of `want`: `pvary` over axes that it lacks, `psum` over axes that
// it has in addition (the transpose of an implicit pvary).  An absent `v` stays absent.
Value MatchTangent(Value v, const Type& want);
Value MatchCotangent(Value v, const Type& primal);

// The function whose params and results are these values of `f`, in this order, without dead ops.
// Results may repeat.  Requires: what is kept uses no param that is left out.
FunctionRef Extract(Function f, absl::Span<const ValueId> params,
                    absl::Span<const ValueId> results);
// The same, where `results` are indices into f.results.
FunctionRef Reorder(const Function& f, absl::Span<const int> params, absl::Span<const int> results);
// Which params are used by what the results need.
std::vector<bool> UsedParams(const Function& f);
// 0 .. n-1, and the indices where `mask` is `value`.
std::vector<int> Iota(int n);
std::vector<int> Where(const std::vector<bool>& mask, bool value = true);

// The type with a dim of `size` before `dim`, unsharded.
Type InsertDim(Type type, int dim, int64_t size);
// The type without `dim`.
Type DropDim(Type type, int dim);

// Regions of an op of `def` for a scope with these mapped axes, with which types do not change.
std::vector<FunctionRef> RegionsUnder(const OpDef& def, std::vector<FunctionRef> regions,
                                      const std::vector<MappedAxis>& mapped);

// For batching, in a shard_map whose Manual axes cut the batch (MappedAxis::spmd): those of the
// axes over which `v` does not vary.
AxisSet CutMissing(const MappedAxis& axis, Value v);
// `v`, which is the same for the whole batch, with the batch dim at `dim`.
Value WithBatchDim(const MappedAxis& axis, Value v, int dim);
// The sum over the batch of a value that carries it at `dim`, the same for all.
Value SumOfBatch(const MappedAxis& axis, Value v, int dim);

}  // namespace tessera::ir::walk
