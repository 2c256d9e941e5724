// Linear algebra from the ops of ir/ops (factorizations.cc, eigen.cc): checks and converts operands
// as numpy does, and computes functions that are no ops from factorizations. JAX's derivative rules
// are written as custom_jvp or custom_linear_solve here.
#include "client/linalg.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/numpy.h"
#include "client/numpy/reductions.h"
#include "client/transform.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::Apply;
using internal::ApplyArgs;
using internal::Operands;
using internal::ThrowError;
using Vs = std::vector<ir::Value>;

// Returns the dtype in which an array of `dtype` is computed: like numpy, integers become floats.
DType InexactDType(DType dtype) {
  if (ir::IsInexact(dtype)) return dtype;
  return dtype == DType::kS64 || dtype == DType::kU64 ? DType::kF64 : DType::kF32;
}
Array AsInexact(const Array& x, const Site& site) {
  internal::ThrowIfNoValue(x, site);
  return ir::IsInexact(x.dtype()) ? x : x.astype(InexactDType(x.dtype()));
}
// Returns both operands with one inexact dtype.
std::pair<Array, Array> Promoted(const Array& a, const Array& b, const Site& site) {
  internal::ThrowIfNoValue(a, site);
  internal::ThrowIfNoValue(b, site);
  const DType dtype = InexactDType(internal::CommonDType({a, b}));
  const Array first = a.dtype() == dtype ? a : a.astype(dtype);
  return {first, b.dtype() == dtype ? b : b.astype(dtype)};
}
bool IsComplexArray(const Array& x) { return ir::IsComplex(x.dtype()); }
DType RealDType(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}
double EpsOf(const Array& x) { return RealDType(x.dtype()) == DType::kF64 ? 0x1p-52 : 0x1p-23; }
void NeedMatrix(const Array& x, std::string_view name, const Site& site) {
  if (x.rank() < 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.", std::string(name),
               ": expected an array of at least 2 dims, got ", x.rank());
}
void NeedSquare(const Array& x, std::string_view name, const Site& site) {
  NeedMatrix(x, name, site);
  if (x.dim(x.rank() - 1) != x.dim(x.rank() - 2))
    ThrowError(ErrorKind::kValueError, site, "linalg.", std::string(name),
               ": expected square matrices, got ", x.dim(x.rank() - 2), " rows and ",
               x.dim(x.rank() - 1), " columns");
}
int64_t RowsOf(const Array& x) { return x.dim(x.rank() - 2); }
int64_t ColsOf(const Array& x) { return x.dim(x.rank() - 1); }
Array Transposed(const Array& x) { return swapaxes(x, -1, -2); }
Array Adjoint(const Array& x) {
  const Array transposed = Transposed(x);
  return IsComplexArray(x) ? conj(transposed) : transposed;
}
// Multiplies with the highest precision, as JAX does where errors of the factors would grow.
Array PreciseMatmul(const Array& x, const Array& y) {
  return matmul(x, y, {.precision = lax::Precision::kHighest});
}
Array Symmetrized(const Array& x) { return (x + Adjoint(x)) / 2.0; }
Array SliceAxis(const Array& x, int axis, int64_t begin, int64_t end) {
  Dims starts(x.rank(), 0), limits = x.shape();
  starts[axis] = begin;
  limits[axis] = end;
  return lax::slice(x, std::move(starts), std::move(limits));
}
Array Triangle(const Array& x, bool upper, int64_t k) {
  const Array rows = expand_dims(arange(RowsOf(x)), 1) + static_cast<int>(k);
  const Array cols = arange(ColsOf(x));
  return where(upper ? rows <= cols : rows >= cols, x, zeros_like(x));
}
// Applies f to b as a matrix. If b is a vector, f gets it as a matrix of one column, and the result
// becomes a vector again.
template <class F>
Array ApplyToMatrix(const Array& b, const F& f) {
  return b.rank() == 1 ? squeeze(f(expand_dims(b, 1)), -1) : f(b);
}
// Returns the matrices a and b with the batch to which both broadcast.
std::pair<Array, Array> BroadcastBatches(std::string_view name, const Array& a, const Array& b,
                                         const Site& site) {
  const auto batch = [](const Array& x) { return Dims(x.shape().begin(), x.shape().end() - 2); };
  const Dims batch_shape = internal::BroadcastShapes(name, {batch(a), batch(b)}, site);
  const auto spread = [&](const Array& x) {
    Dims shape = batch_shape;
    shape.insert(shape.end(), {RowsOf(x), ColsOf(x)});
    return shape == x.shape() ? x : broadcast_to(x, std::move(shape));
  };
  const Array first = spread(a);
  return {first, spread(b)};
}
void NeedRows(const Array& a, const Array& b, std::string_view name, const Site& site) {
  const int64_t n = ColsOf(a), rows = b.rank() == 0 ? 1 : b.rank() == 1 ? b.dim(0) : RowsOf(b);
  if (b.rank() < 1 || rows != n)
    ThrowError(ErrorKind::kValueError, site, "linalg.", std::string(name), ": b has ", rows,
               " rows; expected ", n, ", the number of rows of a");
}
Array DiagonalMask(const Array& x) {
  const int64_t n = x.dim(x.rank() - 1);
  return equal(expand_dims(arange(n), 1), arange(n));
}
Array DiagonalOf(const Array& x) { return sum(where(DiagonalMask(x), x, zeros_like(x)), -1); }

// Returns the product along the last axis. Complex numbers are multiplied pair by pair until one is
// left.
Array ProductOf(Array x) {
  if (!IsComplexArray(x)) return prod(x, -1);
  const int last = x.rank() - 1;
  if (x.dim(last) == 0) return sum(x, -1) + 1.0;
  while (x.dim(last) > 1) {
    const int64_t n = x.dim(last), half = n / 2;
    const Array pairs = SliceAxis(x, last, 0, half) * SliceAxis(x, last, half, 2 * half);
    x = n % 2 == 0 ? pairs : concatenate({pairs, SliceAxis(x, last, n - 1, n)}, last);
  }
  return squeeze(x, last);
}

// Returns the sign of a permutation, which follows from the number of its swaps.
Array PermutationSign(const lax::linalg::Lu& lu) {
  const Array diagonal = DiagonalOf(lu.lu);
  const Array swaps = not_equal(lu.pivots, arange(lu.pivots.dim(lu.pivots.rank() - 1)));
  const Array odd = remainder(sum(swaps.astype(DType::kS32), -1), 2);
  return where(equal(odd, 0), 1.0, -1.0).astype(diagonal.dtype());
}
Array TraceOf(const Array& x) { return sum(DiagonalOf(x), -1); }

