// Scalar primitives of a kernel as functions on one element, with ir/ops/scalar_math.h's meaning:
// which dtypes each takes, and what it gives. The interpreter and the tests of emitters run them.
// Pure functions and a constant table; any thread.
#pragma once
#include <cstdint>

#include "ir/dtype.h"
#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// One element of any dtype of at most 8 bytes: its bytes as they lie in memory, then zeros.
using Cell = uint64_t;
using ScalarFn = Cell (*)(const Cell* args);

// The function, or null where the primitive has no meaning for these dtypes. `operand` is the dtype
// of every argument but the predicate of Select.
ScalarFn FindScalarFn(ir::ScalarPrim prim, ir::DType operand, ir::DType result);

}  // namespace tessera::worker::codegen
