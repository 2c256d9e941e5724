#include "ir/lapack/lapack.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::ir::lapack {
namespace {

// The system's, or the one beside the program; then Debian's serial variant, by its folder.
constexpr const char* kFiles[] = {"libopenblas.so.0",
                                  "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0"};

struct Library {
  void* handle = nullptr;
  std::string error;
};
const Library& OpenBlas() {
  static const auto* const kLibrary = [] {
    auto* const library = new Library;
    for (const char* const file : kFiles) {
      library->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
      if (library->handle != nullptr) break;
      const char* const why = dlerror();
      absl::StrAppend(&library->error, library->error.empty() ? "" : "; ", why ? why : file);
    }
    if (library->handle != nullptr)
      if (void* const set = dlsym(library->handle, "openblas_set_num_threads"))
        reinterpret_cast<void (*)(int)>(set)(1);
    return library;
  }();
  return *kLibrary;
}

template <class T>
std::string SymbolOf(const char* routine) {
  return absl::StrCat(std::is_same_v<T, float> ? "s" : "d", routine, "_");
}

// A routine's scratch is asked for by a call with a size of -1, which puts the size where the
// scratch would be.
template <class T, class F>
int WithScratch(const F& call) {
  T size = 0;
  int query = -1, info = call(&size, &query);
  if (info != 0) return info;
  // A float may be a little below the number that it stands for.
  int n = std::max(1, static_cast<int>(static_cast<double>(size) * (1 + 1e-6)) + 1);
  std::vector<T> scratch(n);
  return call(scratch.data(), &n);
}

}  // namespace

// Fortran's calls: everything by address, and the lengths of strings behind the arguments.
template <class T>
void Routines<T>::Trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a,
                       int lda, T* b, int ldb) const {
  using F =
      void (*)(const char*, const char*, const char*, const char*, const int*, const int*, const T*,
               const T*, const int*, T*, const int*, size_t, size_t, size_t, size_t);
  const T one = 1;
  reinterpret_cast<F>(trsm_)(&side, &uplo, &trans, &diag, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1,
                             1);
}

template <class T>
int Routines<T>::Potrf(char uplo, int n, T* a, int lda) const {
  using F = void (*)(const char*, const int*, T*, const int*, int*, size_t);
  int info = 0;
  reinterpret_cast<F>(potrf_)(&uplo, &n, a, &lda, &info, 1);
  return info;
}

template <class T>
int Routines<T>::Getrf(int m, int n, T* a, int lda, int* pivots) const {
  using F = void (*)(const int*, const int*, T*, const int*, int*, int*);
  int info = 0;
  reinterpret_cast<F>(getrf_)(&m, &n, a, &lda, pivots, &info);
  return info;
}

template <class T>
int Routines<T>::Geqrf(int m, int n, T* a, int lda, T* taus) const {
  using F = void (*)(const int*, const int*, T*, const int*, T*, T*, const int*, int*);
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(geqrf_)(&m, &n, a, &lda, taus, scratch, size, &info);
    return info;
  });
}

template <class T>
int Routines<T>::Orgqr(int m, int n, int k, T* a, int lda, const T* taus) const {
  using F =
      void (*)(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(orgqr_)(&m, &n, &k, a, &lda, taus, scratch, size, &info);
    return info;
  });
}

template <class T>
int Routines<T>::Syevd(char uplo, int n, T* a, int lda, T* w) const {
  using F = void (*)(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*,
                     const int*, int*, size_t, size_t);
  const char job = 'V';
  int num_ints = 3 + 5 * n;
  std::vector<int> ints(num_ints);
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(syevd_)(&job, &uplo, &n, a, &lda, w, scratch, size, ints.data(), &num_ints,
                                &info, 1, 1);
    return info;
  });
}

template <class T>
int Routines<T>::Gesdd(char job, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* vt,
                       int ldvt) const {
  using F = void (*)(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*,
                     const int*, T*, const int*, int*, int*, size_t);
  std::vector<int> ints(8 * std::max(1, std::min(m, n)));
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(gesdd_)(&job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, scratch, size,
                                ints.data(), &info, 1);
    return info;
  });
}

template <class T>
int Routines<T>::Gtsv(int n, int nrhs, T* below, T* diagonal, T* above, T* b, int ldb) const {
  using F = void (*)(const int*, const int*, T*, T*, T*, T*, const int*, int*);
  int info = 0;
  reinterpret_cast<F>(gtsv_)(&n, &nrhs, below, diagonal, above, b, &ldb, &info);
  return info;
}

// Gesdd takes the most: 4 k^2 + 7 k, and blocks of 64 columns of each side; 8 ints for each of k.
template <class T>
double Routines<T>::ScratchBytes(int64_t m, int64_t n) {
  const auto k = static_cast<double>(std::min(m, n)), sides = static_cast<double>(m + n);
  return (4 * k * k + 75 * k + 66 * sides + 64) * sizeof(T) + (8 * k + 3) * sizeof(int);
}

template <class T>
absl::StatusOr<const Routines<T>*> Load() {
  static const auto* const kLoaded = [] {
    auto* const loaded = new absl::StatusOr<const Routines<T>*>;
    const Library& library = OpenBlas();
    const auto lacks = [&](const std::string& problem) {
      *loaded =
          MakeError(ErrorKind::kNotImplemented,
                    absl::StrCat("linear algebra needs OpenBLAS where the program runs, and ",
                                 problem, ". Install it there (Debian: libopenblas0-serial)"));
    };
    if (library.handle == nullptr) {
      lacks(absl::StrCat("it is not there: ", library.error));
      return loaded;
    }
    auto* const routines = new Routines<T>;
#define TESSERA_ROUTINE(name)                                             \
  routines->name##_ = dlsym(library.handle, SymbolOf<T>(#name).c_str());  \
  if (routines->name##_ == nullptr) {                                     \
    lacks(absl::StrCat("the library there has no ", SymbolOf<T>(#name))); \
    return loaded;                                                        \
  }
    TESSERA_LAPACK_ROUTINES(TESSERA_ROUTINE)
#undef TESSERA_ROUTINE
    *loaded = routines;
    return loaded;
  }();
  return *kLoaded;
}

template class Routines<float>;
template class Routines<double>;
template absl::StatusOr<const Routines<float>*> Load();
template absl::StatusOr<const Routines<double>*> Load();

}  // namespace tessera::ir::lapack
