// HostCodegen: emits a kernel or a loop as LLVM IR, runs a short pass pipeline, and makes an object
// of it. It normally runs in a compile child (compile_child.cc), since an error inside LLVM ends
// the process.
#include "worker/codegen/compile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Mem2Reg.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/emit_host.h"
#include "worker/codegen/emit_loop.h"
#include "worker/codegen/host_machine.h"

namespace tessera::worker::codegen {
class HostCodegen::Impl {
 public:
  explicit Impl(const HostTarget& target)
      : target_(target),
        machine_(MakeHostMachine(target, llvm::CodeGenOptLevel::Default)),
        analyses_(machine_.get()),
        to_object_(machine_.get(), llvm::CodeGenFileType::ObjectFile) {
    // The emitters write code in the form in which it should run. The passes only inline kernels
    // into loops, promote accumulators to registers and remove redundant code.
    inlining_.addPass(llvm::AlwaysInlinerPass());
    passes_.addPass(llvm::PromotePass());
    passes_.addPass(llvm::EarlyCSEPass());
    passes_.addPass(llvm::SimplifyCFGPass());
  }

  void EmitUnit(const Kernel& kernel, llvm::Module* module) {
    EmitHost(kernel, target_, kFunctionName, module);
  }
  void EmitUnit(const KernelLoop& loop, llvm::Module* module) {
    EmitLoop(loop, target_, kFunctionName, module);
  }

  template <class Unit>
  absl::StatusOr<std::unique_ptr<llvm::Module>> Emit(const Unit& unit) {
    auto module = std::make_unique<llvm::Module>("kernel", context_);
    module->setDataLayout(machine_->createDataLayout());
    module->setTargetTriple(machine_->getTargetTriple().str());
    EmitUnit(unit, module.get());
    std::string fault;
    llvm::raw_string_ostream stream(fault);
    if (llvm::verifyModule(*module, &stream)) {
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat("codegen: the emitted function is malformed: ", fault));
    }
    return module;
  }

  void Optimise(llvm::Module* module) {
    inlining_.run(*module, analyses_.modules);
    for (llvm::Function& function : *module)
      if (!function.isDeclaration()) passes_.run(function, analyses_.functions);
    analyses_.modules.clear();
    analyses_.functions.clear();
  }

  std::string ToObject(llvm::Module* module) { return to_object_.Run(module); }
  std::string ToAssembly(llvm::Module* module) {
    return CodeGenerator(machine_.get(), llvm::CodeGenFileType::AssemblyFile).Run(module);
  }

 private:
  const HostTarget target_;
  llvm::LLVMContext context_;
  const std::unique_ptr<llvm::TargetMachine> machine_;
  Analyses analyses_;
  llvm::ModulePassManager inlining_;
  llvm::FunctionPassManager passes_;
  CodeGenerator to_object_;
};

HostCodegen::HostCodegen(const HostTarget& target)
    : target_(target), impl_(std::make_unique<Impl>(target)) {}
HostCodegen::~HostCodegen() = default;

template <class Unit>
absl::StatusOr<std::string> HostCodegen::CompileUnit(const Unit& unit) {
  // LLVM's context keeps every type and constant it has seen, so it is replaced now and then.
  constexpr int kUnitsPerContext = 1000;
  if (++units_in_context_ > kUnitsPerContext) {
    impl_ = std::make_unique<Impl>(target_);
    units_in_context_ = 1;
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, impl_->Emit(unit));
  impl_->Optimise(module.get());
  return impl_->ToObject(module.get());
}

template <class Unit>
absl::StatusOr<std::string> HostCodegen::ListingOf(const Unit& unit, bool llvm_ir) {
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, impl_->Emit(unit));
  impl_->Optimise(module.get());
  if (!llvm_ir) return impl_->ToAssembly(module.get());
  std::string text;
  llvm::raw_string_ostream(text) << *module;
  return text;
}

absl::StatusOr<std::string> HostCodegen::Compile(const Kernel& kernel) {
  return CompileUnit(kernel);
}
absl::StatusOr<std::string> HostCodegen::Compile(const KernelLoop& loop) {
  return CompileUnit(loop);
}
absl::StatusOr<std::string> HostCodegen::Listing(const Kernel& kernel, bool llvm_ir) {
  return ListingOf(kernel, llvm_ir);
}
absl::StatusOr<std::string> HostCodegen::Listing(const KernelLoop& loop, bool llvm_ir) {
  return ListingOf(loop, llvm_ir);
}

}  // namespace tessera::worker::codegen
