// Emits loops, branches and local variables of one LLVM function, for the emitters of hosts and of
// GPUs. Thread-compatible.
#pragma once
#include <functional>

#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

class ControlFlow {
 protected:
  // Adds an entry block, and positions the builder in it. The function has no blocks.
  explicit ControlFlow(llvm::Function* function);

  // for (i = from; i < to; i = body(i)). The body may consist of several basic blocks.
  void For(llvm::Value* from, llvm::Value* to,
           const std::function<llvm::Value*(llvm::Value*)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  void IfElse(llvm::Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);
  // A variable on the stack, allocated once, outside all loops.
  llvm::AllocaInst* Local(llvm::Type* type);

  llvm::Function* const function_;
  llvm::IRBuilder<> b_;

 private:
  llvm::BasicBlock* NewBlock(const char* name);
};

}  // namespace tessera::worker::codegen
