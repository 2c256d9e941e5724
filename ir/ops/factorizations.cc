// The ops lu, geqrf, geqp3, householder_product and qr, evaluated by LAPACK on the host.
//
// Reference: JAX's lax.linalg. Derivatives: S. Walter and L. Lehmann, "Algorithmic differentiation
// of linear algebra functions with application in optimum experimental design" (2010). For the full
// q: "Differentiating the full QR decomposition" (arXiv 2409.13374).
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "ir/ops/rules/linear_algebra_eval.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

int64_t ShorterOf(const Type& t) { return std::min(NumRows(t), NumCols(t)); }
Value LeadingBlock(Value x, int64_t rows, int64_t cols) {
  Dims limit = x.shape();
  limit[x.rank() - 2] = rows;
  limit[x.rank() - 1] = cols;
  return Slice(x, Dims(x.rank(), 0), std::move(limit));
}

// ---- lu: p a = l u. The first result has l below its diagonal and u on and above it. The second
// lists the rows with which the first rows were swapped in turn, the third the rows of a in the
// order of p a. ----

Types InferLu(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape),
                           WithBatchDimsOfFirst(c, DType::kS32, {ShorterOf(a)}),
                           WithBatchDimsOfFirst(c, DType::kS32, {NumRows(a)})};
}

// Returns x padded with zeros at the end, to n x n.
Value ZeroPadded(Value x, int64_t n) {
  DimList zeros(x.rank(), 0), high = zeros;
  high[x.rank() - 2] = n - x.dim(x.rank() - 2);
  high[x.rank() - 1] = n - x.dim(x.rank() - 1);
  return Pad(x, Constant(x.builder(), x.dtype(), 0), std::move(zeros), std::move(high));
}

// With x = l^-1 (p da) u^-1, computes dl = l (x below the diagonal) and du = (x on and above it) u.
// If the matrix is not square, l and u are completed by ones on the diagonal.
std::vector<Value> LuJvp(const RuleContext& c, Values tangents) {
  const Value packed = c.out[0];
  const int64_t m = packed.dim(packed.rank() - 2), n = packed.dim(packed.rank() - 1),
                k = std::min(m, n);
  Value l = ZeroPadded(Tril(LeadingBlock(packed, m, k), -1), m);
  const Value on = DiagonalMask(l);
  l = Select(on, FullLike(l, 1), l);
  Value u = ZeroPadded(Triu(LeadingBlock(packed, k, n)), n);
  if (n > k) {
    const Value beyond = DiagonalMask(u, k);
    u = Select(beyond, FullLike(u, 1), u);
  }
  const Value da = TakeRows(tangents[0], c.out[2]);
  const Value left = TriangularSolve(l, da, {.lower = true, .unit_diagonal = true});
  const Value x = TriangularSolve(u, left, {.left_side = false});
  const Value dl = Matmul(l, Tril(x, -1));
  return {dl + Matmul(Triu(x), u), Value(), Value()};
}

// The size from which a single matrix is worth sharing among threads, and the columns of its
// blocks.
constexpr int64_t kLargeMin = 512, kBlockCols = 128;

// Computes l and u in place of a, which has m rows of n elements, by blocks of columns. A block is
// factored, and the changes to the columns behind it are computed in parts that threads share. The
// parts have a fixed size, so that the bits do not depend on the number of threads. An error, such
// as a cancellation, ends the computation. LAPACK reads rows as columns, so it sees the transpose
// of a: products are taken from the right, and only the block itself is transposed for it.
template <class T>
absl::Status FactorLarge(const EvalContext& c, const lapack::Routines<T>& lapack, int64_t m,
                         int64_t n, T* a, int* swaps) {
  constexpr int64_t kPartCols = 128;
  const auto& share = c.evaluator.options().parallel_for;
  const int64_t k = std::min(m, n);
  const auto size = [](int64_t s) { return static_cast<int>(s); };
  std::vector<T> columns(m * std::min(kBlockCols, k));
  for (int64_t at = 0; at < k; at += kBlockCols) {
    const int64_t width = std::min(kBlockCols, k - at), below = m - at, behind = at + width;
    T* const block = a + at * n + at;
    TransposeMatrix(below, width, block, n, columns.data(), below);
    lapack.Getrf(size(below), size(width), columns.data(), size(below), swaps + at);
    TransposeMatrix(width, below, columns.data(), below, block, n);
    const auto swap_rows = [&](int64_t first, int64_t last) {
      for (int64_t i = 0; i < width; ++i)
        if (const int64_t other = swaps[at + i] - 1; other != i)
          std::swap_ranges(a + (at + i) * n + first, a + (at + i) * n + last,
                           a + (at + other) * n + first);
    };
    swap_rows(0, at);
    const int64_t parts = (n - behind + kPartCols - 1) / kPartCols;
    const auto update = [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t first = behind + p * kPartCols, cols = std::min(kPartCols, n - first);
        swap_rows(first, first + cols);
        T* const of_part = a + at * n + first;
        lapack.Trsm('R', 'U', 'N', 'U', size(cols), size(width), block, size(n), of_part, size(n));
        if (m > behind)
          lapack.SubtractProduct(size(cols), size(m - behind), size(width), of_part, size(n),
                                 block + width * n, size(n), of_part + width * n, size(n));
      }
    };
    if (share) {
      TESSERA_RETURN_IF_ERROR(share(parts, below * kPartCols * width, update));
    } else {
      update(0, parts);
    }
    for (int64_t i = at; i < behind; ++i) swaps[i] += size(at);
  }
  return absl::OkStatus();
}

