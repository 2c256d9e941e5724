// Emits loops, branches and local variables of one LLVM function, for the emitters of hosts and of
// GPUs. Thread-compatible.
#pragma once
#include <cstdint>
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
  // The same for i = from, from + step, ...: without a loop where at most one step is known to be
  // taken.
  void ForSteps(llvm::Value* from, llvm::Value* to, int64_t step,
                const std::function<void(llvm::Value*)>& body);
  // while (condition()) body().
  void While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  void IfElse(llvm::Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);
  void ReturnIf(llvm::Value* condition, llvm::Value* value);
  // A variable on the stack, allocated once, outside all loops.
  llvm::AllocaInst* Local(llvm::Type* type);

  llvm::Function* const function_;
  llvm::IRBuilder<> b_;

 private:
  llvm::BasicBlock* NewBlock(const char* name);
};

}  // namespace tessera::worker::codegen
