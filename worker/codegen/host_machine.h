// Makes the LLVM TargetMachine with which kernels, and GPU code for the emulator (testing/simt.h),
// are compiled for this host. Only worker/codegen uses it. Thread-safe; a TargetMachine is
// thread-compatible.
#pragma once
#include <memory>

#include "llvm/Support/CodeGen.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/host_target.h"

namespace tessera::worker::codegen {

std::unique_ptr<llvm::TargetMachine> MakeHostMachine(const HostTarget& target,
                                                     llvm::CodeGenOptLevel level);

}  // namespace tessera::worker::codegen
