// Linear algebra with numpy's and scipy's names and rules, as jax.numpy.linalg and
// jax.scipy.linalg have it; and the factorizations of jax.lax.linalg in lax::linalg.
//
// Matrices are the last two dims; those before them are a batch. They are of f32, f64, c64 or c128;
// integers compute as floats: s64 as f64, others as f32. x^H is the conjugate of x's transpose. All
// have derivatives, those of JAX, but where they say so. All throw tessera::Error.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/array.h"
#include "client/numpy.h"
#include "client/products.h"
#include "client/shapes.h"

namespace tessera {
namespace lax::linalg {

// The lower factor l of x = l l^H. NaNs where x is not positive definite. Without symmetrize_input
// the lower triangle alone is read.
Array cholesky(const Array& x, bool symmetrize_input = true, Site site = Site::Here());
struct TriangularSolveOptions {
  bool left_side = false;  // the y of op(a) y = b, else of y op(a) = b
  bool lower = false;      // which triangle of a is read
  bool transpose_a = false;
  bool conjugate_a = false;
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

// The first columns of the product of the reflectors below the diagonal of a, by their factors.
Array householder_product(const Array& a, const Array& taus, Site site = Site::Here());
struct QrOptions {
  bool pivoting = false;  // q r is x with its columns in the order p
  bool full_matrices = true;
};
struct Qr {
  Array q, r, p;  // p without pivoting: none
};
Qr qr(const Array& x, QrOptions options = {}, Site site = Site::Here());
struct EigOptions {
  bool compute_left_eigenvectors = true, compute_right_eigenvectors = true;
  // Whether the vectors have derivatives, which are right only where no eigenvalue is repeated.
  bool enable_eigvec_derivs = false;
};
// The eigenvalues of square matrices, then those asked for of the left and the right eigenvectors.
std::vector<Array> eig(const Array& x, EigOptions options = {}, Site site = Site::Here());
// t of x = q t q^H and, if asked for, q. Without a derivative, as in JAX; so are the next two.
std::vector<Array> schur(const Array& x, bool compute_schur_vectors = true,
                         Site site = Site::Here());
// h of x = q h q^H, below its lower diagonal the reflectors of q; and their factors, taus.
std::pair<Array, Array> hessenberg(const Array& x, Site site = Site::Here());
// The same of x = x^H, of which one triangle is read; d and e are h's diagonal and that beside it.
struct Tridiagonal {
  Array a, d, e, taus;
};
Tridiagonal tridiagonal(const Array& x, bool lower = true, Site site = Site::Here());

}  // namespace lax::linalg

namespace linalg {

// The lower factor of what the two triangles of x are on average, or the upper one.
Array cholesky(const Array& x, bool upper = false, Site site = Site::Here());
// The x of a x = b. A vector b is one right-hand side; else its last two dims are a matrix of them.
// Batches broadcast. The derivative is that of the equation, not that of how it is solved.
Array solve(const Array& a, const Array& b, Site site = Site::Here());
Array inv(const Array& a, Site site = Site::Here());
Array det(const Array& a, Site site = Site::Here());
// The sign of the determinant, and the logarithm of its magnitude.
std::pair<Array, Array> slogdet(const Array& a, Site site = Site::Here());
// `mode`: "reduced", min(m, n) columns of q, or "complete", m of them, which has a derivative where
// a is square; "r": r alone, and no q. "raw": what LAPACK gives in their place, transposed, r and
// below it the reflectors, and their factors, without a derivative.
std::pair<Array, Array> qr(const Array& a, std::string_view mode = "reduced",
                           Site site = Site::Here());
// Eigenvalues of matrices x = x^H, ascending, and their vectors as columns. The two triangles are
// averaged, or without symmetrize_input the lower one is read.
std::pair<Array, Array> eigh(const Array& a, bool symmetrize_input = true,
                             Site site = Site::Here());
// The same; `UPLO`: "L" or "U", the triangle that is read where they are not averaged.
std::pair<Array, Array> eigh(const Array& a, const char* UPLO, bool symmetrize_input = true,
                             Site site = Site::Here());
Array eigvalsh(const Array& a, Site site = Site::Here());
Array eigvalsh(const Array& a, const char* UPLO, bool symmetrize_input = true,
               Site site = Site::Here());
// Eigenvalues of square matrices, in no order, and their vectors as columns of length 1; all
// complex. The vectors have a derivative in lax::linalg::eig.
std::pair<Array, Array> eig(const Array& a, Site site = Site::Here());
Array eigvals(const Array& a, Site site = Site::Here());
// a = u diag(s) vh, s descending. With full_matrices it has a derivative where a is square.
struct Svd {
  Array u, s, vh;
};
Svd svd(const Array& a, bool full_matrices = true, Site site = Site::Here());
Array svdvals(const Array& a, Site site = Site::Here());
// The pseudo-inverse: singular values of at most rtol times the largest count as 0. By default rtol
// is 10 max(m, n) eps, as in JAX.
Array pinv(const Array& a, std::optional<double> rtol = std::nullopt, Site site = Site::Here());
// What a norm is of: a number, also an infinite one, or of matrices "fro" or "nuc".
struct NormOrder {
  std::optional<double> number;
  std::string name;

