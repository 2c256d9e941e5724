// The body of a kernel for one GPU thread: it turns nodes, accesses and stores into LLVM IR. The
// emitter (gpu_emit.cc) derives from it and calls EmitLevel and EmitStores inside the loops of its
// layout.
#include "worker/codegen/gpu_nodes.h"

#include <algorithm>

#include "base/log.h"
#include "llvm/IR/Metadata.h"
#include "worker/codegen/math.h"
#include "worker/codegen/wide_math.h"

namespace tessera::worker::codegen {

using ir::DType;
using ir::ScalarPrim;
using llvm::Type;
using llvm::Value;

namespace {

constexpr int64_t kWideBytes = 16;

// Calls f(first lane, number of lanes) for each piece of `lanes` contiguous elements that is loaded
// or stored at once. A piece has 16 bytes, or holds all elements if they are smaller together.
template <class F>
void ForEachPiece(DType dtype, int lanes, F f) {
  const int64_t width = ir::ByteWidth(dtype);
  const int per_piece = static_cast<int>(std::min<int64_t>(lanes, kWideBytes / width));
  for (int l = 0; l < lanes; l += per_piece) f(l, per_piece);
}
llvm::Align PieceAlign(DType dtype, int count) { return llvm::Align(ir::ByteWidth(dtype) * count); }

}  // namespace

GpuNodes::GpuNodes(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
                   llvm::Module* module)
    : GpuThread(plan, static_cast<int>(kernel.params.size()), entry, module),
      kernel_(kernel),
      values_(kernel.nodes.size()),
      levels_(LevelsOf(kernel)),
      coords_(kernel.rank()) {
  if (plan.layout == GpuPlan::Layout::kNothing) return;
  for (const Node& node : kernel.nodes) LoadShifts(node.access);
  for (const Store& store : kernel.stores) LoadShifts(store.access);
}

void GpuNodes::SetCoords(Value* flat, int begin, int end) {
  for (int d = end - 1; d >= begin; --d) {
    if (d == begin) {
      coords_[d] = flat;
    } else {
      Value* const size = Int(kernel_.shape[d]);
      coords_[d] = b_.CreateURem(flat, size);
      flat = b_.CreateUDiv(flat, size);
    }
  }
}

Value* GpuNodes::LoadShift(const DynamicOffset& shift) {
  const DType dtype = kernel_.params[shift.param].dtype;
  Value* const at = Address(shift.param, Affine(shift.offset, shift.strides));
  Value* start =
      MarkInvariantLoad(shift.param, b_.CreateLoad(MemoryType(b_.getContext(), dtype), at));
  Value* const zero = b_.getInt64(0);
  Value* const max = b_.getInt64(static_cast<uint64_t>(shift.max));
  start = b_.CreateIntCast(start, b_.getInt64Ty(), ir::IsSignedInt(dtype));
  if (ir::IsSignedInt(dtype)) start = b_.CreateSelect(b_.CreateICmpSLT(start, zero), zero, start);
  start = b_.CreateSelect(b_.CreateICmpUGT(start, max), max, start);
  return b_.CreateTrunc(start, index_type_);
}
void GpuNodes::LoadShifts(const Access& access) {
  for (const DynamicOffset& shift : access.shifts) {
    if (!shift.strides.empty()) continue;
    Value*& known = shifts_[{shift.param, shift.offset, shift.max}];
    if (known == nullptr) known = LoadShift(shift);
  }
}

Value* GpuNodes::Affine(int64_t offset, const ir::Dims& strides, int begin) {
  Value* element = Int(offset);
  for (size_t d = begin; d < strides.size(); ++d) {
    if (strides[d] == 0 || kernel_.shape[d] == 1) continue;
    element = b_.CreateAdd(element, b_.CreateMul(coords_[d], Int(strides[d])));
  }
  return element;
}
Value* GpuNodes::ElementIndex(const Access& access) { return ElementIndexFrom(access, 0); }
Value* GpuNodes::ElementIndexFrom(const Access& access, int begin) {
  Value* element = Affine(access.offset, access.strides, begin);
  for (const DynamicOffset& shift : access.shifts) {
    Value* const start = shift.strides.empty() ? shifts_.at({shift.param, shift.offset, shift.max})
                                               : LoadShift(shift);
    element = b_.CreateAdd(element, b_.CreateMul(start, Int(shift.stride)));
  }
  return element;
}
Value* GpuNodes::Address(int param, Value* element) {
  return b_.CreateGEP(MemoryType(b_.getContext(), kernel_.params[param].dtype), Buffer(param),
                      b_.CreateSExt(element, b_.getInt64Ty()));
}
int64_t GpuNodes::LaneStride(const Access& access) const {
  return plan_.lane_dim < 0 || kernel_.shape[plan_.lane_dim] == 1 ? 0
                                                                  : access.strides[plan_.lane_dim];
}
bool GpuNodes::IsWide(const Access& access, int lanes) const {
  return lanes > 1 && IsWideAccess(kernel_, access, plan_.lane_dim, lanes);
}

Value* GpuNodes::MarkInvariantLoad(int param, llvm::LoadInst* load) {
  if (!kernel_.params[param].output && !kernel_.params[param].in_place)
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
  return load;
}

// Returns the type by which a piece is moved. Narrow elements are moved as 32-bit words.
Type* GpuNodes::PieceType(DType dtype, int count) {
  const int64_t bytes = ir::ByteWidth(dtype) * count;
  if (ir::ByteWidth(dtype) >= 4 || bytes < 4)
    return llvm::FixedVectorType::get(MemoryType(b_.getContext(), dtype), count);
  if (bytes == 4) return b_.getInt32Ty();
  return llvm::FixedVectorType::get(b_.getInt32Ty(), bytes / 4);
}

GpuNodes::LaneValues GpuNodes::LoadLanes(const Node& node, int lanes) {
  Value* const element = ElementIndex(node.access);
  Type* const type = MemoryType(b_.getContext(), node.dtype);
  LaneValues loaded;
  if (IsWide(node.access, lanes)) {
    ForEachPiece(node.dtype, lanes, [&](int begin, int count) {
      Value* const address = Address(node.param, b_.CreateAdd(element, Int(begin)));
      Value* const piece =
          MarkInvariantLoad(node.param, b_.CreateAlignedLoad(PieceType(node.dtype, count), address,
                                                             PieceAlign(node.dtype, count)));
      Value* const vector = b_.CreateBitCast(piece, llvm::FixedVectorType::get(type, count));
      for (int l = 0; l < count; ++l) loaded.push_back(b_.CreateExtractElement(vector, l));
    });
  } else {
    // The plan has several lanes only if every access is wide, or is the same for all lanes.
    TESSERA_CHECK(lanes == 1 || LaneStride(node.access) == 0) << "a load of lanes that lie apart";
    loaded.push_back(
        MarkInvariantLoad(node.param, b_.CreateLoad(type, Address(node.param, element))));
  }
  for (Value*& value : loaded) value = FromMemory(b_, node.dtype, value);
  return loaded;
}

void GpuNodes::StoreLanes(const Store& store, int lanes) {
  const DType dtype = kernel_.params[store.param].dtype;
  Value* const element = ElementIndex(store.access);
  Type* const type = MemoryType(b_.getContext(), dtype);
  const auto at = [&](int l) { return ToMemory(b_, dtype, ValueAt(store.node, l)); };
  if (IsWide(store.access, lanes)) {
    ForEachPiece(dtype, lanes, [&](int begin, int count) {
      Value* vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(type, count));
      for (int l = 0; l < count; ++l) vector = b_.CreateInsertElement(vector, at(begin + l), l);
      b_.CreateAlignedStore(b_.CreateBitCast(vector, PieceType(dtype, count)),
                            Address(store.param, b_.CreateAdd(element, Int(begin))),
                            PieceAlign(dtype, count));
    });
    return;
  }
  TESSERA_CHECK_EQ(lanes, 1);
  b_.CreateStore(at(0), Address(store.param, element));
}
void GpuNodes::EmitStores(int lanes) {
  for (const Store& store : kernel_.stores) StoreLanes(store, lanes);
}

