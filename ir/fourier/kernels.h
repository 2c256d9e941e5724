// The inner loops of Fourier transforms, compiled once for each instruction set. Internal to
// ir/fourier; stateless; thread-safe.
#pragma once
#include <cstdint>

namespace tessera::ir::fourier {

// One pass of a transform of length n = l1 * radix * ido. The elements form l1 blocks, and a block
// consists of ido groups of `radix` elements that are ido apart. The pass transforms each group,
// and then multiplies each element by a factor.
struct Pass {
  int64_t radix = 0, l1 = 0, ido = 0;
  // The index of the pass's first factor in PassList::factors, counted in complex numbers. The
  // factor for element j > 0 of group i is (j - 1) * ido + i numbers behind it.
  int64_t first_twiddle = 0;
  // The index of the first radix-th root of unity in PassList::factors, counted in complex numbers.
  // Only radices without code of their own use it.
  int64_t first_root = 0;
};

// A transform of length n, whose prime factors are small. Numbers are complex, with the real part
// first.
template <class T>
struct PassList {
  int64_t n = 0;
  const Pass* passes = nullptr;
  int64_t num_passes = 0;
  const T* factors = nullptr;
};

// Positions of elements: element i of lane j is the complex number i * element + j * lane.
struct Strides {
  int64_t element = 0, lane = 0;
};

// The arguments of a call that transforms up to Kernels::width lanes (rows or columns) at once: it
// computes the sums of x_k exp(-2 pi i j k / n). The transform is the inverse one if the real and
// imaginary parts are swapped both when reading and when writing. The results are multiplied by
// `factors`, if given, which lie at the strides of `out`, and then by `scale`. `in` may be `out`.
template <class T>
struct LaneArgs {
  PassList<T> pass_list;
  const T* in = nullptr;
  T* out = nullptr;
  Strides from, to;
  int64_t lanes = 0;
  const T* factors = nullptr;
  bool swaps_in = false, swaps_out = false;
  T scale = 1;
  T* scratch = nullptr;  // 4 * n * width numbers, aligned to 64 bytes
};

// The products of n complex numbers with `factors` and `scale`. The parts can be swapped when
// reading and writing, as in LaneArgs. `in` may be `out`.
template <class T>
struct ProductArgs {
  int64_t n = 0;
  const T* in = nullptr;
  const T* factors = nullptr;
  T* out = nullptr;
  bool swaps_in = false, swaps_out = false;
  T scale = 1;
};

template <class T>
struct Kernels {
  int64_t width = 0;  // number of lanes that a call computes at once
  void (*transform)(const LaneArgs<T>& lanes) = nullptr;
  void (*multiply)(const ProductArgs<T>& products) = nullptr;
};

// Returns the kernels for the best instruction set of this machine.
template <class T>
const Kernels<T>& BestKernels();
// All kernels that this machine can run, for tests. `kernels[0]` runs on every machine.
template <class T>
struct KernelList {
  const Kernels<T>* kernels[3] = {};
  int count = 0;
};
template <class T>
KernelList<T> AllKernels();

// The largest prime factor that the length of PassList can have.
inline constexpr int64_t kRadixMax = 97;

}  // namespace tessera::ir::fourier
