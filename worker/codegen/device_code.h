// Compiles kernels to code for an accelerator, which the functions of device_api.h load and launch.
// Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/codegen/compile_child.h"
#include "worker/codegen/kernel.h"
#include "worker/codegen/object_cache.h"

namespace tessera::worker::codegen {

// How one kernel is launched. The arguments of the launch are the addresses of the kernel's params,
// in order, each aligned to 16 bytes. Two runs of a kernel must not overlap, because its blocks may
// combine results in global variables of the module.
struct GpuKernel {
  std::string entry;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  int num_args = 0;
};

struct DeviceCode {
  std::string image;               // the argument of module_load
  std::vector<GpuKernel> kernels;  // in the order of the call
};

// Part of every cache key of device code. Increase it with each change after which the same kernels
// give other code.
inline constexpr int kDeviceCodeVersion = 2;

// Compiles the kernels to one image. `target` comes from tessera_device_info: "nvptx-sm_80",
// "nvptx-sm_90" or "simt-host". Returns VALUE_ERROR for any other target, and NOT_IMPLEMENTED for a
// kernel of more elements than a launch has threads. Requires that every kernel passes Verify. If
// `cache` is given, images are cached by target and kernels (in normal form). If `children` are
// given, one of them compiles, and COMPILE_TIMEOUT is returned at `deadline`; they must have been
// made for the target. Otherwise this process compiles, without a deadline. Tenants share neither
// images nor children.
absl::StatusOr<DeviceCode> CompileForDevice(absl::string_view target,
                                            absl::Span<const Kernel> kernels,
                                            ObjectCache* cache = nullptr,
                                            CompileChildren* children = nullptr,
                                            absl::Time deadline = absl::InfiniteFuture(),
                                            const std::string& tenant = "");

// Compiles kernels in normal form to an image, in this process. Compile children call it.
absl::StatusOr<std::string> CompileDeviceImage(absl::string_view target,
                                               absl::Span<const Kernel> kernels);

}  // namespace tessera::worker::codegen
