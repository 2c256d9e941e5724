// Loads code onto a device and launches it.
//
// A module may be unloaded while its kernels run or a graph with them exists. It shares its
// LoadedModule with the graphs, and the LoadedModule is unloaded once the device has finished with
// it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "worker/cuda/context.h"
#include "worker/cuda/stream.h"

namespace tessera::worker::cuda {

class LoadedModule {
 public:
  // Loads an image. PTX text need not end in a zero byte.
  static int Load(tessera_context* context, const void* image, int64_t bytes,
                  std::shared_ptr<LoadedModule>* module);
  ~LoadedModule();

  // Finds a function, and permits it `shared_bytes` of dynamic shared memory. Thread-safe.
  int FindFunction(const char* name, uint32_t shared_bytes, CUfunction* function);

 private:
  struct Function {
    CUfunction function = nullptr;
    uint32_t shared_bytes_max = 0;  // the limit set in the driver
  };
  LoadedModule(tessera_context* context, CUmodule module) : context_(context), module_(module) {}
  void LoadFunctions();

  tessera_context* const context_;
  const CUmodule module_;
  std::mutex mutex_;
  std::map<std::string, Function, std::less<>> functions_;  // guarded by mutex_
};

}  // namespace tessera::worker::cuda

struct tessera_module {
  std::shared_ptr<tessera::worker::cuda::LoadedModule> code;

  int Launch(tessera_stream* stream, const char* function, const uint32_t grid[3],
             const uint32_t block[3], uint32_t shared_bytes, const uint64_t* args,
             int32_t num_args);
};
