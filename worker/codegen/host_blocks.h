// Emits loads and stores of blocks on a host; a block is a vector of plan_.lanes SIMD lanes, in
// several registers, of which the last ones may be unused. The base class of the emitter
// (emit_host.cc). Thread-compatible.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "worker/codegen/control_flow.h"
#include "worker/codegen/host_plan.h"

namespace tessera::worker::codegen {

// Adds a function without blocks to the module, which uses vectors of this width.
llvm::Function* AddHostFunction(llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage,
                                int vector_bytes, const std::string& name, llvm::Module* module);

class HostBlocks : protected ControlFlow {
 protected:
  // Positions the builder in the function, which has no blocks yet.
  HostBlocks(HostPlan plan, llvm::Function* function)
      : ControlFlow(function), plan_(std::move(plan)) {}

  // ---- The current block. ----------------------------------------------------------------------
  // Begins a block of `num_lanes` lanes, from 1 to plan_.lanes.
  void EnterBlock(llvm::Value* num_lanes);
  // Whether the number of lanes is known to be plan_.lanes.
  bool AlwaysFull() { return num_lanes_ == b_.getInt64(static_cast<uint64_t>(plan_.lanes)); }
  llvm::Value* Splat(llvm::Value* value);
  llvm::Value* Iota(llvm::Type* type);  // 0, 1, 2, ...

  // ---- Memory. ---------------------------------------------------------------------------------
  // Lane i is at `address` + i * `stride` elements. Lanes beyond num_lanes_ are neither read nor
  // written; their loaded values are unspecified.
  llvm::Value* LoadBlock(ir::DType dtype, llvm::Value* address, int64_t stride);
  // The lanes of as many loads as lanes lie apart: lane i of load k is at `address` + i * `loads` +
  // k. Requires: `loads` is a power of 2.
  std::vector<llvm::Value*> LoadInterleaved(ir::DType dtype, llvm::Value* address, int64_t loads);
  void StoreBlock(ir::DType dtype, llvm::Value* value, llvm::Value* address, int64_t stride);
  // Lanes i of the two at `address` + 2 i and the element after it. Requires: several lanes.
  void StoreInterleaved(ir::DType dtype, llvm::Value* even, llvm::Value* odd, llvm::Value* address);
  // Lane i is at `address` + the i-th of `offsets` elements, a vector of 32 or 64-bit numbers.
  llvm::Value* LoadGathered(ir::DType dtype, llvm::Value* address, llvm::Value* offsets);
  // Prefetches `bytes` bytes, `ahead_bytes` after the address, perhaps beyond the buffer.
  void Prefetch(llvm::Value* address, int64_t ahead_bytes, int64_t bytes);
  // Stack memory for one block, aligned to cache lines.
  llvm::AllocaInst* EntryAlloca(llvm::Type* type);
  static llvm::Align ElementAlign(ir::DType dtype);

  llvm::Value* Int(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* Min(llvm::Value* x, llvm::Value* y);
  llvm::Value* Max(llvm::Value* x, llvm::Value* y);

  static constexpr int64_t kLineBytes = 64;
  const HostPlan plan_;
  llvm::Value* num_lanes_ = nullptr;
  llvm::Value* mask_ = nullptr;  // of the lanes below num_lanes_; unset if all lanes exist

 private:
  llvm::Value* IsFull() { return b_.CreateICmpEQ(num_lanes_, Int(plan_.lanes)); }
  llvm::Value* MakeMask();
  void StoreLanes(ir::DType dtype, llvm::Value* value, llvm::Value* address);
  // Copies as many elements as the block has lanes one by one, with strides in elements.
  void Copy(ir::DType dtype, llvm::Value* to, int64_t to_stride, llvm::Value* from,
            int64_t from_stride) {
    Copy(dtype, num_lanes_, to, to_stride, from, from_stride);
  }
  void Copy(ir::DType dtype, llvm::Value* count, llvm::Value* to, int64_t to_stride,
            llvm::Value* from, int64_t from_stride);
  // `address`, or if the block is not full the address of a copy of the num_lanes_ * `each`
  // elements there, followed by unspecified ones up to a full block's.
  llvm::Value* ReadableBlock(ir::DType dtype, llvm::Value* address, int64_t each);
};

}  // namespace tessera::worker::codegen
