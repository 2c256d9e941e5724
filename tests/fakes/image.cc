// Implements the test kernels, and finds the library that runs the emulator's images. driver.cc
// calls LoadImage when the plugin loads a module, and Image::Run on a stream's thread.
#include "tests/fakes/image.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string_view>

#include "tests/fakes/control.h"

namespace tessera::fakes {
namespace {

using worker::cuda::CUresult;

// worker/cuda/testing/fakes.h has the same text.
constexpr char kTestImage[] = "tessera test kernels";
// The directive that every text of PTX has.
constexpr char kPtx[] = ".address_size 64";

template <class T>
T* Pointer(uint64_t arg) {
  return reinterpret_cast<T*>(arg);
}

// Arguments (out, a, b, n): out[i] = a[i] + b[i], in f32.
CUresult AddF32(const Launch& launch) {
  const auto* a = Pointer<const float>(launch.args[1]);
  const auto* b = Pointer<const float>(launch.args[2]);
  auto* out = Pointer<float>(launch.args[0]);
  for (uint64_t i = 0; i < launch.args[3]; ++i) out[i] = a[i] + b[i];
  return worker::cuda::CUDA_SUCCESS;
}

// Arguments (out, value, n): out[i] = value, as u32.
CUresult FillU32(const Launch& launch) {
  auto* out = Pointer<uint32_t>(launch.args[0]);
  for (uint64_t i = 0; i < launch.args[2]; ++i) out[i] = static_cast<uint32_t>(launch.args[1]);
  return worker::cuda::CUDA_SUCCESS;
}

// No arguments: ends once the knob `gate` is above 0.
CUresult Gate(const Launch&) {
  const std::chrono::milliseconds timeout(Get(Knob::gate_timeout_ms));
  return Await(timeout, [] { return Get(Knob::gate) > 0; })
             ? worker::cuda::CUDA_SUCCESS
             : worker::cuda::CUDA_ERROR_LAUNCH_TIMEOUT;
}

// Arguments (out, offset): writes the byte at out + offset, wherever that is.
CUresult Poke(const Launch& launch) {
  *(Pointer<volatile char>(launch.args[0]) + static_cast<int64_t>(launch.args[1])) = 1;
  return worker::cuda::CUDA_SUCCESS;
}

// Arguments (out): out[0..6] = the launch's grid, block and shared bytes, as u32.
CUresult Shape(const Launch& launch) {
  auto* out = Pointer<uint32_t>(launch.args[0]);
  memcpy(out, launch.grid, sizeof launch.grid);
  memcpy(out + 3, launch.block, sizeof launch.block);
  out[6] = launch.shared_bytes;
  return worker::cuda::CUDA_SUCCESS;
}

struct Row {
  const char* name;
  int num_args;
  CUresult (*run)(const Launch&);
};
constexpr Row kRows[] = {{"add_f32", 4, AddF32},
                         {"fill_u32", 3, FillU32},
                         {"gate", 0, Gate},
                         {"poke", 2, Poke},
                         {"shape", 1, Shape}};

const Row* Find(const std::string& kernel) {
  for (const Row& row : kRows) {
    if (kernel == row.name) return &row;
  }
  return nullptr;
}

class TestImage : public Image {
 public:
  std::optional<int> NumArgs(const std::string& kernel) const override {
    const Row* row = Find(kernel);
    return row == nullptr ? std::nullopt : std::optional<int>(row->num_args);
  }
  CUresult Run(const std::string& kernel, const Launch& launch) const override {
    return Find(kernel)->run(launch);
  }
};

// A module of PTX, of which no kernel runs.
class PtxImage : public Image {
 public:
  explicit PtxImage(const char* text) : text_(text) {}

  std::optional<int> NumArgs(const std::string& kernel) const override {
    const size_t begin = text_.find(".entry " + kernel + "(");
    if (begin == std::string::npos) return std::nullopt;
    const std::string params = text_.substr(begin, text_.find(')', begin) - begin);
    int count = 0;
    for (size_t at = 0; (at = params.find(".param", at)) != std::string::npos; ++at) ++count;
    return count;
  }
  CUresult Run(const std::string& kernel, const Launch&) const override {
    ReportViolation("the kernel %s is PTX, which the fake GPU cannot run", kernel.c_str());
    return worker::cuda::CUDA_ERROR_LAUNCH_FAILED;
  }

 private:
  const std::string text_;
};

// Writes the PTX to the folder that TESSERA_FAKE_PTX_FOLDER names, as a file that is named for its
// contents.
void WritePtx(const char* text) {
  const char* const folder = getenv("TESSERA_FAKE_PTX_FOLDER");
  if (folder == nullptr) return;
  const size_t hash = std::hash<std::string_view>()(text);
  std::ofstream(std::string(folder) + "/" + std::to_string(hash) + ".ptx") << text;
}

bool StartsWith(const void* bytes, const char* words) {
  return strncmp(static_cast<const char*>(bytes), words, strlen(words)) == 0;
}

// Opens the library that is in the same folder as this one. It stays loaded.
LoadSimtFn FindSimt(std::string* why) {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&FindSimt), &self) == 0) return nullptr;
  std::string path = self.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libfakesimt.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, kLoadSimt);
  if (found == nullptr) *why = dlerror();
  return reinterpret_cast<LoadSimtFn>(found);
}

}  // namespace

std::unique_ptr<Image> LoadImage(const void* bytes, std::string* why) {
  if (StartsWith(bytes, kTestImage)) return std::make_unique<TestImage>();
  if (StartsWith(bytes, kSimtImage)) {
    const LoadSimtFn load = FindSimt(why);
    return std::unique_ptr<Image>(load == nullptr ? nullptr : load(bytes, why));
  }
  const auto* const text = static_cast<const char*>(bytes);
  if (strstr(text, kPtx) != nullptr) {
    WritePtx(text);
    return std::make_unique<PtxImage>(text);
  }
  *why = "the image holds neither the test kernels, nor PTX, nor an object of the emulator";
  return nullptr;
}

}  // namespace tessera::fakes
