// EmitLoop: a loop of kernels to one LLVM function, which compile.cc turns into an object.
// worker/cpu/native_loop.cc makes the loops and calls the function with a LoopFrame. The function
// goes from one iteration to the next by itself, so that an iteration of small steps costs as
// little as its kernels.
#include "worker/codegen/emit_loop.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/codegen/control_flow.h"
#include "worker/codegen/emit_host.h"
#include "worker/codegen/host_blocks.h"
#include "worker/codegen/loop_frame.h"

namespace tessera::worker::codegen {
namespace {

using llvm::Type;
using llvm::Value;

// Kernels are inlined if together they have at most this many nodes. Inlining computes their
// addresses and constants once, and saves calls of a few nanoseconds. Larger kernels are called, to
// bound the size of the function.
constexpr int64_t kInlinedNodesMax = 1024;

int64_t CountNodes(const KernelLoop& loop, const std::vector<LoopOp>& ops) {
  int64_t nodes = 0;
  for (const LoopOp& op : ops) {
    if (op.kind == LoopOp::Kind::kKernel)
      nodes += static_cast<int64_t>(loop.kernels[op.number].nodes.size());
    for (const std::vector<LoopOp>& list : op.lists) nodes += CountNodes(loop, list);
  }
  return nodes;
}

llvm::Function* AddLoopFunction(const HostTarget& target, const std::string& name,
                                llvm::Module* module) {
  llvm::LLVMContext& context = module->getContext();
  auto* const type =
      llvm::FunctionType::get(Type::getInt32Ty(context), {llvm::PointerType::getUnqual(context)},
                              /*isVarArg=*/false);
  return AddHostFunction(type, llvm::Function::ExternalLinkage, target.vector_bytes, name, module);
}

class LoopEmitter : private ControlFlow {
 public:
  LoopEmitter(const KernelLoop& loop, const HostTarget& target, const std::string& name,
              llvm::Module* module)
      : ControlFlow(AddLoopFunction(target, name, module)),
        loop_(loop),
        iterations_(loop.num_loops, nullptr) {
    const bool inlined = CountNodes(loop, loop.ops) <= kInlinedNodesMax;
    for (size_t k = 0; k < loop.kernels.size(); ++k) {
      kernels_.push_back(
          EmitAllIterations(loop.kernels[k], target, absl::StrCat("kernel", k), module));
      kernels_.back()->addFnAttr(inlined ? llvm::Attribute::AlwaysInline
                                         : llvm::Attribute::NoInline);
    }
  }

