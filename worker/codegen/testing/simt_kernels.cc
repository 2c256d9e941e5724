// Runs kernels in the emulator under the memory rules of a GPU. gpu_test.cc compares their results
// with the interpreter's.
#include "worker/codegen/testing/simt_kernels.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace tessera::worker::codegen {

SimtKernels::SimtKernels(absl::Span<const Kernel> kernels)
    : kernels_(kernels.begin(), kernels.end()) {
  absl::StatusOr<DeviceCode> code = CompileForDevice("simt-host", kernels);
  TESSERA_CHECK(code.ok()) << code.status();
  code_ = *std::move(code);
  absl::StatusOr<std::shared_ptr<const SimtModule>> module = SimtModule::Load(code_.image);
  TESSERA_CHECK(module.ok()) << module.status();
  module_ = *std::move(module);
}

// Runs kernel i on the buffers. It records for each byte which thread has written it, and forbids
// what would be a race or a stray access on a GPU. The emulator runs one thread at a time and would
// otherwise not notice.
absl::Status SimtKernels::Run(int i, TestBuffers* buffers, bool reversed) const {
  const GpuKernel& kernel = code_.kernels[i];
  SimtLaunch launch;
  launch.entry = kernel.entry;
  std::copy(kernel.grid, kernel.grid + 3, launch.grid);
  std::copy(kernel.block, kernel.block + 3, launch.block);
  launch.shared_bytes = kernel.shared_bytes;
  launch.reversed = reversed;
  for (void* pointer : buffers->pointers())
    launch.args.push_back(reinterpret_cast<uint64_t>(pointer));
  // For each byte: 1 + the number of the thread that has written it, or that is the only one to
  // touch it; 0 if there is none.
  std::vector<std::vector<uint64_t>> owners;
  for (size_t p = 0; p < launch.args.size(); ++p)
    owners.emplace_back(buffers->bytes(static_cast<int>(p)).size());
  launch.may_access = [&](uint64_t address, uint64_t bytes, bool write, uint64_t thread) {
    const bool scans = kernels_[i].scans;
    for (size_t p = 0; p < launch.args.size(); ++p) {
      if (address < launch.args[p] || address + bytes > launch.args[p] + owners[p].size()) continue;
      if (!kernels_[i].params[p].output) return !write;
      if (!write && !scans) return true;
      const auto first = owners[p].begin() + static_cast<int64_t>(address - launch.args[p]);
      const bool allowed = std::all_of(first, first + static_cast<int64_t>(bytes), [&](uint64_t o) {
        return o == 0 || (scans && o == thread + 1);
      });
      std::fill(first, first + static_cast<int64_t>(bytes), thread + 1);
      return allowed;
    }
    return false;
  };
  return module_->Launch(launch);
}

std::string SimtDifference(const SimtKernels& compiled, int i, const Kernel& kernel,
                           const TestBuffers& buffers, const Tolerance& tolerance) {
  TestBuffers want = buffers;
  Interpret(kernel, want.pointers(), 0, kernel.num_iterations());
  for (const bool reversed : {false, true}) {
    TestBuffers got = buffers;
    if (const absl::Status status = compiled.Run(i, &got, reversed); !status.ok())
      return status.ToString();
    const std::string difference = Difference(kernel, got, want, tolerance);
    if (!difference.empty()) return absl::StrCat(difference, reversed ? " (reversed)" : "");
  }
  return "";
}

}  // namespace tessera::worker::codegen
