#include "client/linalg.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "client/numpy.h"
#include "client/operand.h"
#include "client/trace.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::Apply;
using internal::ApplyArgs;
using internal::Operands;
using internal::ThrowError;
using Vs = std::vector<ir::Value>;

// As numpy: what is no float becomes f32.
Array Inexact(const Array& x, const Site& site) {
  internal::ThrowIfNoValue(x, site);
  return ir::IsFloat(x.dtype()) ? x : x.astype(DType::kF32);
}
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
Array Transposed(const Array& x) { return swapaxes(x, -1, -2); }
Array Symmetrized(const Array& x) { return (x + Transposed(x)) / 2.0; }
Array OnDiagonal(const Array& x) {
  const int64_t n = x.dim(x.rank() - 1);
  return equal(expand_dims(arange(n), 1), arange(n));
}
Array DiagonalOf(const Array& x) { return sum(where(OnDiagonal(x), x, zeros_like(x)), -1); }

// The sign of a permutation by its swaps, and of the numbers on the diagonal of u.
Array SignOf(const lax::linalg::Lu& lu) {
  const Array diagonal = DiagonalOf(lu.lu);
  const Array swaps = not_equal(lu.pivots, arange(lu.pivots.dim(lu.pivots.rank() - 1)));
  const Array odd = remainder(sum(swaps.astype(DType::kS32), -1), 2);
  return where(equal(odd, 0), 1.0, -1.0).astype(diagonal.dtype());
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

}  // namespace lax::linalg

namespace linalg {

Array cholesky(const Array& x, bool upper, Site site) {
  const Array l = lax::linalg::cholesky(Inexact(x, site), /*symmetrize_input=*/true, site);
  return upper ? Transposed(l) : l;
}

Array solve(const Array& a_in, const Array& b_in, Site site) {
  const Array a = Inexact(a_in, site);
  Array b = Inexact(b_in, site);
  NeedSquare(a, "solve", site);
  const bool vector = b.rank() == 1;
  if (vector) b = expand_dims(b, 1);
  const int64_t n = a.dim(a.rank() - 1), rows = b.rank() < 2 ? 1 : b.dim(b.rank() - 2);
  if (b.rank() < 2 || rows != n)
    ThrowError(ErrorKind::kValueError, site, "linalg.solve: b has ", rows, " rows; expected ", n,
               ", as many as a");
  const lax::linalg::Lu lu = lax::linalg::lu(a, site);
  Dims shape(a.shape().begin(), a.shape().end() - 1);
  shape.push_back(b.dim(b.rank() - 1));
  b = broadcast_to(b, shape);
  const Array order = broadcast_to(expand_dims(lu.permutation, -1), shape);
  const Array permuted = take_along_axis(b, order, -2);
  const Array y = lax::linalg::triangular_solve(
      lu.lu, permuted, {.left_side = true, .lower = true, .unit_diagonal = true});
  const Array x = lax::linalg::triangular_solve(lu.lu, y, {.left_side = true});
  return vector ? squeeze(x, -1) : x;
}

Array inv(const Array& a, Site site) {
  NeedSquare(a, "inv", site);
  const Array x = Inexact(a, site);
  return solve(x, broadcast_to(eye(x.dim(x.rank() - 1), x.dtype(), site), x.shape()), site);
}

Array det(const Array& a, Site site) {
  NeedSquare(a, "det", site);
  const lax::linalg::Lu lu = lax::linalg::lu(Inexact(a, site), site);
  return SignOf(lu) * prod(DiagonalOf(lu.lu), -1);
}

std::pair<Array, Array> slogdet(const Array& a, Site site) {
  NeedSquare(a, "slogdet", site);
  const lax::linalg::Lu lu = lax::linalg::lu(Inexact(a, site), site);
  const Array diagonal = DiagonalOf(lu.lu);
  return {SignOf(lu) * prod(sign(diagonal), -1), sum(log(abs(diagonal)), -1)};
}

std::pair<Array, Array> qr(const Array& a, std::string_view mode, Site site) {
  NeedMatrix(a, "qr", site);
  if (mode != "reduced" && mode != "complete")
    ThrowError(ErrorKind::kValueError, site, "linalg.qr: mode is '", std::string(mode),
               "'; expected reduced or complete");
  const std::vector<Array> out = Apply("qr", site, {Inexact(a, site)}, [&](ir::Builder&, Vs v) {
    const auto [q, r] = ir::Qr(v[0], mode == "complete");
    return Vs{q, r};
  });
  return {out[0], out[1]};
}

std::pair<Array, Array> eigh(const Array& a, bool symmetrize_input, Site site) {
  NeedSquare(a, "eigh", site);
  const Array x = Inexact(a, site);
  const std::vector<Array> out =
      Apply("eigh", site, {symmetrize_input ? Symmetrized(x) : x}, [&](ir::Builder&, Vs v) {
        const auto [vectors, values] = ir::Eigh(v[0]);
        return Vs{values, vectors};
      });
  return {out[0], out[1]};
}

Array eigvalsh(const Array& a, Site site) { return eigh(a, true, site).first; }

Svd svd(const Array& a, bool full_matrices, Site site) {
  NeedMatrix(a, "svd", site);
  const std::vector<Array> out = Apply("svd", site, {Inexact(a, site)}, [&](ir::Builder&, Vs v) {
    return ir::Svd(v[0], full_matrices, /*compute_uv=*/true);
  });
  return {out[1], out[0], out[2]};
}

Array svdvals(const Array& a, Site site) {
  NeedMatrix(a, "svdvals", site);
  return Apply("svd", site, {Inexact(a, site)}, [&](ir::Builder&, Vs v) {
    return ir::Svd(v[0], /*full_matrices=*/false, /*compute_uv=*/false);
  })[0];
}

Array pinv(const Array& a, std::optional<double> rtol, Site site) {
  NeedMatrix(a, "pinv", site);
  const Svd parts = svd(a, /*full_matrices=*/false, site);
  const double eps = parts.s.dtype() == DType::kF64 ? 0x1p-52 : 0x1p-23;
  const auto longer = static_cast<double>(std::max(a.dim(a.rank() - 1), a.dim(a.rank() - 2)));
  const Array least = max(parts.s, -1, /*keepdims=*/true) * rtol.value_or(10 * longer * eps);
  const Array kept = parts.s > least;
  const Array inverse = where(kept, 1.0 / where(kept, parts.s, ones_like(parts.s)), 0.0);
  return matmul(Transposed(parts.vh), expand_dims(inverse, -1) * Transposed(parts.u));
}

Array norm(const Array& x, Site site) {
  const Array a = Inexact(x, site);
  return sqrt(sum(a * a));
}

}  // namespace linalg
}  // namespace tessera
