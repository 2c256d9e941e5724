// Discrete Fourier transforms of any length, in memory. Thread-safe.
//
// A length is divided into small factors. The transforms of these factors work on as many rows or
// columns at once as a vector of the CPU has lanes. A long row is first arranged as a matrix, so
// that the transform of the row becomes shorter ones of columns and rows. Lengths with a prime
// factor above kRadixMax are computed by convolution with a chirp. How a row is computed depends
// only on its length, so equal rows give equal bits on one machine. References: J. Cooley and J.
// Tukey, "An algorithm for the machine calculation of complex Fourier series" (1965); L. Bluestein,
// "A linear filtering approach to the computation of discrete Fourier transform" (1970); D. Bailey,
// "FFTs in external or hierarchical memory" (1990).
#pragma once
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tessera::ir::fourier {

// Calls work(begin, end) for parts of [0, n), in any order and possibly on several threads, and
// returns when all parts have ended. `each` is the cost of one of the n elements, counted in
// multiplications. An error, such as that of a cancellation between two parts, stops the transform.
using Work = absl::FunctionRef<void(int64_t begin, int64_t end)>;
using ParallelFor = absl::FunctionRef<absl::Status(int64_t n, int64_t each, Work work)>;
// A ParallelFor that runs the work on the calling thread.
absl::Status InOrder(int64_t n, int64_t each, Work work);

// Transforms an array of complex numbers (each a real and then an imaginary part) of shape [outer,
// n, inner] along the dim n. The results are the sums of x_k exp(-2 pi i j k / n), or with + in the
// exponent if `inverse`, times `scale`. `in` may be `out`. Requires: 1 <= n <= LengthMax(n). T is
// float or double.
template <class T>
absl::Status Transform(int64_t outer, int64_t n, int64_t inner, bool inverse, T scale, const T* in,
                       T* out, ParallelFor parallel_for);
// Computes the first n / 2 + 1 elements of the transforms of real rows [rows, n].
template <class T>
absl::Status FromReal(int64_t rows, int64_t n, const T* in, T* out, ParallelFor parallel_for);
// The inverse of FromReal: from the first n / 2 + 1 elements of transforms, computes the real rows,
// times n and times `scale`. The imaginary parts of element 0 and, if n is even, of element n / 2
// are taken as 0.
template <class T>
absl::Status ToReal(int64_t rows, int64_t n, T scale, const T* in, T* out,
                    ParallelFor parallel_for);

// Returns the largest length that is accepted among those with the prime factors of n. The tables
// for a length are computed before the transform, in pieces like it, which takes some seconds of
// one thread at most.
int64_t LengthMax(int64_t n);

// Returns an upper bound of the bytes that any of these functions allocates for rows, or columns,
// of n numbers, whose parts take `width` bytes. `rows` is the number of rows or columns. Tables
// that depend only on the length are kept for the next transform of that length, up to 64 MiB in
// all.
int64_t ScratchBytes(int64_t rows, int64_t n, int64_t width, bool are_columns);

}  // namespace tessera::ir::fourier
