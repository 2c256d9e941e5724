// Makes the LLVM TargetMachine with which compile.cc compiles host kernels and testing/simt.cc
// compiles emulated GPU code. Both need the same rules for floats, which is why it is made in one
// place.
#include "worker/codegen/host_machine.h"

#include <mutex>
#include <string>

#include "base/log.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetOptions.h"
#include "llvm/TargetParser/Host.h"

namespace tessera::worker::codegen {

std::unique_ptr<llvm::TargetMachine> MakeHostMachine(const HostTarget& target,
                                                     llvm::CodeGenOptLevel level) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  const std::string triple = llvm::sys::getProcessTriple();
  std::string error;
  const llvm::Target* const llvm_target = llvm::TargetRegistry::lookupTarget(triple, error);
  TESSERA_CHECK(llvm_target != nullptr) << error;
  llvm::TargetOptions options;
  // LLVM may never contract a multiply and an add: only an explicit fma rounds once.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(
      llvm_target->createTargetMachine(triple, target.cpu, /*Features=*/"", options,
                                       llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
}

}  // namespace tessera::worker::codegen