// Factors the matrices of a batch at the same time, each on one thread. A single large matrix goes
// by FactorLarge instead, because threads would otherwise be idle. LAPACK's swaps, counted from 1,
// become the pivots and the permutation.
Arrays EvalLu(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  std::vector<Array> out = ResultBuffers(c);
  if (n == 0)  // the rows stay where they are
    for (int64_t i = 0; i < out[2].num_elements(); ++i) out[2].Set(i, static_cast<double>(i % m));
  const int64_t count = NumMatrices(shape);
  absl::Status large_status;
  TESSERA_ASSIGN_OR_RETURN(
      std::vector<Array> done,
      ForEachMatrix(c, in[0].dtype(), count, out,
                    [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                      std::vector<int> swaps(k);
                      if (k >= kLargeMin && count == 1) {
                        T* const a = MatrixData<T>(&out[0], 0, m * n);
                        std::copy_n(reinterpret_cast<const T*>(in[0].data()), m * n, a);
                        large_status = FactorLarge(c, lapack, m, n, a, swaps.data());
                        if (!large_status.ok()) return;
                      } else {
                        std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n);
                        lapack.Getrf(static_cast<int>(m), static_cast<int>(n), a.data(),
                                     static_cast<int>(m), swaps.data());
                        PutColumnMajor(a, m, m, n, &out[0], index);
                      }
                      auto* const pivots = MatrixData<int32_t>(&out[1], index, k);
                      auto* const rows = MatrixData<int32_t>(&out[2], index, m);
                      std::iota(rows, rows + m, 0);
                      for (int64_t i = 0; i < k; ++i) {
                        pivots[i] = swaps[i] - 1;
                        std::swap(rows[i], rows[pivots[i]]);
                      }
                    }));
  TESSERA_RETURN_IF_ERROR(large_status);
  return done;
}

// A single large matrix is factored block by block, with polls between the parts of a block.
double LuOperations(const InferContext& c, absl::Span<const Type> out) {
  const Type& a = c.in[0];
  if (CountOfMatrices(a) != 1 || ShorterOf(a) < kLargeMin) return MatrixOperations(c, out, 0.04);
  const double of_block = static_cast<double>(NumRows(a)) * kBlockCols * kBlockCols;
  return BatchOperations(c, 0.5 * of_block + static_cast<double>(a.num_elements()), 1);
}

// ---- geqrf, geqp3 and householder_product: QR by Householder reflectors, and their product. ----

Types InferGeqrf(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSizeForLapack(c));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape),
                           WithBatchDimsOfFirst(c, a.dtype, {ShorterOf(a)})};
}

Arrays EvalGeqrf(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n);
                         lapack.Geqrf(static_cast<int>(m), static_cast<int>(n), a.data(),
                                      static_cast<int>(m),
                                      MatrixData<T>(&out[1], index, std::min(m, n)));
                         PutColumnMajor(a, m, m, n, &out[0], index);
                       });
}

double GeqrfOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.1);
}