void GpuNodes::EmitLevel(Level level, int lanes, const std::function<void(int)>& reduce) {
  for (size_t id = 0; id < kernel_.nodes.size(); ++id) {
    if (levels_[id] != level) continue;
    if (kernel_.nodes[id].kind != Node::Kind::kReduce) {
      values_[id] = EmitNode(kernel_.nodes[id], LanesOfLevel(level, lanes));
    } else if (reduce) {
      reduce(static_cast<int>(id));
    }
  }
}
// With layout kRows the lanes lie along a reduced dim, so that nodes outside the reduction have one
// lane.
int GpuNodes::LanesOfLevel(Level level, int lanes) const {
  return plan_.layout == GpuPlan::Layout::kRows && level != Level::kInner ? 1 : lanes;
}

// Emits a node and returns its values. Scalar ops are emitted once per lane in scalar code, since a
// GPU thread has no vector arithmetic; if all arguments are the same for all lanes, once in total.
// A primitive without code is a bug of this folder, because math.h and wide_math.h must cover every
// primitive that Verify admits.
GpuNodes::LaneValues GpuNodes::EmitNode(const Node& node, int lanes) {
  switch (node.kind) {
    case Node::Kind::kLoad:
      return LoadLanes(node, lanes);
    case Node::Kind::kIndex: {
      Value* const first = ElementIndex(node.access);
      const int64_t stride = LaneStride(node.access);
      LaneValues numbers;
      for (int l = 0; l < (stride == 0 ? 1 : lanes); ++l)
        numbers.push_back(b_.CreateSExtOrTrunc(b_.CreateAdd(first, Int(l * stride)),
                                               RegisterType(b_.getContext(), node.dtype)));
      return numbers;
    }
    case Node::Kind::kScalar:
      break;
    case Node::Kind::kReduce:
      TESSERA_CHECK(false) << "a reduction is no scalar";
  }
  if (node.prim == ScalarPrim::kConstant)
    return {ConstantOf(b_, node.dtype, node.value, node.int_value)};
  int distinct = 1;
  for (int arg : node.args) distinct = std::max<int>(distinct, values_[arg].size());
  const DType operand = kernel_.nodes[node.args.back()].dtype;
  LaneValues results;
  for (int l = 0; l < distinct; ++l) {
    llvm::SmallVector<Value*, 3> args;
    for (int arg : node.args) args.push_back(ValueAt(arg, l));
    Value* result = EmitPrim(b_, node.prim, operand, node.dtype, args);
    if (result == nullptr) result = EmitWidePrim(b_, node.prim, operand, args);
    TESSERA_CHECK(result != nullptr)
        << "no code for " << ScalarPrimName(node.prim) << " of " << DTypeName(operand);
    results.push_back(result);
  }
  return results;
}

}  // namespace tessera::worker::codegen
