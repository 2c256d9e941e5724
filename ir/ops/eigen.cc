// The ops eigh, svd, eig, schur, hessenberg and tridiagonal, evaluated by LAPACK on the host. eigh
// returns the eigenvalues and eigenvectors of symmetric, or Hermitian, matrices, and svd the
// singular values and vectors. eig takes any square matrix, and the other three return the forms of
// a matrix from which eigenvalues are found.
//
// Reference: JAX's lax.linalg. Derivatives: M. Giles, "An extended collection of matrix derivative
// results for forward and reverse mode algorithmic differentiation" (2008).
#include <algorithm>
#include <complex>
#include <string>
#include <utility>

#include "ir/ops/rules/linear_algebra_eval.h"
#include "ir/ops/rules/refused.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

// The maximum length of the shorter side of a matrix. For larger matrices, the size of LAPACK's
// scratch in bytes does not fit in its integers.
constexpr int64_t kSizeMax = 16384;

absl::Status CheckSize(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSizeForLapack(c));
  if (std::min(NumRows(c.in[0]), NumCols(c.in[0])) <= kSizeMax) return absl::OkStatus();
  return ValueError(c, "the operand is ", c.in[0].ToString(), "; expected matrices of at most ",
                    kSizeMax, " rows or columns");
}

// Returns 1 / differences off the diagonal, and 0 on it.
Value OffDiagonalReciprocals(Value differences) {
  const Value zero = Zeros(differences.builder(), differences.type()),
              on = DiagonalMask(differences);
  const Value safe = Select(on, FullLike(differences, 1), differences);
  return Select(on, zero, Div(FullLike(differences, 1), safe));
}

// ---- eigh: a v = v diag(w), with w ascending. The results are v and w. ----

Types InferEigh(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape),
                           WithBatchDimsOfFirst(c, RealDType(a.dtype), {NumCols(a)})};
}

// With m = v^H da v, dw is the diagonal of m, and dv = v (m / (w of the column - w of the row)).
std::vector<Value> EighJvp(const RuleContext& c, Values tangents) {
  const Value v = c.out[0], w = c.out[1];
  const Value da = Symmetrized(tangents[0], c.attrs.Bool("lower"));
  const Value da_v = Matmul(da, v);
  const Value m = Matmul(Adjoint(v), da_v);
  const Value re = RealPart(m), columns = RepeatAsRows(w, re);
  const Value f = OffDiagonalReciprocals(columns - RepeatAsColumns(w, re));
  const Value dv = Matmul(v, Scaled(f, m));
  return {dv, DiagonalOf(re)};
}

Arrays EvalEigh(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const bool lower = c.attrs.Bool("lower");
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(in[0].shape()), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ToColumnMajor<T>(in[0], index, n, n);
        auto* const w = MatrixData<lapack::Part<T>>(&out[1], index, n);
        const int size = static_cast<int>(n);
        if (!AllFinite(a) || lapack.Syevd(lower ? 'L' : 'U', size, a.data(), size, w) != 0) {
          FillWithNan(a.data(), n * n);
          FillWithNan(w, n);
        }
        PutColumnMajor(a, n, n, n, &out[0], index);
      });
}

double EighOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.6);
}

constexpr AttrSpec kEighAttrs[] = {{"lower", AttrKind::kBool}};

// ---- svd: a = u diag(s) vt, with s descending. The results are s and, with compute_uv, u and vt.
// ----

Types InferSvd(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type& a = c.in[0];
  const int64_t m = NumRows(a), n = NumCols(a), k = std::min(m, n);
  const bool is_full = c.attrs.Bool("full_matrices");
  if (c.attrs.Has("algorithm") && c.attrs.Str("algorithm") != "QR")
    return ValueError(c, "algorithm is '", c.attrs.Str("algorithm"),
                      "'; expected QR, or no algorithm");
  std::vector<Type> out = {WithBatchDimsOfFirst(c, RealDType(a.dtype), {k})};
  if (!c.attrs.Bool("compute_uv")) return out;
  out.push_back(WithBatchDimsOfFirst(c, a.dtype, {m, is_full ? m : k}));
  out.push_back(WithBatchDimsOfFirst(c, a.dtype, {is_full ? n : k, n}));
  return out;
}