// Returns the x of a x = b or, depending on `trans`, of a^T x = b or a^H x = b.
Array SolveWithFactors(const Array& lu, const Array& permutation, const Array& b, int trans) {
  const auto permute_rows = [&](const Array& x, const Array& order) {
    return take_along_axis(x, broadcast_to(expand_dims(order, -1), x.shape()), -2);
  };
  const bool transpose = trans != 0, conjugate = trans == 2;
  const lax::linalg::TriangularSolveOptions l_options = {.left_side = true,
                                                         .lower = true,
                                                         .transpose_a = transpose,
                                                         .conjugate_a = conjugate,
                                                         .unit_diagonal = true},
                                            u_options = {.left_side = true,
                                                         .transpose_a = transpose,
                                                         .conjugate_a = conjugate};
  if (!transpose) {
    const Array y = lax::linalg::triangular_solve(lu, permute_rows(b, permutation), l_options);
    return lax::linalg::triangular_solve(lu, y, u_options);
  }
  const Array y = lax::linalg::triangular_solve(lu, b, u_options);
  return permute_rows(lax::linalg::triangular_solve(lu, y, l_options), argsort(permutation));
}
// Solves a x = b for matrices of one batch. The derivative is that of the equation and uses the
// same factors, so a is factored only once.
Array SolveSystem(const Array& a, const Array& b, const Site& site) {
  const lax::linalg::Lu lu = lax::linalg::lu(stop_gradient(a), site);
  const auto by_lu = [&lu](int trans) {
    return [&lu, trans](const auto&, const Array& rhs) {
      return SolveWithFactors(lu.lu, lu.permutation, rhs, trans);
    };
  };
  const auto product = [&a](const Array& x) { return PreciseMatmul(a, x); };
  return lax::custom_linear_solve(product, b, by_lu(0), by_lu(1), {}, site);
}

// Returns det(a), and det(a) a^-1 b. The second value is finite even if one singular value of a is
// 0.
std::pair<Array, Array> CofactorSolve(const Array& a, const Array& b, const Site& site) {
  const int64_t n = ColsOf(a);
  if (n == 1) return {squeeze(a, {-1, -2}), b};
  const lax::linalg::Lu lu = lax::linalg::lu(a, site);
  const Array diagonal = DiagonalOf(lu.lu), at = arange(n);
  const Array sign = PermutationSign(lu);
  // Multiply the diagonal without its last element. The determinant is this product times that
  // element.
  const Array others = ProductOf(where(equal(at, static_cast<int>(n - 1)), 1.0, diagonal)) * sign;
  const Array last = sum(where(equal(at, static_cast<int>(n - 1)), diagonal, 0.0), -1);
  const Array determinant = others * last;
  const auto as_matrix = [](const Array& x) { return expand_dims(expand_dims(x, -1), -1); };
  const Array is_last = logical_and(DiagonalMask(a), equal(at, static_cast<int>(n - 1)));
  const Array scaled = where(is_last, as_matrix(1.0 / others), lu.lu);
  const lax::linalg::TriangularSolveOptions u_options = {.left_side = true};
  const Array tried =
      lax::linalg::triangular_solve(scaled, expand_dims(ones_like(diagonal), -1), u_options);
  const Array has_low_rank = as_matrix(any(logical_not(is_finite(tried)), {-1, -2}));
  const Array rows = take_along_axis(where(has_low_rank, 0.0, b),
                                     broadcast_to(expand_dims(lu.permutation, -1), b.shape()), -2);
  const Array y = lax::linalg::triangular_solve(
      lu.lu, rows, {.left_side = true, .lower = true, .unit_diagonal = true});
  const Array last_row = equal(expand_dims(at, 1), static_cast<int>(n - 1));
  const Array x = lax::linalg::triangular_solve(
      scaled, where(last_row, y, y * as_matrix(determinant)), u_options);
  return {determinant, where(has_low_rank, 0.0, x)};
}

}  // namespace

namespace lax::linalg {

Array cholesky(const Array& x, bool symmetrize_input, Site site) {
  return Apply("cholesky", site, {symmetrize_input ? Symmetrized(x) : x},
               [&](ir::Builder&, Vs v) { return Vs{ir::Cholesky(v[0])}; })[0];
}

Array triangular_solve(const Arg& a, const Arg& b, const TriangularSolveOptions& options) {
  return ApplyArgs("triangular_solve", {a, b}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    return ir::TriangularSolve(v[0], v[1],
                               {.left_side = options.left_side,
                                .lower = options.lower,
                                .transpose = options.transpose_a,
                                .conjugate = options.conjugate_a,
                                .unit_diagonal = options.unit_diagonal});
  });
}

Lu lu(const Array& x, Site site) {
  const std::vector<Array> out = Apply("lu", site, {x}, [&](ir::Builder&, Vs v) {
    const ir::LuResult lu = ir::Lu(v[0]);
    return Vs{lu.lu, lu.pivots, lu.permutation};
  });
  return {out[0], out[1], out[2]};
}

Array tridiagonal_solve(const Array& dl, const Array& d, const Array& du, const Array& b,
                        Site site) {
  return Apply("tridiagonal_solve", site, {dl, d, du, b}, [&](ir::Builder&, Vs v) {
    return Vs{ir::TridiagonalSolve(v[0], v[1], v[2], v[3])};
  })[0];
}

Array householder_product(const Array& a, const Array& taus, Site site) {
  return Apply("householder_product", site, {a, taus},
               [&](ir::Builder&, Vs v) { return Vs{ir::HouseholderProduct(v[0], v[1])}; })[0];
}

Qr qr(const Array& x, QrOptions options, Site site) {
  const std::vector<Array> out = Apply("qr", site, {x}, [&](ir::Builder&, Vs v) {
    if (options.pivoting) {
      const ir::PivotedQrResult qr = ir::PivotedQr(v[0], options.full_matrices);
      return Vs{qr.q, qr.r, qr.pivots};
    }
    const auto [q, r] = ir::Qr(v[0], options.full_matrices);
    return Vs{q, r};
  });
  return {out[0], out[1], options.pivoting ? out[2] : Array()};
}

