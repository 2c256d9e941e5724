// Kernels as code for an accelerator: the one way from kernel.h to what device_api.h loads and
// launches. Pure functions; any thread, at the same time.
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
// each aligned to 16 bytes. A kernel must not run twice at the same time: its blocks may meet in
// memory of the module's own.
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
inline constexpr int kDeviceCodeVersion = 1;

// `target` is tessera_device_info's: "nvptx-sm_80", "nvptx-sm_90" or "simt-host". VALUE_ERROR for
// another; NOT_IMPLEMENTED for a kernel of more elements than a launch has threads. Requires Verify
// of every kernel. Images are taken from `cache` and put there, if it is given: the same target and
// kernels (in normal form) have the same image, which is made once. One of `children`, made for the
// target, compiles if they are given, at most until `deadline`, COMPILE_TIMEOUT; else this process
// does.
absl::StatusOr<DeviceCode> CompileForDevice(absl::string_view target,
                                            absl::Span<const Kernel> kernels,
                                            ObjectCache* cache = nullptr,
                                            CompileChildren* children = nullptr,
                                            absl::Time deadline = absl::InfiniteFuture());

// The image alone, of kernels in normal form: what a compile child runs.
absl::StatusOr<std::string> CompileDeviceImage(absl::string_view target,
                                               absl::Span<const Kernel> kernels);

}  // namespace tessera::worker::codegen
