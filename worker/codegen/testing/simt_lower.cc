// Rewrites the NVPTX intrinsics of a module for the host. testing/simt.cc calls LowerForSimt on a
// module from gpu_module.cc before it compiles the module to an object.
#include "worker/codegen/testing/simt_lower.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Coroutines/CoroCleanup.h"
#include "llvm/Transforms/Coroutines/CoroEarly.h"
#include "llvm/Transforms/Coroutines/CoroSplit.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "worker/codegen/analyses.h"
#include "worker/codegen/gpu_thread.h"
#include "worker/codegen/testing/simt_thread.h"

namespace tessera::worker::codegen {
namespace {

using llvm::BasicBlock;
using llvm::Function;
using llvm::Value;
using llvm::Intrinsic::ID;

constexpr unsigned kGlobalSpace = 1;

bool IsSuspensionPoint(const llvm::IntrinsicInst& call) {
  return call.getIntrinsicID() == llvm::Intrinsic::nvvm_barrier0 ||
         call.getIntrinsicID() == llvm::Intrinsic::nvvm_shfl_sync_bfly_i32;
}

class Lowering {
 public:
  explicit Lowering(Function* old_function)
      : old_function_(old_function),
        module_(*old_function->getParent()),
        b_(old_function->getContext()) {}

  absl::Status Run() {
    std::vector<llvm::IntrinsicInst*> calls;
    for (llvm::Instruction& instruction : llvm::instructions(*old_function_))
      if (auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction)) {
        is_coroutine_ = is_coroutine_ || IsSuspensionPoint(*call);
        calls.push_back(call);
      }
    MakeFunction();
    uint32_t site = 0;
    for (llvm::IntrinsicInst* call : calls) TESSERA_RETURN_IF_ERROR(Replace(call, &site));
    EmitAccessChecks();
    ReplaceShared();
    FinishReturns();
    return absl::OkStatus();
  }

 private:
  // Makes the new function, which has the old function's body and two params: the SimtThread, and
  // an array from which it loads the arguments of the old function.
  void MakeFunction() {
    llvm::Type* const pointer = b_.getPtrTy();
    Function* const fn =
        Function::Create(llvm::FunctionType::get(pointer, {pointer, pointer}, /*isVarArg=*/false),
                         Function::ExternalLinkage, "", &module_);
    fn->takeName(old_function_);
    fn->setDoesNotThrow();
    new_function_ = fn;
    thread_ = fn->getArg(0);
    BasicBlock* const entry = BasicBlock::Create(b_.getContext(), "start", fn);
    BasicBlock* const body = &old_function_->getEntryBlock();
    fn->splice(fn->end(), old_function_);
    b_.SetInsertPoint(entry);
    if (is_coroutine_) BeginCoroutine();
    for (llvm::Argument& arg : old_function_->args()) {
      Value* const at = b_.CreateConstGEP1_64(b_.getInt64Ty(), fn->getArg(1), arg.getArgNo());
      arg.replaceAllUsesWith(b_.CreateIntToPtr(b_.CreateLoad(b_.getInt64Ty(), at), arg.getType()));
    }
    b_.CreateBr(body);
  }