Types InferGeqp3(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSizeForLapack(c));
  const Type &a = c.in[0], &first = c.in[1];
  if (first.dtype != DType::kS32 ||
      first.shape != WithBatchDimsOfFirst(c, DType::kS32, {NumCols(a)}).shape)
    return TypeError(c, "a is ", a.ToString(), " and its pivots are ", first.ToString(),
                     "; expected an s32 for each column");
  return std::vector<Type>{MakeType(a.dtype, a.shape), MakeType(DType::kS32, first.shape),
                           WithBatchDimsOfFirst(c, a.dtype, {ShorterOf(a)})};
}

Arrays EvalGeqp3(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  std::vector<Array> out = ResultBuffers(c);
  if (m == 0)  // the columns stay where they are
    for (int64_t i = 0; i < out[1].num_elements(); ++i)
      out[1].Set(i, static_cast<double>(i % n + 1));
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n);
                         int32_t* const pivots = MatrixData<int32_t>(&out[1], index, n);
                         std::copy_n(reinterpret_cast<const int32_t*>(in[1].data()) + index * n, n,
                                     pivots);
                         T* const taus = MatrixData<T>(&out[2], index, std::min(m, n));
                         if (AllFinite(a)) {
                           lapack.Geqp3(static_cast<int>(m), static_cast<int>(n), a.data(),
                                        static_cast<int>(m), pivots, taus);
                         } else {
                           std::iota(pivots, pivots + n, 1);
                           FillWithNan(a.data(), m * n);
                           FillWithNan(taus, std::min(m, n));
                         }
                         PutColumnMajor(a, m, m, n, &out[0], index);
                       });
}

double Geqp3Operations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.4);
}

Types InferHouseholderProduct(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSizeForLapack(c));
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 1, 1));
  const Type &a = c.in[0], &taus = c.in[1];
  const int64_t m = NumRows(a), n = NumCols(a);
  if (m < n)
    return ValueError(c, "a is ", a.ToString(), "; expected at least as many rows as columns");
  if (taus.rank() != a.rank() - 1 ||
      !std::equal(taus.shape.begin(), taus.shape.end() - 1, a.shape.begin()) ||
      taus.shape.back() > n)
    return TypeError(c, "a is ", a.ToString(), " and taus ", taus.ToString(),
                     "; expected the same batch dims, and at most one of taus for each column");
  return std::vector<Type>{MakeType(a.dtype, a.shape)};
}

Arrays EvalHouseholderProduct(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = in[1].shape().back();
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n);
                         lapack.Orgqr(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                                      a.data(), static_cast<int>(m),
                                      reinterpret_cast<const T*>(in[1].data()) + index * k);
                         PutColumnMajor(a, m, m, n, &out[0], index);
                       });
}

double HouseholderProductOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.1);
}

// ---- qr: a = q r, where q is unitary and r upper triangular. With pivoting, q r are the columns
// of a in the order of a third result. ----

bool IsPivoting(const Attrs& attrs) { return attrs.Has("pivoting") && attrs.Bool("pivoting"); }

Types InferQr(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSizeForLapack(c));
  const Type& a = c.in[0];
  const int64_t m = NumRows(a), k = c.attrs.Bool("full_matrices") ? m : ShorterOf(a);
  std::vector<Type> out = {WithBatchDimsOfFirst(c, a.dtype, {m, k}),
                           WithBatchDimsOfFirst(c, a.dtype, {k, NumCols(a)})};
  if (IsPivoting(c.attrs)) out.push_back(WithBatchDimsOfFirst(c, DType::kS32, {NumCols(a)}));
  return out;
}

// For an a with at least as many rows as columns, so that r is square. With y = q^H da r^-1 and w =
// (y below the diagonal) - its adjoint + (the imaginary part of y's diagonal), returns dq = q (w -
// y) + da r^-1 and dr = (y - w) r.
std::pair<Value, Value> ThinQrTangents(Value q, Value r, Value da) {
  const Value da_r = TriangularSolve(r, da, {.left_side = false});
  const Value y = Matmul(Adjoint(q), da_r);
  const Value below = Tril(y, -1);
  Value w = below - Adjoint(below);
  if (IsComplex(y.dtype())) {
    const Value im = Imag(y), on = DiagonalMask(im), zero = Zeros(im.builder(), im.type());
    const Value diagonal = Select(on, im, zero);
    w = w + Complex(zero, diagonal);
  }
  const Value dq = Matmul(q, w - y) + da_r;
  return {dq, Matmul(y - w, r)};
}

