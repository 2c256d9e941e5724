// Basic blocks and branches for the emitters: host code derives from ControlFlow through
// host_blocks.h and emit_loop.cc, and GPU code through gpu_thread.h. Each function leaves the
// builder where the code after the loop or branch goes.
#include "worker/codegen/control_flow.h"

namespace tessera::worker::codegen {

using llvm::BasicBlock;
using llvm::Value;

ControlFlow::ControlFlow(llvm::Function* function)
    : function_(function), b_(function->getContext()) {
  b_.SetInsertPoint(NewBlock("entry"));
}

void ControlFlow::For(Value* from, Value* to, const std::function<Value*(Value*)>& body) {
  BasicBlock* const before = b_.GetInsertBlock();
  BasicBlock* const head = NewBlock("head");
  BasicBlock* const inside = NewBlock("body");
  BasicBlock* const after = NewBlock("after");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  llvm::PHINode* const i = b_.CreatePHI(from->getType(), 2);
  i->addIncoming(from, before);
  b_.CreateCondBr(b_.CreateICmpSLT(i, to), inside, after);
  b_.SetInsertPoint(inside);
  Value* const next = body(i);
  i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}
void ControlFlow::ForSteps(Value* from, Value* to, int64_t step,
                           const std::function<void(Value*)>& body) {
  const auto* const first = llvm::dyn_cast<llvm::ConstantInt>(from);
  const auto* const end = llvm::dyn_cast<llvm::ConstantInt>(to);
  if (first != nullptr && end != nullptr && end->getSExtValue() - first->getSExtValue() <= step) {
    if (first->getSExtValue() < end->getSExtValue()) body(from);
    return;
  }
  For(from, to, [&](Value* i) {
    body(i);
    return b_.CreateAdd(i, b_.getInt64(static_cast<uint64_t>(step)));
  });
}
void ControlFlow::While(const std::function<Value*()>& condition,
                        const std::function<void()>& body) {
  BasicBlock* const head = NewBlock("head");
  BasicBlock* const inside = NewBlock("body");
  BasicBlock* const after = NewBlock("after");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  b_.CreateCondBr(condition(), inside, after);
  b_.SetInsertPoint(inside);
  body();
  b_.CreateBr(head);
  b_.SetInsertPoint(after);
}
void ControlFlow::If(Value* condition, const std::function<void()>& then) {
  BasicBlock* const inside = NewBlock("then");
  BasicBlock* const after = NewBlock("fi");
  b_.CreateCondBr(condition, inside, after);
  b_.SetInsertPoint(inside);
  then();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}
void ControlFlow::IfElse(Value* condition, const std::function<void()>& then,
                         const std::function<void()>& otherwise) {
  BasicBlock* const yes = NewBlock("then");
  BasicBlock* const no = NewBlock("else");
  BasicBlock* const after = NewBlock("fi");
  b_.CreateCondBr(condition, yes, no);
  b_.SetInsertPoint(yes);
  then();
  b_.CreateBr(after);
  b_.SetInsertPoint(no);
  otherwise();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}
void ControlFlow::ReturnIf(Value* condition, Value* value) {
  BasicBlock* const leave = NewBlock("leave");
  BasicBlock* const after = NewBlock("after");
  b_.CreateCondBr(condition, leave, after);
  b_.SetInsertPoint(leave);
  b_.CreateRet(value);
  b_.SetInsertPoint(after);
}
llvm::AllocaInst* ControlFlow::Local(llvm::Type* type) {
  llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  return entry.CreateAlloca(type);
}
BasicBlock* ControlFlow::NewBlock(const char* name) {
  return BasicBlock::Create(b_.getContext(), name, function_);
}

}  // namespace tessera::worker::codegen
