// Compiles a module of kernels to PTX. device_code.cc calls it for targets whose names begin with
// "nvptx-", normally in a compile child.
#include "worker/codegen/emit_nvptx.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/gpu_module.h"

namespace tessera::worker::codegen {
namespace {

constexpr char kTriple[] = "nvptx64-nvidia-cuda";

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeMachine(absl::string_view architecture) {
  // LLVM accepts unknown processors silently, and compiles for the oldest one.
  if (architecture != "sm_80" && architecture != "sm_90")
    return MakeError(ErrorKind::kValueError, absl::StrCat("gpu code: architecture \"", architecture,
                                                          "\"; expected sm_80 or sm_90"));
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (target == nullptr)
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("gpu code: this LLVM has no NVPTX target: ", error));
  llvm::TargetOptions options;
  // LLVM may never contract a multiply and an add: only an explicit fma rounds once.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(kTriple, std::string(architecture), /*Features=*/"", options,
                                  llvm::Reloc::PIC_, {}, llvm::CodeGenOptLevel::Default));
}

}  // namespace

absl::StatusOr<std::string> EmitNvptx(absl::string_view architecture,
                                      absl::Span<const Kernel> kernels,
                                      absl::Span<const GpuPlan> plans) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::TargetMachine> machine,
                           MakeMachine(architecture));
  llvm::LLVMContext context;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module,
                           MakeGpuModule(kernels, plans, machine.get(), &context));
  return CodeGenerator(machine.get(), llvm::CodeGenFileType::AssemblyFile).Run(module.get());
}

}  // namespace tessera::worker::codegen
