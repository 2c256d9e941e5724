// Runs GPU kernels on the host, thread by thread, and more strictly than any GPU does. Tests use it
// where there is no GPU, and the fake driver "loads" its images.
//
//   TESSERA_ASSIGN_OR_RETURN(std::string image, CompileForSimt(kernels, plans));
//   TESSERA_ASSIGN_OR_RETURN(auto module, SimtModule::Load(image));
//   TESSERA_RETURN_IF_ERROR(module->Launch({.entry = GpuEntryName(0), .grid = {...}, ...}));
//
// The code is the IR that NVPTX gets (gpu_emit.h), lowered for this CPU. The threads of a block run
// one at a time, from barrier to barrier and from shuffle to shuffle. If a thread does not come to
// the place where the others wait, the launch ends with an error that names the kernel, the place
// and the threads. Calls may come from any thread, at the same time. A module keeps its code
// mapped.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Returns an image: a header and a relocatable object for this machine's CPU. Kernel i is entry
// GpuEntryName(i), laid out as plans[i]. Requires that every kernel passes Verify.
absl::StatusOr<std::string> CompileForSimt(absl::Span<const Kernel> kernels,
                                           absl::Span<const GpuPlan> plans);

// Like CompileForSimt, but compiles LLVM IR in text form. Every function that the text defines is
// an entry. For tests of the emulator.
absl::StatusOr<std::string> CompileIrForSimt(const std::string& ir);

struct SimtLaunch {
  std::string entry;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint64_t> args;  // addresses of the buffers
  // Returns whether the thread with this number in the launch may read or write this many bytes of
  // global memory. If the function is given, an access that it forbids, or one that is not aligned,
  // is an error of the launch and has no effect.
  std::function<bool(uint64_t address, uint64_t bytes, bool write, uint64_t thread)> may_access;
  // Runs blocks and warps in the opposite order, so that a test can find results that depend on the
  // order.
  bool reversed = false;
};

class SimtModule {
 public:
  // Returns VALUE_ERROR if the bytes are not an image of this version, or if the image is for a CPU
  // with more instructions than this one.
  static absl::StatusOr<std::shared_ptr<const SimtModule>> Load(absl::string_view image);
  virtual ~SimtModule() = default;

  // Runs the launch to its end, on this thread. Returns VALUE_ERROR for a launch that a GPU would
  // refuse. Returns kInternal, naming kernel and threads, for a barrier or shuffle that not all
  // threads reach, and for a forbidden access.
  virtual absl::Status Launch(const SimtLaunch& launch) const = 0;
};

}  // namespace tessera::worker::codegen
