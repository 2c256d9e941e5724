// The scalar primitives of a kernel as functions on one element, with the semantics of
// ir/scalar_math.h. The interpreter and the tests of emitters run them. Constants; thread-safe.
#pragma once
#include <cstdint>

#include "ir/dtype.h"
#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// One element of any dtype of at most 8 bytes: its bytes in memory order, then zeros.
using ScalarBits = uint64_t;
using ScalarFn = ScalarBits (*)(const ScalarBits* args);

// Returns the function of a primitive, or null if the primitive is not defined for these dtypes.
// `operand` is the dtype of every argument except the predicate of Select.
ScalarFn FindScalarFn(ir::ScalarPrim prim, ir::DType operand, ir::DType result);

}  // namespace tessera::worker::codegen
