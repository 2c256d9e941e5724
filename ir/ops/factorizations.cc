// lu, geqrf, householder_product and qr.
//
// Reference: JAX's lax.linalg. Derivatives: S. Walter and L. Lehmann, "Algorithmic differentiation
// of linear algebra functions with application in optimum experimental design" (2010).
#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/ops/linear_algebra_eval.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

int64_t ShorterOf(const Type& t) { return std::min(RowsOf(t), ColsOf(t)); }
Value LeadingBlock(Value x, int64_t rows, int64_t cols) {
  Dims limit = x.shape();
  limit[x.rank() - 2] = rows;
  limit[x.rank() - 1] = cols;
  return Slice(x, Dims(x.rank(), 0), std::move(limit));
}

// ---- lu: p a = l u. Results: l below the diagonal and u, the rows that were swapped with each of
// the first, and the rows of a in the order of p a. ----

Types InferLu(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape), OfBatch(c, DType::kS32, {ShorterOf(a)}),
                           OfBatch(c, DType::kS32, {RowsOf(a)})};
}

// The rows of each matrix in the order of `rows`.
Value TakeRows(Value x, Value rows) {
  const int batch = x.rank() - 2;
  GatherDimensionNumbers dims;
  dims.offset_dims = {batch + 1};
  dims.collapsed_slice_dims = {batch};
  dims.start_index_map = {batch};
  Dims single;
  for (int d = 0; d < batch; ++d) {
    dims.operand_batching_dims.push_back(d);
    dims.start_indices_batching_dims.push_back(d);
    single.push_back(std::min<int64_t>(x.dim(d), 1));
  }
  single.push_back(std::min<int64_t>(x.dim(batch), 1));
  single.push_back(x.dim(batch + 1));
  return Gather(x, ExpandDims(rows, {rows.rank()}), dims, std::move(single),
                {.mode = GatherScatterMode::kPromiseInBounds});
}

// x with zeros behind it, to n x n.
Value Completed(Value x, int64_t n) {
  DimList zeros(x.rank(), 0), high = zeros;
  high[x.rank() - 2] = n - x.dim(x.rank() - 2);
  high[x.rank() - 1] = n - x.dim(x.rank() - 1);
  return Pad(x, Constant(x.builder(), x.dtype(), 0), std::move(zeros), std::move(high));
}

// With x = l^-1 (p da) u^-1, dl = l (x below the diagonal) and du = (x on and above it) u. Matrices
// that are not square: l and u are completed by ones on the diagonal.
std::vector<Value> LuJvp(const RuleContext& c, Values tangents) {
  const Value packed = c.out[0];
  const int64_t m = packed.dim(packed.rank() - 2), n = packed.dim(packed.rank() - 1),
                k = std::min(m, n);
  Value l = Completed(Tril(LeadingBlock(packed, m, k), -1), m);
  const Value on = OnDiagonal(l);
  l = Select(on, FullLike(l, 1), l);
  Value u = Completed(Triu(LeadingBlock(packed, k, n)), n);
  if (n > k) {
    const Value beyond = OnDiagonal(u, k);
    u = Select(beyond, FullLike(u, 1), u);
  }
  const Value da = TakeRows(tangents[0], c.out[2]);
  const Value left = TriangularSolve(l, da, {.lower = true, .unit_diagonal = true});
  const Value x = TriangularSolve(u, left, {.left_side = false});
  const Value dl = Matmul(l, Tril(x, -1));
  return {dl + Matmul(Triu(x), u), Value(), Value()};
}

Arrays EvalLu(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  std::vector<Array> out = ResultsOf(c);
  if (n == 0)  // rows stay where they are
    for (int64_t i = 0; i < out[2].num_elements(); ++i) out[2].Set(i, static_cast<double>(i % m));
  return ForEachMatrix(c, in[0].dtype(), CountOf(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ColumnsOf<T>(in[0], index, m, n);
                         std::vector<int> swaps(k);
                         lapack.Getrf(static_cast<int>(m), static_cast<int>(n), a.data(),
                                      static_cast<int>(m), swaps.data());
                         PutColumns(a, m, m, n, &out[0], index);
                         auto* const pivots = At<int32_t>(&out[1], index, k);
                         auto* const rows = At<int32_t>(&out[2], index, m);
                         std::iota(rows, rows + m, 0);
                         for (int64_t i = 0; i < k; ++i) {
                           pivots[i] = swaps[i] - 1;
                           std::swap(rows[i], rows[pivots[i]]);
                         }
                       });
}

// ---- geqrf and householder_product: qr by reflectors, and the matrix that reflectors make. ----

Types InferGeqrf(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape), OfBatch(c, a.dtype, {ShorterOf(a)})};
}

Arrays EvalGeqrf(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back();
  std::vector<Array> out = ResultsOf(c);
  return ForEachMatrix(c, in[0].dtype(), CountOf(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ColumnsOf<T>(in[0], index, m, n);
                         lapack.Geqrf(static_cast<int>(m), static_cast<int>(n), a.data(),
                                      static_cast<int>(m), At<T>(&out[1], index, std::min(m, n)));
                         PutColumns(a, m, m, n, &out[0], index);
                       });
}

