// What tests of kernels and of their emitters share: buffers with guarded ends, every scalar op of
// the table as a kernel with the evaluator's answer, random kernels, and comparison within ulps.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ir/array.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// The memory of a kernel's params, each between guard bytes and aligned to 64 bytes (or so many
// elements beyond that).
class TestBuffers {
 public:
  // Numbers of every kind, fixed by the seed. Bools are 0 or 1; integers that shift an access are
  // small, and beyond their bounds on either side too.
  TestBuffers(const Kernel& kernel, uint32_t seed, int misaligned_elements = 0);
  // The same with floats from 0.5 to 1.5 alone, whose sums are well conditioned.
  static TestBuffers Tame(const Kernel& kernel, uint32_t seed);
  // The inputs' bytes; outputs are filled with a pattern.
  TestBuffers(const Kernel& kernel, absl::Span<const ir::Array> inputs);

  std::vector<void*> pointers();
  // Whether no byte outside the params was written.
  bool GuardsHold() const;
  absl::Span<const std::byte> bytes(int param) const;

 private:
  struct Block {
    std::vector<std::byte> memory;
    size_t begin = 0, size = 0;
  };
  TestBuffers() = default;
  void Allocate(const Kernel& kernel, int misaligned_elements);
  void Fill(const Kernel& kernel, uint32_t seed, bool tame);
  std::vector<Block> blocks_;
};

// How far an answer may be from the reference.
struct Tolerance {
  int ulps = 0;            // of f32 and f64 (and bf16) results
  double relative = 0;     // besides: of sums in another order, relative to `scale`
  bool zero_signs = true;  // whether -0 and 0 differ
};
// "" if the outputs agree, else the first element that does not, in words. NaNs are equal.
std::string Difference(const Kernel& kernel, const TestBuffers& got, const TestBuffers& want,
                       const Tolerance& tolerance);

// Every elementwise op of the table on every dtype it takes (and every kind of compare, convert,
// bitcast), over special values and ordinary ones.
struct OpCase {
  std::string name;  // "add f32"
  Kernel kernel;     // one dim, inputs and outputs contiguous
  std::vector<ir::Array> inputs, outputs;
};
std::vector<OpCase> ScalarOpCases();

// Special and ordinary values of a dtype.
std::vector<double> FloatSamples();
std::vector<int64_t> IntSamples(ir::DType dtype);
// n of them, for operand j of a primitive: together the operands hold every pair.
ir::Array SamplesOf(ir::DType dtype, int operand, int64_t n);

// One load, one primitive, one store per argument: n elements of each, contiguous.
Kernel KernelOfPrim(ir::ScalarPrim prim, ir::DType operand, ir::DType result, int64_t n);

// A kernel that Verify accepts: up to three dims, transposed, broadcast, reversed and shifted
// loads, indices, arithmetic on several dtypes, with or without reductions. Its float functions are
// exact ones (add, mul, max, ...) unless `functions`.
struct RandomKernelOptions {
  bool reduce = false;
  bool scan = false;  // the dims that else are reduced
  bool functions = false;
  // No sums and products of floats, whose bits depend on the order.
  bool exact_reductions = false;
  int64_t size_max = 40;  // of a dim
};
Kernel RandomKernel(uint32_t seed, const RandomKernelOptions& options);

}  // namespace tessera::worker::codegen
