// Emits the body of a kernel's loops for one thread of a GPU: addresses, vector loads and stores,
// and scalar ops. gpu_emit.cc emits the loops around the body. Thread-compatible.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/codegen/gpu_thread.h"
#include "worker/codegen/kernel.h"

namespace tessera::worker::codegen {

class GpuNodes : protected GpuThread {
 protected:
  // The values of a node, one for each lane. There is a single value if it is the same for all
  // lanes.
  using LaneValues = llvm::SmallVector<llvm::Value*, 8>;

  GpuNodes(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
           llvm::Module* module);

  // Sets the coordinates of lane 0 in dims [begin, end) to the point with the row-major number
  // `flat`.
  void SetCoords(llvm::Value* flat, int begin, int end);
  // Emits the nodes of a level at `lanes` lanes. For reductions it calls reduce(id) if that is
  // given.
  void EmitLevel(Level level, int lanes, const std::function<void(int)>& reduce = nullptr);
  // Returns the part of the access's element index that varies over the dims from `begin` on: all
  // of its shifts, and the strides of those dims.
  llvm::Value* ElementIndexFrom(const Access& access, int begin);
  void EmitStores(int lanes);
  llvm::Value* ValueAt(int id, int lane) {
    return values_[id].size() == 1 ? values_[id][0] : values_[id][lane];
  }

  const Kernel& kernel_;
  std::vector<LaneValues> values_;

 private:
  // Returns the number of the shift, limited to [0, max] and not yet multiplied by the stride.
  llvm::Value* LoadShift(const DynamicOffset& shift);
  void LoadShifts(const Access& access);
  llvm::Value* Buffer(int param) { return function_->getArg(param); }
  // Returns offset + sum(strides[d] * i_d) over the dims from `begin` on, at lane 0.
  llvm::Value* Affine(int64_t offset, const ir::Dims& strides, int begin = 0);
  // Returns the index in its param of the access's element at lane 0.
  llvm::Value* ElementIndex(const Access& access);
  llvm::Value* Address(int param, llvm::Value* element);
  int64_t LaneStride(const Access& access) const;
  bool IsWide(const Access& access, int lanes) const;
  // If the kernel does not write the param, marks the load as invariant, so that it may go through
  // the non-coherent cache. Returns the load.
  llvm::Value* MarkInvariantLoad(int param, llvm::LoadInst* load);
  llvm::Type* PieceType(ir::DType dtype, int count);
  LaneValues LoadLanes(const Node& node, int lanes);
  void StoreLanes(const Store& store, int lanes);
  int LanesOfLevel(Level level, int lanes) const;
  LaneValues EmitNode(const Node& node, int lanes);

  const std::vector<Level> levels_;
  std::vector<llvm::Value*> coords_;
  // The numbers of the shifts that are the same for all points (LoadShift), by param, offset and
  // max.
  std::map<std::tuple<int, int64_t, int64_t>, llvm::Value*> shifts_;
};

}  // namespace tessera::worker::codegen
