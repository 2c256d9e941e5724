// Loads the plugin and the fakes for tests, and reaches their knobs through exported functions of
// the fake driver (tests/fakes). Tests of this folder, of worker/device and of other folders use
// it.
#include "worker/cuda/testing/fakes.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "base/testing/datadriven.h"

namespace tessera::worker::cuda {
namespace {

void* Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "%s; build the target `fakes`\n", dlerror());
    abort();
  }
  return library;
}

template <class F>
F Find(const std::string& path, const char* symbol) {
  void* const address = dlsym(Open(path), symbol);
  if (address == nullptr) {
    fprintf(stderr, "%s has no %s\n", path.c_str(), symbol);
    abort();
  }
  return reinterpret_cast<F>(address);
}

}  // namespace

std::string PluginPath() { return SourcePath(TESSERA_CUDA_PLUGIN_PATH); }

std::string FakePath(const std::string& name) {
  return SourcePath(TESSERA_FAKES_DIR "/libfake" + name + ".so");
}

void PointPluginAtFakes() {
  setenv("TESSERA_CUDA_DRIVER", FakePath("cuda").c_str(), /*overwrite=*/1);
  setenv("TESSERA_CUDA_NCCL", FakePath("nccl").c_str(), /*overwrite=*/1);
  setenv("TESSERA_CUDA_CUBLASLT", FakePath("cublaslt").c_str(), /*overwrite=*/1);
  setenv("TESSERA_CUDA_NVML", FakePath("nvml").c_str(), /*overwrite=*/1);
}

const tessera_device_api& FakeDevices() {
  static const tessera_device_api* const api = [] {
    PointPluginAtFakes();
    return Find<tessera_device_api_fn>(PluginPath(),
                                       "tessera_device_api")(TESSERA_DEVICE_API_VERSION);
  }();
  if (api == nullptr) abort();
  return *api;
}

void SetFake(const std::string& knob, int64_t value) {
  static const auto set = Find<int (*)(const char*, int64_t)>(FakePath("cuda"), "tesseraFakeSet");
  if (set(knob.c_str(), value) != 0) return;
  fprintf(stderr, "the fakes have no knob %s\n", knob.c_str());
  abort();
}

int64_t GetFake(const std::string& knob) {
  static const auto get = Find<int64_t (*)(const char*)>(FakePath("cuda"), "tesseraFakeGet");
  return get(knob.c_str());
}

bool AwaitFake(const std::string& knob, int64_t least) {
  static const auto await =
      Find<int (*)(const char*, int64_t, int64_t)>(FakePath("cuda"), "tesseraFakeAwait");
  constexpr int64_t kPatienceMs = 60'000;
  return await(knob.c_str(), least, kPatienceMs) == 1;
}

void ResetFakes() {
  static const auto reset = Find<void (*)()>(FakePath("cuda"), "tesseraFakeReset");
  reset();
}

std::string FakeViolations() {
  static const auto violations = Find<const char* (*)()>(FakePath("cuda"), "tesseraFakeViolations");
  return violations();
}

}  // namespace tessera::worker::cuda
