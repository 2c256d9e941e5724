// Opens OpenBLAS when the first op of linear algebra runs, and calls its routines
// (docs/decisions/0020). The evaluators in ir/ops (solves, factorizations, eigen) are the callers.
#include "ir/lapack/lapack.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::ir::lapack {
namespace {

// The names are tried in turn: the library beside the program or the system's, then Debian's
// variant with threads by its full path.
constexpr const char* kLibraryFiles[] = {
    "libopenblas.so.0", "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0"};

// OpenBLAS picks its kernels by the model of the processor. A model that is newer than the library,
// or that a hypervisor does not name, gets the kernels of 2004, at a fifth of the speed. While the
// library is opened, this class sets the environment variable by which a user can name kernels
// (kVariable) to those that the processor can run, unless the user has set it.
class ScopedKernelName {
 public:
  ScopedKernelName() {
    const char* const kernels = KernelsForProcessor();
    set_ = kernels != nullptr && getenv(kVariable) == nullptr && setenv(kVariable, kernels, 0) == 0;
  }
  ~ScopedKernelName() {
    if (set_) unsetenv(kVariable);
  }

 private:
  static constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  static const char* KernelsForProcessor() {
#if defined(__x86_64__)
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    if (avx512) return __builtin_cpu_supports("avx512bf16") ? "Cooperlake" : "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
    return nullptr;
  }
  bool set_;
};

// Opens `file`, or stores the reason for a failure in `*why`. OpenBLAS starts one thread for each
// processor that the opening thread may run on. We have no work for these threads, so the opening
// thread is limited to one processor meanwhile.
void* OpenForCallers(const char* file, std::string* why) {
  cpu_set_t all, one;
  const bool narrowed = sched_getaffinity(0, sizeof all, &all) == 0;
  if (narrowed) {
    CPU_ZERO(&one);
    int first = 0;
    while (first + 1 < CPU_SETSIZE && !CPU_ISSET(first, &all)) ++first;
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  void* handle;
  {
    const ScopedKernelName named;
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }
  const char* const error = handle == nullptr ? dlerror() : nullptr;
  if (narrowed) sched_setaffinity(0, sizeof all, &all);
  if (handle == nullptr) {
    *why = error ? error : file;
    return nullptr;
  }
  // A library built without threads does not lock its scratch memory: two callers at once share it
  // and get wrong results. A library built with OpenMP locks only against the threads of OpenMP.
  constexpr int kPthreads = 1;
  void* const variant = dlsym(handle, "openblas_get_parallel");
  if (variant == nullptr || reinterpret_cast<int (*)()>(variant)() != kPthreads) {
    *why = absl::StrCat(file, " is a variant that several threads may not call at once");
    dlclose(handle);
    return nullptr;
  }
  if (void* const set = dlsym(handle, "openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(set)(1);
  return handle;
}

struct Library {
  void* handle = nullptr;
  std::string error;
};
const Library& OpenBlas() {
  static const auto* const kLibrary = [] {
    auto* const library = new Library;
    for (const char* const file : kLibraryFiles) {
      std::string why;
      library->handle = OpenForCallers(file, &why);
      if (library->handle != nullptr) break;
      absl::StrAppend(&library->error, library->error.empty() ? "" : "; ", why);
    }
    return library;
  }();
  return *kLibrary;
}

template <class T>
constexpr bool kIsComplex = !std::is_same_v<T, Part<T>>;

template <class T>
std::string SymbolOf(const char* real, const char* complex) {
  const char letter =
      std::is_same_v<Part<T>, float> ? (kIsComplex<T> ? 'c' : 's') : (kIsComplex<T> ? 'z' : 'd');
  return absl::StrCat(std::string(1, letter), kIsComplex<T> ? complex : real, "_");
}

// Calls a routine twice. The first call has a scratch size of -1, which makes the routine store the
// size that it needs in place of the scratch.
template <class T, class F>
int WithScratch(const F& call) {
  T size = 0;
  int query = -1, info = call(&size, &query);
  if (info != 0) return info;
  // A float may be a little below the number that it stands for.
  int n = std::max(1, static_cast<int>(static_cast<double>(std::real(size)) * (1 + 1e-6)) + 1);
  std::vector<T> scratch(n);
  return call(scratch.data(), &n);
}

// Unpacks real eigenvectors from LAPACK's form: a pair of conjugates has its real part in the first
// column and its imaginary part in the second.
template <class T>
void UnpackEigenvectors(int n, const std::vector<std::complex<T>>& w, const std::vector<T>& packed,
                        std::complex<T>* v, int ldv) {
  for (int j = 0; j < n; ++j) {
    const bool is_pair = std::imag(w[j]) != 0 && j + 1 < n;
    for (int i = 0; i < n; ++i) {
      const T re = packed[size_t{1} * j * n + i],
              im = is_pair ? packed[(size_t{1} * j + 1) * n + i] : 0;
      v[size_t{1} * j * ldv + i] = {re, im};
      if (is_pair) v[(size_t{1} * j + 1) * ldv + i] = {re, -im};
    }
    if (is_pair) ++j;
  }
}

}  // namespace

// These are calls of Fortran: every argument is passed by address, and the lengths of strings
// follow behind the arguments.
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
void Routines<T>::SubtractProduct(int m, int n, int k, const T* a, int lda, const T* b, int ldb,
                                  T* c, int ldc) const {
  using F =
      void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*,
               const int*, const T*, const int*, const T*, T*, const int*, size_t, size_t);
  const char as_is = 'N';
  const T minus = -1, one = 1;
  reinterpret_cast<F>(gemm_)(&as_is, &as_is, &m, &n, &k, &minus, a, &lda, b, &ldb, &one, c, &ldc, 1,
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
int Routines<T>::Geqp3(int m, int n, T* a, int lda, int* pivots, T* taus) const {
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using F = void (*)(const int*, const int*, T*, const int*, int*, T*, T*, const int*, Part<T>*,
                         int*);
      std::vector<Part<T>> reals(2 * std::max(1, n));
      reinterpret_cast<F>(geqp3_)(&m, &n, a, &lda, pivots, taus, scratch, size, reals.data(),
                                  &info);
    } else {
      using F = void (*)(const int*, const int*, T*, const int*, int*, T*, T*, const int*, int*);
      reinterpret_cast<F>(geqp3_)(&m, &n, a, &lda, pivots, taus, scratch, size, &info);
    }
    return info;
  });
}

template <class T>
int Routines<T>::Syevd(char uplo, int n, T* a, int lda, Part<T>* w) const {
  const char job = 'V';
  int num_ints = 3 + 5 * n;
  std::vector<int> ints(num_ints);
  const int num_reals = kIsComplex<T> ? 1 + 5 * n + 2 * n * n : 0;
  std::vector<Part<T>> reals(num_reals);
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using F = void (*)(const char*, const char*, const int*, T*, const int*, Part<T>*, T*,
                         const int*, Part<T>*, const int*, int*, const int*, int*, size_t, size_t);
      reinterpret_cast<F>(syevd_)(&job, &uplo, &n, a, &lda, w, scratch, size, reals.data(),
                                  &num_reals, ints.data(), &num_ints, &info, 1, 1);
    } else {
      using F = void (*)(const char*, const char*, const int*, T*, const int*, T*, T*, const int*,
                         int*, const int*, int*, size_t, size_t);
      reinterpret_cast<F>(syevd_)(&job, &uplo, &n, a, &lda, w, scratch, size, ints.data(),
                                  &num_ints, &info, 1, 1);
    }
    return info;
  });
}

