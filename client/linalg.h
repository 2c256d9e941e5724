// Linear algebra with numpy's names and rules, as jax.numpy.linalg has it; and the factorizations
// of jax.lax.linalg in lax::linalg.
//
// Matrices are the last two dims; those before them are a batch. They are of f32 or f64; integers
// compute as floats. All have derivatives but where they say so. All throw tessera::Error.
#pragma once
#include <optional>
#include <string_view>
#include <utility>

#include "client/array.h"

namespace tessera {
namespace lax::linalg {

// The lower factor l of x = l l^T. NaNs where x is not positive definite. Without symmetrize_input
// the lower triangle alone is read.
Array cholesky(const Array& x, bool symmetrize_input = true, Site site = Site::Here());
struct TriangularSolveOptions {
  bool left_side = false;  // the y of op(a) y = b, else of y op(a) = b
  bool lower = false;      // which triangle of a is read
  bool transpose_a = false;
  bool unit_diagonal = false;  // the diagonal of a is of ones, and not read
};
Array triangular_solve(const Arg& a, const Arg& b, const TriangularSolveOptions& options = {});
// x with its rows in the order of `permutation` is l u: l, with ones on its diagonal, is below that
// of `lu`. Row i was swapped with row pivots[i], in turn.
struct Lu {
  Array lu, pivots, permutation;
};
Lu lu(const Array& x, Site site = Site::Here());
// The x of t x = b, t by its diagonals: dl[0] and the last of du are not read. b is [..., n, k].
Array tridiagonal_solve(const Array& dl, const Array& d, const Array& du, const Array& b,
                        Site site = Site::Here());

}  // namespace lax::linalg

namespace linalg {

// The lower factor of what the two triangles of x are on average, or the upper one.
Array cholesky(const Array& x, bool upper = false, Site site = Site::Here());
// The x of a x = b. A vector b is one right-hand side; else its last two dims are a matrix of them.
Array solve(const Array& a, const Array& b, Site site = Site::Here());
Array inv(const Array& a, Site site = Site::Here());
Array det(const Array& a, Site site = Site::Here());
// The sign of the determinant, and the logarithm of its magnitude.
std::pair<Array, Array> slogdet(const Array& a, Site site = Site::Here());
// `mode`: "reduced", min(m, n) columns of q, or "complete", m of them, which has a derivative where
// a is square.
std::pair<Array, Array> qr(const Array& a, std::string_view mode = "reduced",
                           Site site = Site::Here());
// Eigenvalues of symmetric matrices, ascending, and their vectors as columns. The two triangles are
// averaged, or without symmetrize_input the lower one is read.
std::pair<Array, Array> eigh(const Array& a, bool symmetrize_input = true,
                             Site site = Site::Here());
Array eigvalsh(const Array& a, Site site = Site::Here());
// a = u diag(s) vh, s descending. With full_matrices it has a derivative where a is square.
struct Svd {
  Array u, s, vh;
};
Svd svd(const Array& a, bool full_matrices = true, Site site = Site::Here());
Array svdvals(const Array& a, Site site = Site::Here());
// The pseudo-inverse: singular values of at most rtol times the largest count as 0. By default rtol
// is 10 max(m, n) eps, as in JAX.
Array pinv(const Array& a, std::optional<double> rtol = std::nullopt, Site site = Site::Here());
// The square root of the sum of the squares of all elements.
Array norm(const Array& x, Site site = Site::Here());

}  // namespace linalg
}  // namespace tessera
