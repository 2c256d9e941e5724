// The analysis managers and code generation passes that LLVM's pass pipelines need, set up for one
// machine. Only worker/codegen uses them, since LLVM's types do not appear elsewhere.
// Thread-compatible.
#pragma once
#include <string>

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

namespace tessera::worker::codegen {

struct Analyses {
  // `machine` must outlive this object.
  explicit Analyses(llvm::TargetMachine* machine);
  Analyses(const Analyses&) = delete;
  Analyses& operator=(const Analyses&) = delete;

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager call_graphs;
  llvm::ModuleAnalysisManager modules;
};

// The passes that make an object or assembly from a module. It takes longer to set them up than to
// compile a small kernel, so a CodeGenerator may be kept and run on any number of modules.
class CodeGenerator {
 public:
  CodeGenerator(llvm::TargetMachine* machine, llvm::CodeGenFileType type);
  // Returns the object or the assembly of the module, and modifies the module.
  std::string Run(llvm::Module* module);

 private:
  llvm::SmallVector<char, 0> bytes_;
  llvm::raw_svector_ostream stream_;
  llvm::legacy::PassManager passes_;
};

}  // namespace tessera::worker::codegen
