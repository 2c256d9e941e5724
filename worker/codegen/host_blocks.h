// Emits loads and stores of blocks on a host. A block is a vector of plan_.lanes SIMD lanes in
// several registers, and its last lanes may be unused. HostBlocks is the base class of the emitter
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

// Adds to the module a function that has no basic blocks yet, and that may use vectors of this
// width.
llvm::Function* AddHostFunction(llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage,
                                int vector_bytes, const std::string& name, llvm::Module* module);

class HostBlocks : protected ControlFlow {
 protected:
  // Positions the builder in the function, which has no basic blocks yet.
  HostBlocks(HostPlan plan, llvm::Function* function)
      : ControlFlow(function), plan_(std::move(plan)) {}

  // ---- The current block. ----------------------------------------------------------------------
  // Begins a block of `num_lanes` lanes, which is from 1 to plan_.lanes.
  void EnterBlock(llvm::Value* num_lanes);
  // Returns whether the number of lanes is known to be plan_.lanes.
  bool AlwaysFull() { return num_lanes_ == b_.getInt64(static_cast<uint64_t>(plan_.lanes)); }
  llvm::Value* Splat(llvm::Value* value);
  llvm::Value* Iota(llvm::Type* type);  // returns 0, 1, 2, ...

  // ---- Memory. ---------------------------------------------------------------------------------
  // LoadBlock and StoreBlock load and store a block whose lane i is at `address` + i * `stride`
  // elements. Lanes from num_lanes_ on are neither read nor written, and their loaded values are
  // unspecified.
  llvm::Value* LoadBlock(ir::DType dtype, llvm::Value* address, int64_t stride);
  // Returns the blocks of `loads` interleaved loads: lane i of load k is at `address` + i * `loads`
  // + k. Requires: `loads` is a power of 2.
  std::vector<llvm::Value*> LoadInterleaved(ir::DType dtype, llvm::Value* address, int64_t loads);
  void StoreBlock(ir::DType dtype, llvm::Value* value, llvm::Value* address, int64_t stride);
  // Stores lane i of `even` at `address` + 2 i, and lane i of `odd` at the element after it.
  // Requires: several lanes.
  void StoreInterleaved(ir::DType dtype, llvm::Value* even, llvm::Value* odd, llvm::Value* address);
  // Loads a block whose lane i is at `address` + the i-th of `offsets` elements. `offsets` is a
  // vector of 32-bit or 64-bit numbers.
  llvm::Value* LoadGathered(ir::DType dtype, llvm::Value* address, llvm::Value* offsets);
  // Prefetches `bytes` bytes from `ahead_bytes` after the address on, perhaps beyond the buffer.
  void Prefetch(llvm::Value* address, int64_t ahead_bytes, int64_t bytes);
  // Returns stack memory for a value of this type, such as one block. It is allocated once, at the
  // entry of the function, and aligned to cache lines.
  llvm::AllocaInst* EntryAlloca(llvm::Type* type);
  static llvm::Align ElementAlign(ir::DType dtype);

  llvm::Value* Int(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }
  llvm::Value* Min(llvm::Value* x, llvm::Value* y);
  llvm::Value* Max(llvm::Value* x, llvm::Value* y);

  static constexpr int64_t kLineBytes = 64;
  const HostPlan plan_;
  llvm::Value* num_lanes_ = nullptr;
  // The mask of the lanes below num_lanes_; unset if all lanes exist.
  llvm::Value* mask_ = nullptr;

 private:
  llvm::Value* IsFull() { return b_.CreateICmpEQ(num_lanes_, Int(plan_.lanes)); }
  llvm::Value* MakeMask();
  void StoreLanes(ir::DType dtype, llvm::Value* value, llvm::Value* address);
  // Copies elements one by one, with strides in elements: `count` of them, or one for each lane of
  // the block.
  void Copy(ir::DType dtype, llvm::Value* to, int64_t to_stride, llvm::Value* from,
            int64_t from_stride) {
    Copy(dtype, num_lanes_, to, to_stride, from, from_stride);
  }
  void Copy(ir::DType dtype, llvm::Value* count, llvm::Value* to, int64_t to_stride,
            llvm::Value* from, int64_t from_stride);
  // Returns an address from which a full block's elements can be read. This is `address` itself if
  // the block is full, and otherwise the address of a copy of the num_lanes_ * `elements_per_lane`
  // elements there, which is followed by unspecified elements.
  llvm::Value* ReadableBlock(ir::DType dtype, llvm::Value* address, int64_t elements_per_lane);
};

}  // namespace tessera::worker::codegen