  void BeginCoroutine() {
    new_function_->setPresplitCoroutine();
    Value* const null = llvm::ConstantPointerNull::get(b_.getPtrTy());
    id_ = b_.CreateIntrinsic(llvm::Intrinsic::coro_id, {},
                             {b_.getInt32(kSimtFrameAlign), null, null, null});
    Value* const bytes = b_.CreateIntrinsic(llvm::Intrinsic::coro_size, {b_.getInt64Ty()}, {});
    Value* const allocate =
        b_.CreateLoad(b_.getPtrTy(), FieldAddress(offsetof(SimtThread, allocate)));
    Value* const memory = b_.CreateCall(
        llvm::FunctionType::get(b_.getPtrTy(), {b_.getPtrTy(), b_.getInt64Ty()}, false), allocate,
        {thread_, bytes});
    handle_ = b_.CreateIntrinsic(llvm::Intrinsic::coro_begin, {}, {id_, memory});
    // The coroutine returns to its caller in `suspend`. When the coroutine is destroyed, `cleanup`
    // runs before.
    cleanup_ = BasicBlock::Create(b_.getContext(), "cleanup", new_function_);
    suspend_ = BasicBlock::Create(b_.getContext(), "suspend", new_function_);
    llvm::IRBuilder<> exit_builder(cleanup_);
    exit_builder.CreateIntrinsic(llvm::Intrinsic::coro_free, {}, {id_, handle_});
    exit_builder.CreateBr(suspend_);
    exit_builder.SetInsertPoint(suspend_);
    exit_builder.CreateIntrinsic(llvm::Intrinsic::coro_end, {},
                                 {handle_, exit_builder.getFalse(),
                                  llvm::ConstantTokenNone::get(exit_builder.getContext())});
    exit_builder.CreateRet(handle_);
  }

  Value* FieldAddress(size_t offset) {
    return b_.CreateConstGEP1_64(b_.getInt8Ty(), thread_, offset);
  }
  Value* ReadWord(size_t offset) { return b_.CreateLoad(b_.getInt32Ty(), FieldAddress(offset)); }
  void WriteWord(size_t offset, Value* v) { b_.CreateStore(v, FieldAddress(offset)); }

  // Replaces one intrinsic of NVPTX by host code. Reads of thread and block numbers become loads
  // from the SimtThread. Barriers and shuffles become suspension points, numbered by `site`, so
  // that the emulator can tell whether all threads wait at the same one. Any other NVPTX intrinsic
  // is an error, since ignoring it would make the emulator more lenient than a GPU.
  absl::Status Replace(llvm::IntrinsicInst* call, uint32_t* site) {
    b_.SetInsertPoint(call);
    const auto replace_by = [&](Value* by) {
      call->replaceAllUsesWith(by);
      call->eraseFromParent();
      return absl::OkStatus();
    };
    switch (call->getIntrinsicID()) {
      case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x:
        return replace_by(ReadWord(offsetof(SimtThread, thread)));
      case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y:
        return replace_by(ReadWord(offsetof(SimtThread, thread) + 4));
      case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x:
        return replace_by(ReadWord(offsetof(SimtThread, block)));
      case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y:
        return replace_by(ReadWord(offsetof(SimtThread, block) + 4));
      case llvm::Intrinsic::nvvm_membar_gl:
        // A fence has no effect, because threads run one at a time.
        call->eraseFromParent();
        return absl::OkStatus();
      case llvm::Intrinsic::nvvm_barrier0:
        EmitWait(call, SimtThread::kBarrier, (*site)++);
        call->eraseFromParent();
        return absl::OkStatus();
      case llvm::Intrinsic::nvvm_shfl_sync_bfly_i32: {
        WriteWord(offsetof(SimtThread, word), call->getArgOperand(1));
        WriteWord(offsetof(SimtThread, lane_mask), call->getArgOperand(2));
        EmitWait(call, SimtThread::kShuffle, (*site)++);
        return replace_by(ReadWord(offsetof(SimtThread, word)));
      }
      default:
        break;
    }
    if (!call->getCalledFunction()->getName().starts_with("llvm.nvvm.")) return absl::OkStatus();
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("simt: the emulator does not know ",
                                  std::string(call->getCalledFunction()->getName())));
  }

  // Emits code that suspends the thread before `at`, and leaves the builder there.
  void EmitWait(llvm::Instruction* at, SimtThread::Wait what, uint32_t site) {
    WriteWord(offsetof(SimtThread, wait), b_.getInt32(what));
    WriteWord(offsetof(SimtThread, site), b_.getInt32(site));
    EmitSuspend(at, /*final=*/false);
  }
  void EmitSuspend(llvm::Instruction* at, bool final) {
    BasicBlock* const before = at->getParent();
    BasicBlock* const after = before->splitBasicBlock(at, "resumed");
    before->getTerminator()->eraseFromParent();
    b_.SetInsertPoint(before);
    Value* const state =
        b_.CreateIntrinsic(llvm::Intrinsic::coro_suspend, {},
                           {llvm::ConstantTokenNone::get(b_.getContext()), b_.getInt1(final)});
    llvm::SwitchInst* const next = b_.CreateSwitch(state, suspend_, 2);
    next->addCase(b_.getInt8(0), after);
    next->addCase(b_.getInt8(1), cleanup_);
    b_.SetInsertPoint(at);
  }