std::string_view AlgorithmOf(const Attrs& attrs) {
  return attrs.Has("algorithm") ? std::string_view(attrs.Str("algorithm")) : "";
}

// With x = u^H da v, ds is the diagonal of x. With f = 1 / (s of the column^2 - s of the row^2), du
// = u (f (x s + s x^H)) and dv = v (f (s x + x^H s)). The parts of da beyond the span of u are
// added to du, and those beyond the span of v to dv. If the vectors are complex, u alone turns, by
// the imaginary part of x's diagonal over s.
std::vector<Value> SvdJvp(const RuleContext& c, Values tangents) {
  const Type& a = c.in_types[0];
  const int64_t m = NumRows(a), n = NumCols(a), k = std::min(m, n);
  const bool with_vectors = c.attrs.Bool("compute_uv");
  if (with_vectors && c.attrs.Bool("full_matrices") && m != n)
    ThrowRefused(
        "Differentiation rule", c.def,
        "the vectors beyond the singular values have no derivatives; use full_matrices=false",
        c.b.site());
  std::vector<Value> primals = c.out;
  if (!with_vectors)
    primals = Svd(c.in[0], /*full_matrices=*/false, /*compute_uv=*/true, AlgorithmOf(c.attrs));
  const Value s = primals[0], u = primals[1], v = Adjoint(primals[2]), da = tangents[0];
  const Value da_v = Matmul(da, v);
  const Value x = Matmul(Adjoint(u), da_v);
  const Value re = RealPart(x);
  if (!with_vectors) return {DiagonalOf(re)};
  const Value of_column = RepeatAsRows(s, re), of_row = RepeatAsColumns(s, re);
  const Value sum = of_column + of_row;
  const Value f = OffDiagonalReciprocals(sum * (of_column - of_row));
  const Value xs = Scaled(of_column, x), sx = Scaled(of_row, x);
  Value turned = Scaled(f, xs + Adjoint(xs));
  if (IsComplex(x.dtype())) {
    const Value zero = Zeros(s.builder(), re.type()), is_zero = Compare(of_row, zero, "EQ");
    const Value safe = Select(is_zero, FullLike(re, 1), of_row), on = DiagonalMask(re);
    const Value turn = Select(on, Imag(x) / safe, zero);
    turned = turned + Complex(zero, Select(is_zero, zero, turn));
  }
  Value du = Matmul(u, turned);
  Value dv = Matmul(v, Scaled(f, sx + Adjoint(sx)));
  const auto beyond = [&](Value image, Value span) {
    const Value within = Matmul(span, Matmul(Adjoint(span), image));
    const Value rest = image - within;
    return Over(rest, RepeatAsRows(s, RealPart(rest)));
  };
  if (m > k) du = du + beyond(da_v, u);
  if (n > k) {
    const Value image = Matmul(Adjoint(da), u);
    dv = dv + beyond(image, v);
  }
  const Value ds = DiagonalOf(re);
  return {ds, du, Adjoint(dv)};
}

