// The computations of ops (RegionRole::kComputation) as scalar graphs, from which backends make
// code. IsCall says which ops can be replaced by their body. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/program.h"
#include "ir/scalar_graph.h"

namespace tessera::ir {

struct DataFlow;  // op_def.h

// Returns the graph of a computation: input i is param i, and root k is result k. Returns nullopt
// if the computation has no such form: a loop or a branch, a dtype without kernels (HasKernels),
// more than eight results, or more than about a hundred primitives.
// Requires: `computation` passed the inference of its op, so that its values are scalars.
std::optional<ScalarGraph> GraphOf(const Function& computation);

// Returns the cost of one element of a primitive, or of a graph's roots, in simple operations. It
// bounds the size of kernels.
int WeightOf(ScalarPrim prim);
int WeightOf(const ScalarGraph& graph);

// A reduction by a computation combines neighbours in pairs, in several rounds. One kernel does
// several of these rounds: it combines runs of up to RunLength neighbours, a power of two, along a
// dim of `rows` elements. NumRuns is the number of elements that the kernel leaves of the `rows`.
// Requires: rows > 1.
int64_t RunLength(int64_t rows, const ScalarGraph& computation);
int64_t NumRuns(int64_t rows, const ScalarGraph& computation);

// Returns whether the op has a computation. All of its regions are then computations.
bool HasComputation(const OpDef& def);
// Returns whether an op with this data flow runs one body, once, on unchanged values: it is neither
// a branch nor a loop.
bool IsCall(const OpDef& def, const DataFlow& flow);

}  // namespace tessera::ir
