// Emits loops, branches and local variables of one LLVM function. The emitters for hosts and for
// GPUs derive from it. Thread-compatible.
#pragma once
#include <cstdint>
#include <functional>

#include "llvm/IR/Function.h"
#include "llvm/IR/IRBuilder.h"

namespace tessera::worker::codegen {

class ControlFlow {
 protected:
  // Adds an entry block to the function, which must have no blocks, and positions the builder in
  // it.
  explicit ControlFlow(llvm::Function* function);

  // Emits for (i = from; i < to; i = body(i)). The body may consist of several basic blocks.
  void For(llvm::Value* from, llvm::Value* to,
           const std::function<llvm::Value*(llvm::Value*)>& body);
  // Emits a loop over i = from, from + step, ... while i < to. If `from` and `to` are constants
  // that allow at most one step, emits the body alone, or nothing.
  void ForSteps(llvm::Value* from, llvm::Value* to, int64_t step,
                const std::function<void(llvm::Value*)>& body);
  // Emits while (condition()) body().
  void While(const std::function<llvm::Value*()>& condition, const std::function<void()>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  void IfElse(llvm::Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);
  void ReturnIf(llvm::Value* condition, llvm::Value* value);
  // Returns a variable on the stack. It is allocated once, outside all loops.
  llvm::AllocaInst* Local(llvm::Type* type);

  llvm::Function* const function_;
  llvm::IRBuilder<> b_;

 private:
  llvm::BasicBlock* NewBlock(const char* name);
};

}  // namespace tessera::worker::codegen