// Calls LAPACK's divide-and-conquer routine, or its QR iteration if the attribute asks for it. A
// matrix with elements that are not finite, or for which LAPACK does not converge, gets NaNs.
Arrays EvalSvd(const EvalContext& c, absl::Span<const Array> in) {
  const Dims& shape = in[0].shape();
  const int64_t m = shape[shape.size() - 2], n = shape.back(), k = std::min(m, n);
  const bool with_vectors = c.attrs.Bool("compute_uv"), is_full = c.attrs.Bool("full_matrices");
  const bool uses_qr = c.attrs.Has("algorithm");
  const int64_t u_cols = !with_vectors ? 0
                         : is_full     ? m
                                       : k,
                vt_rows = !with_vectors ? 0
                          : is_full     ? n
                                        : k;
  std::vector<Array> out = ResultBuffers(c);
  if (k == 0 && is_full && with_vectors) {  // without rows or columns, u and vt are identities
    for (size_t r = 1; r < out.size(); ++r) {
      const int64_t side = out[r].shape().back();
      for (int64_t i = 0; i < out[r].num_elements(); ++i)
        out[r].Set(i, i % (side * side) % (side + 1) == 0 ? 1 : 0);
    }
  }
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(shape), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ToColumnMajor<T>(in[0], index, m, n), u(m * u_cols), vt(vt_rows * n);
        auto* const s = MatrixData<lapack::Part<T>>(&out[0], index, k);
        const auto ld = [](int64_t rows) { return static_cast<int>(std::max<int64_t>(rows, 1)); };
        const char job = !with_vectors ? 'N' : is_full ? 'A' : 'S';
        const auto solve = uses_qr ? &lapack::Routines<T>::Gesvd : &lapack::Routines<T>::Gesdd;
        if (!AllFinite(a) ||
            (lapack.*solve)(job, static_cast<int>(m), static_cast<int>(n), a.data(), ld(m), s,
                            u.data(), ld(m), vt.data(), ld(vt_rows)) != 0) {
          FillWithNan(s, k);
          FillWithNan(u.data(), m * u_cols);
          FillWithNan(vt.data(), vt_rows * n);
        }
        if (!with_vectors) return;
        PutColumnMajor(u, m, m, u_cols, &out[1], index);
        PutColumnMajor(vt, vt_rows, vt_rows, n, &out[2], index);
      });
}

// The QR iteration takes ten times as long as dividing and conquering. Vectors that make u and vt
// square are products of reflectors, as in a full QR.
double SvdOperations(const InferContext& c, absl::Span<const Type> out) {
  const bool uses_qr = c.attrs.Has("algorithm"), with_vectors = c.attrs.Bool("compute_uv");
  const Type& a = c.in[0];
  const double count = std::max(CountOfMatrices(a), 1.0);
  double of_vectors = 0;
  for (size_t r = 1; r < out.size(); ++r)
    of_vectors += static_cast<double>(out[r].num_elements()) / count *
                  static_cast<double>(std::min(NumRows(a), NumCols(a)));
  const double per_product = uses_qr ? 15 : with_vectors ? 1.2 : 0.8;
  return MatrixOperations(c, out, per_product) + BatchOperations(c, 0.1 * of_vectors, count);
}

constexpr AttrSpec kSvdAttrs[] = {{"full_matrices", AttrKind::kBool},
                                  {"compute_uv", AttrKind::kBool},
                                  {"algorithm", AttrKind::kString, /*required=*/false}};

// ---- eig: a v = w v for any square a. The results are w, then the left and the right vectors if
// they are asked for. ----

DType ComplexDType(DType dtype) {
  return dtype == DType::kF32 ? DType::kC64 : dtype == DType::kF64 ? DType::kC128 : dtype;
}

Types InferEig(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type& a = c.in[0];
  const DType dtype = ComplexDType(a.dtype);
  std::vector<Type> out = {WithBatchDimsOfFirst(c, dtype, {NumCols(a)})};
  for (const char* const side : {"compute_left_eigenvectors", "compute_right_eigenvectors"})
    if (c.attrs.Bool(side)) out.push_back(MakeType(dtype, a.shape));
  return out;
}

Value SumOfRows(Value x) { return ReduceSum(x, {x.rank() - 2}); }

// With p = v^-1 da v, dw is the diagonal of p, and dv = v (p / (w of the column - w of the row))
// plus a multiple of v. That multiple keeps the length of v, and keeps its largest element real,
// because LAPACK normalises vectors in this way.
std::pair<Value, Value> EigTangents(Value w, Value v, Value da) {
  const Value solved = SolvedByLu(v, da);
  const Value p = Matmul(solved, v);
  const Value columns = RepeatAsRows(w, p);
  const Value f = OffDiagonalReciprocals(columns - RepeatAsColumns(w, p));
  const Value u = Matmul(v, f * p);
  const Value size = Abs(v);
  const int rows = v.rank() - 2;
  const Value largest = RepeatAsRows(ArgMax(size, rows), size);
  const Value position =
      ShardedLike(Iota(v.builder(), DType::kS32, v.shape(), rows), largest.type());
  const Value here = Compare(position, largest, "EQ"), zero = Zeros(v.builder(), size.type());
  const Value u_re = Real(u), u_im = Imag(u), v_re = Real(v), v_im = Imag(v);
  const Value along_re = v_re * u_re;
  const Value along = SumOfRows(along_re + v_im * u_im);
  const Value of_u = SumOfRows(Select(here, u_im, zero));
  const Value turned = of_u / SumOfRows(Select(here, v_re, zero));
  const Value less = -along;
  const Value by = RepeatAsRows(Complex(less, -turned), v);
  const Value dw = DiagonalOf(p);
  return {dw, u + v * by};
}

