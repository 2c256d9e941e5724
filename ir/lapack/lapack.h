// The routines of LAPACK and BLAS that linear algebra is evaluated by, of OpenBLAS.
//
// The library is loaded by the first call, not with the program: most programs need none of it, and
// reading its 35 MB costs a process a millisecond or two. Each call runs on the caller's thread
// alone. Matrices are column-major, of the dtypes f32, f64, c64 and c128; `ld` is how far a column
// is from the next. x^H is the conjugate of x's transpose, for real numbers the transpose.
// Thread-safe.
//
// Reference: the LAPACK Users' Guide, https://netlib.org/lapack/lug/.
#pragma once
#include <complex>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tessera::ir::lapack {

// The numbers that T is made of: double for std::complex<double>, and for double.
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

// Symbols of the library, by the routine's name without its letter for the type of elements: that
// for real numbers, and that for complex ones.
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

// The calls for one type of elements. What they return is LAPACK's `info`: 0, or i > 0 for what
// the routine says, or i < 0 for a NaN that it does not take. Those with scratch allocate it.
template <class T>
class Routines {
 public:
  // b = op(a)^-1 b, or b op(a)^-1, for a triangular; `side` is L or R, `uplo` U or L, `trans` N, T
  // or C, for a^H, `diag` N, or U for a diagonal of ones, which is not read. b is m x n.
  void Trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
            int ldb) const;
  // c -= a b, of m x n, a of m x k.
  void SubtractProduct(int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c,
                       int ldc) const;
  // a = L L^H or U^H U, in the triangle `uplo`, the only one that is read and written. i > 0: a is
  // not positive definite.
  int Potrf(char uplo, int n, T* a, int lda) const;
  // a = P L U, L with ones on its diagonal; row i was swapped with row pivots[i], counted from 1.
  // i > 0: U is singular.
  int Getrf(int m, int n, T* a, int lda, int* pivots) const;
  // a = Q R: R, and below it the reflectors of Q, whose factors are min(m, n) taus.
  int Geqrf(int m, int n, T* a, int lda, T* taus) const;
  // As Geqrf, of the columns of a in the order that `pivots` gets, counted from 1. Those where it
  // is not 0 before come first.
  int Geqp3(int m, int n, T* a, int lda, int* pivots, T* taus) const;
  // The first n columns of the product of k reflectors, in place; m >= n >= k.
  int Orgqr(int m, int n, int k, T* a, int lda, const T* taus) const;
  // Eigenvalues of a = a^H, of which the triangle `uplo` is read, ascending, and vectors as columns
  // of a. i > 0: it did not converge.
  int Syevd(char uplo, int n, T* a, int lda, Part<T>* w) const;
  // Singular values, descending. `job`: N, them alone; S, min(m, n) columns of u and rows of vt; A,
  // all. a is overwritten. i > 0: it did not converge. Gesvd takes longer, and less scratch.
  int Gesdd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
            int ldvt) const;
  int Gesvd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
            int ldvt) const;
  // Eigenvalues, and where `left` or `right`, vectors as columns; a is overwritten. i > 0: it did
  // not converge.
  int Geev(bool left, bool right, int n, T* a, int lda, std::complex<Part<T>>* w,
           std::complex<Part<T>>* vl, int ldvl, std::complex<Part<T>>* vr, int ldvr) const;
  // a = Z T Z^H: T in place of a, and where `vectors`, Z. i > 0: it did not converge.
  int Gees(bool vectors, int n, T* a, int lda, T* z, int ldz) const;
  // a = Q H Q^H: H, and below the diagonal below its main one the reflectors of Q, whose factors
  // are n - 1 taus.
  int Gehrd(int n, T* a, int lda, T* taus) const;
  // The same of a = a^H, of which the triangle `uplo` is read and written; and H's diagonal of n
  // and the n - 1 beside it.
  int Sytrd(char uplo, int n, T* a, int lda, Part<T>* d, Part<T>* e, T* taus) const;
  // b = a^-1 b for a tridiagonal, of n - 1 elements below and above its diagonal; all are
  // overwritten. b is n x nrhs. i > 0: a is singular.
  int Gtsv(int n, int nrhs, T* below, T* diagonal, T* above, T* b, int ldb) const;

  // Bytes of scratch that Geqrf, Geqp3, Orgqr, Syevd and those of singular values may take; and
  // what Geev, Gees, Gehrd and Sytrd may take beyond that.
  static double ScratchBytes(int64_t m, int64_t n);
  static double MoreOfEigenvalues(int64_t n);

 private:
  template <class U>
  friend absl::StatusOr<const Routines<U>*> Load();

#define TESSERA_ROUTINE(name, complex_name) void* name##_ = nullptr;
  TESSERA_LAPACK_ROUTINES(TESSERA_ROUTINE)
#undef TESSERA_ROUTINE
};

// NOT_IMPLEMENTED, and where to get it, if the library is not there or lacks a routine.
template <class T>
absl::StatusOr<const Routines<T>*> Load();
// The processor whose kernels the library runs, in OpenBLAS's word, such as "SkylakeX"; "" if it
// does not say.
absl::StatusOr<std::string> Kernels();

extern template absl::StatusOr<const Routines<float>*> Load();
extern template absl::StatusOr<const Routines<double>*> Load();
extern template absl::StatusOr<const Routines<std::complex<float>>*> Load();
extern template absl::StatusOr<const Routines<std::complex<double>>*> Load();

}  // namespace tessera::ir::lapack
