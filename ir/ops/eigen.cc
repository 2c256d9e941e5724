// eigh and svd: eigenvalues of symmetric matrices, and singular values, with their vectors.
//
// Reference: JAX's lax.linalg. Derivatives: M. Giles, "An extended collection of matrix derivative
// results for forward and reverse mode algorithmic differentiation" (2008).
#include <algorithm>
#include <utility>

#include "ir/ops/linear_algebra_eval.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

// The scratch of larger ones has more bytes than LAPACK's integers can say.
constexpr int64_t kSizeMax = 16384;

absl::Status CheckSize(const InferContext& c) {
  if (std::min(RowsOf(c.in[0]), ColsOf(c.in[0])) <= kSizeMax) return absl::OkStatus();
  return ValueError(c, "the operand is ", c.in[0].ToString(), "; expected matrices of at most ",
                    kSizeMax, " rows or columns");
}

// The coefficients 1 / (y - x) off the diagonal, and 0 on it.
Value Inverses(Value differences) {
  const Value zero = Zeros(differences.builder(), differences.type()), on = OnDiagonal(differences);
  const Value safe = Select(on, FullLike(differences, 1), differences);
  return Select(on, zero, Div(FullLike(differences, 1), safe));
}

// ---- eigh: a v = v diag(w), w ascending. Results: v, w. ----

Types InferEigh(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape), OfBatch(c, a.dtype, {ColsOf(a)})};
}

// With m = v^T da v: dw is its diagonal, and dv = v (m / (w of the column - w of the row)).
std::vector<Value> EighJvp(const RuleContext& c, Values tangents) {
  const Value v = c.out[0], w = c.out[1];
  const Value da = Symmetrized(tangents[0], c.attrs.Bool("lower"));
  const Value da_v = Matmul(da, v);
  const Value m = Matmul(MatrixTranspose(v), da_v);
  const Value columns = AsRows(w, m);
  const Value f = Inverses(columns - AsColumns(w, m));
  return {Matmul(v, f * m), DiagonalOf(m)};
}

Arrays EvalEigh(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const bool lower = c.attrs.Bool("lower");
  std::vector<Array> out = ResultsOf(c);
  return ForEachMatrix(
      c, in[0].dtype(), CountOf(in[0].shape()), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ColumnsOf<T>(in[0], index, n, n);
        T* const w = At<T>(&out[1], index, n);
        const int size = static_cast<int>(n);
        if (!AllFinite(a) || lapack.Syevd(lower ? 'L' : 'U', size, a.data(), size, w) != 0) {
          FillWithNan(a.data(), n * n);
          FillWithNan(w, n);
        }
        PutColumns(a, n, n, n, &out[0], index);
      });
}

constexpr AttrSpec kEighAttrs[] = {{"lower", AttrKind::kBool}};

// ---- svd: a = u diag(s) vt, s descending. Results: s, and with compute_uv u and vt. ----

Types InferSvd(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type& a = c.in[0];
  const int64_t m = RowsOf(a), n = ColsOf(a), k = std::min(m, n);
  const bool full = c.attrs.Bool("full_matrices");
  std::vector<Type> out = {OfBatch(c, a.dtype, {k})};
  if (!c.attrs.Bool("compute_uv")) return out;
  out.push_back(OfBatch(c, a.dtype, {m, full ? m : k}));
  out.push_back(OfBatch(c, a.dtype, {full ? n : k, n}));
  return out;
}