// The derivative needs the right eigenvectors, so it computes them if the op did not. If the op
// returns no vectors, only dw is computed, which takes one solve. The left vectors are the right
// ones of the adjoint matrix.
std::vector<Value> EigJvp(const RuleContext& c, Values tangents) {
  const bool with_left = c.attrs.Bool("compute_left_eigenvectors"),
             with_right = c.attrs.Bool("compute_right_eigenvectors");
  if ((with_left || with_right) && !c.attrs.Bool("enable_eigvec_derivs"))
    ThrowRefused("Differentiation rule", c.def,
                 "derivatives of the vectors are right only where no eigenvalue is repeated, which "
                 "is not checked; ask for them with enable_eigvec_derivs",
                 c.b.site());
  std::vector<Value> primals = c.out;
  if (!with_right) primals = Eig(c.in[0], {.left = with_left, .enable_eigvec_derivs = true});
  const Value w = primals[0], v = primals.back();
  Value da = tangents[0];
  if (!IsComplex(da.dtype())) da = Complex(da, Zeros(da.builder(), da.type()));
  if (!with_left && !with_right) {
    const Value solved = SolvedByLu(v, da);
    const Value products = solved * MatrixTranspose(v);
    return {ReduceSum(products, {products.rank() - 1})};
  }
  const auto [dw, dv] = EigTangents(w, v, da);
  std::vector<Value> out = {dw};
  if (with_left) {
    const Value conjugates = Conj(w);
    out.push_back(EigTangents(conjugates, primals[1], Adjoint(da)).second);
  }
  if (with_right) out.push_back(dv);
  return out;
}

Arrays EvalEig(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const bool with_left = c.attrs.Bool("compute_left_eigenvectors"),
             with_right = c.attrs.Bool("compute_right_eigenvectors");
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(in[0].shape()), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        using Number = std::complex<lapack::Part<T>>;
        std::vector<T> a = ToColumnMajor<T>(in[0], index, n, n);
        std::vector<Number> vl(with_left ? n * n : 1), vr(with_right ? n * n : 1);
        Number* const w = MatrixData<Number>(&out[0], index, n);
        const int size = static_cast<int>(n);
        if (!AllFinite(a) || lapack.Geev(with_left, with_right, size, a.data(), size, w, vl.data(),
                                         size, vr.data(), size) != 0) {
          FillWithNan(w, n);
          FillWithNan(vl.data(), static_cast<int64_t>(vl.size()));
          FillWithNan(vr.data(), static_cast<int64_t>(vr.size()));
        }
        if (with_left) PutColumnMajor(vl, n, n, n, &out[1], index);
        if (with_right) PutColumnMajor(vr, n, n, n, &out[with_left ? 2 : 1], index);
      });
}

double EigOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 4.5);
}

constexpr AttrSpec kEigAttrs[] = {{"compute_left_eigenvectors", AttrKind::kBool},
                                  {"compute_right_eigenvectors", AttrKind::kBool},
                                  {"enable_eigvec_derivs", AttrKind::kBool}};

int64_t EigenScratch(const InferContext& c, absl::Span<const Type> out) {
  const int64_t n = NumCols(c.in[0]);
  const double bytes_per_matrix =
      c.in[0].dtype == DType::kF32   ? lapack::Routines<float>::EigenvalueScratchBytes(n)
      : c.in[0].dtype == DType::kF64 ? lapack::Routines<double>::EigenvalueScratchBytes(n)
      : c.in[0].dtype == DType::kC64
          ? lapack::Routines<std::complex<float>>::EigenvalueScratchBytes(n)
          : lapack::Routines<std::complex<double>>::EigenvalueScratchBytes(n);
  const double total_bytes = static_cast<double>(MatricesAtOnce(c)) * bytes_per_matrix;
  return MatrixScratch(c, out) + static_cast<int64_t>(std::min(total_bytes, 0x1p60));
}

