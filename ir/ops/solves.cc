// The ops cholesky, triangular_solve and tridiagonal_solve, evaluated by LAPACK on the host.
//
// Reference: StableHLO's cholesky and triangular_solve; JAX's lax.linalg. Derivatives: M. Giles,
// "An extended collection of matrix derivative results for forward and reverse mode algorithmic
// differentiation" (2008); I. Murray, "Differentiation of the Cholesky decomposition" (2016).
#include <algorithm>
#include <string>

#include "ir/ops/rules/linear_algebra_eval.h"
#include "ir/ops/rules/refused.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

// ---- cholesky: the triangular factor of symmetric, or Hermitian, positive definite matrices. ----

Types InferCholesky(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  return std::vector<Type>{MakeType(c.in[0].dtype, c.in[0].shape)};
}

// With a = L L^H, computes dL = L phi(L^-1 da L^-H), where phi keeps the lower triangle and halves
// the diagonal. Only one triangle of a and of da is read.
std::vector<Value> CholeskyJvp(const RuleContext& c, Values tangents) {
  const bool lower = c.attrs.Bool("lower");
  const Value l = lower ? c.out[0] : Adjoint(c.out[0]);
  const Value da = Symmetrized(tangents[0], lower);
  const Value right = TriangularSolve(
      l, da, {.left_side = false, .lower = true, .transpose = true, .conjugate = true});
  const Value x = TriangularSolve(l, right, {.left_side = true, .lower = true});
  const Value on = DiagonalMask(x), halved = Scaled(FullLike(RealPart(x), 0.5), x);
  const Value half = Select(on, halved, Tril(x, -1));
  const Value dl = Matmul(l, half);
  return {lower ? dl : Adjoint(dl)};
}

// Matrices are stored row after row, and LAPACK reads them column after column. It therefore sees
// the transpose, whose upper triangle is our lower one.
Arrays EvalCholesky(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const bool lower = c.attrs.Bool("lower");
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(in[0].shape()), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         T* const a = MatrixData<T>(&out[0], index, n * n);
                         std::copy_n(reinterpret_cast<const T*>(in[0].data()) + index * n * n,
                                     n * n, a);
                         const int size = static_cast<int>(n);
                         if (lapack.Potrf(lower ? 'U' : 'L', size, a, size) != 0)
                           FillWithNan(a, n * n);
                         for (int64_t i = 0; i < n; ++i) {
                           T* const row = a + i * n;
                           std::fill(lower ? row + i + 1 : row, lower ? row + n : row + i, T{0});
                         }
                       });
}

double CholeskyOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.025);
}

constexpr AttrSpec kCholeskyAttrs[] = {{"lower", AttrKind::kBool}};

// ---- triangular_solve: the x of op(a) x = b, or of x op(a) = b. ----

TriangularSolveOptions OptionsOf(const Attrs& attrs) {
  return {.left_side = attrs.Bool("left_side"),
          .lower = attrs.Bool("lower"),
          .transpose = attrs.Str("transpose_a") != "NO_TRANSPOSE",
          .conjugate = attrs.Str("transpose_a") == "ADJOINT",
          .unit_diagonal = attrs.Bool("unit_diagonal")};
}

Types InferTriangularSolve(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 1));
  const std::string& transpose = c.attrs.Str("transpose_a");
  if (transpose != "NO_TRANSPOSE" && transpose != "TRANSPOSE" && transpose != "ADJOINT")
    return ValueError(c, "transpose_a is '", transpose,
                      "'; expected NO_TRANSPOSE, TRANSPOSE or ADJOINT");
  const Type &a = c.in[0], &b = c.in[1];
  const Dims of_a(a.shape.begin(), a.shape.end() - 2), of_b(b.shape.begin(), b.shape.end() - 2);
  if (of_a != of_b) return TypeError(c, "got batches of different shapes: ", TypesToString(c.in));
  const bool is_left_side = c.attrs.Bool("left_side");
  if (NumRows(a) != (is_left_side ? NumRows(b) : NumCols(b)))
    return TypeError(c, "a is ", a.ToString(), " and b ", b.ToString(), "; expected b to have ",
                     NumRows(a), is_left_side ? " rows" : " columns");
  return std::vector<Type>{MakeType(b.dtype, b.shape)};
}

