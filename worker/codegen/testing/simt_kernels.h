// Runs kernels through the emulator and compares them with the interpreter.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/testing/kernel_cases.h"
#include "worker/codegen/testing/simt.h"

namespace tessera::worker::codegen {

// Kernels that were compiled together for the emulator.
class SimtKernels {
 public:
  // Ends the test if the kernels do not compile or load.
  explicit SimtKernels(absl::Span<const Kernel> kernels);
  // Runs kernel i as an accelerator would. The kernel may touch only its params, and may write each
  // element only once, because on a GPU two threads must not write one element at the same time. A
  // scan may write an element again from the same thread, which must be the only one that touches
  // it.
  absl::Status Run(int i, TestBuffers* buffers, bool reversed = false) const;
  const DeviceCode& code() const { return code_; }

 private:
  const std::vector<Kernel> kernels_;
  DeviceCode code_;
  std::shared_ptr<const SimtModule> module_;
};

// Returns "" if the emulator and the interpreter agree on `buffers`, in both orders of the threads.
std::string SimtDifference(const SimtKernels& compiled, int i, const Kernel& kernel,
                           const TestBuffers& buffers, const Tolerance& tolerance);

}  // namespace tessera::worker::codegen
