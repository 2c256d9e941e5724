// Linear algebra with the names and rules of numpy and scipy, as in jax.numpy.linalg and
// jax.scipy.linalg. The factorizations of jax.lax.linalg are in lax::linalg.
//
// Matrices are the last two dims [..., m, n]; the dims before them are a batch. Dtypes are f32,
// f64, c64 and c128; 64-bit integers compute as f64, other integers as f32. x^H is the conjugate of
// x's transpose. All functions have JAX's derivatives, except where they say otherwise. All throw
// tessera::Error: VALUE_ERROR for shapes, axes and modes that do not fit.
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

// Returns the lower factor l of x = l l^H. NaNs if x is not positive definite. With
// symmetrize_input the two triangles of x are averaged, otherwise only the lower triangle is read.
Array cholesky(const Array& x, bool symmetrize_input = true, Site site = Site::Here());
struct TriangularSolveOptions {
  bool left_side = false;  // solves op(a) y = b for y, else y op(a) = b
  bool lower = false;      // reads the lower triangle of a, else the upper one
  bool transpose_a = false;
  bool conjugate_a = false;
  bool unit_diagonal = false;  // the diagonal of a consists of ones, and is not read
};
// Returns the solution y of a triangular system.
Array triangular_solve(const Arg& a, const Arg& b, const TriangularSolveOptions& options = {});
// An LU decomposition: x with its rows in the order of `permutation` is l u. l, with ones on its
// diagonal, is below the diagonal of `lu`, u is on and above it. Row i was swapped with row
// pivots[i], one i after the other.
struct Lu {
  Array lu, pivots, permutation;
};
Lu lu(const Array& x, Site site = Site::Here());
// Returns the x of t x = b, where t is given by its diagonals [..., n]. dl[0] and the last element
// of du are not read. b is [..., n, k].
Array tridiagonal_solve(const Array& dl, const Array& d, const Array& du, const Array& b,
                        Site site = Site::Here());

// Returns the first n columns of the product of the Householder reflectors that lie below the
// diagonal of a [..., m, n]. `taus` has the scalar factor of each reflector.
Array householder_product(const Array& a, const Array& taus, Site site = Site::Here());
struct QrOptions {
  bool pivoting = false;  // q r is x with its columns in the order p
  bool full_matrices = true;
};
// x = q r. Without pivoting, `p` has no value.
struct Qr {
  Array q, r, p;  // p, s32[..., n], is the order of the columns
};
Qr qr(const Array& x, QrOptions options = {}, Site site = Site::Here());
// Options of eig.
struct EigOptions {
  bool compute_left_eigenvectors = true, compute_right_eigenvectors = true;
  // Whether the vectors have derivatives. They are right only if no eigenvalue is repeated.
  bool enable_eigvec_derivs = false;
};
// Returns the eigenvalues of square matrices, then the left and the right eigenvectors that the
// options ask for.
std::vector<Array> eig(const Array& x, EigOptions options = {}, Site site = Site::Here());
// Returns t of x = q t q^H and, if compute_schur_vectors, q. schur, hessenberg and tridiagonal have
// no derivative, as in JAX.
std::vector<Array> schur(const Array& x, bool compute_schur_vectors = true,
                         Site site = Site::Here());
// Returns h of x = q h q^H, with the reflectors of q below its first subdiagonal, and the factors
// of the reflectors, taus.
std::pair<Array, Array> hessenberg(const Array& x, Site site = Site::Here());
// Like Hessenberg's form, for x = x^H, of which one triangle is read. d and e are the diagonal of
// the tridiagonal matrix and the diagonal beside it; a has the reflectors.
struct Tridiagonal {
  Array a, d, e, taus;
};
Tridiagonal tridiagonal(const Array& x, bool lower = true, Site site = Site::Here());

}  // namespace lax::linalg

