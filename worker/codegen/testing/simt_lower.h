// Rewrites gpu_emit.h's functions for the host: thread numbers, shared memory and arguments come
// from a SimtThread, and a function with barriers or shuffles becomes a coroutine that suspends
// there. What it computes between them is untouched, so what runs on the host is what NVPTX gets.
// Thread-compatible.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace tessera::worker::codegen {

// Of the module's entries, in order: an array of SimtEntry.
inline constexpr char kSimtTable[] = "tessera_simt_entries";

// Every kernel of the module becomes a SimtEntry; coroutines are split.
// kInternal for an intrinsic of NVPTX's that the emulator does not know.
absl::Status LowerForSimt(llvm::TargetMachine* machine, llvm::Module* module);

}  // namespace tessera::worker::codegen
