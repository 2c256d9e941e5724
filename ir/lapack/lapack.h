// The routines of LAPACK and BLAS, from OpenBLAS, by which linear algebra is evaluated.
//
// The library is loaded by the first call and not with the program: most programs do not need it,
// and reading its 35 MB costs a process a millisecond or two. Each call runs only on the caller's
// thread. Matrices are column-major, with the dtypes f32, f64, c64 and c128; `ld` is the distance
// from one column to the next. x^H is the conjugate of x's transpose, which for real numbers is the
// transpose. Thread-safe.
//
// Reference: the LAPACK Users' Guide, https://netlib.org/lapack/lug/.
#pragma once
#include <complex>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::ir::lapack {

// The real type that T is made of: double for std::complex<double> and for double.
template <class T>
struct PartsOf {
  using Type = T;
};
template <class T>
struct PartsOf<std::complex<T>> {
  using Type = T;
};
template <class T>
using Part = typename PartsOf<T>::Type;

// The routines that are loaded, by name without the letter that stands for the type of elements:
// the name for real numbers, then the name for complex numbers.
#define TESSERA_LAPACK_ROUTINES(X) \
  X(trsm, trsm)                    \
  X(gemm, gemm)                    \
  X(potrf, potrf)                  \
  X(getrf, getrf)                  \
  X(geqrf, geqrf)                  \
  X(geqp3, geqp3)                  \
  X(orgqr, ungqr)                  \
  X(syevd, heevd)                  \
  X(gesdd, gesdd)                  \
  X(gesvd, gesvd)                  \
  X(geev, geev)                    \
  X(gees, gees)                    \
  X(gehrd, gehrd)                  \
  X(sytrd, hetrd)                  \
  X(gtsv, gtsv)

// The routines for one type of elements. They return LAPACK's `info`: 0 for success, i > 0 as
// described at the routine, i < 0 for a NaN that the routine does not accept. Routines that need
// scratch memory allocate it.
template <class T>
class Routines {
 public:
  // Computes b = op(a)^-1 b, or b op(a)^-1, for a triangular a. `side` is L or R, `uplo` is U or L,
  // `trans` is N, T, or C for a^H. `diag` is N, or U for a diagonal of ones, which is not read. b
  // is m x n.
  void Trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
            int ldb) const;
  // Computes c -= a b; c is m x n and a is m x k.
  void SubtractProduct(int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c,
                       int ldc) const;
  // Factors a = L L^H or U^H U in the triangle `uplo`; the other triangle is neither read nor
  // written. i > 0: a is not positive definite.
  int Potrf(char uplo, int n, T* a, int lda) const;
  // Factors a = P L U; L has ones on its diagonal. For each i in turn, row i was swapped with row
  // pivots[i], counted from 1. i > 0: U is singular.
  int Getrf(int m, int n, T* a, int lda, int* pivots) const;
  // Factors a = Q R. R replaces the upper triangle of a. Below it are the Householder reflectors
  // whose product is Q; `taus` receives their min(m, n) scalar factors.
  int Geqrf(int m, int n, T* a, int lda, T* taus) const;
  // Like Geqrf, but reorders the columns of a. `pivots` receives their order, counted from 1.
  // Columns whose entry of `pivots` is not 0 before the call come first.
  int Geqp3(int m, int n, T* a, int lda, int* pivots, T* taus) const;
  // Computes the first n columns of the product of k reflectors, in place; m >= n >= k.
  int Orgqr(int m, int n, int k, T* a, int lda, const T* taus) const;
  // Computes the eigenvalues of a = a^H, ascending, and the eigenvectors as columns of a. Only the
  // triangle `uplo` of a is read. i > 0: the iteration did not converge.
  int Syevd(char uplo, int n, T* a, int lda, Part<T>* w) const;
  // Compute singular values, descending. `job` is N for the values alone; S for min(m, n) columns
  // of u and rows of vt; A for all of them. a is overwritten. i > 0: the iteration did not
  // converge. Gesvd takes longer than Gesdd and less scratch memory.
  int Gesdd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
            int ldvt) const;
  int Gesvd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
            int ldvt) const;
  // Computes eigenvalues w. If the flags are set, also computes the left and right eigenvectors, as
  // columns of vl and vr. a is overwritten. i > 0: the iteration did not converge.
  int Geev(bool with_left, bool with_right, int n, T* a, int lda, std::complex<Part<T>>* w,
           std::complex<Part<T>>* vl, int ldvl, std::complex<Part<T>>* vr, int ldvr) const;
  // Factors a = Z T Z^H. T replaces a. If `with_vectors` is true, z receives Z. i > 0: the
  // iteration did not converge.
  int Gees(bool with_vectors, int n, T* a, int lda, T* z, int ldz) const;
  // Factors a = Q H Q^H. H replaces a; the Householder reflectors of Q are below H's first
  // subdiagonal, and `taus` receives their n - 1 scalar factors.
  int Gehrd(int n, T* a, int lda, T* taus) const;
  // Like Gehrd, for a = a^H; only the triangle `uplo` is read and written. `d` receives the n
  // elements of H's diagonal, and `e` the n - 1 elements beside it.
  int Sytrd(char uplo, int n, T* a, int lda, Part<T>* d, Part<T>* e, T* taus) const;
  // Computes b = a^-1 b for a tridiagonal a, with n - 1 elements below and above its diagonal. All
  // arguments are overwritten. b is n x nrhs. i > 0: a is singular.
  int Gtsv(int n, int nrhs, T* below, T* diagonal, T* above, T* b, int ldb) const;

  // ScratchBytes bounds the scratch memory of Geqrf, Geqp3, Orgqr, Syevd, Gesdd and Gesvd. Geev,
  // Gees, Gehrd and Sytrd take at most EigenvalueScratchBytes in addition.
  static double ScratchBytes(int64_t m, int64_t n);
  static double EigenvalueScratchBytes(int64_t n);

 private:
  template <class U>
  friend absl::StatusOr<const Routines<U>*> Load();

#define TESSERA_ROUTINE(name, complex_name) void* name##_ = nullptr;
  TESSERA_LAPACK_ROUTINES(TESSERA_ROUTINE)
#undef TESSERA_ROUTINE
};

// Returns the routines. Returns NOT_IMPLEMENTED, with the place to get the library, if the library
// is missing or lacks a routine.
template <class T>
absl::StatusOr<const Routines<T>*> Load();
// Returns the processor whose kernels the library runs, in OpenBLAS's words, such as "SkylakeX", or
// "" if the library does not tell.
absl::StatusOr<std::string> KernelName();

extern template absl::StatusOr<const Routines<float>*> Load();
extern template absl::StatusOr<const Routines<double>*> Load();
extern template absl::StatusOr<const Routines<std::complex<float>>*> Load();
extern template absl::StatusOr<const Routines<std::complex<double>>*> Load();

}  // namespace tessera::ir::lapack
