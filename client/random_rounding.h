// f32 arithmetic that rounds as the code which XLA compiles for CPUs. A sampler that accepts or
// rejects compares two nearly equal numbers; where they are large, as for a Poisson rate of 10,000,
// another last place in either is another sample in one of some hundred. Used by the samplers that
// reject alone, on f32.
#pragma once
#include "ir/formula.h"

namespace tessera::random::internal {

// x * y + z, rounded once.
ir::Formula MulAdd(const ir::Formula& x, const ir::Formula& y, const ir::Formula& z);
// The logarithm of a number of 0 or more that is not subnormal.
ir::Formula LogAsXla(const ir::Formula& x);
// The logarithm of k!. Requires k >= 0.
ir::Formula LogFactorialAsXla(const ir::Formula& k);

}  // namespace tessera::random::internal