// The derivative dx solves a dx = db - da x.
std::vector<Value> TriangularSolveJvp(const RuleContext& c, Values tangents) {
  const TriangularSolveOptions o = OptionsOf(c.attrs);
  Value rhs = tangents[1];
  if (tangents[0]) {
    const int64_t k = o.unit_diagonal ? 1 : 0;
    Value da = o.lower ? Tril(tangents[0], -k) : Triu(tangents[0], k);
    if (o.transpose) da = o.conjugate ? Adjoint(da) : MatrixTranspose(da);
    const Value moved = o.left_side ? Matmul(da, c.out[0]) : Matmul(c.out[0], da);
    rhs = rhs ? rhs - moved : -moved;
  }
  return {TriangularSolve(c.in[0], rhs, o)};
}

std::vector<Value> TransposeTriangularSolve(const RuleContext& c, Values cts,
                                            const std::vector<bool>&) {
  if (!cts[0]) return {Value(), Value()};
  TriangularSolveOptions o = OptionsOf(c.attrs);
  o.transpose = !o.transpose;
  return {Value(), TriangularSolve(NonLinearOperand(c, 0), cts[0], o)};
}

// LAPACK reads rows as columns, so it sees the transposes of a and b, and solves x^T op(a)^T = b^T.
Arrays EvalTriangularSolve(const EvalContext& c, absl::Span<const Array> in) {
  const TriangularSolveOptions o = OptionsOf(c.attrs);
  const Dims& shape = in[1].shape();
  const int64_t n = in[0].shape().back(), rows = shape[shape.size() - 2], cols = shape.back();
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(shape), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        T* const b = MatrixData<T>(&out[0], index, rows * cols);
        std::copy_n(reinterpret_cast<const T*>(in[1].data()) + index * rows * cols, rows * cols, b);
        lapack.Trsm(o.left_side ? 'R' : 'L', o.lower ? 'U' : 'L',
                    !o.transpose  ? 'N'
                    : o.conjugate ? 'C'
                                  : 'T',
                    o.unit_diagonal ? 'U' : 'N', static_cast<int>(cols), static_cast<int>(rows),
                    reinterpret_cast<const T*>(in[0].data()) + index * n * n, static_cast<int>(n),
                    b, static_cast<int>(cols));
      });
}

// a is read in place, and b is copied once.
double TriangularSolveOperations(const InferContext& c, absl::Span<const Type>) {
  const Type &a = c.in[0], &b = c.in[1];
  const double count = std::max(CountOfMatrices(b), 1.0);
  const double of_a = static_cast<double>(a.num_elements()) / count,
               of_b = static_cast<double>(b.num_elements()) / count;
  return BatchOperations(c, 0.05 * static_cast<double>(NumRows(a)) * of_b + of_a + of_b, count);
}

constexpr AttrSpec kTriangularSolveAttrs[] = {{"left_side", AttrKind::kBool},
                                              {"lower", AttrKind::kBool},
                                              {"unit_diagonal", AttrKind::kBool},
                                              {"transpose_a", AttrKind::kString}};

// ---- tridiagonal_solve: the x of t x = b, where t is given by its three diagonals. ----

// The operands are the elements below the diagonal, of which the first is ignored, the elements on
// the diagonal, the elements above it, of which the last is ignored, and b.
Types InferTridiagonalSolve(const InferContext& c) {
  for (size_t i = 0; i < 3; ++i) {
    TESSERA_RETURN_IF_ERROR(CheckMatrix(c, i, 1));
    if (c.in[i].shape != c.in[0].shape)
      return TypeError(c, "got diagonals of different shapes: ", TypesToString(c.in));
  }
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 3));
  const Type &d = c.in[0], &b = c.in[3];
  if (Dims(b.shape.begin(), b.shape.end() - 1) != d.shape)
    return TypeError(
        c, "the diagonals are ", d.ToString(), " and b is ", b.ToString(),
        "; expected b to have the dims of the diagonals, then a dim of right-hand sides");
  return std::vector<Type>{MakeType(b.dtype, b.shape)};
}

// Returns `x` moved by `by` positions along `dim`. Zeros take the positions that become free.
Value Shifted(Value x, int dim, int64_t by) {
  DimList low(x.rank(), 0), high = low;
  low[dim] = by;
  high[dim] = -by;
  return Pad(x, Constant(x.builder(), x.dtype(), 0), std::move(low), std::move(high));
}

std::vector<Value> TridiagonalSolveJvp(const RuleContext& c, Values tangents) {
  const Value x = c.out[0];
  Value rhs = tangents[3];
  for (int i = 0; i < 3; ++i) {
    if (!tangents[i]) continue;
    const Value at = i == 1 ? x : Shifted(x, x.rank() - 2, i == 0 ? 1 : -1);
    const Value moved = RepeatAsColumns(tangents[i], x) * at;
    rhs = rhs ? rhs - moved : -moved;
  }
  return {TridiagonalSolve(c.in[0], c.in[1], c.in[2], rhs)};
}

