// Emits loops, thread indices, shuffles and shared memory of a GPU function, with NVPTX's
// intrinsics. It is the base of gpu_nodes.h and gpu_emit.cc. Thread-compatible.
#pragma once
#include <functional>
#include <string>

#include "llvm/IR/Module.h"
#include "worker/codegen/control_flow.h"
#include "worker/codegen/gpu_plan.h"

namespace tessera::worker::codegen {

// The name of the array of shared memory that a module's kernels use. Each launch chooses its size.
inline constexpr char kSharedArray[] = "tessera_shared";
// The alignment in bytes of the buffers that a launch passes.
inline constexpr int kBufferAlign = 16;

class GpuThread : protected ControlFlow {
 protected:
  // Adds the function with `num_params` buffers to the module, and positions the builder in it.
  GpuThread(const GpuPlan& plan, int num_params, const std::string& entry, llvm::Module* module);

  // Emits for (i = from; i < to; i += step).
  void For(llvm::Value* from, llvm::Value* to, int64_t step,
           const std::function<void(llvm::Value*)>& body);

  // ---- Threads. All indices are of the index type. ----

  llvm::Value* Int(int64_t value) { return llvm::ConstantInt::getSigned(index_type_, value); }
  llvm::Value* ThreadIdxX();
  llvm::Value* ThreadIdxY();  // index in the second dim of the block
  llvm::Value* BlockIdxX();
  llvm::Value* BlockIdxY();  // index in the second dim of the grid
  void Barrier();
  // Returns the value of `v` in the thread whose lane id differs in the bits of `mask` (shfl.bfly).
  llvm::Value* Shuffle(llvm::Value* v, int mask);
  // Returns the address of word `number` of the block's shared memory. A word has 8 bytes.
  llvm::Value* SharedWordAddress(llvm::Value* number);
  // Returns a global variable of the kernel, which all thread blocks share. It is zero before the
  // first launch.
  llvm::GlobalVariable* DeviceGlobal(const char* what, llvm::Type* element, int64_t count);
  // Emits a memory fence (membar), which orders this thread's writes before and after it for other
  // threads.
  void Fence();

  const GpuPlan& plan_;
  llvm::Module& module_;
  llvm::Type* const index_type_;  // i64 if the plan has a wide index, and otherwise i32

 private:
  llvm::Value* Index(llvm::Value* unsigned_32) {
    return b_.CreateZExtOrTrunc(unsigned_32, index_type_);
  }
  llvm::Value* ShuffleWord(llvm::Value* word, int mask);
  void Annotate(const char* key, uint32_t value);
};

}  // namespace tessera::worker::codegen
