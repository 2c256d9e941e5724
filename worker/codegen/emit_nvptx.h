// Compiles kernels to PTX text for NVIDIA GPUs, by LLVM's NVPTX target.
//
// A driver compiles PTX for its device. PTX for sm_80 runs on every later device too. Compiling to
// PTX needs neither the CUDA toolkit nor a driver. Thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Returns PTX in which kernel i is entry GpuEntryName(i), laid out as plans[i]. `architecture` is
// "sm_80" or "sm_90". Requires that every kernel passes Verify.
absl::StatusOr<std::string> EmitNvptx(absl::string_view architecture,
                                      absl::Span<const Kernel> kernels,
                                      absl::Span<const GpuPlan> plans);

}  // namespace tessera::worker::codegen
