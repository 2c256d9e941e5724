#include "worker/codegen/analyses.h"

namespace tessera::worker::codegen {

Analyses::Analyses(llvm::TargetMachine* machine) {
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(call_graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, call_graphs, modules);
}

}  // namespace tessera::worker::codegen