namespace linalg {

// Returns the lower Cholesky factor of (x + x^H) / 2 or, if `upper`, the upper one.
Array cholesky(const Array& x, bool upper = false, Site site = Site::Here());
// Returns the x of a x = b. If b is a vector it is one right-hand side, else its last two dims are
// a matrix of right-hand sides. Batches broadcast. The equation is differentiated, not the
// algorithm that solves it.
Array solve(const Array& a, const Array& b, Site site = Site::Here());
Array inv(const Array& a, Site site = Site::Here());
Array det(const Array& a, Site site = Site::Here());
// Returns the sign of the determinant, and the logarithm of its magnitude.
std::pair<Array, Array> slogdet(const Array& a, Site site = Site::Here());
// Returns q and r of a = q r. With `mode` "reduced" q has min(m, n) columns. With "complete" q has
// m columns; it has a derivative only if a is square. With "r" q has no value. With "raw" the
// result is LAPACK's, transposed: r with the reflectors below it, and their factors; it has no
// derivative.
std::pair<Array, Array> qr(const Array& a, std::string_view mode = "reduced",
                           Site site = Site::Here());
// Returns the eigenvalues of matrices a = a^H, ascending, and their vectors as columns. With
// symmetrize_input the two triangles of a are averaged, otherwise only the lower triangle is read.
std::pair<Array, Array> eigh(const Array& a, bool symmetrize_input = true,
                             Site site = Site::Here());
// Like eigh above. `UPLO` is "L" or "U": the triangle that is read without symmetrize_input.
std::pair<Array, Array> eigh(const Array& a, const char* UPLO, bool symmetrize_input = true,
                             Site site = Site::Here());
Array eigvalsh(const Array& a, Site site = Site::Here());
Array eigvalsh(const Array& a, const char* UPLO, bool symmetrize_input = true,
               Site site = Site::Here());
// Returns the eigenvalues of square matrices, in no particular order, and their vectors as columns
// of length 1. All are complex. The vectors have a derivative only in lax::linalg::eig.
std::pair<Array, Array> eig(const Array& a, Site site = Site::Here());
Array eigvals(const Array& a, Site site = Site::Here());
// a = u diag(s) vh, with s descending. With full_matrices it has a derivative only if a is square.
struct Svd {
  Array u, s, vh;
};
Svd svd(const Array& a, bool full_matrices = true, Site site = Site::Here());
Array svdvals(const Array& a, Site site = Site::Here());
// Returns the pseudo-inverse. Singular values of at most rtol times the largest count as 0. By
// default rtol is 10 max(m, n) eps, as in JAX.
Array pinv(const Array& a, std::optional<double> rtol = std::nullopt, Site site = Site::Here());
// The order of a norm: a number, which may be infinite, or for matrices "fro" or "nuc".
struct NormOrder {
  std::optional<double> number;
  std::string name;