std::vector<Array> eig(const Array& x, EigOptions options, Site site) {
  return Apply("eig", site, {x}, [&](ir::Builder&, Vs v) {
    return ir::Eig(v[0], {.left = options.compute_left_eigenvectors,
                          .right = options.compute_right_eigenvectors,
                          .enable_eigvec_derivs = options.enable_eigvec_derivs});
  });
}

std::vector<Array> schur(const Array& x, bool compute_schur_vectors, Site site) {
  return Apply("schur", site, {x},
               [&](ir::Builder&, Vs v) { return ir::Schur(v[0], compute_schur_vectors); });
}

std::pair<Array, Array> hessenberg(const Array& x, Site site) {
  const std::vector<Array> out = Apply("hessenberg", site, {x}, [&](ir::Builder&, Vs v) {
    const auto [packed, taus] = ir::Hessenberg(v[0]);
    return Vs{packed, taus};
  });
  return {out[0], out[1]};
}

Tridiagonal tridiagonal(const Array& x, bool lower, Site site) {
  const std::vector<Array> out = Apply("tridiagonal", site, {x}, [&](ir::Builder&, Vs v) {
    const ir::TridiagonalResult t = ir::Tridiagonal(v[0], lower);
    return Vs{t.packed, t.diagonal, t.off_diagonal, t.taus};
  });
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace lax::linalg

namespace linalg {

Array cholesky(const Array& x, bool upper, Site site) {
  const Array l = lax::linalg::cholesky(AsInexact(x, site), /*symmetrize_input=*/true, site);
  return upper ? Adjoint(l) : l;
}

Array solve(const Array& a_in, const Array& b_in, Site site) {
  const std::pair<Array, Array> promoted = Promoted(a_in, b_in, site);
  const Array &a = promoted.first, &b = promoted.second;
  NeedSquare(a, "solve", site);
  NeedRows(a, b, "solve", site);
  return ApplyToMatrix(b, [&](const Array& rhs) {
    const auto [matrix, right] = BroadcastBatches("linalg.solve", a, rhs, site);
    return SolveSystem(matrix, right, site);
  });
}

Array inv(const Array& a, Site site) {
  NeedSquare(a, "inv", site);
  const Array x = AsInexact(a, site);
  return solve(x, broadcast_to(eye(ColsOf(x), x.dtype(), site), x.shape()), site);
}

// Determinants of 2 x 2 and 3 x 3 matrices are written out in their elements.
Array det(const Array& a_in, Site site) {
  NeedSquare(a_in, "det", site);
  const Array a = AsInexact(a_in, site);
  const int64_t n = ColsOf(a);
  if (n == 2 || n == 3) {
    const auto at = [&](int64_t i, int64_t j) {
      const int row = static_cast<int>(i % n), col = static_cast<int>(j % n);
      return take(take(a, row, -2), col, -1);
    };
    if (n == 2) return at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0);
    const auto product = [&](int64_t step, int64_t from) {
      return at(0, from) * at(1, from + step) * at(2, from + 2 * step);
    };
    const Array plus = product(1, 0) + product(1, 1) + product(1, 2);
    return plus - product(2, 0) - product(2, 1) - product(2, 2);
  }
  const auto by_lu = [site](const Array& x) {
    const lax::linalg::Lu lu = lax::linalg::lu(x, site);
    return PermutationSign(lu) * ProductOf(DiagonalOf(lu.lu));
  };
  return custom_jvp(by_lu, [site](const auto& primals, const auto& tangents) {
    const auto [value, solved] = CofactorSolve(std::get<0>(primals), std::get<0>(tangents), site);
    return std::pair(value, TraceOf(solved));
  })(a);
}

std::pair<Array, Array> slogdet(const Array& a, Site site) {
  NeedSquare(a, "slogdet", site);
  const auto by_lu = [site](const Array& x) {
    const lax::linalg::Lu lu = lax::linalg::lu(x, site);
    const Array diagonal = DiagonalOf(lu.lu);
    const Array det_sign = PermutationSign(lu) * ProductOf(sign(diagonal));
    return std::pair(det_sign, sum(log(abs(diagonal)), -1));
  };
  return custom_jvp(by_lu, [by_lu, site](const auto& primals, const auto& tangents) {
    const Array x = std::get<0>(primals);
    const auto [det_sign, logarithm] = by_lu(x);
    const Array log_tangent = TraceOf(solve(x, std::get<0>(tangents), site));
    if (!IsComplexArray(x))
      return std::pair(std::pair(det_sign, logarithm),
                       std::pair(zeros_like(det_sign), log_tangent));
    const Array sign_tangent = complex(zeros_like(real(log_tangent)), imag(log_tangent)) * det_sign;
    return std::pair(std::pair(det_sign, logarithm), std::pair(sign_tangent, real(log_tangent)));
  })(AsInexact(a, site));
}

std::pair<Array, Array> qr(const Array& a, std::string_view mode, Site site) {
  NeedMatrix(a, "qr", site);
  if (mode != "reduced" && mode != "complete" && mode != "r" && mode != "raw")
    ThrowError(ErrorKind::kValueError, site, "linalg.qr: mode is '", std::string(mode),
               "'; expected reduced, complete, r or raw");
  if (mode == "raw") {
    const std::vector<Array> raw =
        Apply("geqrf", site, {AsInexact(a, site)}, [&](ir::Builder&, Vs v) {
          const auto [packed, taus] = ir::Geqrf(v[0]);
          return Vs{packed, taus};
        });
    return {Transposed(raw[0]), raw[1]};
  }
  const std::vector<Array> out = Apply("qr", site, {AsInexact(a, site)}, [&](ir::Builder&, Vs v) {
    const auto [q, r] = ir::Qr(v[0], mode == "complete");
    return Vs{q, r};
  });
  return {mode == "r" ? Array() : out[0], out[1]};
}

std::pair<Array, Array> eigh(const Array& a, bool symmetrize_input, Site site) {
  return eigh(a, "L", symmetrize_input, site);
}
std::pair<Array, Array> eigh(const Array& a, const char* UPLO, bool symmetrize_input, Site site) {
  const std::string_view triangle = UPLO;
  if (triangle != "L" && triangle != "U")
    ThrowError(ErrorKind::kValueError, site, "linalg.eigh: UPLO must be one of 'L' or 'U', got ",
               UPLO);
  NeedSquare(a, "eigh", site);
  const Array x = AsInexact(a, site);
  const std::vector<Array> out =
      Apply("eigh", site, {symmetrize_input ? Symmetrized(x) : x}, [&](ir::Builder&, Vs v) {
        const auto [vectors, values] = ir::Eigh(v[0], /*lower=*/triangle == "L");
        return Vs{values, vectors};
      });
  return {out[0], out[1]};
}

Array eigvalsh(const Array& a, Site site) { return eigh(a, true, site).first; }
Array eigvalsh(const Array& a, const char* UPLO, bool symmetrize_input, Site site) {
  return eigh(a, UPLO, symmetrize_input, site).first;
}

Svd svd(const Array& a, bool full_matrices, Site site) {
  NeedMatrix(a, "svd", site);
  const std::vector<Array> out = Apply("svd", site, {AsInexact(a, site)}, [&](ir::Builder&, Vs v) {
    return ir::Svd(v[0], full_matrices, /*compute_uv=*/true);
  });
  return {out[1], out[0], out[2]};
}

Array svdvals(const Array& a, Site site) {
  NeedMatrix(a, "svdvals", site);
  return Apply("svd", site, {AsInexact(a, site)}, [&](ir::Builder&, Vs v) {
    return ir::Svd(v[0], /*full_matrices=*/false, /*compute_uv=*/false);
  })[0];
}

std::pair<Array, Array> eig(const Array& a, Site site) {
  NeedSquare(a, "eig", site);
  const std::vector<Array> out =
      lax::linalg::eig(AsInexact(a, site), {.compute_left_eigenvectors = false}, site);
  return {out[0], out[1]};
}

Array eigvals(const Array& a, Site site) {
  NeedSquare(a, "eigvals", site);
  return lax::linalg::eig(AsInexact(a, site),
                          {.compute_left_eigenvectors = false, .compute_right_eigenvectors = false},
                          site)[0];
}

// Reference for the derivative: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses
// and nonlinear least squares problems whose variables separate" (1973).
Array pinv(const Array& a_in, std::optional<double> rtol, Site site) {
  NeedMatrix(a_in, "pinv", site);
  const Array x = AsInexact(a_in, site);
  if (RowsOf(x) == 0 || ColsOf(x) == 0) return Transposed(x);
  const auto by_svd = [rtol, site](const Array& a) {
    const Svd parts = svd(a, /*full_matrices=*/false, site);
    const auto larger_dim = static_cast<double>(std::max(RowsOf(a), ColsOf(a)));
    const Array largest = max(parts.s, -1, /*keepdims=*/true);
    const Array kept = parts.s > largest * rtol.value_or(10 * larger_dim * EpsOf(a));
    const Array inverse = where(kept, 1.0 / where(kept, parts.s, ones_like(parts.s)), 0.0);
    return PreciseMatmul(Adjoint(parts.vh), expand_dims(inverse, -1) * Adjoint(parts.u));
  };
  return custom_jvp(by_svd, [by_svd](const auto& primals, const auto& tangents) {
    const Array a = std::get<0>(primals), da = std::get<0>(tangents);
    const Array p = by_svd(a);
    const Array pph = PreciseMatmul(p, Adjoint(p)), php = PreciseMatmul(Adjoint(p), p),
                dah = Adjoint(da);
    const Array s = PreciseMatmul(pph, dah), t = PreciseMatmul(dah, php);
    const Array within = s - PreciseMatmul(s, PreciseMatmul(a, p)),
                beyond = t - PreciseMatmul(p, PreciseMatmul(a, t));
    return std::pair(p, within + beyond - PreciseMatmul(PreciseMatmul(p, da), p));
  })(x);
}

namespace {

[[noreturn]] void ThrowUnknownOrder(const NormOrder& ord, const char* what, const Site& site) {
  ThrowError(ErrorKind::kValueError, site, "linalg.norm: ord is ",
             ord.number ? absl::StrCat(*ord.number) : absl::StrCat("'", ord.name, "'"), "; ", what);
}
Array SquareRootOfSquares(const Array& x, const Axes& axis, bool keepdims) {
  if (!IsComplexArray(x)) return sqrt(sum(x * x, axis, keepdims));
  const Array re = real(x), im = imag(x);
  return sqrt(sum(re * re + im * im, axis, keepdims));
}
// Returns the maximum along the axes, or 0 if there are no elements along them.
Array MaxOrZero(const Array& x, const Axes& axis, bool keepdims, const Site& site) {
  const std::vector<int64_t> dims = internal::NormalizeAxes("norm", axis, x.rank(), site);
  return internal::NumReduced(x.shape(), dims) == 0 ? sum(x, axis, keepdims)
                                                    : max(x, axis, keepdims);
}
Array NormOfVectors(const Array& x, const NormOptions& o, const Site& site) {
  if (!o.ord.name.empty())
    ThrowUnknownOrder(o.ord, "expected a number for a norm of vectors", site);
  const double p = o.ord.number.value_or(2);
  if (p == 2) return SquareRootOfSquares(x, o.axis, o.keepdims);
  const Array size = abs(x);
  if (p == HUGE_VAL) return MaxOrZero(size, o.axis, o.keepdims, site);
  if (p == -HUGE_VAL) return min(size, o.axis, o.keepdims);
  if (p == 0) return sum(not_equal(size, 0.0).astype(size.dtype()), o.axis, o.keepdims);
  if (p == 1) return sum(size, o.axis, o.keepdims);
  return power(sum(power(size, p), o.axis, o.keepdims), 1 / p);
}
// `x` has the rows and the columns as its last two dims.
Array NormOfMatrices(const Array& x, const NormOrder& ord, const Site& site) {
  if (ord.name == "nuc") return sum(svdvals(x, site), -1);
  if (ord.name == "fro" || ord.name == "f" || (ord.name.empty() && !ord.number))
    return SquareRootOfSquares(x, {-2, -1}, false);
  const double p = ord.number.value_or(0);
  if (p == 2) return MaxOrZero(svdvals(x, site), -1, false, site);
  if (p == -2) return min(svdvals(x, site), -1);
  if (std::abs(p) != 1 && !std::isinf(p))
    ThrowUnknownOrder(ord, "expected fro, nuc, 1, 2, infinity or one of these with a minus", site);
  const Array sums = sum(abs(x), std::isinf(p) ? -1 : -2);
  return p > 0 ? MaxOrZero(sums, -1, false, site) : min(sums, -1);
}

}  // namespace

// numpy's norm decides by the number of axes whether it is a norm of vectors or of matrices. The
// rows and columns of matrices are moved to the end, so that NormOfMatrices needs one case only.
Array norm(const Array& x_in, const NormOptions& options, Site site) {
  const Array x = AsInexact(x_in, site);
  const bool has_order = options.ord.number || !options.ord.name.empty();
  if (!options.axis.list && !has_order) return SquareRootOfSquares(x, {}, options.keepdims);
  std::vector<int64_t> axes;
  if (options.axis.list) {
    axes = *options.axis.list;
  } else {
    for (int d = 0; d < x.rank(); ++d) axes.push_back(d);
  }
  if (axes.size() == 1)
    return NormOfVectors(x, {.ord = options.ord, .axis = axes, .keepdims = options.keepdims}, site);
  if (axes.size() != 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.norm: got ", axes.size(),
               " axes; expected one axis for vectors, or two axes for matrices");
  for (int64_t& axis : axes) {
    if (axis < -x.rank() || axis >= x.rank())
      ThrowError(ErrorKind::kValueError, site, "linalg.norm: axis ", axis,
                 " does not exist in an array of ", x.rank(), " dims");
    if (axis < 0) axis += x.rank();
  }
  if (axes[0] == axes[1])
    ThrowError(ErrorKind::kValueError, site, "linalg.norm: got axis ", axes[0],
               " twice; expected the axis of the rows, then the axis of the columns");
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != axes[0] && d != axes[1]) order.push_back(d);
  order.insert(order.end(), axes.begin(), axes.end());
  const Array out = NormOfMatrices(transpose(x, std::move(order)), options.ord, site);
  if (!options.keepdims) return out;
  Dims shape = x.shape();
  for (const int64_t axis : axes) shape[axis] = 1;
  return reshape(out, std::move(shape));
}