  // Emits a check before every access to global memory, except accesses to variables of the module.
  // The check calls SimtThread::access, which returns the address that is accessed.
  void EmitAccessChecks() {
    std::vector<llvm::Instruction*> accesses;
    for (llvm::Instruction& instruction : llvm::instructions(*new_function_)) {
      const Value* const address = llvm::getLoadStorePointerOperand(&instruction);
      if (address == nullptr || address->getType()->getPointerAddressSpace() != kGlobalSpace)
        continue;
      if (!llvm::isa<llvm::GlobalVariable>(llvm::getUnderlyingObject(address)))
        accesses.push_back(&instruction);
    }
    for (llvm::Instruction* instruction : accesses) {
      auto* const store = llvm::dyn_cast<llvm::StoreInst>(instruction);
      const unsigned operand = store != nullptr ? store->getPointerOperandIndex()
                                                : llvm::LoadInst::getPointerOperandIndex();
      const uint64_t bytes =
          module_.getDataLayout().getTypeStoreSize(llvm::getLoadStoreType(instruction));
      const uint64_t align = llvm::getLoadStoreAlignment(instruction).value();
      b_.SetInsertPoint(instruction);
      Value* const address = instruction->getOperand(operand);
      Value* const check = b_.CreateLoad(b_.getPtrTy(), FieldAddress(offsetof(SimtThread, access)));
      Value* const checked_address = b_.CreateCall(
          llvm::FunctionType::get(b_.getPtrTy(),
                                  {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()},
                                  /*isVarArg=*/false),
          check,
          {thread_, b_.CreateAddrSpaceCast(address, b_.getPtrTy()), b_.getInt64(bytes),
           b_.getInt64(2 * align + (store != nullptr))});
      instruction->setOperand(operand, b_.CreateAddrSpaceCast(checked_address, address->getType()));
    }
  }

  // Replaces the array of shared memory by the pointer SimtThread::shared.
  void ReplaceShared() {
    llvm::GlobalVariable* const array = module_.getGlobalVariable(kSharedArray);
    if (array == nullptr) return;
    std::vector<std::pair<llvm::Instruction*, unsigned>> uses;
    for (llvm::Instruction& instruction : llvm::instructions(*new_function_))
      for (unsigned i = 0; i < instruction.getNumOperands(); ++i)
        if (RefersTo(instruction.getOperand(i), array)) uses.emplace_back(&instruction, i);
    for (const auto& [instruction, operand] : uses) {
      // A value that a phi reads is computed in the block from which control comes.
      const auto* const phi = llvm::dyn_cast<llvm::PHINode>(instruction);
      b_.SetInsertPoint(phi == nullptr ? instruction
                                       : phi->getIncomingBlock(operand)->getTerminator());
      Value* const shared = b_.CreateAddrSpaceCast(
          b_.CreateLoad(b_.getPtrTy(), FieldAddress(offsetof(SimtThread, shared))),
          array->getType());
      instruction->setOperand(operand, Rebuilt(instruction->getOperand(operand), array, shared));
    }
  }
  // Returns whether `v` is the array, or a constant expression (such as an address in the array)
  // that contains it.
  static bool RefersTo(Value* v, Value* array) {
    if (v == array) return true;
    const auto* const expression = llvm::dyn_cast<llvm::ConstantExpr>(v);
    if (expression == nullptr) return false;
    for (Value* operand : expression->operands())
      if (RefersTo(operand, array)) return true;
    return false;
  }
  Value* Rebuilt(Value* v, Value* array, Value* shared) {
    if (v == array) return shared;
    auto* const expression = llvm::dyn_cast<llvm::ConstantExpr>(v);
    if (expression == nullptr) return v;
    llvm::Instruction* const instruction = b_.Insert(expression->getAsInstruction());
    for (unsigned i = 0; i < instruction->getNumOperands(); ++i)
      if (RefersTo(instruction->getOperand(i), array)) {
        b_.SetInsertPoint(instruction);
        instruction->setOperand(i, Rebuilt(instruction->getOperand(i), array, shared));
      }
    b_.SetInsertPoint(instruction->getNextNode());
    return instruction;
  }