template <class T>
int Routines<T>::Gesdd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
                       int ldvt) const {
  const int64_t k = std::min(m, n), longer = std::max(m, n);
  std::vector<int> ints(8 * std::max<int64_t>(1, k));
  std::vector<Part<T>> reals;
  if (kIsComplex<T>)
    reals.resize(std::max<int64_t>(
        1, job == 'N' ? 7 * k : std::max(5 * k * k + 5 * k, 2 * longer * k + 2 * k * k + k)));
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using F = void (*)(const char*, const int*, const int*, T*, const int*, Part<T>*, T*,
                         const int*, T*, const int*, T*, const int*, Part<T>*, int*, int*, size_t);
      reinterpret_cast<F>(gesdd_)(&job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, scratch, size,
                                  reals.data(), ints.data(), &info, 1);
    } else {
      using F = void (*)(const char*, const int*, const int*, T*, const int*, T*, T*, const int*,
                         T*, const int*, T*, const int*, int*, int*, size_t);
      reinterpret_cast<F>(gesdd_)(&job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, scratch, size,
                                  ints.data(), &info, 1);
    }
    return info;
  });
}

template <class T>
int Routines<T>::Gesvd(char job, int m, int n, T* a, int lda, Part<T>* s, T* u, int ldu, T* vt,
                       int ldvt) const {
  std::vector<Part<T>> reals(5 * std::max(1, std::min(m, n)));
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using F =
          void (*)(const char*, const char*, const int*, const int*, T*, const int*, Part<T>*, T*,
                   const int*, T*, const int*, T*, const int*, Part<T>*, int*, size_t, size_t);
      reinterpret_cast<F>(gesvd_)(&job, &job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, scratch, size,
                                  reals.data(), &info, 1, 1);
    } else {
      using F = void (*)(const char*, const char*, const int*, const int*, T*, const int*, T*, T*,
                         const int*, T*, const int*, T*, const int*, int*, size_t, size_t);
      reinterpret_cast<F>(gesvd_)(&job, &job, &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, scratch, size,
                                  &info, 1, 1);
    }
    return info;
  });
}

