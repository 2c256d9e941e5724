// All kernels of a launchable module as LLVM IR, laid out and named; shared by the targets that
// gpu_emit.h's code is compiled for. Thread-compatible.
#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/gpu_plan.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

// The module, checked by LLVM's verifier, simplified where that costs little. Belongs to `context`.
absl::StatusOr<std::unique_ptr<llvm::Module>> MakeGpuModule(absl::Span<const Kernel> kernels,
                                                            absl::Span<const GpuPlan> plans,
                                                            llvm::TargetMachine* machine,
                                                            llvm::LLVMContext* context);

// Text or an object of the module, which is used up.
std::string GenerateCode(llvm::TargetMachine* machine, llvm::CodeGenFileType type,
                         llvm::Module* module);

}  // namespace tessera::worker::codegen
