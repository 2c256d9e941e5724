#include "worker/codegen/compile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/Mem2Reg.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/emit_host.h"
#include "worker/codegen/host_machine.h"

namespace tessera::worker::codegen {
namespace {

// The passes that make machine code are many and take longer to set up than a small kernel to
// compile: they are kept, and run again on every module.
class Generator {
 public:
  Generator(llvm::TargetMachine* machine, llvm::CodeGenFileType type) : stream_(bytes_) {
    TESSERA_CHECK(!machine->addPassesToEmitFile(passes_, stream_, nullptr, type));
  }
  std::string Run(llvm::Module* module) {
    bytes_.clear();
    passes_.run(*module);
    return std::string(bytes_.data(), bytes_.size());
  }

 private:
  llvm::SmallVector<char, 0> bytes_;
  llvm::raw_svector_ostream stream_;
  llvm::legacy::PassManager passes_;
};

}  // namespace

class HostCodegen::Impl {
 public:
  explicit Impl(const HostTarget& target)
      : target_(target),
        machine_(MakeHostMachine(target, llvm::CodeGenOptLevel::Default)),
        analyses_(machine_.get()),
        to_object_(machine_.get(), llvm::CodeGenFileType::ObjectFile) {
    // The emitter writes code as it should run; the passes only promote accumulators to registers
    // and remove redundant code.
    passes_.addPass(llvm::PromotePass());
    passes_.addPass(llvm::EarlyCSEPass());
    passes_.addPass(llvm::SimplifyCFGPass());
  }

  absl::StatusOr<std::unique_ptr<llvm::Module>> Emit(const Kernel& kernel) {
    auto module = std::make_unique<llvm::Module>("kernel", context_);
    module->setDataLayout(machine_->createDataLayout());
    module->setTargetTriple(machine_->getTargetTriple().str());
    EmitHost(kernel, target_, kFunctionName, module.get());
    std::string fault;
    llvm::raw_string_ostream stream(fault);
    if (llvm::verifyModule(*module, &stream)) {
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat("codegen: the emitted function is malformed: ", fault));
    }
    return module;
  }

  void Optimise(llvm::Module* module) {
    for (llvm::Function& function : *module)
      if (!function.isDeclaration()) passes_.run(function, analyses_.functions);
    analyses_.functions.clear();
  }

  std::string ToObject(llvm::Module* module) { return to_object_.Run(module); }
  std::string ToAssembly(llvm::Module* module) {
    return Generator(machine_.get(), llvm::CodeGenFileType::AssemblyFile).Run(module);
  }

 private:
  const HostTarget target_;
  llvm::LLVMContext context_;
  const std::unique_ptr<llvm::TargetMachine> machine_;
  Analyses analyses_;
  llvm::FunctionPassManager passes_;
  Generator to_object_;
};

HostCodegen::HostCodegen(const HostTarget& target)
    : target_(target), impl_(std::make_unique<Impl>(target)) {}
HostCodegen::~HostCodegen() = default;

absl::StatusOr<std::string> HostCodegen::Compile(const Kernel& kernel) {
  // LLVM's context keeps every type and constant it has seen, so it is replaced now and then.
  constexpr int kKernelsPerContext = 1000;
  if (++kernels_in_context_ > kKernelsPerContext) {
    impl_ = std::make_unique<Impl>(target_);
    kernels_in_context_ = 1;
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<llvm::Module> module, impl_->Emit(kernel));
  impl_->Optimise(module.get());
  return impl_->ToObject(module.get());
}

HostCodegen::Listing HostCodegen::List(const Kernel& kernel) {
  absl::StatusOr<std::unique_ptr<llvm::Module>> module = impl_->Emit(kernel);
  Listing listing;
  if (!module.ok()) {
    listing.ir = std::string(module.status().message());
    return listing;
  }
  llvm::raw_string_ostream(listing.ir) << **module;
  impl_->Optimise(module->get());
  llvm::raw_string_ostream(listing.optimised) << **module;
  listing.assembly = impl_->ToAssembly(module->get());
  return listing;
}

}  // namespace tessera::worker::codegen
