// Rewrites the functions of gpu_emit.h for the host. Thread numbers, shared memory and arguments
// come from a SimtThread. A function with barriers or shuffles becomes a coroutine that suspends
// there. The computation between them is untouched, so that the host runs the code that NVPTX gets.
// Thread-compatible.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace tessera::worker::codegen {

// The name of an array of SimtEntry: the module's entries, in order.
inline constexpr char kSimtTable[] = "tessera_simt_entries";

// Makes every kernel of the module a SimtEntry, and splits the coroutines. Returns kInternal for an
// NVPTX intrinsic that the emulator does not know.
absl::Status LowerForSimt(llvm::TargetMachine* machine, llvm::Module* module);

}  // namespace tessera::worker::codegen