Array vector_norm(const Array& x_in, const VectorNormOptions& options, Site site) {
  const Array x = AsInexact(x_in, site);
  const NormOptions norm_options = {
      .ord = options.ord, .axis = options.axis, .keepdims = options.keepdims};
  return NormOfVectors(x, norm_options, site);
}
Array matrix_norm(const Array& x, const MatrixNormOptions& options, Site site) {
  NeedMatrix(x, "matrix_norm", site);
  return norm(x, {.ord = options.ord, .axis = {-2, -1}, .keepdims = options.keepdims}, site);
}

Array cond(const Array& x_in, const NormOrder& p, Site site) {
  NeedMatrix(x_in, "cond", site);
  const Array x = AsInexact(x_in, site);
  if (RowsOf(x) == 0 || ColsOf(x) == 0)
    ThrowError(ErrorKind::kValueError, site, "linalg.cond: input array must not be empty; got ",
               x.type().ToString());
  const bool by_default = !p.number && p.name.empty();
  Array out;
  if (by_default || p.number == 2.0 || p.number == -2.0) {
    const Array s = svdvals(x, site);
    const Array largest = take(s, 0, -1), smallest = take(s, -1, -1);
    if (p.number != -2.0) return largest / smallest;
    out = smallest / largest;
  } else {
    NeedSquare(x, "cond", site);
    const NormOptions options = {.ord = p, .axis = {-2, -1}};
    const Array norm_of_x = norm(x, options, site);
    out = norm_of_x * norm(inv(x, site), options, site);
  }
  // A matrix without an inverse has an infinite condition number, unless x contains a NaN.
  const auto is_nan = [](const Array& v) { return not_equal(v, v); };
  const Array x_has_nan = any(is_nan(abs(x)), {-2, -1});
  return where(logical_and(is_nan(out), logical_not(x_has_nan)), HUGE_VAL, out);
}

