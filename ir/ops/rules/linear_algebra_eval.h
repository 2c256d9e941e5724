// The evaluation of ops of linear algebra, which LAPACK computes for each matrix of a batch.
// Internal to ir/; stateless; thread-safe.
#pragma once
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "ir/eval/eval.h"
#include "ir/lapack/lapack.h"
#include "ir/ops/rules/linear_algebra.h"

namespace tessera::ir::ops {

// Writes the transpose of a matrix of m rows of n elements. The rows begin `ld` elements apart in
// `rows`, and the n rows of the result begin `ldt` elements apart in `transpose`. Works square by
// square, so that a square stays in the cache, and writes each row of a square contiguously.
template <class T>
void TransposeMatrix(int64_t m, int64_t n, const T* rows, int64_t ld, T* transpose, int64_t ldt) {
  constexpr int64_t kSide = 16;
  for (int64_t top = 0; top < m; top += kSide)
    for (int64_t left = 0; left < n; left += kSide) {
      const int64_t height = std::min(kSide, m - top), width = std::min(kSide, n - left);
      const T* const from = rows + top * ld + left;
      T* const to = transpose + left * ldt + top;
      for (int64_t j = 0; j < width; ++j)
        for (int64_t i = 0; i < height; ++i) to[j * ldt + i] = from[i * ld + j];
    }
}
// Returns the m x n matrix `index` of `x`, column after column.
template <class T>
std::vector<T> ToColumnMajor(const Array& x, int64_t index, int64_t m, int64_t n) {
  std::vector<T> columns(m * n);
  TransposeMatrix(m, n, reinterpret_cast<const T*>(x.data()) + index * m * n, n, columns.data(), m);
  return columns;
}
// Writes a matrix as matrix `index` of `out`, whose matrices have m rows and n columns. `columns`
// holds its columns, which begin `ld` elements apart. Only the first m rows and n columns are
// written.
template <class T>
void PutColumnMajor(const std::vector<T>& columns, int64_t ld, int64_t m, int64_t n, Array* out,
                    int64_t index) {
  TransposeMatrix(n, m, columns.data(), ld,
                  reinterpret_cast<T*>(out->MutableData()) + index * m * n, n);
}
// Returns the first element of matrix or vector `index` of an array. Each matrix or vector has
// `size` elements.
template <class T>
T* MatrixData(Array* out, int64_t index, int64_t size) {
  return reinterpret_cast<T*>(out->MutableData()) + index * size;
}
template <class T>
bool AllFinite(const std::vector<T>& x) {
  return std::all_of(x.begin(), x.end(), [](T v) {
    return std::isfinite(std::real(v)) && std::isfinite(std::imag(v));
  });
}
template <class T>
void FillWithNan(T* to, int64_t n) {
  constexpr auto kNan = std::numeric_limits<lapack::Part<T>>::quiet_NaN();
  if constexpr (std::is_same_v<T, lapack::Part<T>>)
    std::fill_n(to, n, kNan);
  else
    std::fill_n(to, n, T{kNan, kNan});
}

// Estimates the multiplications for one of `count` matrices as four times the third power of its
// side. The side is the square root of the largest number of elements that a result has per matrix.
inline int64_t MultiplicationsPerMatrix(const EvalContext& c, int64_t count) {
  double elements = 1;
  for (const Type& t : c.out_types)
    elements = std::max(elements, static_cast<double>(t.num_elements() / count));
  return static_cast<int64_t>(4 * std::min(elements * std::sqrt(elements), 0x1p50));
}

// Calls f(routines, index) for each of `count` matrices of `dtype`, and returns `out`, whose
// elements f wrote. If there are several matrices and the evaluator has a parallel_for, threads
// share them. A count of 0 leaves `out` as it is. If the evaluation is cancelled, returns the error
// without visiting all matrices.
template <class F>
absl::StatusOr<std::vector<Array>> ForEachMatrix(const EvalContext& c, DType dtype, int64_t count,
                                                 std::vector<Array>& out, const F& f) {
  const auto run = [&]<class T>(T) -> absl::StatusOr<std::vector<Array>> {
    TESSERA_ASSIGN_OR_RETURN(const lapack::Routines<T>* const routines, lapack::Load<T>());
    const auto& check = c.evaluator.options().check_cancel;
    const auto run_range = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && !(check && i > begin && !check().ok()); ++i)
        f(*routines, i);
    };
    const auto& parallel_for = c.evaluator.options().parallel_for;
    if (parallel_for && count > 1) {
      const int64_t parts = std::min(count, kMatricesAtOnceMax);
      TESSERA_RETURN_IF_ERROR(
          parallel_for(parts, MultiplicationsPerMatrix(c, count) * (count / parts),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t p = begin; p < end; ++p)
                           run_range(count * p / parts, count * (p + 1) / parts);
                       }));
    } else {
      run_range(0, count);
    }
    if (check && count > 1) TESSERA_RETURN_IF_ERROR(check());
    return std::move(out);
  };
  switch (dtype) {
    case DType::kF32:
      return run(float{});
    case DType::kF64:
      return run(double{});
    case DType::kC64:
      return run(std::complex<float>{});
    default:
      return run(std::complex<double>{});
  }
}
// Returns arrays for all results. The elements are uninitialised, and all of them have to be
// written.
inline std::vector<Array> ResultBuffers(const EvalContext& c) {
  std::vector<Array> out;
  for (size_t i = 0; i < c.out_types.size(); ++i) out.push_back(ResultBuffer(c, i));
  return out;
}
// Returns the number of matrices (or, if `core_rank` is 1, of vectors) in an array of this shape,
// or 0 if they have no elements. The last `core_rank` dims are those of a matrix.
inline int64_t NumMatrices(const Dims& shape, int core_rank = 2) {
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    count = d + core_rank < shape.size() ? count * shape[d] : shape[d] == 0 ? 0 : count;
  return count;
}

}  // namespace tessera::ir::ops