// ---- schur: a = q t q^H. The results are t and, with compute_schur_vectors, q. ----

Types InferSchur(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckSize(c));
  const Type a = MakeType(c.in[0].dtype, c.in[0].shape);
  return std::vector<Type>(c.attrs.Bool("compute_schur_vectors") ? 2 : 1, a);
}

Arrays EvalSchur(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const bool with_vectors = c.attrs.Bool("compute_schur_vectors");
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(
      c, in[0].dtype(), NumMatrices(in[0].shape()), out,
      [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
        std::vector<T> a = ToColumnMajor<T>(in[0], index, n, n), q(with_vectors ? n * n : 1);
        const int size = static_cast<int>(n);
        if (!AllFinite(a) || lapack.Gees(with_vectors, size, a.data(), size, q.data(), size) != 0) {
          FillWithNan(a.data(), n * n);
          FillWithNan(q.data(), static_cast<int64_t>(q.size()));
        }
        PutColumnMajor(a, n, n, n, &out[0], index);
        if (with_vectors) PutColumnMajor(q, n, n, n, &out[1], index);
      });
}

double SchurOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 3);
}

constexpr AttrSpec kSchurAttrs[] = {{"compute_schur_vectors", AttrKind::kBool}};

// ---- hessenberg and tridiagonal: a = q h q^H, where q is a product of Householder reflectors. The
// first result is h, with the reflectors in the place of the zeros beyond its diagonals.
// tridiagonal then returns the main diagonal of h and the diagonal beside it. The last result has
// the factors of the reflectors. ----

absl::Status CheckNotEmpty(const InferContext& c) {
  if (NumCols(c.in[0]) > 0) return absl::OkStatus();
  return ValueError(c, "operand 0 is ", c.in[0].ToString(),
                    "; expected matrices of at least one row");
}

Types InferHessenberg(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckNotEmpty(c));
  const Type& a = c.in[0];
  return std::vector<Type>{MakeType(a.dtype, a.shape),
                           WithBatchDimsOfFirst(c, a.dtype, {NumCols(a) - 1})};
}

Arrays EvalHessenberg(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(in[0].shape()), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, n, n), taus(n);
                         const int size = static_cast<int>(n);
                         lapack.Gehrd(size, a.data(), size, taus.data());
                         PutColumnMajor(a, n, n, n, &out[0], index);
                         std::copy_n(taus.data(), n - 1, MatrixData<T>(&out[1], index, n - 1));
                       });
}

double HessenbergOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.5);
}

Types InferTridiagonal(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSquare(c, 0));
  TESSERA_RETURN_IF_ERROR(CheckNotEmpty(c));
  const Type& a = c.in[0];
  const int64_t n = NumCols(a);
  const DType real = RealDType(a.dtype);
  return std::vector<Type>{MakeType(a.dtype, a.shape), WithBatchDimsOfFirst(c, real, {n}),
                           WithBatchDimsOfFirst(c, real, {n - 1}),
                           WithBatchDimsOfFirst(c, a.dtype, {n - 1})};
}

Arrays EvalTridiagonal(const EvalContext& c, absl::Span<const Array> in) {
  const int64_t n = in[0].shape().back();
  const char uplo = c.attrs.Bool("lower") ? 'L' : 'U';
  std::vector<Array> out = ResultBuffers(c);
  return ForEachMatrix(c, in[0].dtype(), NumMatrices(in[0].shape()), out,
                       [&]<class T>(const lapack::Routines<T>& lapack, int64_t index) {
                         using Real = lapack::Part<T>;
                         std::vector<T> a = ToColumnMajor<T>(in[0], index, n, n), taus(n);
                         std::vector<Real> off(n);
                         const int size = static_cast<int>(n);
                         lapack.Sytrd(uplo, size, a.data(), size,
                                      MatrixData<Real>(&out[1], index, n), off.data(), taus.data());
                         PutColumnMajor(a, n, n, n, &out[0], index);
                         std::copy_n(off.data(), n - 1, MatrixData<Real>(&out[2], index, n - 1));
                         std::copy_n(taus.data(), n - 1, MatrixData<T>(&out[3], index, n - 1));
                       });
}