// Complex matrices are passed through. For a real matrix LAPACK returns eigenvalues as two arrays
// and packs each conjugate pair of vectors into two real columns; the results are converted to
// complex numbers, so that callers see one form.
template <class T>
int Routines<T>::Geev(bool with_left, bool with_right, int n, T* a, int lda,
                      std::complex<Part<T>>* w, std::complex<Part<T>>* vl, int ldvl,
                      std::complex<Part<T>>* vr, int ldvr) const {
  const char of_left = with_left ? 'V' : 'N', of_right = with_right ? 'V' : 'N';
  if constexpr (kIsComplex<T>) {
    using F = void (*)(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, T*,
                       const int*, T*, const int*, Part<T>*, int*, size_t, size_t);
    std::vector<Part<T>> reals(2 * std::max(1, n));
    return WithScratch<T>([&](T* scratch, const int* size) {
      int info = 0;
      reinterpret_cast<F>(geev_)(&of_left, &of_right, &n, a, &lda, w, vl, &ldvl, vr, &ldvr, scratch,
                                 size, reals.data(), &info, 1, 1);
      return info;
    });
  } else {
    using F = void (*)(const char*, const char*, const int*, T*, const int*, T*, T*, T*, const int*,
                       T*, const int*, T*, const int*, int*, size_t, size_t);
    const int64_t elements = int64_t{1} * n * n;
    std::vector<T> re(n), im(n), packed_left(with_left ? elements : 1),
        packed_right(with_right ? elements : 1);
    const int info = WithScratch<T>([&](T* scratch, const int* size) {
      int status = 0;
      reinterpret_cast<F>(geev_)(&of_left, &of_right, &n, a, &lda, re.data(), im.data(),
                                 packed_left.data(), &n, packed_right.data(), &n, scratch, size,
                                 &status, 1, 1);
      return status;
    });
    if (info != 0) return info;
    std::vector<std::complex<T>> values(n);
    for (int i = 0; i < n; ++i) values[i] = {re[i], im[i]};
    std::copy(values.begin(), values.end(), w);
    if (with_left) UnpackEigenvectors(n, values, packed_left, vl, ldvl);
    if (with_right) UnpackEigenvectors(n, values, packed_right, vr, ldvr);
    return 0;
  }
}

template <class T>
int Routines<T>::Gees(bool with_vectors, int n, T* a, int lda, T* z, int ldz) const {
  const char job = with_vectors ? 'V' : 'N', sort = 'N';
  int sorted = 0;
  std::vector<T> w(2 * std::max(1, n));  // the real and the imaginary parts
  std::vector<Part<T>> reals(std::max(1, n));
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    if constexpr (kIsComplex<T>) {
      using F = void (*)(const char*, const char*, const void*, const int*, T*, const int*, int*,
                         T*, T*, const int*, T*, const int*, Part<T>*, int*, int*, size_t, size_t);
      reinterpret_cast<F>(gees_)(&job, &sort, nullptr, &n, a, &lda, &sorted, w.data(), z, &ldz,
                                 scratch, size, reals.data(), nullptr, &info, 1, 1);
    } else {
      using F = void (*)(const char*, const char*, const void*, const int*, T*, const int*, int*,
                         T*, T*, T*, const int*, T*, const int*, int*, int*, size_t, size_t);
      reinterpret_cast<F>(gees_)(&job, &sort, nullptr, &n, a, &lda, &sorted, w.data(), w.data() + n,
                                 z, &ldz, scratch, size, nullptr, &info, 1, 1);
    }
    return info;
  });
}