Array matrix_rank(const Array& a_in, std::optional<double> rtol, Site site) {
  const Array a = AsInexact(a_in, site);
  if (a.rank() < 2) return any(not_equal(abs(a), 0.0)).astype(DType::kS32);
  const Array s = svdvals(a, site);
  const auto larger_dim = static_cast<double>(std::max(RowsOf(a), ColsOf(a)));
  const Array threshold =
      rtol ? full_like(s, *rtol) : max(s, -1, /*keepdims=*/true) * (larger_dim * EpsOf(s));
  return sum((s > threshold).astype(DType::kS32), -1);
}

Array matrix_power(const Array& a_in, int n, Site site) {
  NeedSquare(a_in, "matrix_power", site);
  if (n == 0) return broadcast_to(eye(ColsOf(a_in), a_in.dtype(), site), a_in.shape());
  const Array a = n < 0 ? inv(a_in, site) : a_in;
  std::optional<Array> out;
  Array square = a;
  for (unsigned remaining = n < 0 ? 0u - static_cast<unsigned>(n) : n; remaining > 0;
       remaining /= 2) {
    if (remaining % 2 == 1) out = out ? matmul(*out, square) : square;
    if (remaining > 1) square = matmul(square, square);
  }
  return *out;
}

// Finds the order of multiplications by dynamic programming over all splits. Vectors at the ends
// become matrices with one row or column, which the result loses again.
Array multi_dot(const std::vector<Array>& arrays, const lax::PrecisionLike& precision, Site site) {
  const auto n = static_cast<int>(arrays.size());
  if (n < 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.multi_dot: got ", n,
               " arrays; expected at least two");
  std::vector<Array> xs = arrays;
  for (int i = 0; i < n; ++i) {
    internal::ThrowIfNoValue(xs[i], site);
    const bool vector = xs[i].rank() == 1 && (i == 0 || i == n - 1);
    if (!vector && xs[i].rank() != 2)
      ThrowError(ErrorKind::kValueError, site, "linalg.multi_dot: array ", i, " has ", xs[i].rank(),
                 " dims; expected 2, or 1 for the first or the last array");
    if (vector) xs[i] = expand_dims(xs[i], i == 0 ? 0 : 1);
    if (i > 0 && ColsOf(xs[i - 1]) != RowsOf(xs[i]))
      ThrowError(ErrorKind::kValueError, site, "linalg.multi_dot: array ", i - 1, " has ",
                 ColsOf(xs[i - 1]), " columns; expected ", RowsOf(xs[i]),
                 ", the number of rows of the next array");
  }
  // cost[i][j] is the fewest multiplications of numbers for the product of the operands i to j.
  // split[i][j] says after which operand that product is split in two.
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<int>> split(n, std::vector<int>(n, 0));
  for (int length = 1; length < n; ++length) {
    for (int i = 0; i + length < n; ++i) {
      const int j = i + length;
      cost[i][j] = HUGE_VAL;
      for (int k = i; k < j; ++k) {
        const double cost_of_split = cost[i][k] + cost[k + 1][j] +
                                     static_cast<double>(RowsOf(xs[i])) *
                                         static_cast<double>(ColsOf(xs[k])) *
                                         static_cast<double>(ColsOf(xs[j]));
        if (cost_of_split < cost[i][j]) {
          cost[i][j] = cost_of_split;
          split[i][j] = k;
        }
      }
    }
  }
  const std::function<Array(int, int)> product = [&](int i, int j) {
    if (i == j) return xs[i];
    const Array left = product(i, split[i][j]);
    return matmul(left, product(split[i][j] + 1, j), {.precision = precision});
  };
  Array out = product(0, n - 1);
  if (arrays.back().rank() == 1) out = squeeze(out, -1);
  return arrays.front().rank() == 1 ? squeeze(out, 0) : out;
}

