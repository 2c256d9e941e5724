// The batch dim of values under a vmap: the batching rules of ops, and the transform Batch, add it
// to values that are the same for the whole batch, and sum over it. Internal to ir/. Functions
// throw StatusException. Stateless; thread-safe.
#pragma once
#include "ir/builder.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// MappedAxis::spmd names the Manual axes of a shard_map that cut the batch. Returns those of them
// along which `v` does not vary.
AxisSet MissingSpmdAxes(const MappedAxis& axis, Value v);
// Returns `v`, which is the same for the whole batch, with a batch dim at `dim`.
Value WithBatchDim(const MappedAxis& axis, Value v, int dim);
// Returns the sum over the batch of a value that carries it at `dim`. The sum is the same for all
// members.
Value SumOfBatch(const MappedAxis& axis, Value v, int dim);

}  // namespace tessera::ir::walk
