// The inner loops of Fourier transforms, compiled once for each set of instructions. Internal to
// ir/fourier; stateless; thread-safe.
#pragma once
#include <cstdint>

namespace tessera::ir::fourier {

// One step of a transform of length n = l1 * radix * ido: transforms of length `radix` of elements
// ido apart, l1 of them in each block, and then a factor for each element.
struct Pass {
  int64_t radix = 0, l1 = 0, ido = 0;
  int64_t twiddles = 0;  // where its factors begin: of j > 0 and i < ido, (j - 1) * ido + i
  int64_t roots = 0;     // where the radix-th roots of unity begin, of radices without own code
};

// A transform of length n, whose prime factors are small. Numbers are complex, real part first.
template <class T>
struct Steps {
  int64_t n = 0;
  const Pass* passes = nullptr;
  int64_t num_passes = 0;
  const T* factors = nullptr;
};

// Where elements are: element i of lane j is complex number i * element + j * lane.
struct Strides {
  int64_t element = 0, lane = 0;
};

// Transforms of up to `width` lanes at once: sums of x_k exp(-2 pi i j k / n). Swapping the real
// and imaginary parts of what is read, and of what is written, makes it the inverse transform.
// `factors`, if any, are multiplied with the results, at strides as `out`'s; then `scale` is. `in`
// may be `out`.
template <class T>
struct Lanes {
  Steps<T> steps;
  const T* in = nullptr;
  T* out = nullptr;
  Strides from, to;
  int64_t lanes = 0;
  const T* factors = nullptr;
  bool swaps_in = false, swaps_out = false;
  T scale = 1;
  T* scratch = nullptr;  // 4 * n * width numbers, aligned to 64 bytes
};

// Of n complex numbers, the products with `factors` and `scale`. As of Lanes, parts are swapped on
// the way. `in` may be `out`.
template <class T>
struct Products {
  int64_t n = 0;
  const T* in = nullptr;
  const T* factors = nullptr;
  T* out = nullptr;
  bool swaps_in = false, swaps_out = false;
  T scale = 1;
};

template <class T>
struct Kernels {
  int64_t width = 0;  // how many lanes a call computes at once
  void (*run)(const Lanes<T>& lanes) = nullptr;
  void (*multiply)(const Products<T>& products) = nullptr;
};

// Those of the best instructions that this machine has.
template <class T>
const Kernels<T>& BestKernels();
// All that this machine can run, for tests; the first is the one every machine runs.
template <class T>
struct KernelList {
  const Kernels<T>* kernels[3] = {};
  int count = 0;
};
template <class T>
KernelList<T> AllKernels();

// The largest prime factor of a length that Steps can have.
inline constexpr int64_t kRadixMax = 97;

}  // namespace tessera::ir::fourier
