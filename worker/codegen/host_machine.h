// LLVM's TargetMachine for this host, set up alike for kernels and for the emulator. For the files
// that use LLVM. Any thread; a machine is for one thread at a time.
#pragma once
#include <memory>

#include "llvm/Support/CodeGen.h"
#include "llvm/Target/TargetMachine.h"
#include "worker/codegen/host_target.h"

namespace tessera::worker::codegen {

std::unique_ptr<llvm::TargetMachine> MakeHostMachine(const HostTarget& target,
                                                     llvm::CodeGenOptLevel level);

}  // namespace tessera::worker::codegen