  NormOrder() = default;
  // NOLINTBEGIN(google-explicit-constructor): reads as the order
  NormOrder(int n) : number(n) {}
  NormOrder(double n) : number(n) {}
  NormOrder(const char* order) : name(order) {}
  // NOLINTEND(google-explicit-constructor)
};
struct NormOptions {
  NormOrder ord = {};  // by default 2 of vectors, "fro" of matrices
  Axes axis = {};      // one of vectors, two of matrices; by default all
  bool keepdims = false;
};
// The norm of vectors or matrices; without order and axes that of all elements.
Array norm(const Array& x, const NormOptions& options = {}, Site site = Site::Here());
// That of vectors along axes, together, and that of the last two dims.
struct VectorNormOptions {
  Axes axis = {};  // by default all
  bool keepdims = false;
  NormOrder ord = 2;
};
Array vector_norm(const Array& x, const VectorNormOptions& options = {}, Site site = Site::Here());
struct MatrixNormOptions {
  bool keepdims = false;
  NormOrder ord = "fro";
};
Array matrix_norm(const Array& x, const MatrixNormOptions& options = {}, Site site = Site::Here());
// The norm of a times that of its inverse; by default the largest singular value over the least.
Array cond(const Array& x, const NormOrder& p = {}, Site site = Site::Here());
// How many singular values are above rtol, by default max(m, n) eps times the largest.
Array matrix_rank(const Array& a, std::optional<double> rtol = std::nullopt,
                  Site site = Site::Here());
Array matrix_power(const Array& a, int n, Site site = Site::Here());
// The product of matrices in the order that takes the fewest multiplications; the first and the
// last may be vectors.
Array multi_dot(const std::vector<Array>& arrays, const lax::PrecisionLike& precision = {},
                Site site = Site::Here());
// The inverse of a as a map of the first `ind` dims to the others, and the x for which the sum of a
// x over x's dims, those that b leaves, is b. `axes`: these dims of a are moved to its end before.
Array tensorinv(const Array& a, int ind = 2, Site site = Site::Here());
Array tensorsolve(const Array& a, const Array& b, const std::vector<int64_t>& axes = {},
                  Site site = Site::Here());
// Of the last two dims: the elements [i, i + offset], their sum, and the transpose.
Array diagonal(const Array& x, int64_t offset = 0, Site site = Site::Here());
Array trace(const Array& x, int64_t offset = 0, Site site = Site::Here());
using tessera::cross, tessera::matmul, tessera::matrix_transpose, tessera::outer,
    tessera::tensordot, tessera::vecdot;
// The x for which |a x - b| is the least, and of these the shortest; |a x - b|^2 of each column;
// the rank and the singular values of a. Singular values below rcond times the largest count as 0.
struct Lstsq {
  Array x, residuals, rank, s;
};
Lstsq lstsq(const Array& a, const Array& b, std::optional<double> rcond = std::nullopt,
            Site site = Site::Here());

// ---- Of jax.scipy.linalg. ----
// The factor of the triangle that is read, l of a = l l^H or u of u^H u, and whether it is l.
std::pair<Array, bool> cho_factor(const Array& a, bool lower = false, Site site = Site::Here());
Array cho_solve(const std::pair<Array, bool>& c_and_lower, const Array& b,
                Site site = Site::Here());
// lu and pivots, as lax::linalg::lu has them.
std::pair<Array, Array> lu_factor(const Array& a, Site site = Site::Here());
// `trans`: of a x = b, 1: a^T x = b, 2: a^H x = b.
Array lu_solve(const std::pair<Array, Array>& lu_and_piv, const Array& b, int trans = 0,
               Site site = Site::Here());
struct SolveTriangularOptions {
  int trans = 0;  // as of lu_solve
  bool lower = false, unit_diagonal = false;
};
Array solve_triangular(const Array& a, const Array& b, SolveTriangularOptions options = {},
                       Site site = Site::Here());
// t and z of a = z t z^H. `output`: "real", where t of real a has blocks of 2 on its diagonal, or
// "complex". Without a derivative.
std::pair<Array, Array> schur(const Array& a, std::string_view output = "real",
                              Site site = Site::Here());
// h and q of a = q h q^H. Without a derivative.
std::pair<Array, Array> hessenberg(const Array& a, Site site = Site::Here());
// The exponential of matrices. NaNs where it takes more than max_squarings.
Array expm(const Array& a, int max_squarings = 16, Site site = Site::Here());
// The root of a matrix, complex, whose eigenvalues have no negative real parts. Without a
// derivative.
Array sqrtm(const Array& a, Site site = Site::Here());
// u and p of a = u p, or with side "left" of a = p u: u has orthonormal columns or rows, and p =
// p^H no negative eigenvalues.
std::pair<Array, Array> polar(const Array& a, std::string_view side = "right",
                              Site site = Site::Here());
// Matrices, or vectors as rows, along the diagonal of one, and zeros.
Array block_diag(const std::vector<Array>& arrays, Site site = Site::Here());
// Matrices whose first column is c and whose first row is r, by default conj(c), but for its first
// element; equal along diagonals.
Array toeplitz(const Array& c, const std::optional<Array>& r = std::nullopt,
               Site site = Site::Here());

}  // namespace linalg
}  // namespace tessera
