// The routines of LAPACK and BLAS that linear algebra is evaluated by, of OpenBLAS.
//
// The library is loaded by the first call, not with the program: most programs need none of it, and
// reading its 35 MB costs a process a millisecond or two. Each call runs on the caller's thread
// alone. Matrices are column-major, of the dtypes f32 and f64; `ld` is how far a column is from the
// next. Thread-safe.
//
// Reference: the LAPACK Users' Guide, https://netlib.org/lapack/lug/.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"

namespace tessera::ir::lapack {

// Symbols of the library, by the routine's name without its letter for the type of elements.
#define TESSERA_LAPACK_ROUTINES(X) \
  X(trsm)                          \
  X(potrf)                         \
  X(getrf)                         \
  X(geqrf)                         \
  X(orgqr)                         \
  X(syevd)                         \
  X(gesdd)                         \
  X(gtsv)

// The calls for one type of elements. What they return is LAPACK's `info`: 0, or i > 0 for what
// the routine says, or i < 0 for a NaN that it does not take. Those with scratch allocate it.
template <class T>
class Routines {
 public:
  // b = op(a)^-1 b, or b op(a)^-1, for a triangular; `side` is L or R, `uplo` U or L, `trans` N or
  // T, `diag` N, or U for a diagonal of ones, which is not read. b is m x n.
  void Trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
            int ldb) const;
  // a = L L^T or U^T U, in the triangle `uplo`, the only one that is read and written. i > 0: a is
  // not positive definite.
  int Potrf(char uplo, int n, T* a, int lda) const;
  // a = P L U, L with ones on its diagonal; row i was swapped with row pivots[i], counted from 1.
  // i > 0: U is singular.
  int Getrf(int m, int n, T* a, int lda, int* pivots) const;
  // a = Q R: R, and below it the reflectors of Q, whose factors are min(m, n) taus.
  int Geqrf(int m, int n, T* a, int lda, T* taus) const;
  // The first n columns of the product of k reflectors, in place; m >= n >= k.
  int Orgqr(int m, int n, int k, T* a, int lda, const T* taus) const;
  // Eigenvalues of the symmetric a, of which the triangle `uplo` is read, ascending, and vectors as
  // columns of a. i > 0: it did not converge.
  int Syevd(char uplo, int n, T* a, int lda, T* w) const;
  // Singular values, descending. `job`: N, them alone; S, min(m, n) columns of u and rows of vt; A,
  // all. a is overwritten. i > 0: it did not converge.
  int Gesdd(char job, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt, int ldvt) const;
  // b = a^-1 b for a tridiagonal, of n - 1 elements below and above its diagonal; all are
  // overwritten. b is n x nrhs. i > 0: a is singular.
  int Gtsv(int n, int nrhs, T* below, T* diagonal, T* above, T* b, int ldb) const;

  // Bytes of scratch that Geqrf, Orgqr, Syevd and Gesdd may take.
  static double ScratchBytes(int64_t m, int64_t n);

 private:
  template <class U>
  friend absl::StatusOr<const Routines<U>*> Load();

#define TESSERA_ROUTINE(name) void* name##_ = nullptr;
  TESSERA_LAPACK_ROUTINES(TESSERA_ROUTINE)
#undef TESSERA_ROUTINE
};

// NOT_IMPLEMENTED, and where to get it, if the library is not there or lacks a routine.
template <class T>
absl::StatusOr<const Routines<T>*> Load();
extern template absl::StatusOr<const Routines<float>*> Load();
extern template absl::StatusOr<const Routines<double>*> Load();

}  // namespace tessera::ir::lapack