template <class T>
int Routines<T>::Gehrd(int n, T* a, int lda, T* taus) const {
  using F = void (*)(const int*, const int*, const int*, T*, const int*, T*, T*, const int*, int*);
  const int first = 1;
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(gehrd_)(&n, &first, &n, a, &lda, taus, scratch, size, &info);
    return info;
  });
}

template <class T>
int Routines<T>::Sytrd(char uplo, int n, T* a, int lda, Part<T>* d, Part<T>* e, T* taus) const {
  using F = void (*)(const char*, const int*, T*, const int*, Part<T>*, Part<T>*, T*, T*,
                     const int*, int*, size_t);
  return WithScratch<T>([&](T* scratch, const int* size) {
    int info = 0;
    reinterpret_cast<F>(sytrd_)(&uplo, &n, a, &lda, d, e, taus, scratch, size, &info, 1);
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

// With k = min(m, n), Gesdd takes the most: 4 k^2 + 7 k numbers, blocks of 64 columns of each side,
// and 8 k ints. For complex numbers it takes 2 k^2 fewer, and in addition up to 5 k^2 + 5 k or 2 (m
// + n) k + k real numbers.
template <class T>
double Routines<T>::ScratchBytes(int64_t m, int64_t n) {
  const auto k = static_cast<double>(std::min(m, n)), sides = static_cast<double>(m + n);
  double bytes = (4 * k * k + 75 * k + 66 * sides + 64) * sizeof(T) + (8 * k + 3) * sizeof(int);
  if (kIsComplex<T>) bytes += (5 * k * k + 2 * sides * k + 7 * k + 2 * sides) * sizeof(Part<T>);
  return bytes;
}
// The scratch memory consists of blocks of 64 columns, 65 x 64 numbers for products of reflectors,
// real vectors before they become complex, and eigenvalues in separate parts.
template <class T>
double Routines<T>::EigenvalueScratchBytes(int64_t n) {
  const auto size = static_cast<double>(n);
  return (2 * size * size + 80 * size + 65 * 64 + 8) * sizeof(T);
}

// Looks up all routines of one type, once for the process. A missing library or routine is
// remembered as an error that tells the user what to install, and is no crash: a program without
// linear algebra runs without the library.
template <class T>
absl::StatusOr<const Routines<T>*> Load() {
  static const auto* const kLoaded = [] {
    auto* const loaded = new absl::StatusOr<const Routines<T>*>;
    const Library& library = OpenBlas();
    const auto set_error = [&](const std::string& problem) {
      *loaded =
          MakeError(ErrorKind::kNotImplemented,
                    absl::StrCat("linear algebra needs OpenBLAS where the program runs, and ",
                                 problem, ". Install it there (Debian: libopenblas0-pthread)"));
    };
    if (library.handle == nullptr) {
      set_error(
          absl::StrCat("no library was found that several threads may call: ", library.error));
      return loaded;
    }
    auto* const routines = new Routines<T>;
#define TESSERA_ROUTINE(name, complex_name)                         \
  {                                                                 \
    const std::string symbol = SymbolOf<T>(#name, #complex_name);   \
    routines->name##_ = dlsym(library.handle, symbol.c_str());      \
    if (routines->name##_ == nullptr) {                             \
      set_error(absl::StrCat("the library there has no ", symbol)); \
      return loaded;                                                \
    }                                                               \
  }
    TESSERA_LAPACK_ROUTINES(TESSERA_ROUTINE)
#undef TESSERA_ROUTINE
    *loaded = routines;
    return loaded;
  }();
  return *kLoaded;
}

absl::StatusOr<std::string> KernelName() {
  if (auto loaded = Load<float>(); !loaded.ok()) return loaded.status();
  void* const name = dlsym(OpenBlas().handle, "openblas_get_corename");
  return name == nullptr ? "" : reinterpret_cast<const char* (*)()>(name)();
}

template class Routines<float>;
template class Routines<double>;
template class Routines<std::complex<float>>;
template class Routines<std::complex<double>>;
template absl::StatusOr<const Routines<float>*> Load();
template absl::StatusOr<const Routines<double>*> Load();
template absl::StatusOr<const Routines<std::complex<float>>*> Load();
template absl::StatusOr<const Routines<std::complex<double>>*> Load();

}  // namespace tessera::ir::lapack
