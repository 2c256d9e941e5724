// Compiles kernels to code for an accelerator, which device_api.h loads and launches. Thread-safe.
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

// How one kernel is launched. Its arguments are the addresses of the kernel's params, in order,
// each aligned to 16 bytes. Two runs of a kernel must not overlap: its blocks may combine results
// in global variables of the module.
struct GpuKernel {
  std::string entry;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  int num_args = 0;
};

struct DeviceCode {
  std::string image;               // for module_load
  std::vector<GpuKernel> kernels;  // in the order given
};

// Part of every cache key of device code: changes whenever the same kernels would give other code.
inline constexpr int kDeviceCodeVersion = 2;

// `target` is tessera_device_info's: "nvptx-sm_80", "nvptx-sm_90" or "simt-host". VALUE_ERROR for
// another; NOT_IMPLEMENTED for a kernel of more elements than a launch has threads. Requires:
// Verify of every kernel. If `cache` is given, images are cached by target and kernels (in normal
// form). If `children`, made for the target, are given, one of them compiles, until `deadline`:
// COMPILE_TIMEOUT. Otherwise this process compiles, without a deadline. Neither images nor children
// are shared between tenants.
absl::StatusOr<DeviceCode> CompileForDevice(absl::string_view target,
                                            absl::Span<const Kernel> kernels,
                                            ObjectCache* cache = nullptr,
                                            CompileChildren* children = nullptr,
                                            absl::Time deadline = absl::InfiniteFuture(),
                                            const std::string& tenant = "");

// The image alone, of kernels in normal form, made in this process. Compile children call it.
absl::StatusOr<std::string> CompileDeviceImage(absl::string_view target,
                                               absl::Span<const Kernel> kernels);

}  // namespace tessera::worker::codegen