  NormOrder() = default;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  NormOrder(int n) : number(n) {}
  NormOrder(double n) : number(n) {}
  NormOrder(const char* order) : name(order) {}
  // NOLINTEND(google-explicit-constructor)
};
struct NormOptions {
  NormOrder ord = {};  // by default 2 for vectors, "fro" for matrices
  Axes axis = {};      // one axis for vectors, two for matrices; by default all
  bool keepdims = false;
};
// Returns the norm of vectors or matrices. Without an order and axes, it is the 2-norm of all
// elements.
Array norm(const Array& x, const NormOptions& options = {}, Site site = Site::Here());
// Options of vector_norm, which treats all elements along the axes as one vector. matrix_norm below
// takes the last two dims.
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
// Returns the condition number: the norm of x times the norm of x's inverse, for norms of the order
// p. By default it is the largest singular value divided by the least.
Array cond(const Array& x, const NormOrder& p = {}, Site site = Site::Here());
// Returns the number of singular values (s32) above rtol, an absolute bound. By default it is
// max(m, n) eps times the largest singular value.
Array matrix_rank(const Array& a, std::optional<double> rtol = std::nullopt,
                  Site site = Site::Here());
Array matrix_power(const Array& a, int n, Site site = Site::Here());
// Returns the product of matrices, multiplied in the order that takes the fewest multiplications.
// The first and the last operand may be vectors.
Array multi_dot(const std::vector<Array>& arrays, const lax::PrecisionLike& precision = {},
                Site site = Site::Here());
// tensorinv returns the inverse of a as a linear map of its first `ind` dims to the others.
// tensorsolve returns the x for which the sum of a x over x's dims is b; a's dims are b's, then
// x's. `axes` are dims of a that are moved to its end first.
Array tensorinv(const Array& a, int ind = 2, Site site = Site::Here());
Array tensorsolve(const Array& a, const Array& b, const std::vector<int64_t>& axes = {},
                  Site site = Site::Here());
// diagonal returns the elements [i, i + offset] of the last two dims, trace their sum.
Array diagonal(const Array& x, int64_t offset = 0, Site site = Site::Here());
Array trace(const Array& x, int64_t offset = 0, Site site = Site::Here());
using tessera::cross, tessera::matmul, tessera::matrix_transpose, tessera::outer,
    tessera::tensordot, tessera::vecdot;
// x minimizes |a x - b|, and is the shortest such x. `residuals` is |a x - b|^2 for each column,
// `rank` (s32) and `s` are the rank and the singular values of a. Singular values below rcond times
// the largest count as 0.
struct Lstsq {
  Array x, residuals, rank, s;
};
Lstsq lstsq(const Array& a, const Array& b, std::optional<double> rcond = std::nullopt,
            Site site = Site::Here());

// ---- From jax.scipy.linalg. ----
// Returns the Cholesky factor computed from the triangle that is read: l of a = l l^H, or u of a =
// u^H u. The bool says whether it is l.
std::pair<Array, bool> cho_factor(const Array& a, bool lower = false, Site site = Site::Here());
Array cho_solve(const std::pair<Array, bool>& c_and_lower, const Array& b,
                Site site = Site::Here());
// Returns lu and pivots like lax::linalg::lu.
std::pair<Array, Array> lu_factor(const Array& a, Site site = Site::Here());
// Solves a x = b, or a^T x = b if `trans` is 1, or a^H x = b if it is 2.
Array lu_solve(const std::pair<Array, Array>& lu_and_piv, const Array& b, int trans = 0,
               Site site = Site::Here());
struct SolveTriangularOptions {
  int trans = 0;  // same meaning as in lu_solve
  bool lower = false, unit_diagonal = false;
};
Array solve_triangular(const Array& a, const Array& b, SolveTriangularOptions options = {},
                       Site site = Site::Here());
// Returns t and z of a = z t z^H. With `output` "real", t of a real a has blocks of size 2 on its
// diagonal; with "complex" it is triangular. It has no derivative.
std::pair<Array, Array> schur(const Array& a, std::string_view output = "real",
                              Site site = Site::Here());
// Returns h and q of a = q h q^H. It has no derivative.
std::pair<Array, Array> hessenberg(const Array& a, Site site = Site::Here());
// Returns the exponential of matrices. NaNs if it takes more than max_squarings squarings.
Array expm(const Array& a, int max_squarings = 16, Site site = Site::Here());
// Returns the complex square root of one matrix [n, n] whose eigenvalues have no negative real
// part. It has no derivative.
Array sqrtm(const Array& a, Site site = Site::Here());
// Returns u and p of a = u p, or of a = p u if `side` is "left". u has orthonormal columns or rows;
// p = p^H has no negative eigenvalues.
std::pair<Array, Array> polar(const Array& a, std::string_view side = "right",
                              Site site = Site::Here());
// Returns one matrix with the operands as blocks along its diagonal and zeros elsewhere. A vector
// is a block of one row.
Array block_diag(const std::vector<Array>& arrays, Site site = Site::Here());
// Returns matrices that are constant along each diagonal. The first column is c; the first row is
// r, except for its first element. By default r is conj(c).
Array toeplitz(const Array& c, const std::optional<Array>& r = std::nullopt,
               Site site = Site::Here());

}  // namespace linalg
}  // namespace tessera
