// The analysis managers that LLVM's passes need, set up for one machine. For worker/codegen alone:
// LLVM's types do not appear elsewhere. Thread-compatible.
#pragma once
#include "llvm/Passes/PassBuilder.h"

namespace llvm {
class TargetMachine;
}

namespace tessera::worker::codegen {

struct Analyses {
  // The machine outlives this.
  explicit Analyses(llvm::TargetMachine* machine);
  Analyses(const Analyses&) = delete;
  Analyses& operator=(const Analyses&) = delete;

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager call_graphs;
  llvm::ModuleAnalysisManager modules;
};

}  // namespace tessera::worker::codegen
