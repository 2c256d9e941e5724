// Loads code and launches kernels, for the plugin's table. The driver compiles PTX when a module is
// loaded; its log becomes part of the error.
#include "worker/cuda/module.h"

#include <array>
#include <cinttypes>
#include <string_view>
#include <vector>

#include "worker/cuda/capture_mode.h"
#include "worker/cuda/error.h"

namespace tessera::worker::cuda {
namespace {

// The dynamic shared memory that every function has by default. More must be set per function.
constexpr uint32_t kDefaultSharedBytes = 48 << 10;

}  // namespace

int LoadedModule::Load(tessera_context* context, const void* image, int64_t bytes,
                       std::shared_ptr<LoadedModule>* module) {
  if (bytes <= 0) {
    return Fail(TESSERA_INVALID, "module_load: %" PRId64 " bytes of code; expected some", bytes);
  }
  TESSERA_CUDA_TRY(context->MakeCurrent());
  context->Reap();
  const std::string text(static_cast<const char*>(image), bytes);
  std::array<char, 2048> log = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule loaded = nullptr;
  const RelaxedCapture relaxed;
  const int code = context->Check(
      Cu().cuModuleLoadDataEx(&loaded, text.c_str(), std::size(options), options, values),
      "cuModuleLoadDataEx");
  if (code != TESSERA_OK) {
    return log[0] == '\0' ? code : Fail(code, "%s: %s", ErrorText(), log.data());
  }
  module->reset(new LoadedModule(context, loaded));
  (*module)->LoadFunctions();
  return TESSERA_OK;
}

// Loads all functions of the module now. A driver that loads functions lazily does so at their
// first launch, and then waits for the device. That wait would never end if a collective that runs
// there waits for the launch.
void LoadedModule::LoadFunctions() {
  const DriverApi& cu = Cu();
  if (cu.cuModuleGetFunctionCount == nullptr || cu.cuModuleEnumerateFunctions == nullptr ||
      cu.cuFuncLoad == nullptr) {
    // The driver is older than 12.4.
    return;
  }
  unsigned int count = 0;
  if (cu.cuModuleGetFunctionCount(&count, module_) != CUDA_SUCCESS || count == 0) return;
  std::vector<CUfunction> functions(count);
  if (cu.cuModuleEnumerateFunctions(functions.data(), count, module_) != CUDA_SUCCESS) return;
  for (const CUfunction function : functions) cu.cuFuncLoad(function);
}

LoadedModule::~LoadedModule() {
  // Unloading at once would wait for the device.
  context_->DestroyLater([module = module_] { Cu().cuModuleUnload(module); });
}

int LoadedModule::FindFunction(const char* name, uint32_t shared_bytes, CUfunction* function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = functions_.find(std::string_view(name));
  if (it == functions_.end()) {
    Function found;
    if (Cu().cuModuleGetFunction(&found.function, module_, name) != CUDA_SUCCESS) {
      return Fail(TESSERA_INVALID, "launch: the module has no function \"%s\"", name);
    }
    found.shared_bytes_max = kDefaultSharedBytes;
    it = functions_.emplace(name, found).first;
  }
  Function& found = it->second;
  if (shared_bytes > found.shared_bytes_max) {
    TESSERA_CUDA_TRY(context_->Check(
        Cu().cuFuncSetAttribute(found.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                static_cast<int>(shared_bytes)),
        "cuFuncSetAttribute"));
    found.shared_bytes_max = shared_bytes;
  }
  *function = found.function;
  return TESSERA_OK;
}

}  // namespace tessera::worker::cuda

// NOLINTNEXTLINE(google-build-using-namespace): the types of the C API are in no namespace.
using namespace tessera::worker::cuda;

int tessera_module::Launch(tessera_stream* stream, const char* function, const uint32_t grid[3],
                           const uint32_t block[3], uint32_t shared_bytes, const uint64_t* args,
                           int32_t num_args) {
  constexpr int kArgsMax = 256;
  if (num_args < 0 || num_args > kArgsMax) {
    return Fail(TESSERA_INVALID, "launch: \"%s\" has %d arguments; expected at most %d", function,
                num_args, kArgsMax);
  }
  tessera_context* context = stream->context();
  TESSERA_CUDA_TRY(context->MakeCurrent());
  CUfunction found = nullptr;
  TESSERA_CUDA_TRY(code->FindFunction(function, shared_bytes, &found));
  // The null at the end lets the fake driver notice a wrong number of arguments.
  std::array<void*, kArgsMax + 1> params;
  for (int i = 0; i < num_args; ++i) params[i] = const_cast<uint64_t*>(&args[i]);
  params[num_args] = nullptr;
  TESSERA_CUDA_TRY(context->Check(
      Cu().cuLaunchKernel(found, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          shared_bytes, stream->get(), params.data(), /*extra=*/nullptr),
      "cuLaunchKernel"));
  if (stream->capturing) stream->captured_modules.push_back(code);
  return TESSERA_OK;
}
