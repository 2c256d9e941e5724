// Building blocks of GPU functions: loops, thread numbers, shuffles and shared memory, in terms of
// NVPTX's intrinsics. For gpu_emit.cc.
//
// Writes one function; thread-compatible.
#pragma once
#include <functional>
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/control_flow.h"
#include "worker/codegen/gpu_plan.h"

namespace tessera::worker::codegen {

class GpuThread : protected ControlFlow {
 protected:
  // Adds the function, of so many buffers, to the module; the builder stands at its beginning.
  GpuThread(const GpuPlan& plan, int num_params, const std::string& entry, llvm::Module* module);

  // for (i = from; i < to; i += step).
  void For(llvm::Value* from, llvm::Value* to, int64_t step,
           const std::function<void(llvm::Value*)>& body);

  // ---- Threads. All numbers are of the index type. ----

  llvm::Value* Int(int64_t value) { return llvm::ConstantInt::getSigned(index_type_, value); }
  llvm::Value* ThreadNumber();
  llvm::Value* ThreadRow();  // in the second dim of the block
  llvm::Value* BlockNumber();
  llvm::Value* BlockRow();  // in the second dim of the grid
  void Barrier();
  // Of the thread whose number in the warp differs in the bits of `mask`.
  llvm::Value* Shuffle(llvm::Value* v, int mask);
  // 8 bytes of the block's shared memory.
  llvm::Value* Slot(llvm::Value* number);
  // Memory of the kernel's own, shared by all blocks; zeros before its first launch.
  llvm::GlobalVariable* OwnMemory(const char* what, llvm::Type* element, int64_t count);
  // What this thread wrote before is seen by those that see what it writes after.
  void Fence();

  const GpuPlan& plan_;
  llvm::Module& module_;
  llvm::Type* const index_type_;

 private:
  llvm::Value* Index(llvm::Value* unsigned_32) {
    return b_.CreateZExtOrTrunc(unsigned_32, index_type_);
  }
  llvm::Value* ShuffleWord(llvm::Value* word, int mask);
  void Annotate(const char* key, uint32_t value);
};

}  // namespace tessera::worker::codegen
