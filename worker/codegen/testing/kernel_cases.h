// The parts that tests of kernels and of their emitters share: buffers with guarded ends, every
// scalar op of the table as a kernel with the evaluator's answer, random kernels, and comparison
// within ulps.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ir/array.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// The memory of a kernel's params. Each param lies between guard bytes and is aligned to 64 bytes,
// or lies `misaligned_elements` elements beyond such an address.
class TestBuffers {
 public:
  // Fills the buffers with numbers of every kind, which follow from the seed. Bools are 0 or 1.
  // Integers that shift an access are small, and some lie beyond either bound.
  TestBuffers(const Kernel& kernel, uint32_t seed, int misaligned_elements = 0);
  // Like the constructor from a seed, but floats are from 0.5 to 1.5, so that their sums are well
  // conditioned.
  static TestBuffers Tame(const Kernel& kernel, uint32_t seed);
  // Copies the bytes of the inputs, and fills the outputs with a pattern.
  TestBuffers(const Kernel& kernel, absl::Span<const ir::Array> inputs);

  std::vector<void*> pointers();
  // Returns whether no byte outside the params was written.
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

// How far a result may be from the reference.
struct Tolerance {
  // In ulps of f32 and f64 (and bf16) results.
  int ulps = 0;
  // The error that is allowed in addition, relative to the expected number, because sums may be in
  // another order.
  double relative = 0;
  bool zero_signs = true;  // whether -0 differs from 0
};
// Returns "" if the outputs agree, else a text that names the first element that does not. NaNs are
// equal.
std::string Difference(const Kernel& kernel, const TestBuffers& got, const TestBuffers& want,
                       const Tolerance& tolerance);

// A case for an elementwise op of the table on a dtype that it takes (and for each kind of compare,
// convert and bitcast), over special and ordinary values. ScalarOpCases returns all of them.
struct OpCase {
  std::string name;  // for example "add f32"
  Kernel kernel;     // one dim; inputs and outputs are contiguous
  std::vector<ir::Array> inputs, outputs;
};
std::vector<OpCase> ScalarOpCases();

// Return special and ordinary values of a dtype.
std::vector<double> FloatSamples();
std::vector<int64_t> IntSamples(ir::DType dtype);
// Returns n values for operand number `operand` of a primitive. Together the operands hold every
// pair of values.
ir::Array SamplesOf(ir::DType dtype, int operand, int64_t n);

// Returns a kernel with one primitive, one load per argument and one store: n contiguous elements
// of each.
Kernel KernelOfPrim(ir::ScalarPrim prim, ir::DType operand, ir::DType result, int64_t n);

// RandomKernel returns a kernel that Verify accepts. It has up to three dims, transposed,
// broadcast, reversed and shifted loads, indices, and arithmetic on several dtypes, with or without
// reductions. Float functions are exact (add, mul, max, ...) unless `functions` is set.
struct RandomKernelOptions {
  bool reduce = false;
  bool scan = false;  // whether the last dims are scanned
  bool functions = false;
  // Leaves out sums and products of floats, whose bits depend on the order.
  bool exact_reductions = false;
  int64_t size_max = 40;  // the largest size of a dim
};
Kernel RandomKernel(uint32_t seed, const RandomKernelOptions& options);

}  // namespace tessera::worker::codegen
