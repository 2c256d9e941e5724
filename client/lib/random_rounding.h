// f32 arithmetic that rounds like the code that XLA compiles for CPUs. A sampler that accepts or
// rejects compares two nearly equal numbers. If they are large, as for a Poisson rate of 10,000, a
// difference in the last place of either changes one sample in some hundred. Used only by the
// samplers that reject, on f32.
#pragma once
#include "ir/formula.h"

namespace tessera::random::internal {

// Returns x * y + z, rounded once.
ir::Formula MulAdd(const ir::Formula& x, const ir::Formula& y, const ir::Formula& z);
// Returns the logarithm of a number that is 0 or more and not subnormal.
ir::Formula LogAsXla(const ir::Formula& x);
// Returns the logarithm of k!. Requires k >= 0.
ir::Formula LogFactorialAsXla(const ir::Formula& k);

}  // namespace tessera::random::internal