namespace {
int64_t SizeOfDims(const Dims& shape, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t d = from; d < to; ++d) n *= shape[d];
  return n;
}
}  // namespace

Array tensorinv(const Array& a, int ind, Site site) {
  internal::ThrowIfNoValue(a, site);
  const Dims& shape = a.shape();
  const size_t split = std::clamp(ind, 0, a.rank());
  const int64_t rows = SizeOfDims(shape, 0, split), cols = SizeOfDims(shape, split, shape.size());
  if (ind <= 0 || rows != cols)
    ThrowError(ErrorKind::kValueError, site, "linalg.tensorinv: ind is ", ind, " of ",
               a.type().ToString(),
               "; expected a positive number of leading dims whose sizes have the same product as "
               "the sizes of the remaining dims");
  Dims result(shape.begin() + static_cast<int64_t>(split), shape.end());
  result.insert(result.end(), shape.begin(), shape.begin() + static_cast<int64_t>(split));
  return reshape(inv(reshape(a, {rows, cols}), site), std::move(result));
}

// Moves the given axes of a to its end, and solves one linear system whose matrix is a, with b's
// dims as the rows and x's dims as the columns.
Array tensorsolve(const Array& a_in, const Array& b, const std::vector<int64_t>& axes, Site site) {
  internal::ThrowIfNoValue(a_in, site);
  internal::ThrowIfNoValue(b, site);
  Array a = a_in;
  // The axes go to the end one after the other, because JAX moves each of them to the last place.
  if (!axes.empty()) {
    std::vector<int64_t> order, moved;
    for (const int64_t axis : axes)
      moved.push_back(internal::NormalizeAxis("linalg.tensorsolve", axis, a.rank(), site));
    for (int64_t d = 0; d < a.rank(); ++d)
      if (std::find(moved.begin(), moved.end(), d) == moved.end()) order.push_back(d);
    order.insert(order.end(), moved.begin(), moved.end());
    a = transpose(a, std::move(order));
  }
  const Dims& shape = a.shape();
  const auto n = static_cast<size_t>(b.rank());
  const bool fits =
      shape.size() >= n && std::equal(b.shape().begin(), b.shape().end(), shape.begin());
  const int64_t cols = fits ? SizeOfDims(shape, n, shape.size()) : -1;
  if (cols != b.size())
    ThrowError(ErrorKind::kValueError, site, "linalg.tensorsolve: a is ", a.type().ToString(),
               fits ? "" : " after its axes are moved", ", b is ", b.type().ToString(),
               "; expected a to begin with b's dims, and its other dims to have the same product");
  const Array x = solve(reshape(a, {b.size(), cols}), reshape(b, {b.size()}), site);
  return reshape(x, Dims(shape.begin() + static_cast<int64_t>(n), shape.end()));
}

Array diagonal(const Array& x, int64_t offset, Site site) {
  NeedMatrix(x, "diagonal", site);
  return tessera::diagonal(Arg(x, site), offset, -2, -1);
}
Array trace(const Array& x, int64_t offset, Site site) {
  NeedMatrix(x, "trace", site);
  return sum(Arg(diagonal(x, offset, site), site), -1);
}

Lstsq lstsq(const Array& a_in, const Array& b_in, std::optional<double> rcond, Site site) {
  const auto [a, promoted_b] = Promoted(a_in, b_in, site);
  const bool vector = promoted_b.rank() == 1;
  const Array b = vector ? expand_dims(promoted_b, 1) : promoted_b;
  if (a.rank() != 2 || b.rank() != 2 || RowsOf(a) != RowsOf(b))
    ThrowError(ErrorKind::kValueError, site,
               "linalg.lstsq: expected a matrix a, and a vector or matrix b with as many rows");
  if (a.size() == 0) {
    const Array none = zeros({ColsOf(a), ColsOf(b)}, a.dtype(), site);
    const Array length = norm(b, {.axis = 0}, site);
    return {vector ? squeeze(none, 1) : none, length * length, zeros({}, DType::kS32, site),
            zeros({0}, RealDType(a.dtype()), site)};
  }
  const Svd parts = svd(a, /*full_matrices=*/false, site);
  double threshold = rcond.value_or(EpsOf(a) * static_cast<double>(std::max(RowsOf(a), ColsOf(a))));
  if (threshold < 0) threshold = EpsOf(a);
  const Array kept = logical_and(parts.s > 0.0, parts.s >= threshold * max(parts.s, -1, true));
  const Array inverse = where(kept, 1.0 / where(kept, parts.s, ones_like(parts.s)), 0.0);
  const Array scaled = expand_dims(inverse, 1) * PreciseMatmul(Adjoint(parts.u), b);
  const Array x = PreciseMatmul(Adjoint(parts.vh), scaled);
  const Array length = norm(b - PreciseMatmul(a, x), {.axis = 0}, site);
  return {vector ? squeeze(x, 1) : x, length * length, sum(kept.astype(DType::kS32)), parts.s};
}

std::pair<Array, bool> cho_factor(const Array& a_in, bool lower, Site site) {
  NeedSquare(a_in, "cho_factor", site);
  const Array a = AsInexact(a_in, site);
  const Array l = lax::linalg::cholesky(lower ? a : Adjoint(a), /*symmetrize_input=*/false, site);
  return {lower ? l : Adjoint(l), lower};
}

