// Runs kernels through the emulator beside the interpreter.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/testing/kernel_cases.h"
#include "worker/codegen/testing/simt.h"

namespace tessera::worker::codegen {

// Kernels compiled together for the emulator.
class SimtKernels {
 public:
  // Fails the test where that fails.
  explicit SimtKernels(absl::Span<const Kernel> kernels);
  // Runs kernel i in place of an accelerator. It may touch its params and nothing else, and write
  // each element once: two threads that write the same may not do so at the same time. A scan may
  // write an element again in the same thread, which is the only one to touch it.
  absl::Status Run(int i, TestBuffers* buffers, bool reversed = false) const;
  const DeviceCode& code() const { return code_; }

 private:
  const std::vector<Kernel> kernels_;
  DeviceCode code_;
  std::shared_ptr<const SimtModule> module_;
};

// "" if the emulator and the interpreter agree on `buffers`, in both orders of the threads.
std::string SimtDifference(const SimtKernels& compiled, int i, const Kernel& kernel,
                           const TestBuffers& buffers, const Tolerance& tolerance);

}  // namespace tessera::worker::codegen
