// Makes one LLVM module of all kernels of a program. emit_nvptx.cc compiles it to PTX and
// testing/simt.cc compiles it for the emulator, so that the emulator tests the very IR that GPUs
// run.
#include "worker/codegen/gpu_module.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Mem2Reg.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/gpu_emit.h"

namespace tessera::worker::codegen {
namespace {

// Promotes accumulators to registers and computes equal addresses once.
void Simplify(llvm::TargetMachine* machine, llvm::Module* module) {
  Analyses analyses(machine);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::EarlyCSEPass());
  for (llvm::Function& function : *module)
    if (!function.isDeclaration()) passes.run(function, analyses.functions);
}

}  // namespace

absl::StatusOr<std::unique_ptr<llvm::Module>> MakeGpuModule(absl::Span<const Kernel> kernels,
                                                            absl::Span<const GpuPlan> plans,
                                                            llvm::TargetMachine* machine,
                                                            llvm::LLVMContext* context) {
  TESSERA_CHECK_EQ(kernels.size(), plans.size());
  auto module = std::make_unique<llvm::Module>("kernels", *context);
  module->setDataLayout(machine->createDataLayout());
  module->setTargetTriple(machine->getTargetTriple().str());
  for (size_t i = 0; i < kernels.size(); ++i)
    EmitGpu(kernels[i], plans[i], GpuEntryName(static_cast<int>(i)), module.get());
  std::string fault;
  llvm::raw_string_ostream fault_stream(fault);
  if (llvm::verifyModule(*module, &fault_stream))
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("gpu code: the emitted module is malformed: ", fault));
  Simplify(machine, module.get());
  return module;
}

}  // namespace tessera::worker::codegen