Array cho_solve(const std::pair<Array, bool>& c_and_lower, const Array& b_in, Site site) {
  const bool lower = c_and_lower.second;
  const std::pair<Array, Array> promoted = Promoted(c_and_lower.first, b_in, site);
  const Array &c = promoted.first, &b = promoted.second;
  NeedSquare(c, "cho_solve", site);
  NeedRows(c, b, "cho_solve", site);
  const auto solve_factor = [lower](const Array& factor, const Array& x, bool adjoint) {
    return lax::linalg::triangular_solve(
        factor, x,
        {.left_side = true, .lower = lower, .transpose_a = adjoint, .conjugate_a = adjoint});
  };
  return ApplyToMatrix(b, [&](const Array& rhs) {
    const auto [factor, right] = BroadcastBatches("linalg.cho_solve", c, rhs, site);
    return solve_factor(factor, solve_factor(factor, right, !lower), lower);
  });
}

std::pair<Array, Array> lu_factor(const Array& a, Site site) {
  NeedMatrix(a, "lu_factor", site);
  const lax::linalg::Lu lu = lax::linalg::lu(AsInexact(a, site), site);
  return {lu.lu, lu.pivots};
}

// LAPACK's pivots are swaps, while SolveWithFactors needs a permutation. A loop applies the swaps
// in turn to 0, 1, ..., n - 1, for all matrices of the batch at once.
Array lu_solve(const std::pair<Array, Array>& lu_and_piv, const Array& b_in, int trans, Site site) {
  const std::pair<Array, Array> promoted = Promoted(lu_and_piv.first, b_in, site);
  const Array &lu = promoted.first, &b = promoted.second;
  NeedSquare(lu, "lu_solve", site);
  NeedRows(lu, b, "lu_solve", site);
  if (trans < 0 || trans > 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.lu_solve: trans is ", trans,
               "; expected 0, 1 or 2");
  const Array pivots = lu_and_piv.second;
  const int64_t n = ColsOf(lu);
  const Array positions = arange(n);
  const auto apply_swap = [&](const Array& i, const Array& order) {
    const Array j = expand_dims(take(pivots, i, -1), -1);
    const Array at_i = expand_dims(take(order, i, -1), -1);
    const Array others = where(equal(positions, j), at_i, order);
    return where(equal(positions, i), take_along_axis(order, j, -1), others);
  };
  const Array permutation =
      fori_loop(0, static_cast<int>(n), apply_swap, broadcast_to(positions, pivots.shape()));
  return ApplyToMatrix(b, [&](const Array& rhs) {
    const auto [factors, right] = BroadcastBatches("linalg.lu_solve", lu, rhs, site);
    Dims shape(factors.shape().begin(), factors.shape().end() - 1);
    return SolveWithFactors(factors, broadcast_to(permutation, std::move(shape)), right, trans);
  });
}

Array solve_triangular(const Array& a_in, const Array& b_in, SolveTriangularOptions options,
                       Site site) {
  const std::pair<Array, Array> promoted = Promoted(a_in, b_in, site);
  const Array &a = promoted.first, &b = promoted.second;
  NeedSquare(a, "solve_triangular", site);
  NeedRows(a, b, "solve_triangular", site);
  if (options.trans < 0 || options.trans > 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.solve_triangular: trans is ", options.trans,
               "; expected 0, 1 or 2");
  return ApplyToMatrix(b, [&](const Array& rhs) {
    const auto [matrix, right] = BroadcastBatches("linalg.solve_triangular", a, rhs, site);
    return lax::linalg::triangular_solve(matrix, right,
                                         {.left_side = true,
                                          .lower = options.lower,
                                          .transpose_a = options.trans != 0,
                                          .conjugate_a = options.trans == 2,
                                          .unit_diagonal = options.unit_diagonal});
  });
}

std::pair<Array, Array> schur(const Array& a, std::string_view output, Site site) {
  NeedSquare(a, "schur", site);
  if (output != "real" && output != "complex")
    ThrowError(ErrorKind::kValueError, site, "linalg.schur: output is '", std::string(output),
               "'; expected real or complex");
  Array x = AsInexact(a, site);
  if (output == "complex" && !IsComplexArray(x)) x = complex(x, zeros_like(x));
  const std::vector<Array> out = lax::linalg::schur(x, /*compute_schur_vectors=*/true, site);
  return {out[0], out[1]};
}

std::pair<Array, Array> hessenberg(const Array& a, Site site) {
  NeedSquare(a, "hessenberg", site);
  const auto [packed, taus] = lax::linalg::hessenberg(AsInexact(a, site), site);
  const Array h = Triangle(packed, /*upper=*/true, -1);
  const int64_t n = ColsOf(packed);
  if (n < 2) return {h, ones_like(h)};
  // q leaves the first row and the first column unchanged.
  const int rows = packed.rank() - 2, cols = packed.rank() - 1;
  const Array below = SliceAxis(SliceAxis(packed, rows, 1, n), cols, 0, n - 1);
  const Array rest = lax::linalg::householder_product(below, taus, site);
  std::vector<int64_t> low(packed.rank(), 0), none = low;
  low[rows] = low[cols] = 1;
  const Array padded = lax::pad(rest, zeros({}, rest.dtype(), site), low, none);
  const Array first = logical_and(equal(expand_dims(arange(n), 1), 0), equal(arange(n), 0));
  return {h, where(first, 1.0, padded)};
}

// Divides two polynomials (Pade's approximant) for a matrix scaled to be small, and squares the
// result. Reference for coefficients and bounds: N. Higham, "The scaling and squaring method for
// the matrix exponential revisited" (2005).
Array expm(const Array& a_in, int max_squarings, Site site) {
  NeedSquare(a_in, "expm", site);
  const Array a = AsInexact(a_in, site);
  const bool is_f64 = RealDType(a.dtype()) == DType::kF64;
  const double bound = is_f64 ? 5.371920351148152 : 3.925724783138660;
  const std::vector<double> b =
      is_f64 ? std::vector<double>{64764752532480000.,
                                   32382376266240000.,
                                   7771770303897600.,
                                   1187353796428800.,
                                   129060195264000.,
                                   10559470521600.,
                                   670442572800.,
                                   33522128640.,
                                   1323241920.,
                                   40840800.,
                                   960960.,
                                   16380.,
                                   182.,
                                   1.}
             : std::vector<double>{17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.};
  const Array norm1 = stop_gradient(norm(a, {.ord = 1, .axis = {-2, -1}}, site));
  const Array num_squarings = maximum(ceil(log(norm1 / bound) / std::log(2.0)), 0.0);
  const auto as_matrix = [](const Array& x) { return expand_dims(expand_dims(x, -1), -1); };
  const Array x = a * as_matrix(exp2(-num_squarings));
  const Array one = where(DiagonalMask(x), ones_like(x), zeros_like(x));
  // `even` takes the even powers of x one after the other. `odd_terms` is the sum of the
  // polynomial's odd terms without their common factor x, `even_terms` the sum of its even terms.
  Array even = one, odd_terms = b[1] * one, even_terms = b[0] * one;
  const Array xx = PreciseMatmul(x, x);
  for (size_t i = 2; i < b.size(); i += 2) {
    even = i == 2 ? xx : PreciseMatmul(even, xx);
    even_terms = even_terms + b[i] * even;
    odd_terms = odd_terms + b[i + 1] * even;
  }
  const Array u = PreciseMatmul(x, odd_terms);
  Array out = solve(even_terms - u, even_terms + u, site);
  const auto square_active = [&](const Array& i, const Array& r) {
    const Array active = as_matrix(i.astype(num_squarings.dtype()) < num_squarings);
    const Array kept = where(active, r, 0.0);
    return where(active, PreciseMatmul(kept, kept), r);
  };
  out = fori_loop(0, max_squarings, square_active, out);
  return where(as_matrix(num_squarings > static_cast<double>(max_squarings)),
               std::numeric_limits<double>::quiet_NaN(), out);
}

