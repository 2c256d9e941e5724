// Finds the functions of the fakes for strict_test.cc, which calls them directly where the plugin
// would never make the mistake that a check of the fakes looks for.
#include "worker/cuda/testing/raw_fakes.h"

#include <dlfcn.h>

#include <cstdlib>

#include "worker/cuda/testing/fakes.h"

namespace tessera::worker::cuda {
namespace {

template <class F>
void Find(const char* library, const char* symbol, F* function) {
  void* const opened = dlopen(FakePath(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  *function = opened == nullptr ? nullptr : reinterpret_cast<F>(dlsym(opened, symbol));
  if (*function == nullptr) abort();
}

}  // namespace

const DriverApi& RawDriver() {
  static const DriverApi api = [] {
    DriverApi found;
#define TESSERA_X(name, params) Find("cuda", #name, &found.name);
    TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_X)
    TESSERA_CUDA_DRIVER_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
    return found;
  }();
  return api;
}

const NcclApi& RawNccl() {
  static const NcclApi api = [] {
    NcclApi found;
#define TESSERA_X(result, name, params) Find("nccl", #name, &found.name);
    TESSERA_NCCL_FUNCTIONS(TESSERA_X)
    TESSERA_NCCL_OPTIONAL_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
    return found;
  }();
  return api;
}

const CublasLtApi& RawCublasLt() {
  static const CublasLtApi api = [] {
    CublasLtApi found;
#define TESSERA_X(result, name, params) Find("cublaslt", #name, &found.name);
    TESSERA_CUBLASLT_FUNCTIONS(TESSERA_X)
#undef TESSERA_X
    return found;
  }();
  return api;
}

}  // namespace tessera::worker::cuda
