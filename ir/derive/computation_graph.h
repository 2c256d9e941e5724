// The computations of ops (RegionRole::kComputation) as scalar graphs, from which backends make
// code; and which bodies may stand in place of their op. Stateless; thread-safe.
#pragma once
#include <optional>

#include "ir/op_def.h"
#include "ir/program.h"
#include "ir/scalar_graph.h"

namespace tessera::ir {

// Input i is param i, root k result k. nullopt if the computation has no such form: a loop or a
// branch, a dtype without kernels (HasKernels), more than eight results, or more than a hundred
// primitives or so.
// Requires: `computation` passed the inference of its op, so that its values are scalars.
std::optional<ScalarGraph> GraphOf(const Function& computation);

// Whether the op has a computation, as all of its regions are then.
bool HasComputation(const OpDef& def);
// Whether an op with this data flow runs one body, once, on values as they are: no branch or loop.
bool IsCall(const OpDef& def, const DataFlow& flow);

}  // namespace tessera::ir