// Computes the root u of the triangular factor t column by column. The part of column j above the
// diagonal is the x of (u + u_jj I) x = y, where u has the columns before j, and y is the part of
// t's column j above the diagonal.
Array sqrtm(const Array& a, Site site) {
  NeedSquare(a, "sqrtm", site);
  if (a.rank() != 2)
    ThrowError(ErrorKind::kValueError, site, "linalg.sqrtm: got ", a.rank(),
               " dims; expected one matrix");
  const std::pair<Array, Array> form = schur(a, "complex", site);
  const Array &t = form.first, &z = form.second;
  const Array on_diagonal = DiagonalMask(t), roots = sqrt(DiagonalOf(t));
  const Array positions = arange(ColsOf(t)), rows = expand_dims(positions, 1);
  const Array zero = zeros_like(t);
  const auto column = [&](const Array& j, const Array& u) {
    const Array shifted = u + where(on_diagonal, take(roots, j), zero);
    const Array is_zero = logical_and(on_diagonal, equal(abs(shifted), 0.0));
    const Array right = where(rows < j, expand_dims(take(t, j, 1), 1), 0.0);
    const Array solved =
        lax::linalg::triangular_solve(where(is_zero, 1.0, shifted), right, {.left_side = true});
    const Array no_root = logical_and(expand_dims(any(is_zero, 1), 1), not_equal(abs(solved), 0.0));
    const Array above = where(no_root, std::numeric_limits<double>::infinity(), solved);
    return where(logical_and(equal(positions, j), rows < j), above, u);
  };
  const Array u =
      fori_loop(0, static_cast<int>(ColsOf(t)), column, where(on_diagonal, roots, zero));
  return PreciseMatmul(PreciseMatmul(z, u), Adjoint(z));
}

std::pair<Array, Array> polar(const Array& a, std::string_view side, Site site) {
  NeedMatrix(a, "polar", site);
  if (side != "right" && side != "left")
    ThrowError(ErrorKind::kValueError, site, "linalg.polar: side is '", std::string(side),
               "'; expected right or left");
  const Svd parts = svd(AsInexact(a, site), /*full_matrices=*/false, site);
  const Array u = PreciseMatmul(parts.u, parts.vh);
  if (side == "right")
    return {u, PreciseMatmul(Adjoint(parts.vh), expand_dims(parts.s, -1) * parts.vh)};
  return {u, PreciseMatmul(parts.u, expand_dims(parts.s, -1) * Adjoint(parts.u))};
}

Array block_diag(const std::vector<Array>& arrays, Site site) {
  if (arrays.empty()) return zeros({1, 0}, DType::kF32, site);
  std::vector<Array> blocks;
  int64_t cols = 0;
  const std::vector<Arg> args(arrays.begin(), arrays.end());
  const DType dtype = internal::CommonDType(args);
  for (const Array& x : arrays) {
    internal::ThrowIfNoValue(x, site);
    if (x.rank() > 2)
      ThrowError(ErrorKind::kValueError, site, "linalg.block_diag: got an array of ", x.rank(),
                 " dims; expected at most 2");
    Dims shape = x.shape();
    shape.insert(shape.begin(), 2 - x.rank(), 1);
    blocks.push_back(reshape(x.dtype() == dtype ? x : x.astype(dtype), std::move(shape)));
    cols += ColsOf(blocks.back());
  }
  int64_t before = 0;
  for (Array& block : blocks) {
    const int64_t width = ColsOf(block);
    block = lax::pad(block, zeros({}, dtype, site), {0, before}, {0, cols - before - width});
    before += width;
  }
  return concatenate(blocks, 0, site);
}

// Every diagonal of the result is one element of a line: the column from its last element, then the
// row. The matrix is one gather from this line.
Array toeplitz(const Array& c, const std::optional<Array>& r, Site site) {
  internal::ThrowIfNoValue(c, site);
  const Array row_in = r ? *r : IsComplexArray(c) ? conj(c) : c;
  internal::ThrowIfNoValue(row_in, site);
  if (c.rank() < 1 || row_in.rank() < 1)
    ThrowError(ErrorKind::kValueError, site,
               "linalg.toeplitz: got a scalar; expected a column and a row");
  const DType dtype = internal::CommonDType({c, row_in});
  Array column = c.astype(dtype), row = row_in.astype(dtype);
  const Dims batch =
      internal::BroadcastShapes("linalg.toeplitz",
                                {Dims(column.shape().begin(), column.shape().end() - 1),
                                 Dims(row.shape().begin(), row.shape().end() - 1)},
                                site);
  const auto spread = [&](const Array& x) {
    Dims shape = batch;
    shape.push_back(ColsOf(x));
    return broadcast_to(x, std::move(shape));
  };
  column = spread(column);
  row = spread(row);
  const int64_t m = ColsOf(column), n = ColsOf(row);
  // The line goes from the last element of the column to the last of the row. The column gives the
  // element in which both meet.
  const Array line =
      concatenate({flip(column, -1), SliceAxis(row, row.rank() - 1, std::min<int64_t>(n, 1), n)},
                  row.rank() - 1, site);
  const Array rows = expand_dims(arange(m), 1), cols = arange(n);
  const Array at = static_cast<int>(m - 1) - rows + cols;
  return take(line, at, line.rank() - 1, lax::GatherScatterMode::kClip);
}

}  // namespace linalg
}  // namespace tessera
