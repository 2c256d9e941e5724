// Discrete Fourier transforms of any length, in memory. Thread-safe.
//
// A length is taken apart into small factors, whose transforms run on vectors of as many rows or
// columns as fit; long ones are first made two-dimensional; lengths with a prime factor above
// kRadixMax are convolutions with a chirp. How a row is computed depends on its length alone, and
// so do the bits of its result on one machine. References: J. Cooley and J. Tukey, "An algorithm
// for the machine calculation of complex Fourier series" (1965); L. Bluestein, "A linear filtering
// approach to the computation of discrete Fourier transform" (1970); D. Bailey, "FFTs in external
// or hierarchical memory" (1990).
#pragma once
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tessera::ir::fourier {

// Calls work(begin, end) for parts of [0, n), in any order, perhaps by several threads, and returns
// when all have ended. `each` is the cost of one in multiplications. An error stops the transform.
using Work = absl::FunctionRef<void(int64_t begin, int64_t end)>;
using ParallelFor = absl::FunctionRef<absl::Status(int64_t n, int64_t each, Work work)>;
// On the thread that calls.
absl::Status InOrder(int64_t n, int64_t each, Work work);

// Of complex numbers, real parts first, of shape [outer, n, inner]: along the dim of n, the sums of
// x_k exp(-2 pi i j k / n), or with plus if `inverse`, times `scale`. `in` may be `out`. Requires:
// 1 <= n <= LengthMax(n). T is float or double.
template <class T>
absl::Status Transform(int64_t outer, int64_t n, int64_t inner, bool inverse, T scale, const T* in,
                       T* out, ParallelFor parallel_for);
// Of real rows [rows, n], the first n / 2 + 1 elements of their transforms.
template <class T>
absl::Status FromReal(int64_t rows, int64_t n, const T* in, T* out, ParallelFor parallel_for);
// Of such rows, the real ones whose transforms they are, times n and times `scale`. The imaginary
// parts of elements 0 and, if n is even, n / 2 count as 0.
template <class T>
absl::Status ToReal(int64_t rows, int64_t n, T scale, const T* in, T* out,
                    ParallelFor parallel_for);

// How long a transform may be of which n is a length: what depends on the length alone is computed
// at once, on one thread, in some seconds at most.
int64_t LengthMax(int64_t n);

// The bytes that any of these allocates at most, for numbers of `width` bytes, for as many rows, or
// columns. What depends on the length alone is kept for the next transform of that length, up to 64
// MiB in all.
int64_t ScratchBytes(int64_t rows, int64_t n, int64_t width, bool columns);

}  // namespace tessera::ir::fourier
