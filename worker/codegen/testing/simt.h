// GPU kernels run on the host, thread by thread, as strictly as no GPU does: what a test of them
// needs where there is no GPU, and what the fake driver "loads".
//
//   TESSERA_ASSIGN_OR_RETURN(std::string image, CompileForSimt(kernels, plans));
//   TESSERA_ASSIGN_OR_RETURN(auto module, SimtModule::Load(image));
//   TESSERA_RETURN_IF_ERROR(module->Launch({.entry = GpuEntryName(0), .grid = {...}, ...}));
//
// The code is the IR that NVPTX gets (gpu_emit.h), lowered for this CPU. Threads of a block run one
// at a time, from barrier to barrier and from shuffle to shuffle; one that does not come to where
// the others wait is an error that names the kernel, the place and the threads. Calls may come from
// any thread, at the same time. A module keeps its code mapped.
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

// A header and a relocatable object for this machine's CPU. Kernel i is entry GpuEntryName(i), laid
// out as plans[i]. Requires Verify.
absl::StatusOr<std::string> CompileForSimt(absl::Span<const Kernel> kernels,
                                           absl::Span<const GpuPlan> plans);

// The same of LLVM's text: every function that it defines is an entry. For tests of the emulator.
absl::StatusOr<std::string> CompileIrForSimt(const std::string& ir);

struct SimtLaunch {
  std::string entry;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared_bytes = 0;
  std::vector<uint64_t> args;  // the buffers' addresses
  // Whether the thread of this number in the launch may read, or write, so many bytes of global
  // memory. If it is given, another access is an error of the launch, and has no effect; so is one
  // that is not aligned.
  std::function<bool(uint64_t address, uint64_t bytes, bool write, uint64_t thread)> may_access;
  // Blocks and warps run in the opposite order: what depends on the order shows.
  bool reversed = false;
};

class SimtModule {
 public:
  // VALUE_ERROR for bytes that are no image of this version, or one for a CPU that can more.
  static absl::StatusOr<std::shared_ptr<const SimtModule>> Load(absl::string_view image);
  virtual ~SimtModule() = default;

  // Runs to the end, on this thread. VALUE_ERROR for a launch that a GPU would refuse; kInternal,
  // naming kernel and threads, for a barrier or shuffle that not all of them reach, and for an
  // access that is not allowed.
  virtual absl::Status Launch(const SimtLaunch& launch) const = 0;
};

}  // namespace tessera::worker::codegen