// With x = u^T da v: ds is its diagonal; du = u (f (x s + s x^T)), dv = v (f (s x + x^T s)), where
// f is 1 / (s of the column^2 - s of the row^2); and what da has beyond the span of u, or of v.
std::vector<Value> SvdJvp(const RuleContext& c, Values tangents) {
  const Type& a = c.in_types[0];
  const int64_t m = RowsOf(a), n = ColsOf(a), k = std::min(m, n);
  const bool vectors = c.attrs.Bool("compute_uv");
  if (vectors && c.attrs.Bool("full_matrices") && m != n)
    ThrowRefused("Differentiation rule", c.def,
                 "vectors beyond the singular values have none; take full_matrices=false",
                 c.b.site());
  std::vector<Value> primals = c.out;
  if (!vectors) primals = Svd(c.in[0], /*full_matrices=*/false, /*compute_uv=*/true);
  const Value s = primals[0], u = primals[1], v = MatrixTranspose(primals[2]), da = tangents[0];
  const Value da_v = Matmul(da, v);
  const Value x = Matmul(MatrixTranspose(u), da_v);
  if (!vectors) return {DiagonalOf(x)};
  const Value of_column = AsRows(s, x), of_row = AsColumns(s, x);
  const Value sum = of_column + of_row;
  const Value f = Inverses(sum * (of_column - of_row));
  const Value xs = of_column * x, sx = of_row * x;
  Value du = Matmul(u, f * (xs + MatrixTranspose(xs)));
  Value dv = Matmul(v, f * (sx + MatrixTranspose(sx)));
  const auto beyond = [&](Value image, Value span) {
    const Value within = Matmul(span, Matmul(MatrixTranspose(span), image));
    const Value rest = image - within;
    return rest / AsRows(s, image);
  };
  if (m > k) du = du + beyond(da_v, u);
  if (n > k) dv = dv + beyond(Matmul(MatrixTranspose(da), u), v);
  return {DiagonalOf(x), du, MatrixTranspose(dv)};
}

Arrays EvalSvd(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  const bool vectors = c.attrs.Bool("compute_uv"), full = c.attrs.Bool("full_matrices");
  const int64_t of_u = !vectors ? 0 : full ? m : k, of_v = !vectors ? 0 : full ? n : k;
  std::vector<Array> out = ResultsOf(c);
  if (k == 0 && full && vectors) {  // vectors of nothing: the identity
    for (size_t r = 1; r < out.size(); ++r) {
      const int64_t side = out[r].shape().back();
      for (int64_t i = 0; i < out[r].num_elements(); ++i)
        out[r].Set(i, i % (side * side) % (side + 1) == 0 ? 1 : 0);
    }
  }
  return ForEachMatrix(
      c, in[0].dtype(), CountOf(shape), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ColumnsOf<T>(in[0], index, m, n), u(m * of_u), vt(of_v * n);
        T* const s = At<T>(&out[0], index, k);
        const auto ld = [](int64_t rows) { return static_cast<int>(std::max<int64_t>(rows, 1)); };
        if (!AllFinite(a) || lapack.Gesdd(!vectors ? 'N'
                                          : full   ? 'A'
                                                   : 'S',
                                          static_cast<int>(m), static_cast<int>(n), a.data(), ld(m),
                                          s, u.data(), ld(m), vt.data(), ld(of_v)) != 0) {
          FillWithNan(s, k);
          FillWithNan(u.data(), m * of_u);
          FillWithNan(vt.data(), of_v * n);
        }
        if (!vectors) return;
        PutColumns(u, m, m, of_u, &out[1], index);
        PutColumns(vt, of_v, of_v, n, &out[2], index);
      });
}

constexpr AttrSpec kSvdAttrs[] = {{"full_matrices", AttrKind::kBool},
                                  {"compute_uv", AttrKind::kBool}};

}  // namespace

constexpr OpDef kEigh = LinearAlgebra({.name = "eigh",
                                       .lax_name = "eigh",
                                       .num_operands = 1,
                                       .attrs = kEighAttrs,
                                       .infer = InferEigh,
                                       .jvp = EighJvp,
                                       .eval = EvalEigh});

constexpr OpDef kSvd = LinearAlgebra({.name = "svd",
                                      .lax_name = "svd",
                                      .num_operands = 1,
                                      .attrs = kSvdAttrs,
                                      .infer = InferSvd,
                                      .jvp = SvdJvp,
                                      .eval = EvalSvd});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

std::pair<Value, Value> Eigh(Value x, bool lower) {
  const std::vector<Value> out = x.builder().Emit(ops::kEigh, {x}, {{"lower", lower}});
  return {out[0], out[1]};
}

std::vector<Value> Svd(Value x, bool full_matrices, bool compute_uv) {
  return x.builder().Emit(ops::kSvd, {x},
                          {{"full_matrices", full_matrices}, {"compute_uv", compute_uv}});
}

}  // namespace tessera::ir
