// The computations of ops (RegionRole::kComputation) as scalar graphs, from which backends make
// code; and which bodies may stand in place of their op. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/program.h"
#include "ir/scalar_graph.h"

namespace tessera::ir {

struct DataFlow;  // op_def.h

// Input i is param i, root k result k. nullopt if the computation has no such form: a loop or a
// branch, a dtype without kernels (HasKernels), more than eight results, or more than a hundred
// primitives or so.
// Requires: `computation` passed the inference of its op, so that its values are scalars.
std::optional<ScalarGraph> GraphOf(const Function& computation);

// What an element of a primitive, or of a graph's roots, costs in simple operations: bounds the
// size of kernels.
int WeightOf(ScalarPrim prim);
int WeightOf(const ScalarGraph& graph);

// A reduction by a computation combines neighbours in pairs, and has kernels that do so several
// times over: each makes runs of up to so many neighbours along a dim of `rows` one, a power of
// two; and so many elements are left of the rows. Requires: rows > 1.
int64_t RunLength(int64_t rows, const ScalarGraph& computation);
int64_t NumRuns(int64_t rows, const ScalarGraph& computation);

// Whether the op has a computation, as all of its regions are then.
bool HasComputation(const OpDef& def);
// Whether an op with this data flow runs one body, once, on values as they are: no branch or loop.
bool IsCall(const OpDef& def, const DataFlow& flow);

}  // namespace tessera::ir
