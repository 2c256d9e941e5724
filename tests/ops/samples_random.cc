// Samples of the ops in ir/ops/random.cc. A sample, or row, is one op with given attributes and
// operands: a test case (samples.h). Random bits must equal those of JAX bit for bit. samples.cc
// collects the rows, and the tests of this folder check them.
#include "tests/ops/samples.h"

namespace tessera::ir::samples {

std::vector<Sample> RandomSamples() {
  using enum DType;
  const Operand block = Of(kU32, {4, 8}, Bits()), scalar = Of(kU32, {}, Bits());
  const Operand zeros = Of(kU32, {4}, Values({0})), ones = Of(kU32, {4}, Values({4294967295.0}));
  return {Make("threefry2x32", "u32", {block, block, block, block}),
          Make("threefry2x32", "u32/scalar_key", {scalar, scalar, block, block}),
          Make("threefry2x32", "u32/rank0", {scalar, scalar, scalar, scalar}),
          Make("threefry2x32", "u32/zeros", {zeros, zeros, zeros, zeros}),
          Make("threefry2x32", "u32/ones", {ones, ones, ones, ones})};
}

}  // namespace tessera::ir::samples