// Beyond the first min(m, n) columns, the columns of r follow from q. If q is full, its columns
// there are not unique, and their tangents are chosen as in the paper on the full QR decomposition.
std::vector<Value> QrJvp(const RuleContext& c, Values tangents) {
  const Type& a = c.in_types[0];
  const int64_t m = NumRows(a), n = NumCols(a);
  const bool is_pivoted = IsPivoting(c.attrs);
  const Value q = c.out[0], r = c.out[1];
  const Value da = is_pivoted ? TakeColumns(tangents[0], c.out[2]) : tangents[0];
  const int rows = q.rank() - 2, cols = q.rank() - 1;
  std::vector<Value> out(c.out.size());
  if (m < n) {
    const Value x = is_pivoted ? TakeColumns(c.in[0], c.out[2]) : c.in[0];
    const Value r1 = SliceInDim(r, cols, 0, m), da1 = SliceInDim(da, cols, 0, m);
    const auto [dq, dr1] = ThinQrTangents(q, r1, da1);
    const Value x2 = SliceInDim(x, cols, m, n), da2 = SliceInDim(da, cols, m, n);
    const Value moved = Matmul(Adjoint(dq), x2);
    const Value kept = Matmul(Adjoint(q), da2);
    out[0] = dq;
    out[1] = Concatenate({dr1, moved + kept}, cols);
    return out;
  }
  if (m == n || !c.attrs.Bool("full_matrices")) {
    std::tie(out[0], out[1]) = ThinQrTangents(q, r, da);
    return out;
  }
  // With q = [[q11, q12], [q21, q22]], where q11 is n x n, and z = q21 (q11 - 1)^-1, where 1 is the
  // identity.
  const Value q_first = SliceInDim(q, cols, 0, n), q_rest = SliceInDim(q, cols, n, m);
  const Value r_first = SliceInDim(r, rows, 0, n);
  const auto [dq, dr] = ThinQrTangents(q_first, r_first, da);
  const Value q11 = SliceInDim(q_first, rows, 0, n), q21 = SliceInDim(q_first, rows, n, m);
  const Value on = DiagonalMask(q11), one = FullLike(q11, 1);
  const Value less = Select(on, q11 - one, q11);
  const Value z_adjoint = SolvedByLu(less, Adjoint(q21), /*adjoint=*/true);
  const Value z = Adjoint(z_adjoint);
  const Value dq11 = SliceInDim(dq, rows, 0, n), dq21 = SliceInDim(dq, rows, n, m);
  const Value first = Matmul(dq, z_adjoint);
  const Value span = q_first + Matmul(q_rest, z);
  const Value beyond = dq21 - Matmul(z, dq11);
  const Value dq_rest = first - Matmul(span, Adjoint(beyond));
  out[0] = Concatenate({dq, dq_rest}, cols);
  DimList low(r.rank(), 0), high = low;
  high[rows] = m - n;
  out[1] = Pad(dr, Constant(r.builder(), r.dtype(), 0), std::move(low), std::move(high));
  return out;
}

// Computes r and the reflectors by Geqrf, or by Geqp3 with pivoting, and q as the product of the
// reflectors. With pivoting, a matrix with an element that is not finite gets NaNs: the columns are
// ordered by their norms, among which a NaN has no place.
Arrays EvalQr(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n),
                q_cols = c.attrs.Bool("full_matrices") ? m : k;
  const bool is_pivoted = IsPivoting(c.attrs);
  std::vector<Array> out = ResultBuffers(c);
  if (is_pivoted && m == 0)  // the columns stay where they are
    for (int64_t i = 0; i < out[2].num_elements(); ++i) out[2].Set(i, static_cast<double>(i % n));
  // A matrix without columns still has a q, the identity.
  const int64_t count =
      n == 0 && q_cols > 0 ? out[0].num_elements() / (m * q_cols) : NumMatrices(shape);
  return ForEachMatrix(c, in[0].dtype(), count, out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n), taus(k);
                         const auto rows = static_cast<int>(m), cols = static_cast<int>(n);
                         if (n > 0 && is_pivoted) {
                           std::vector<int> pivots(n);
                           if (AllFinite(a)) {
                             lapack.Geqp3(rows, cols, a.data(), rows, pivots.data(), taus.data());
                           } else {
                             std::iota(pivots.begin(), pivots.end(), 1);
                             FillWithNan(a.data(), m * n);
                             FillWithNan(taus.data(), k);
                           }
                           int32_t* const to = MatrixData<int32_t>(&out[2], index, n);
                           for (int64_t j = 0; j < n; ++j) to[j] = pivots[j] - 1;
                         } else if (n > 0) {
                           lapack.Geqrf(rows, cols, a.data(), rows, taus.data());
                         }
                         T* const r = MatrixData<T>(&out[1], index, q_cols * n);
                         for (int64_t i = 0; i < q_cols; ++i)
                           for (int64_t j = 0; j < n; ++j)
                             r[i * n + j] = j < i ? T{0} : a[j * m + i];
                         a.resize(m * q_cols);
                         lapack.Orgqr(rows, static_cast<int>(q_cols), static_cast<int>(k), a.data(),
                                      rows, taus.data());
                         PutColumnMajor(a, m, m, q_cols, &out[0], index);
                       });
}

