// Emits all kernels of a module as LLVM IR, for each target on which the code of gpu_emit.h runs.
// Thread-safe.
#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// Returns the verified module after a few cheap passes. The module belongs to `context`.
absl::StatusOr<std::unique_ptr<llvm::Module>> MakeGpuModule(absl::Span<const Kernel> kernels,
                                                            absl::Span<const GpuPlan> plans,
                                                            llvm::TargetMachine* machine,
                                                            llvm::LLVMContext* context);

}  // namespace tessera::worker::codegen