  void FinishReturns() {
    std::vector<llvm::ReturnInst*> returns;
    for (BasicBlock& block : *new_function_)
      if (auto* ret = llvm::dyn_cast<llvm::ReturnInst>(block.getTerminator());
          ret != nullptr && ret->getReturnValue() == nullptr)
        returns.push_back(ret);
    for (llvm::ReturnInst* ret : returns) {
      b_.SetInsertPoint(ret);
      if (is_coroutine_) {
        EmitSuspend(ret, /*final=*/true);
        // A coroutine that is done is not resumed.
        b_.CreateUnreachable();
      } else {
        b_.CreateRet(llvm::ConstantPointerNull::get(b_.getPtrTy()));
      }
      ret->eraseFromParent();
    }
  }

  Function* const old_function_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  Function* new_function_ = nullptr;
  Value* thread_ = nullptr;
  bool is_coroutine_ = false;
  Value* id_ = nullptr;
  Value* handle_ = nullptr;
  BasicBlock* cleanup_ = nullptr;
  BasicBlock* suspend_ = nullptr;
};

void SplitCoroutines(llvm::TargetMachine* machine, llvm::Module* module) {
  Analyses analyses(machine);
  // The passes split the coroutines and simplify what the split leaves. The rest of the module is
  // simplified already.
  llvm::ModulePassManager passes;
  passes.addPass(llvm::CoroEarlyPass());
  passes.addPass(
      llvm::createModuleToPostOrderCGSCCPassAdaptor(llvm::CoroSplitPass(/*OptimizeFrame=*/true)));
  passes.addPass(llvm::CoroCleanupPass());
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::EarlyCSEPass()));
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(llvm::SimplifyCFGPass()));
  passes.run(*module, analyses.modules);
}

}  // namespace

// Lowers every kernel of the module and adds the table of entries. The old functions and the shared
// array are erased only at the end, when nothing refers to them any more. The module is verified
// before the coroutines are split, because the passes crash on malformed code.
absl::Status LowerForSimt(llvm::TargetMachine* machine, llvm::Module* module) {
  std::vector<Function*> kernels;
  for (Function& function : *module)
    if (!function.isDeclaration()) kernels.push_back(&function);
  std::vector<llvm::Constant*> entries;
  for (Function* kernel : kernels) {
    const std::string name = kernel->getName().str();
    TESSERA_RETURN_IF_ERROR(Lowering(kernel).Run());
    entries.push_back(module->getFunction(name));
  }
  auto* const type =
      llvm::ArrayType::get(llvm::PointerType::getUnqual(module->getContext()), entries.size());
  new llvm::GlobalVariable(*module, type, /*isConstant=*/true, llvm::GlobalValue::ExternalLinkage,
                           llvm::ConstantArray::get(type, entries), kSimtTable);
  // The metadata goes first, because it names the old functions.
  if (llvm::NamedMDNode* annotations = module->getNamedMetadata("nvvm.annotations"))
    annotations->eraseFromParent();
  for (Function* kernel : kernels) kernel->eraseFromParent();
  if (llvm::GlobalVariable* array = module->getGlobalVariable(kSharedArray))
    array->eraseFromParent();
  std::string fault;
  llvm::raw_string_ostream fault_stream(fault);
  if (llvm::verifyModule(*module, &fault_stream))
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("simt: the lowered module is malformed: ", fault));
  SplitCoroutines(machine, module);
  return absl::OkStatus();
}

}  // namespace tessera::worker::codegen