std::vector<Value> TransposeTridiagonalSolve(const RuleContext& c, Values cts,
                                             const std::vector<bool>&) {
  if (!cts[0]) return std::vector<Value>(4);
  const Value below = NonLinearOperand(c, 0), above = NonLinearOperand(c, 2);
  const int last = below.rank() - 1;
  const Value from_above = Shifted(above, last, 1), from_below = Shifted(below, last, -1);
  return {Value(), Value(), Value(),
          TridiagonalSolve(from_above, NonLinearOperand(c, 1), from_below, cts[0])};
}

Arrays EvalTridiagonalSolve(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[3].shape();
  const int64_t n = shape[shape.size() - 2], nrhs = shape.back();
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(shape), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        const auto diagonal = [&](int k, int64_t first, int64_t size) {
          const T* const from = reinterpret_cast<const T*>(in[k].data()) + index * n + first;
          return std::vector<T>(from, from + size);
        };
        std::vector<T> below = diagonal(0, 1, n - 1), on = diagonal(1, 0, n),
                       above = diagonal(2, 0, n - 1), b = ToColumnMajor<T>(in[3], index, n, nrhs);
        if (lapack.Gtsv(static_cast<int>(n), static_cast<int>(nrhs), below.data(), on.data(),
                        above.data(), b.data(), static_cast<int>(n)) != 0)
          FillWithNan(b.data(), n * nrhs);
        PutColumnMajor(b, n, n, nrhs, &out[0], index);
      });
}

// The steps of a solve wait for one another, and for a division.
double TridiagonalSolveOperations(const InferContext& c, absl::Span<const Type>) {
  const Type& b = c.in[3];
  const double count = std::max(CountOfMatrices(b), 1.0);
  return BatchOperations(
      c, 64 * static_cast<double>(b.num_elements() + c.in[0].num_elements()) / count, count);
}

}  // namespace

constexpr OpDef kCholesky = LinearAlgebra({.name = "cholesky",
                                           .lax_name = "cholesky",
                                           .num_operands = 1,
                                           .attrs = kCholeskyAttrs,
                                           .infer = InferCholesky,
                                           .jvp = CholeskyJvp,
                                           .eval = EvalCholesky,
                                           .uninterrupted = CholeskyOperations});

constexpr OpDef kTriangularSolve = LinearAlgebra({.name = "triangular_solve",
                                                  .lax_name = "triangular_solve",
                                                  .num_operands = 2,
                                                  .attrs = kTriangularSolveAttrs,
                                                  .infer = InferTriangularSolve,
                                                  .jvp = TriangularSolveJvp,
                                                  .transpose = TransposeTriangularSolve,
                                                  .eval = EvalTriangularSolve,
                                                  .uninterrupted = TriangularSolveOperations});

constexpr OpDef kTridiagonalSolve = LinearAlgebra<1>({.name = "tridiagonal_solve",
                                                      .lax_name = "tridiagonal_solve",
                                                      .num_operands = 4,
                                                      .infer = InferTridiagonalSolve,
                                                      .jvp = TridiagonalSolveJvp,
                                                      .transpose = TransposeTridiagonalSolve,
                                                      .eval = EvalTridiagonalSolve,
                                                      .uninterrupted = TridiagonalSolveOperations});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

Value Cholesky(Value x, bool lower) {
  return x.builder().Emit1(ops::kCholesky, {x}, {{"lower", lower}});
}

Value TriangularSolve(Value a, Value b, const TriangularSolveOptions& options) {
  const bool conjugate = options.conjugate && IsComplex(a.dtype());
  if (conjugate && !options.transpose) a = Conj(a);
  return a.builder().Emit1(ops::kTriangularSolve, MatchVarying({a, b}),
                           {{"left_side", options.left_side},
                            {"lower", options.lower},
                            {"unit_diagonal", options.unit_diagonal},
                            {"transpose_a", std::string(!options.transpose ? "NO_TRANSPOSE"
                                                        : conjugate        ? "ADJOINT"
                                                                           : "TRANSPOSE")}});
}

Value TridiagonalSolve(Value below, Value diagonal, Value above, Value b) {
  return b.builder().Emit1(ops::kTridiagonalSolve, MatchVarying({below, diagonal, above, b}), {});
}

}  // namespace tessera::ir