Types InferHouseholderProduct(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 1, 1));
  const Type &a = c.in[0], &taus = c.in[1];
  const int64_t m = RowsOf(a), n = ColsOf(a);
  if (m < n)
    return ValueError(c, "a is ", a.ToString(), "; expected at least as many rows as columns");
  if (taus.rank() != a.rank() - 1 ||
      !std::equal(taus.shape.begin(), taus.shape.end() - 1, a.shape.begin()) ||
      taus.shape.back() > n)
    return TypeError(c, "a is ", a.ToString(), " and taus ", taus.ToString(),
                     "; expected the same batch, and at most one of taus for each column");
  return std::vector<Type>{MakeType(a.dtype, a.shape)};
}

Arrays EvalHouseholderProduct(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = in[1].shape().back();
  std::vector<Array> out = ResultsOf(c);
  return ForEachMatrix(c, in[0].dtype(), CountOf(shape), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ColumnsOf<T>(in[0], index, m, n);
                         lapack.Orgqr(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                                      a.data(), static_cast<int>(m),
                                      reinterpret_cast<const T*>(in[1].data()) + index * k);
                         PutColumns(a, m, m, n, &out[0], index);
                       });
}

// ---- qr: a = q r, q orthogonal, r upper triangular. ----

Types InferQr(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  const Type& a = c.in[0];
  const int64_t m = RowsOf(a), k = c.attrs.Bool("full_matrices") ? m : ShorterOf(a);
  return std::vector<Type>{OfBatch(c, a.dtype, {m, k}), OfBatch(c, a.dtype, {k, ColsOf(a)})};
}

// With y = q^T da r^-1 and w = (y below the diagonal) - its transpose, dq = q (w - y) + da r^-1 and
// dr = (y - w) r.
std::vector<Value> QrJvp(const RuleContext& c, Values tangents) {
  const Type& a = c.in_types[0];
  if (RowsOf(a) < ColsOf(a) || (c.attrs.Bool("full_matrices") && RowsOf(a) != ColsOf(a)))
    ThrowRefused("Differentiation rule", c.def,
                 "q has a derivative where a has at least as many rows as columns, without "
                 "full_matrices unless it is square",
                 c.b.site());
  const Value q = c.out[0], r = c.out[1];
  const Value da_r = TriangularSolve(r, tangents[0], {.left_side = false});
  const Value y = Matmul(MatrixTranspose(q), da_r);
  const Value below = Tril(y, -1);
  const Value w = below - MatrixTranspose(below);
  const Value dq = Matmul(q, w - y) + da_r;
  return {dq, Matmul(y - w, r)};
}

Arrays EvalQr(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n),
                of_q = c.attrs.Bool("full_matrices") ? m : k;
  std::vector<Array> out = ResultsOf(c);
  // Without columns q is the identity.
  const int64_t count = n == 0 && of_q > 0 ? out[0].num_elements() / (m * of_q) : CountOf(shape);
  return ForEachMatrix(
      c, in[0].dtype(), count, out, [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ColumnsOf<T>(in[0], index, m, n), taus(k);
        if (n > 0)
          lapack.Geqrf(static_cast<int>(m), static_cast<int>(n), a.data(), static_cast<int>(m),
                       taus.data());
        T* const r = At<T>(&out[1], index, of_q * n);
        for (int64_t i = 0; i < of_q; ++i)
          for (int64_t j = 0; j < n; ++j) r[i * n + j] = j < i ? T{0} : a[j * m + i];
        a.resize(m * of_q);
        lapack.Orgqr(static_cast<int>(m), static_cast<int>(of_q), static_cast<int>(k), a.data(),
                     static_cast<int>(m), taus.data());
        PutColumns(a, m, m, of_q, &out[0], index);
      });
}

constexpr AttrSpec kQrAttrs[] = {{"full_matrices", AttrKind::kBool}};

}  // namespace

constexpr OpDef kLu = LinearAlgebra({.name = "lu",
                                     .lax_name = "lu",
                                     .num_operands = 1,
                                     .infer = InferLu,
                                     .jvp = LuJvp,
                                     .eval = EvalLu});

constexpr OpDef kGeqrf =
    LinearAlgebra({.name = "geqrf",
                   .lax_name = "geqrf",
                   .num_operands = 1,
                   .infer = InferGeqrf,
                   .jvp = Refused{"its reflectors are an intermediate result; differentiate qr"},
                   .eval = EvalGeqrf});

constexpr OpDef kHouseholderProduct =
    LinearAlgebra({.name = "householder_product",
                   .lax_name = "householder_product",
                   .num_operands = 2,
                   .infer = InferHouseholderProduct,
                   .jvp = Refused{"its reflectors are an intermediate result; differentiate qr"},
                   .eval = EvalHouseholderProduct});

constexpr OpDef kQr = LinearAlgebra({.name = "qr",
                                     .lax_name = "qr",
                                     .num_operands = 1,
                                     .attrs = kQrAttrs,
                                     .infer = InferQr,
                                     .jvp = QrJvp,
                                     .eval = EvalQr});

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

Value HouseholderProduct(Value a, Value taus) {
  return a.builder().Emit1(ops::kHouseholderProduct, MatchVarying({a, taus}), {});
}

std::pair<Value, Value> Qr(Value x, bool full_matrices) {
  const std::vector<Value> out =
      x.builder().Emit(ops::kQr, {x}, {{"full_matrices", full_matrices}});
  return {out[0], out[1]};
}

}  // namespace tessera::ir
