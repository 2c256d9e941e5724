// The set-up of LLVM's passes that the code generators for hosts (compile.cc), for GPUs
// (gpu_module.cc, emit_nvptx.cc) and for the emulator (testing/) share.
#include "worker/codegen/analyses.h"

#include "base/log.h"

namespace tessera::worker::codegen {

Analyses::Analyses(llvm::TargetMachine* machine) {
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(call_graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, call_graphs, modules);
}

CodeGenerator::CodeGenerator(llvm::TargetMachine* machine, llvm::CodeGenFileType type)
    : stream_(bytes_) {
  TESSERA_CHECK(!machine->addPassesToEmitFile(passes_, stream_, nullptr, type))
      << "the target emits no such file";
}

std::string CodeGenerator::Run(llvm::Module* module) {
  bytes_.clear();
  passes_.run(*module);
  return std::string(bytes_.data(), bytes_.size());
}

}  // namespace tessera::worker::codegen