double TridiagonalOperations(const InferContext& c, absl::Span<const Type> out) {
  return MatrixOperations(c, out, 0.3);
}

constexpr AttrSpec kTridiagonalAttrs[] = {{"lower", AttrKind::kBool}};

}  // namespace

constexpr OpDef kEigh = LinearAlgebra({.name = "eigh",
                                       .lax_name = "eigh",
                                       .num_operands = 1,
                                       .attrs = kEighAttrs,
                                       .infer = InferEigh,
                                       .jvp = EighJvp,
                                       .eval = EvalEigh,
                                       .uninterrupted = EighOperations});

constexpr OpDef kSvd = LinearAlgebra({.name = "svd",
                                      .lax_name = "svd",
                                      .num_operands = 1,
                                      .attrs = kSvdAttrs,
                                      .infer = InferSvd,
                                      .jvp = SvdJvp,
                                      .eval = EvalSvd,
                                      .uninterrupted = SvdOperations});

constexpr OpDef kEig = LinearAlgebra({.name = "eig",
                                      .lax_name = "eig",
                                      .num_operands = 1,
                                      .attrs = kEigAttrs,
                                      .infer = InferEig,
                                      .jvp = EigJvp,
                                      .eval = EvalEig,
                                      .scratch = EigenScratch,
                                      .uninterrupted = EigOperations});

constexpr OpDef kSchur = LinearAlgebra({.name = "schur",
                                        .lax_name = "schur",
                                        .num_operands = 1,
                                        .attrs = kSchurAttrs,
                                        .infer = InferSchur,
                                        .jvp = Refused{"JAX has no such rule either"},
                                        .eval = EvalSchur,
                                        .scratch = EigenScratch,
                                        .uninterrupted = SchurOperations});

constexpr OpDef kHessenberg =
    LinearAlgebra({.name = "hessenberg",
                   .lax_name = "hessenberg",
                   .num_operands = 1,
                   .infer = InferHessenberg,
                   .jvp = Refused{"its reflectors are an intermediate result"},
                   .eval = EvalHessenberg,
                   .scratch = EigenScratch,
                   .uninterrupted = HessenbergOperations});

constexpr OpDef kTridiagonal =
    LinearAlgebra({.name = "tridiagonal",
                   .lax_name = "tridiagonal",
                   .num_operands = 1,
                   .attrs = kTridiagonalAttrs,
                   .infer = InferTridiagonal,
                   .jvp = Refused{"its reflectors are an intermediate result"},
                   .eval = EvalTridiagonal,
                   .scratch = EigenScratch,
                   .uninterrupted = TridiagonalOperations});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

std::pair<Value, Value> Eigh(Value x, bool lower) {
  const std::vector<Value> out = x.builder().Emit(ops::kEigh, {x}, {{"lower", lower}});
  return {out[0], out[1]};
}

std::vector<Value> Svd(Value x, bool full_matrices, bool compute_uv, std::string_view algorithm) {
  Attrs attrs = {{"full_matrices", full_matrices}, {"compute_uv", compute_uv}};
  if (!algorithm.empty()) attrs.Set("algorithm", std::string(algorithm));
  return x.builder().Emit(ops::kSvd, {x}, std::move(attrs));
}

std::vector<Value> Eig(Value x, const EigOptions& options) {
  return x.builder().Emit(ops::kEig, {x},
                          {{"compute_left_eigenvectors", options.left},
                           {"compute_right_eigenvectors", options.right},
                           {"enable_eigvec_derivs", options.enable_eigvec_derivs}});
}

std::vector<Value> Schur(Value x, bool compute_schur_vectors) {
  return x.builder().Emit(ops::kSchur, {x}, {{"compute_schur_vectors", compute_schur_vectors}});
}

std::pair<Value, Value> Hessenberg(Value x) {
  const std::vector<Value> out = x.builder().Emit(ops::kHessenberg, {x}, {});
  return {out[0], out[1]};
}

TridiagonalResult Tridiagonal(Value x, bool lower) {
  const std::vector<Value> out = x.builder().Emit(ops::kTridiagonal, {x}, {{"lower", lower}});
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace tessera::ir