// A full q has as many columns as a has rows, however few columns a has.
double QrOperations(const InferContext& c, absl::Span<const Type> out) {
  const double count = std::max(CountOfMatrices(c.in[0]), 1.0);
  const double of_q =
      static_cast<double>(out[0].num_elements()) / count * static_cast<double>(ShorterOf(c.in[0]));
  return MatrixOperations(c, out, IsPivoting(c.attrs) ? 0.4 : 0.1) +
         BatchOperations(c, 0.1 * of_q, count);
}

constexpr AttrSpec kQrAttrs[] = {{"full_matrices", AttrKind::kBool},
                                 {"pivoting", AttrKind::kBool, /*required=*/false}};

}  // namespace

constexpr OpDef kLu = LinearAlgebra({.name = "lu",
                                     .lax_name = "lu",
                                     .num_operands = 1,
                                     .infer = InferLu,
                                     .jvp = LuJvp,
                                     .eval = EvalLu,
                                     .uninterrupted = LuOperations});

constexpr OpDef kGeqrf =
    LinearAlgebra({.name = "geqrf",
                   .lax_name = "geqrf",
                   .num_operands = 1,
                   .infer = InferGeqrf,
                   .jvp = Refused{"its reflectors are an intermediate result; differentiate qr"},
                   .eval = EvalGeqrf,
                   .uninterrupted = GeqrfOperations});

constexpr OpDef kGeqp3 =
    LinearAlgebra({.name = "geqp3",
                   .lax_name = "geqp3",
                   .num_operands = 2,
                   .infer = InferGeqp3,
                   .jvp = Refused{"its reflectors are an intermediate result; differentiate qr"},
                   .eval = EvalGeqp3,
                   .uninterrupted = Geqp3Operations});

constexpr OpDef kHouseholderProduct =
    LinearAlgebra({.name = "householder_product",
                   .lax_name = "householder_product",
                   .num_operands = 2,
                   .infer = InferHouseholderProduct,
                   .jvp = Refused{"its reflectors are an intermediate result; differentiate qr"},
                   .eval = EvalHouseholderProduct,
                   .uninterrupted = HouseholderProductOperations});

constexpr OpDef kQr = LinearAlgebra({.name = "qr",
                                     .lax_name = "qr",
                                     .num_operands = 1,
                                     .attrs = kQrAttrs,
                                     .infer = InferQr,
                                     .jvp = QrJvp,
                                     .eval = EvalQr,
                                     .uninterrupted = QrOperations});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

LuResult Lu(Value x) {
  const std::vector<Value> out = x.builder().Emit(ops::kLu, {x}, {});
  return {out[0], out[1], out[2]};
}

std::pair<Value, Value> Geqrf(Value x) {
  const std::vector<Value> out = x.builder().Emit(ops::kGeqrf, {x}, {});
  return {out[0], out[1]};
}

Geqp3Result Geqp3(Value x, Value first) {
  const std::vector<Value> out = x.builder().Emit(ops::kGeqp3, MatchVarying({x, first}), {});
  return {out[0], out[1], out[2]};
}

Value HouseholderProduct(Value a, Value taus) {
  return a.builder().Emit1(ops::kHouseholderProduct, MatchVarying({a, taus}), {});
}

std::pair<Value, Value> Qr(Value x, bool full_matrices) {
  const std::vector<Value> out =
      x.builder().Emit(ops::kQr, {x}, {{"full_matrices", full_matrices}});
  return {out[0], out[1]};
}

PivotedQrResult PivotedQr(Value x, bool full_matrices) {
  const std::vector<Value> out =
      x.builder().Emit(ops::kQr, {x}, {{"full_matrices", full_matrices}, {"pivoting", true}});
  return {out[0], out[1], out[2]};
}

}  // namespace tessera::ir
