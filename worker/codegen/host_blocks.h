// Blocks of lanes on a host: the loops around them, and how they come from memory and go back. What
// the emitter (emit_host.cc) is built on.
//
// One function is built at a time; thread-compatible.
#pragma once
#include <functional>
#include <string>

#include "ir/dtype.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "worker/codegen/host_plan.h"

namespace tessera::worker::codegen {

class HostBlocks {
 protected:
  // Adds the function to the module; the builder stands at its beginning.
  HostBlocks(HostPlan plan, int vector_bytes, const std::string& name, llvm::Module* module);

  // ---- Loops. ----------------------------------------------------------------------------------
  // for (i = from; i < to; i = body(i)). The body may run in several blocks.
  void For(llvm::Value* from, llvm::Value* to,
           const std::function<llvm::Value*(llvm::Value*)>& body);
  void If(llvm::Value* condition, const std::function<void()>& then);
  void IfElse(llvm::Value* condition, const std::function<void()>& then,
              const std::function<void()>& otherwise);

  // ---- The block that is being emitted. --------------------------------------------------------
  // It has so many lanes, from 1 to plan_.lanes.
  void EnterBlock(llvm::Value* num_lanes);
  // Every block has all its lanes.
  bool AlwaysFull() { return num_lanes_ == b_.getInt64(static_cast<uint64_t>(plan_.lanes)); }
  llvm::Value* Splat(llvm::Value* value);
  llvm::Value* Iota(llvm::Type* type);  // 0, 1, 2, ...

  // ---- Its memory. -----------------------------------------------------------------------------
  // Lanes that lie `stride` elements apart from `address` on. Lanes beyond num_lanes_ are neither
  // read nor written; what is loaded for them is anything.
  llvm::Value* LoadBlock(ir::DType dtype, llvm::Value* address, int64_t stride);
  void StoreBlock(ir::DType dtype, llvm::Value* value, llvm::Value* address, int64_t stride);
  // Asks for what a later block will read. An address beyond the buffer does no harm.
  void Prefetch(llvm::Value* address, int64_t ahead_bytes, int64_t bytes);
  // Memory of the stack, outside all loops.
  llvm::AllocaInst* Stage(llvm::Type* type);
  static llvm::Align ElementAlign(ir::DType dtype);

  llvm::Value* Int(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* Least(llvm::Value* x, llvm::Value* y);
  llvm::Value* Most(llvm::Value* x, llvm::Value* y);

  static constexpr int64_t kLineBytes = 64;
  const HostPlan plan_;
  llvm::IRBuilder<> b_;
  llvm::Function* const function_;
  llvm::Value* num_lanes_ = nullptr;
  llvm::Value* mask_ = nullptr;  // which lanes there are, where any may be missing

 private:
  llvm::BasicBlock* NewBlock(const char* name);
  llvm::Value* IsFull() { return b_.CreateICmpEQ(num_lanes_, Int(plan_.lanes)); }
  llvm::Value* MakeMask();
  void StoreLanes(ir::DType dtype, llvm::Value* value, llvm::Value* address);
  // Copies the block's elements one by one, with strides in elements.
  void Copy(ir::DType dtype, llvm::Value* to, int64_t to_stride, llvm::Value* from,
            int64_t from_stride);
};

}  // namespace tessera::worker::codegen