  void Emit() {
    cancel_ = LoadField(offsetof(LoopFrame, cancel));
    call_ = LoadField(offsetof(LoopFrame, call));
    context_ = LoadField(offsetof(LoopFrame, context));
    frame_iterations_ = LoadField(offsetof(LoopFrame, iterations));
    Value* const bases = LoadField(offsetof(LoopFrame, bases));
    for (int i = 0; i < loop_.num_bases; ++i)
      bases_.push_back(
          b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), bases, i)));
    EmitOps(loop_.ops);
    b_.CreateRet(b_.getInt32(0));
  }

 private:
  Value* LoadField(size_t offset) {
    return b_.CreateLoad(b_.getPtrTy(),
                         b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(0), offset));
  }
  Value* Int(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }

  Value* AddressOf(int number) {
    const LoopAddress& address = loop_.addresses[number];
    Value* at = bases_[address.base];
    for (const auto& [loop, stride] : address.strides)
      at = b_.CreateGEP(b_.getInt8Ty(), at, b_.CreateMul(iterations_[loop], Int(stride)));
    return at;
  }

  void EmitOps(const std::vector<LoopOp>& ops) {
    for (const LoopOp& op : ops) EmitOp(op);
  }

  // Emits one operation of the loop at the current place. The addresses of the operation are
  // computed here, from the iterations of the loops around it. Loops and branches call EmitOps for
  // their lists, so that the recursion is as deep as the loops are nested, which kernel_loop.cc
  // bounds.
  void EmitOp(const LoopOp& op) {
    switch (op.kind) {
      case LoopOp::Kind::kKernel: {
        std::vector<Value*> params;
        for (const int a : op.addresses) params.push_back(AddressOf(a));
        b_.CreateCall(kernels_[op.number], params);
        break;
      }
      case LoopOp::Kind::kCopy:
        b_.CreateMemCpy(AddressOf(op.addresses[0]), llvm::MaybeAlign(1), AddressOf(op.addresses[1]),
                        llvm::MaybeAlign(1), static_cast<uint64_t>(op.count));
        break;
      case LoopOp::Kind::kCall:
        EmitCall(op.number);
        break;
      case LoopOp::Kind::kFor:
        For(Int(0), Int(op.count), [&](Value* i) { return EmitIteration(op, i); });
        break;
      case LoopOp::Kind::kWhile:
        EmitWhile(op);
        break;
      case LoopOp::Kind::kBranch:
        EmitBranch(op);
        break;
    }
  }

  // Emits iteration `i` of the loop. Returns the number of the next iteration.
  Value* EmitIteration(const LoopOp& loop, Value* i) {
    iterations_[loop.number] = i;
    EmitOps(loop.lists[0]);
    iterations_[loop.number] = nullptr;
    llvm::LoadInst* const flag = b_.CreateAlignedLoad(b_.getInt32Ty(), cancel_, llvm::Align(4));
    flag->setAtomic(llvm::AtomicOrdering::Monotonic);
    ReturnIf(b_.CreateIsNotNull(flag), b_.getInt32(1));
    return b_.CreateAdd(i, Int(1));
  }

  void EmitWhile(const LoopOp& loop) {
    llvm::AllocaInst* const i = Local(b_.getInt64Ty());
    b_.CreateStore(Int(0), i);
    While(
        [&] {
          return b_.CreateIsNotNull(b_.CreateLoad(b_.getInt8Ty(), AddressOf(loop.addresses[0])));
        },
        [&] { b_.CreateStore(EmitIteration(loop, b_.CreateLoad(b_.getInt64Ty(), i)), i); });
  }

  // Emits a chain of comparisons, one for each branch except the last, since branches are few.
  void EmitBranch(const LoopOp& op) {
    Value* const index =
        b_.CreateAlignedLoad(b_.getInt32Ty(), AddressOf(op.addresses[0]), llvm::Align(4));
    EmitBranchesFrom(0, op, index);
  }
  void EmitBranchesFrom(size_t first, const LoopOp& op, Value* index) {
    if (first + 1 == op.lists.size()) return EmitOps(op.lists[first]);
    IfElse(
        b_.CreateICmpSLE(index, b_.getInt32(static_cast<uint32_t>(first))),
        [&] { EmitOps(op.lists[first]); }, [&] { EmitBranchesFrom(first + 1, op, index); });
  }

  // Stores which iterations are under way, and calls back.
  void EmitCall(int number) {
    for (size_t loop = 0; loop < iterations_.size(); ++loop)
      if (iterations_[loop] != nullptr)
        b_.CreateStore(iterations_[loop],
                       b_.CreateConstGEP1_64(b_.getInt64Ty(), frame_iterations_, loop));
    auto* const type =
        llvm::FunctionType::get(b_.getInt32Ty(), {b_.getPtrTy(), b_.getInt32Ty()}, false);
    Value* const stop =
        b_.CreateCall(type, call_, {context_, b_.getInt32(static_cast<uint32_t>(number))});
    ReturnIf(b_.CreateIsNotNull(stop), stop);
  }

  const KernelLoop& loop_;
  std::vector<llvm::Function*> kernels_;
  std::vector<Value*> bases_;
  // The current iteration of each loop around this place; null for all other loops.
  std::vector<Value*> iterations_;
  Value* cancel_ = nullptr;
  Value* call_ = nullptr;
  Value* context_ = nullptr;
  Value* frame_iterations_ = nullptr;
};

}  // namespace

void EmitLoop(const KernelLoop& loop, const HostTarget& target, const std::string& name,
              llvm::Module* module) {
  LoopEmitter(loop, target, name, module).Emit();
}

}  // namespace tessera::worker::codegen
