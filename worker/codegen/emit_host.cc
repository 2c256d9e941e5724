// The host emitter: one kernel to one LLVM function with explicit vectors. compile.cc calls
// EmitHost for a kernel on its own, and emit_loop.cc calls EmitAllIterations for each kernel of a
// native loop. PlanHost decides how the loops run, and the emitter carries out its plan.
#include "worker/codegen/emit_host.h"

#include <algorithm>
#include <limits>

#include "worker/codegen/combine.h"
#include "worker/codegen/host_blocks.h"
#include "worker/codegen/host_plan.h"
#include "worker/codegen/host_runtime.h"
#include "worker/codegen/lanes.h"
#include "worker/codegen/math.h"
#include "worker/codegen/wide_math.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using llvm::BasicBlock;
using llvm::Type;
using llvm::Value;

class HostEmitter : private HostBlocks {
 public:
  HostEmitter(const Kernel& kernel, const HostTarget& target, llvm::Function* function)
      : HostBlocks(PlanHost(kernel, target), function),
        kernel_(kernel),
        has_fma_(target.has_fma),
        vector_bytes_(target.vector_bytes),
        levels_(LevelsOf(kernel)),
        module_(*function->getParent()),
        rows_(plan_.rows, Row(kernel)),
        row_(&rows_[0]),
        coords_(kernel.rank()) {}

  void EmitRange() {
    if (kernel_.num_iterations() > 0) {
      for (size_t p = 0; p < kernel_.params.size(); ++p) {
        Value* const at = b_.CreateConstGEP1_64(b_.getPtrTy(), function_->getArg(0), p);
        params_.push_back(b_.CreateLoad(b_.getPtrTy(), at));
      }
      FindBases();
      Value* const begin = function_->getArg(1);
      Value* const end = function_->getArg(2);
      if (plan_.transpose_dim >= 0) {
        EmitWithTransposedLoads(begin, end);
      } else if (HasRows()) {
        EmitRows(begin, end);
      } else {
        EmitElements(begin, end);
      }
    }
    Return();
  }

  void EmitAllIterations() {
    if (kernel_.num_iterations() > 0) {
      for (llvm::Argument& param : function_->args()) params_.push_back(&param);
      FindBases();
      if (plan_.transpose_dim >= 0) {
        EmitWithTransposedLoads(Int(0), Int(kernel_.num_iterations()));
      } else if (HasRows()) {
        EmitWholeRows();
      } else {
        EmitElements(Int(0), Int(kernel_.num_iterations()));
      }
    }
    Return();
  }

 private:
  struct Accumulator {
    llvm::AllocaInst* value = nullptr;
    // The index of the best element so far (argmax and argmin).
    llvm::AllocaInst* index = nullptr;
    llvm::AllocaInst* total = nullptr;  // for a sum in chunks: the sum of the earlier chunks
  };
  // An access at one row: the offset of the row, and one entry per shift. For a shift that varies
  // within rows, the entry is the element of its param at which the row begins. Every other shift
  // is already in the offset, and its entry is null.
  struct RowAccess {
    Value* offset = nullptr;
    std::vector<Value*> shifts;
  };
  // The state of one of the rows that are computed together.
  struct Row {
    explicit Row(const Kernel& kernel)
        : values(kernel.nodes.size()),
          node_rows(kernel.nodes.size()),
          store_rows(kernel.stores.size()),
          accumulators(kernel.nodes.size()) {}
    // The value of each node at this point of the function. It is a scalar if all lanes have the
    // same value.
    std::vector<Value*> values;
    std::vector<RowAccess> node_rows, store_rows;
    std::vector<Accumulator> accumulators;
  };
  template <class F>
  void InEachRow(const F& f) {
    for (int i = 0; i < num_rows_; ++i) {
      row_ = &rows_[i];
      f();
    }
    row_ = &rows_[0];
  }

  // Returns whether lanes are along the innermost parallel dim. A row is then all iterations that
  // differ only in this dim. Otherwise each iteration is a row of its own.
  bool HasRows() const { return plan_.lane_dim >= 0 && !plan_.vectorize_reduction; }

  void Return() {
    // Non-temporal stores are unordered, so a fence precedes the return.
    if (plan_.nontemporal_stores) b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
    b_.CreateRetVoid();
  }

  // ---- Loops over parallel dims. ---------------------------------------------------------------

  // Emits the loops for lanes along the innermost parallel dim: over its rows, and over the blocks
  // of a row. plan_.rows rows are computed together wherever the range contains all of them. The
  // code finds that out at run time, because the ranges of several threads may begin and end within
  // a row.
  void EmitRows(Value* begin, Value* end) {
    if (plan_.lane_dim == 0) {  // there is one row
      EmitRow(begin, Int(0), begin, end);
      return;
    }
    Value* const extent = Int(kernel_.shape[plan_.lane_dim]);
    const int64_t together = plan_.rows;
    For(begin, end, [&](Value* i) {
      Value* const row = b_.CreateUDiv(i, extent);
      Value* const from = b_.CreateSub(i, b_.CreateMul(row, extent));
      if (together == 1) return EmitRow(i, row, from, end);
      llvm::AllocaInst* const next = Local(b_.getInt64Ty());
      Value* const is_first = b_.CreateIsNull(b_.CreateOr(from, b_.CreateURem(row, Int(together))));
      Value* const after = b_.CreateAdd(i, Int(together * kernel_.shape[plan_.lane_dim]));
      IfElse(
          b_.CreateAnd(is_first, b_.CreateICmpSLE(after, end)),
          [&] {
            EnterRows(row, plan_.rows);
            EmitWholeBlocks();
            b_.CreateStore(after, next);
          },
          [&] { b_.CreateStore(EmitRow(i, row, from, end), next); });
      return static_cast<Value*>(b_.CreateLoad(b_.getInt64Ty(), next));
    });
  }

  // Emits the part of row number `row` that begins at iteration `i`, which is index `from` of the
  // row, and ends at the end of the row or at iteration `end`. Returns the iteration after that
  // part.
  Value* EmitRow(Value* i, Value* row, Value* from, Value* end) {
    Value* const extent = Int(kernel_.shape[plan_.lane_dim]);
    Value* const count = Min(b_.CreateSub(extent, from), b_.CreateSub(end, i));
    EnterRows(row, 1);
    Value* const to = b_.CreateAdd(from, count);
    For(from, to, [&](Value* j) {
      // LanesOfBlock looks at the address of this element.
      coords_[plan_.lane_dim] = j;
      EmitBlock(j, LanesOfBlock(j, from, b_.CreateSub(to, j)));
      return b_.CreateAdd(j, num_lanes_);
    });
    return b_.CreateAdd(i, count);
  }

  // Emits all rows. Unlike in EmitRows, the code need not look whether a row is complete.
  void EmitWholeRows() {
    const int64_t rows = kernel_.num_iterations() / kernel_.shape[plan_.lane_dim];
    ForSteps(Int(0), Int(rows), plan_.rows, [&](Value* row) {
      EnterRows(row, plan_.rows);
      EmitWholeBlocks();
    });
  }

  // Enters the `count` rows from number `row` on, which differ only in the innermost of their dims.
  void EnterRows(Value* row, int count) {
    const int dim = plan_.lane_dim;
    num_rows_ = count;
    SetCoords(row, 0, dim);
    Value* const first = dim > 0 ? coords_[dim - 1] : nullptr;
    int64_t number = 0;
    InEachRow([&] {
      if (number > 0) coords_[dim - 1] = b_.CreateAdd(first, Int(number));
      ++number;
      EnterRowAt(dim);
      EmitNodes(Level::kBefore, /*varying=*/false);
    });
  }

  // Emits the blocks of whole rows.
  void EmitWholeBlocks() {
    const int64_t extent = kernel_.shape[plan_.lane_dim], full = extent / plan_.lanes * plan_.lanes;
    ForSteps(Int(0), Int(full), plan_.lanes, [&](Value* j) { EmitBlock(j, Int(plan_.lanes)); });
    if (full < extent) EmitBlock(Int(full), Int(extent - full));
  }

  // Emits one block of each current row: `num_lanes` lanes from index `j` of the row on.
  void EmitBlock(Value* j, Value* num_lanes) {
    coords_[plan_.lane_dim] = j;
    EnterBlock(num_lanes);
    InEachRow([&] { EmitNodes(Level::kBefore, /*varying=*/true); });
    if (kernel_.scans) return EmitScan();
    EmitReductions();
    InEachRow([&] {
      EmitNodes(Level::kAfter, /*varying=*/false);
      EmitNodes(Level::kAfter, /*varying=*/true);
      for (size_t s = 0; s < kernel_.stores.size(); ++s) StoreBlock(s);
    });
  }

  // Emits the loops of a kernel with transposed loads (HostPlan). They take up to
  // plan_.transpose_size indices of the transpose dim at once. For every block of lanes they load a
  // transposed block, and then compute one index after the other. The first and the last index of
  // the range are taken alone, because their rows may be incomplete.
  void EmitWithTransposedLoads(Value* begin, Value* end) {
    const int dim = plan_.lane_dim, transpose_dim = plan_.transpose_dim;
    int64_t inner_size = 1;
    for (int d = transpose_dim + 1; d <= dim; ++d) inner_size *= kernel_.shape[d];
    Value* const inner = Int(inner_size);
    Value* const extent = Int(kernel_.shape[dim]);
    Value* const transpose_extent = Int(kernel_.shape[transpose_dim]);
    transposed_blocks_.resize(kernel_.nodes.size());
    for (size_t n = 0; n < kernel_.nodes.size(); ++n) {
      if (plan_.transposed[n])
        transposed_blocks_[n] = EntryAlloca(MemoryType(b_.getContext(), kernel_.nodes[n].dtype,
                                                       plan_.transpose_size * plan_.lanes));
    }
    Value* const past = b_.CreateUDiv(b_.CreateAdd(end, Int(inner_size - 1)), inner);
    For(b_.CreateUDiv(begin, inner), past, [&](Value* u) {
      Value* const base = b_.CreateMul(u, inner);
      Value* const low = Max(b_.CreateSub(begin, base), Int(0));
      Value* const left = b_.CreateSub(end, base);
      Value* const high = Min(left, inner);
      Value* const first = b_.CreateURem(u, transpose_extent);
      Value* const whole = b_.CreateUDiv(left, inner);
      Value* const most =
          Min(Min(Int(plan_.transpose_size), b_.CreateSub(transpose_extent, first)), whole);
      Value* const is_cut = b_.CreateOr(b_.CreateICmpNE(low, Int(0)), b_.CreateIsNull(whole));
      Value* const count = b_.CreateSelect(is_cut, Int(1), most);
      SetCoords(b_.CreateUDiv(u, transpose_extent), 0, transpose_dim);
      For(low, high, [&](Value* i) {
        Value* const row = b_.CreateUDiv(i, extent);
        Value* const from = b_.CreateSub(i, b_.CreateMul(row, extent));
        Value* const lanes = Min(b_.CreateSub(extent, from), b_.CreateSub(high, i));
        SetCoords(row, transpose_dim + 1, dim);
        Value* const to = b_.CreateAdd(from, lanes);
        For(from, to, [&](Value* j) {
          coords_[dim] = j;
          EnterBlock(Min(b_.CreateSub(to, j), Int(plan_.lanes)));
          coords_[transpose_dim] = first;
          EnterRowAt(dim);
          for (size_t n = 0; n < kernel_.nodes.size(); ++n)
            if (plan_.transposed[n]) LoadTransposed(static_cast<int>(n), count);
          For(Int(0), count, [&](Value* q) {
            coords_[transpose_dim] = b_.CreateAdd(first, q);
            transposed_index_ = q;
            EnterRowAt(dim);
            EmitNodes(Level::kBefore, /*varying=*/false);
            EmitNodes(Level::kBefore, /*varying=*/true);
            for (size_t s = 0; s < kernel_.stores.size(); ++s) StoreBlock(s);
            return b_.CreateAdd(q, Int(1));
          });
          return b_.CreateAdd(j, num_lanes_);
        });
        return b_.CreateAdd(i, lanes);
      });
      return b_.CreateAdd(u, count);
    });
  }

  // Loads `count` neighbours along the transpose dim for every lane. Stores them transposed, so
  // that the lanes of each neighbour are contiguous.
  void LoadTransposed(int n, Value* count) {
    const Node& node = kernel_.nodes[n];
    Type* const type = MemoryType(b_.getContext(), node.dtype);
    const llvm::Align align = ElementAlign(node.dtype);
    Value* const source = Address(node.param, OffsetOf(node.access, row_->node_rows[n]));
    const int64_t lane_stride = node.access.strides[plan_.lane_dim];
    const int64_t transpose_stride = node.access.strides[plan_.transpose_dim];
    For(Int(0), num_lanes_, [&](Value* lane) {
      Value* const line = b_.CreateGEP(type, source, b_.CreateMul(lane, Int(lane_stride)));
      Value* const column = b_.CreateGEP(type, transposed_blocks_[n], lane);
      // The lines lie too far apart for the hardware prefetcher, so the code prefetches them.
      constexpr int64_t kLanesAhead = 16;
      Prefetch(b_.CreateConstGEP1_64(type, line, kLanesAhead * lane_stride), /*ahead_bytes=*/0, 1);
      For(Int(0), count, [&](Value* q) {
        Value* const from = b_.CreateGEP(type, line, b_.CreateMul(q, Int(transpose_stride)));
        Value* const to = b_.CreateGEP(type, column, b_.CreateMul(q, Int(plan_.lanes)));
        b_.CreateAlignedStore(b_.CreateAlignedLoad(type, from, align), to, align);
        return b_.CreateAdd(q, Int(1));
      });
      return b_.CreateAdd(lane, Int(1));
    });
  }

  // Emits one iteration after the other, for a kernel with lanes along a reduced dim or without
  // lanes.
  void EmitElements(Value* begin, Value* end) {
    ForSteps(begin, end, 1, [&](Value* i) {
      EnterRow(i, kernel_.num_parallel());
      num_lanes_ = Int(1);
      EmitNodes(Level::kBefore, /*varying=*/false);
      if (kernel_.scans) return EmitScan();
      EmitReductions();
      EmitNodes(Level::kAfter, /*varying=*/false);
      for (size_t s = 0; s < kernel_.stores.size(); ++s) StoreElement(s);
    });
  }

  // ---- Scans. ----------------------------------------------------------------------------------

  // Emits the scan of one row. The lanes, if the plan has lanes, are along a parallel dim.
  void EmitScan() {
    ForEachReduction([&](int n) { StartReduction(n); });
    EmitScannedDim(kernel_.num_parallel());
  }
  void EmitScannedDim(int dim) {
    if (dim == kernel_.rank()) return EmitScannedPoint();
    ForSteps(Int(0), Int(kernel_.shape[dim]), 1, [&](Value* i) {
      coords_[dim] = i;
      EmitScannedDim(dim + 1);
    });
  }
  void EmitScannedPoint() {
    for (size_t n = 0; n < kernel_.nodes.size(); ++n) {
      if (levels_[n] != Level::kInner) continue;
      const bool reduces = kernel_.nodes[n].kind == Node::Kind::kReduce;
      if (reduces) Accumulate(static_cast<int>(n));
      row_->values[n] = reduces ? Load(row_->accumulators[n]).value : EmitNode(static_cast<int>(n));
    }
    for (size_t s = 0; s < kernel_.stores.size(); ++s) HasRows() ? StoreBlock(s) : StoreElement(s);
  }

  // Returns the number of lanes of the block that starts at `j`, when `left` lanes are left in the
  // row. With non-temporal stores, the first block of a row ends where a cache line of the first
  // output begins, so that the blocks after it store whole cache lines.
  Value* LanesOfBlock(Value* j, Value* from, Value* left) {
    Value* lanes = Min(left, Int(plan_.lanes));
    if (!plan_.nontemporal_stores) return lanes;
    const Store& store = kernel_.stores[0];
    if (LaneStride(store.access) != 1) return lanes;
    const int64_t width = WidthOf(store.param);
    Value* const at = b_.CreatePtrToInt(
        Address(store.param, OffsetOf(store.access, row_->store_rows[0])), b_.getInt64Ty());
    Value* const bytes = b_.CreateAnd(b_.CreateNeg(at), Int(kLineBytes - 1));
    Value* const to_next_line = b_.CreateUDiv(bytes, Int(width));
    Value* const first = b_.CreateAnd(b_.CreateICmpEQ(j, from), b_.CreateIsNotNull(to_next_line));
    return Min(b_.CreateSelect(first, to_next_line, lanes), lanes);
  }

  void EmitReductions() {
    if (kernel_.num_reduced == 0) return;
    ForEachReduction([&](int n) { StartReduction(n); });
    EmitReducedDim(kernel_.num_parallel());
    ForEachReduction([&](int n) { FinishReduction(n); });
  }
  // Calls f(node) for the reductions of each row.
  template <class F>
  void ForEachReduction(const F& f) {
    InEachRow([&] {
      for (size_t n = 0; n < kernel_.nodes.size(); ++n)
        if (kernel_.nodes[n].kind == Node::Kind::kReduce) f(static_cast<int>(n));
    });
  }

  void EmitReducedDim(int dim) {
    if (dim == kernel_.rank()) {
      InEachRow([&] {
        EmitNodes(Level::kInner, /*varying=*/false);
        EmitNodes(Level::kInner, /*varying=*/true);
      });
      ForEachReduction([&](int n) { Accumulate(n); });
      return;
    }
    Value* const extent = Int(kernel_.shape[dim]);
    if (dim != plan_.chunk_dim) {
      EmitReducedSteps(dim, Int(0), extent);
      return;
    }
    For(Int(0), extent, [&](Value* from) {
      Value* const to = Min(b_.CreateAdd(from, Int(plan_.chunk_elements)), extent);
      StartChunk();
      EmitReducedSteps(dim, from, to);
      FinishChunk();
      return to;
    });
  }

  void EmitReducedSteps(int dim, Value* from, Value* to) {
    if (dim != plan_.lane_dim) {
      ForSteps(from, to, 1, [&](Value* r) {
        coords_[dim] = r;
        EmitReducedDim(dim + 1);
      });
      return;
    }
    const auto emit_block = [&](Value* r, int64_t num_lanes) {
      coords_[dim] = r;
      EnterBlock(Int(num_lanes));
      EmitReducedDim(dim + 1);
    };
    // Whole blocks need no masks. The rest of the dim after them is part of its last chunk.
    const int64_t extent = kernel_.shape[dim], full = extent / plan_.lanes * plan_.lanes;
    if (full > 0)
      ForSteps(from, full < extent ? Min(to, Int(full)) : to, plan_.lanes,
               [&](Value* r) { emit_block(r, plan_.lanes); });
    if (full == extent) return;
    const auto emit_rest = [&] { emit_block(Int(full), extent - full); };
    dim == plan_.chunk_dim ? If(b_.CreateICmpEQ(to, Int(extent)), emit_rest) : emit_rest();
  }

  // ---- Addresses. ------------------------------------------------------------------------------

  void FindBases() {
    for (const Node& node : kernel_.nodes) node_bases_.push_back(BaseOf(node.access));
    for (const Store& store : kernel_.stores) store_bases_.push_back(BaseOf(store.access));
  }

  // Returns the first dim along which points of one row differ.
  int FirstDimInRow() const { return HasRows() ? plan_.lane_dim : kernel_.num_parallel(); }
  // Returns the last dim over which the shift varies, or -1.
  int LastDimOf(const DynamicOffset& shift) const {
    for (int d = kernel_.rank() - 1; d >= 0; --d)
      if (kernel_.shape[d] > 1 && VariesOver(shift, d)) return d;
    return -1;
  }
  bool VariesInRow(const DynamicOffset& shift) const { return LastDimOf(shift) >= FirstDimInRow(); }
  // IsLaneVariant returns whether the shift differs between lanes. IsGathered returns whether any
  // shift of the access does.
  bool IsLaneVariant(const DynamicOffset& shift) const {
    return plan_.lane_dim >= 0 && kernel_.shape[plan_.lane_dim] > 1 &&
           VariesOver(shift, plan_.lane_dim);
  }
  bool IsGathered(const Access& access) const {
    return std::any_of(access.shifts.begin(), access.shifts.end(),
                       [&](const DynamicOffset& shift) { return IsLaneVariant(shift); });
  }

  // Returns what a shift that is the same for all lanes adds to an offset. The number that is added
  // is element `element` of its param.
  Value* ShiftBy(const DynamicOffset& shift, Value* element) {
    const DType dtype = kernel_.params[shift.param].dtype;
    Value* const read = b_.CreateAlignedLoad(RegisterType(b_.getContext(), dtype),
                                             Address(shift.param, element), ElementAlign(dtype));
    return Clamped(shift, read, b_.getInt64Ty());
  }
  // Returns stride * clamp(value, 0, max), in ints of `type`. The value is one number, or lanes of
  // numbers.
  Value* Clamped(const DynamicOffset& shift, Value* value, Type* type) {
    const bool is_signed = ir::IsSignedInt(kernel_.params[shift.param].dtype);
    const auto constant = [&](int64_t c) { return llvm::ConstantInt::getSigned(type, c); };
    Value* at = b_.CreateIntCast(value, type, is_signed);
    if (is_signed) at = b_.CreateSelect(b_.CreateICmpSLT(at, constant(0)), constant(0), at);
    at = b_.CreateSelect(b_.CreateICmpUGT(at, constant(shift.max)), constant(shift.max), at);
    return b_.CreateMul(at, constant(shift.stride));
  }

  // Returns the part of an access's offset that is the same for all points of the kernel.
  Value* BaseOf(const Access& access) {
    Value* base = Int(access.offset);
    for (const DynamicOffset& shift : access.shifts)
      if (LastDimOf(shift) < 0) base = b_.CreateAdd(base, ShiftBy(shift, Int(shift.offset)));
    return base;
  }

  // Sets the coordinates of dims [begin, end) to the point with the row-major number `number`.
  void SetCoords(Value* number, int begin, int end) {
    for (int d = end - 1; d >= begin; --d) {
      if (d == begin) {
        coords_[d] = number;
        break;
      }
      Value* const extent = Int(kernel_.shape[d]);
      Value* const rest = b_.CreateUDiv(number, extent);
      coords_[d] = b_.CreateSub(number, b_.CreateMul(rest, extent));
      number = rest;
    }
  }

  // Sets the coordinates of the first `num_dims` dims, and computes the offset of every access
  // there.
  void EnterRow(Value* row, int num_dims) {
    SetCoords(row, 0, num_dims);
    EnterRowAt(num_dims);
  }
  void EnterRowAt(int num_dims) {
    const auto step = [&](Value* at, const ir::Dims& strides) {
      for (int d = 0; d < num_dims && !strides.empty(); ++d)
        at = AddStep(at, strides[d], coords_[d]);
      return at;
    };
    const auto row_of = [&](const Access& access, Value* base) {
      RowAccess row{step(base, access.strides), {}};
      for (const DynamicOffset& shift : access.shifts) {
        row.shifts.push_back(nullptr);
        if (LastDimOf(shift) < 0) continue;
        Value* const element = step(Int(shift.offset), shift.strides);
        if (VariesInRow(shift)) {
          row.shifts.back() = element;
        } else {
          row.offset = b_.CreateAdd(row.offset, ShiftBy(shift, element));
        }
      }
      return row;
    };
    for (size_t n = 0; n < kernel_.nodes.size(); ++n)
      row_->node_rows[n] = row_of(kernel_.nodes[n].access, node_bases_[n]);
    for (size_t s = 0; s < kernel_.stores.size(); ++s)
      row_->store_rows[s] = row_of(kernel_.stores[s].access, store_bases_[s]);
  }

  Value* StepInRow(Value* at, const ir::Dims& strides) {
    for (int d = FirstDimInRow(); d < kernel_.rank(); ++d) at = AddStep(at, strides[d], coords_[d]);
    return at;
  }
  // Returns the offset of the first lane, without the shifts that differ between lanes.
  Value* OffsetOf(const Access& access, const RowAccess& row) {
    Value* offset = StepInRow(row.offset, access.strides);
    for (size_t s = 0; s < access.shifts.size(); ++s) {
      const DynamicOffset& shift = access.shifts[s];
      if (row.shifts[s] == nullptr || IsLaneVariant(shift)) continue;
      offset = b_.CreateAdd(offset, ShiftBy(shift, StepInRow(row.shifts[s], shift.strides)));
    }
    return offset;
  }
  // Emits a load whose shifts differ between its lanes. Offsets are computed in 32 bits where they
  // fit.
  Value* LoadGathered(int n) {
    const Node& node = kernel_.nodes[n];
    const RowAccess& row = row_->node_rows[n];
    constexpr int64_t kNarrowMax = std::numeric_limits<int32_t>::max();
    bool narrow = kernel_.params[node.param].size <= kNarrowMax;
    for (const DynamicOffset& shift : node.access.shifts)
      narrow = narrow && shift.max <= kNarrowMax &&
               ir::ByteWidth(kernel_.params[shift.param].dtype) <= 4;
    Type* const element = narrow ? b_.getInt32Ty() : b_.getInt64Ty();
    Type* const type = llvm::FixedVectorType::get(element, static_cast<unsigned>(plan_.lanes));
    Value* offsets =
        b_.CreateMul(Iota(element), llvm::ConstantInt::getSigned(type, LaneStride(node.access)));
    for (size_t s = 0; s < node.access.shifts.size(); ++s) {
      const DynamicOffset& shift = node.access.shifts[s];
      if (!IsLaneVariant(shift)) continue;
      Value* const read = LoadBlock(kernel_.params[shift.param].dtype,
                                    Address(shift.param, StepInRow(row.shifts[s], shift.strides)),
                                    shift.strides[plan_.lane_dim]);
      offsets = b_.CreateAdd(offsets, Clamped(shift, read, type));
    }
    return HostBlocks::LoadGathered(node.dtype, Address(node.param, OffsetOf(node.access, row)),
                                    offsets);
  }
  Value* AddStep(Value* offset, int64_t stride, Value* coord) {
    return stride == 0 ? offset : b_.CreateAdd(offset, b_.CreateMul(coord, Int(stride)));
  }
  int64_t LaneStride(const Access& access) const {
    return kernel_.shape[plan_.lane_dim] == 1 ? 1 : access.strides[plan_.lane_dim];
  }

  Value* Address(int param, Value* offset) {
    return b_.CreateGEP(MemoryType(b_.getContext(), kernel_.params[param].dtype), params_[param],
                        offset);
  }
  int64_t WidthOf(int param) const { return ir::ByteWidth(kernel_.params[param].dtype); }
  Value* LoadFromTransposed(int n) {
    const DType dtype = kernel_.nodes[n].dtype;
    Type* const type = MemoryType(b_.getContext(), dtype, plan_.lanes);
    Value* const at = b_.CreateGEP(type, transposed_blocks_[n], transposed_index_);
    return FromMemory(b_, dtype,
                      b_.CreateFreeze(b_.CreateAlignedLoad(type, at, ElementAlign(dtype))));
  }

  void StoreElement(size_t s) {
    const Store& store = kernel_.stores[s];
    const DType dtype = kernel_.params[store.param].dtype;
    b_.CreateAlignedStore(ToMemory(b_, dtype, row_->values[store.node]),
                          Address(store.param, OffsetOf(store.access, row_->store_rows[s])),
                          ElementAlign(dtype));
  }
  // Stores a block. If two stores interleave, the later one writes the blocks of both.
  void StoreBlock(size_t s) {
    const Store& store = kernel_.stores[s];
    const DType dtype = kernel_.params[store.param].dtype;
    for (const auto& [first, second] : plan_.store_pairs) {
      const auto at = static_cast<int>(s);
      if (at != first && at != second) continue;
      if (at < std::max(first, second)) return;
      const Store& even = kernel_.stores[first];
      StoreInterleaved(dtype, AsLanes(even.node), AsLanes(kernel_.stores[second].node),
                       Address(store.param, OffsetOf(even.access, row_->store_rows[first])));
      return;
    }
    HostBlocks::StoreBlock(dtype, AsLanes(store.node),
                           Address(store.param, OffsetOf(store.access, row_->store_rows[s])),
                           LaneStride(store.access));
  }

  // ---- Nodes. ----------------------------------------------------------------------------------

  void EmitNodes(Level level, bool varying) {
    for (size_t n = 0; n < kernel_.nodes.size(); ++n) {
      const Node& node = kernel_.nodes[n];
      if (levels_[n] == level && plan_.lane_variant[n] == varying &&
          node.kind != Node::Kind::kReduce)
        row_->values[n] = EmitNode(static_cast<int>(n));
    }
  }

  // Emits a node for the current block of the current row, and returns its value: a vector if it
  // differs between lanes, else a scalar. Loads take the cheapest form that the plan allows:
  // gathered, interleaved, from a transposed block, a block, or one element. Reductions have no
  // value here, because FinishReduction sets it.
  Value* EmitNode(int n) {
    const Node& node = kernel_.nodes[n];
    switch (node.kind) {
      case Node::Kind::kLoad: {
        if (IsGathered(node.access)) return LoadGathered(n);
        if (plan_.group_of[n] >= 0) return LoadFromGroup(n);
        Value* const address = Address(node.param, OffsetOf(node.access, row_->node_rows[n]));
        if (plan_.transposed[n]) return LoadFromTransposed(n);
        if (plan_.lane_variant[n]) return LoadBlock(node.dtype, address, LaneStride(node.access));
        Type* const type = MemoryType(b_.getContext(), node.dtype);
        return FromMemory(b_, node.dtype,
                          b_.CreateAlignedLoad(type, address, ElementAlign(node.dtype)));
      }
      case Node::Kind::kIndex: {
        Type* const type = RegisterType(b_.getContext(), node.dtype);
        Value* const first = b_.CreateTrunc(OffsetOf(node.access, row_->node_rows[n]), type);
        if (!plan_.lane_variant[n]) return first;
        Value* const stride =
            llvm::ConstantInt::getSigned(type, node.access.strides[plan_.lane_dim]);
        return b_.CreateAdd(Splat(first), b_.CreateMul(Iota(type), Splat(stride)));
      }
      case Node::Kind::kScalar:
        return EmitScalar(node, plan_.lane_variant[n]);
      case Node::Kind::kReduce:
        break;
    }
    return nullptr;
  }

  // Returns the value of load n, which is in a group (HostPlan::interleaved_groups). The load of
  // the group that is emitted first reads the elements of all loads of the group.
  Value* LoadFromGroup(int n) {
    const std::vector<int>& group = plan_.interleaved_groups[plan_.group_of[n]];
    if (n != *std::min_element(group.begin(), group.end())) return row_->values[n];
    const Node& first = kernel_.nodes[group[0]];
    Value* const address = Address(first.param, OffsetOf(first.access, row_->node_rows[group[0]]));
    const std::vector<Value*> lanes =
        LoadInterleaved(first.dtype, address, static_cast<int64_t>(group.size()));
    for (size_t k = 0; k < group.size(); ++k) row_->values[group[k]] = lanes[k];
    return row_->values[n];
  }

  Value* EmitScalar(const Node& node, bool varying) {
    if (node.prim == ScalarPrim::kConstant)
      return ConstantOf(b_, node.dtype, node.value, node.int_value);
    std::vector<Value*> args;
    for (const int arg : node.args) args.push_back(varying ? AsLanes(arg) : row_->values[arg]);
    const DType operand = kernel_.nodes[node.args.back()].dtype;
    if (Value* const value = EmitPrim(b_, node.prim, operand, node.dtype, args)) return value;
    if (node.dtype == DType::kF32 && node.prim != ScalarPrim::kRem) return EmitWide(node, args);
    return CallLaneFn(node, args);
  }

  // Emits a function of f32 in f64 vectors. A scalar becomes a vector of one lane, so that it gets
  // the same bits as a lane of a block.
  Value* EmitWide(const Node& node, std::vector<Value*> args) {
    const bool scalar = !args[0]->getType()->isVectorTy();
    if (scalar)
      for (Value*& arg : args) arg = b_.CreateVectorSplat(1, arg);
    Value* result = UsesWideFunction(node.prim) ? b_.CreateCall(WideFunction(node, args), args)
                                                : EmitWidePrim(b_, node.prim, node.dtype, args);
    if (IsTrigonometric(node.prim)) result = WithLargeAngles(node, args, result);
    return scalar ? b_.CreateExtractElement(result, uint64_t{0}) : result;
  }
  // Returns whether the primitive becomes a function of the module. The code of such a primitive
  // takes milliseconds to compile, so a primitive that the kernel contains several times becomes a
  // function. A call costs next to nothing beside the function's work.
  bool UsesWideFunction(ScalarPrim prim) const {
    constexpr int kInstancesMin = 2;
    return std::count_if(kernel_.nodes.begin(), kernel_.nodes.end(), [&](const Node& node) {
             return node.kind == Node::Kind::kScalar && node.prim == prim &&
                    node.dtype == DType::kF32;
           }) >= kInstancesMin;
  }
  // Returns the module's function of the primitive on vectors like `args`, and adds it if it is
  // new.
  llvm::Function* WideFunction(const Node& node, const std::vector<Value*>& args) {
    Type* const lanes = args[0]->getType();
    const std::string name =
        "wide." + std::to_string(static_cast<int>(node.prim)) + "." +
        std::to_string(llvm::cast<llvm::FixedVectorType>(lanes)->getNumElements());
    if (llvm::Function* const known = module_.getFunction(name)) return known;
    const std::vector<Type*> params(args.size(), lanes);
    llvm::Function* const function =
        AddHostFunction(llvm::FunctionType::get(lanes, params, /*isVarArg=*/false),
                        llvm::Function::InternalLinkage, vector_bytes_, name, &module_);
    function->addFnAttr(llvm::Attribute::NoInline);
    llvm::IRBuilder<> b(BasicBlock::Create(b_.getContext(), "entry", function));
    std::vector<Value*> values;
    for (llvm::Argument& arg : function->args()) values.push_back(&arg);
    b.CreateRet(EmitWidePrim(b, node.prim, node.dtype, values));
    return function;
  }
  static bool IsTrigonometric(ScalarPrim prim) {
    return prim == ScalarPrim::kSin || prim == ScalarPrim::kCos || prim == ScalarPrim::kTan;
  }
  // Computes lanes with large arguments, which are rare, by a library call.
  Value* WithLargeAngles(const Node& node, const std::vector<Value*>& args, Value* result) {
    const V large = Abs(V(b_, args[0])) >= kLargeAngle;
    BasicBlock* const before = b_.GetInsertBlock();
    Value* called = nullptr;
    BasicBlock* from = nullptr;
    If(b_.CreateOrReduce(large.get()), [&] {
      called = b_.CreateSelect(large.get(), CallLaneFn(node, args), result);
      from = b_.GetInsertBlock();
    });
    llvm::PHINode* const phi = b_.CreatePHI(result->getType(), 2);
    phi->addIncoming(result, before);
    phi->addIncoming(called, from);
    return phi;
  }

  Value* CallLaneFn(const Node& node, const std::vector<Value*>& args) {
    Type* const pointer = b_.getPtrTy();
    const llvm::FunctionCallee fn =
        module_.getOrInsertFunction(LaneFnName(node.prim, node.dtype), b_.getVoidTy(), pointer,
                                    pointer, pointer, b_.getInt64Ty());
    std::vector<Value*> staged;
    for (Value* const arg : args) {
      staged.push_back(EntryAlloca(arg->getType()));
      b_.CreateStore(arg, staged.back());
    }
    Value* const out = EntryAlloca(args[0]->getType());
    const auto* const lanes = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType());
    Value* const count = lanes != nullptr && lanes->getNumElements() > 1 ? num_lanes_ : Int(1);
    b_.CreateCall(fn, {staged.front(), staged.back(), out, count});
    return b_.CreateFreeze(b_.CreateLoad(args[0]->getType(), out));
  }

  Value* AsLanes(int node) {
    return row_->values[node]->getType()->isVectorTy() ? row_->values[node]
                                                       : Splat(row_->values[node]);
  }

  // ---- Reductions. -----------------------------------------------------------------------------

  DType OperandOf(int n) const { return kernel_.nodes[kernel_.nodes[n].args[0]].dtype; }
  bool AccumulatesLanes(int n) const {
    return plan_.vectorize_reduction || plan_.lane_variant[kernel_.nodes[n].args[0]];
  }

  void StartReduction(int n) {
    const auto start = [&](Value* value, llvm::AllocaInst** slot) {
      if (AccumulatesLanes(n)) value = Splat(value);
      if (*slot == nullptr) *slot = EntryAlloca(value->getType());
      b_.CreateStore(value, *slot);
    };
    const Partial identity = Identity(n);
    start(identity.value, &row_->accumulators[n].value);
    if (identity.index != nullptr) start(identity.index, &row_->accumulators[n].index);
  }

  bool IsFloatSum(int n) const {
    const Node& node = kernel_.nodes[n];
    return node.reduce == ReduceKind::kSum && ir::IsFloat(node.dtype);
  }
  // A chunk starts at 0, and its sum is added to the sum of the chunks before it.
  void StartChunk() {
    ForEachReduction([&](int n) {
      if (!IsFloatSum(n)) return;
      Accumulator& acc = row_->accumulators[n];
      if (acc.total == nullptr) acc.total = EntryAlloca(acc.value->getAllocatedType());
      b_.CreateStore(Load(acc.value), acc.total);
      b_.CreateStore(llvm::Constant::getNullValue(acc.value->getAllocatedType()), acc.value);
    });
  }
  void FinishChunk() {
    ForEachReduction([&](int n) {
      if (!IsFloatSum(n)) return;
      const Accumulator& acc = row_->accumulators[n];
      const Partial sum = Combine(n, {Load(acc.total)}, {Load(acc.value)});
      b_.CreateStore(sum.value, acc.value);
    });
  }

  Value* Load(llvm::AllocaInst* slot) { return b_.CreateLoad(slot->getAllocatedType(), slot); }
  Partial Load(const Accumulator& acc) {
    return {Load(acc.value), acc.index == nullptr ? nullptr : Load(acc.index)};
  }

  void Accumulate(int n) {
    const Node& node = kernel_.nodes[n];
    const Accumulator& acc = row_->accumulators[n];
    const int arg = node.args[0];
    const bool lanes = AccumulatesLanes(n);
    if (has_fma_ && !kernel_.scans && IsFloatSum(n) && IsProduct(kernel_.nodes[arg]))
      return AddProduct(kernel_.nodes[arg], lanes, acc.value);
    Partial next = {lanes ? AsLanes(arg) : row_->values[arg]};
    if (acc.index != nullptr) {
      Type* const type = RegisterType(b_.getContext(), node.dtype);
      next.index = b_.CreateTrunc(coords_[kernel_.rank() - 1], type);
      if (lanes) next.index = Splat(next.index);
      if (plan_.vectorize_reduction) next.index = b_.CreateAdd(next.index, Iota(type));
    }
    if (plan_.vectorize_reduction && !AlwaysFull()) {
      // Lanes beyond the end of the row contribute the identity.
      const Partial identity = Identity(n);
      next.value = b_.CreateSelect(mask_, next.value, Splat(identity.value));
      if (acc.index != nullptr)
        next.index = b_.CreateSelect(mask_, next.index, Splat(identity.index));
    }
    const Partial combined = Combine(n, Load(acc), next);
    b_.CreateStore(combined.value, acc.value);
    if (acc.index != nullptr) b_.CreateStore(combined.index, acc.index);
  }

  static bool IsProduct(const Node& node) {
    return node.kind == Node::Kind::kScalar && node.prim == ScalarPrim::kMul;
  }
  // Adds the product of the node's arguments to the sum, and rounds once.
  void AddProduct(const Node& product, bool lanes, llvm::AllocaInst* sum) {
    const auto factor = [&](int arg) { return lanes ? AsLanes(arg) : row_->values[arg]; };
    Value* const before = Load(sum);
    Value* after = b_.CreateIntrinsic(llvm::Intrinsic::fma, {before->getType()},
                                      {factor(product.args[0]), factor(product.args[1]), before});
    if (plan_.vectorize_reduction && !AlwaysFull()) after = b_.CreateSelect(mask_, after, before);
    b_.CreateStore(after, sum);
  }

  Partial Identity(int n) {
    const Node& node = kernel_.nodes[n];
    // The first result of a scan is the first element, even if it is -0.
    if (kernel_.scans && IsFloatSum(n)) return {ConstantOf(b_, node.dtype, -0.0, 0)};
    return IdentityOf(b_, node.reduce, OperandOf(n), RegisterType(b_.getContext(), node.dtype));
  }
  Partial Combine(int n, const Partial& x, const Partial& y) {
    return codegen::Combine(b_, kernel_.nodes[n].reduce, OperandOf(n), x, y);
  }

  // Combines the lanes of a reduced dim, and halves their number with each step.
  void FinishReduction(int n) {
    Partial all = Load(row_->accumulators[n]);
    if (plan_.vectorize_reduction) {
      const auto part = [&](int from, int count) -> Partial {
        return {Part(all.value, from, count),
                all.index == nullptr ? nullptr : Part(all.index, from, count)};
      };
      for (int half = plan_.lanes / 2; half > 0; half /= 2)
        all = Combine(n, part(0, half), part(half, half));
      all.value = b_.CreateExtractElement(all.value, uint64_t{0});
      if (all.index != nullptr) all.index = b_.CreateExtractElement(all.index, uint64_t{0});
    }
    row_->values[n] = all.index != nullptr ? all.index : all.value;
  }
  Value* Part(Value* lanes, int from, int count) {
    std::vector<int> which;
    for (int i = 0; i < count; ++i) which.push_back(from + i);
    return b_.CreateShuffleVector(lanes, which);
  }

  const Kernel& kernel_;
  const bool has_fma_;
  const int vector_bytes_;
  const std::vector<Level> levels_;
  llvm::Module& module_;
  std::vector<Value*> params_;
  // The offset of each access at the coordinates 0.
  std::vector<Value*> node_bases_, store_bases_;
  std::vector<Row> rows_;                  // the rows that are computed together, up to plan_.rows
  Row* row_;                               // the current row
  int num_rows_ = 1;                       // number of rows that are computed together now
  std::vector<Value*> coords_;             // coordinates of the first lane
  std::vector<Value*> transposed_blocks_;  // the block of each transposed load
  Value* transposed_index_ = nullptr;
};

}  // namespace

void EmitHost(const Kernel& kernel, const HostTarget& target, const std::string& name,
              llvm::Module* module) {
  llvm::LLVMContext& context = module->getContext();
  Type* const pointer = llvm::PointerType::getUnqual(context);
  Type* const count = Type::getInt64Ty(context);
  auto* const type = llvm::FunctionType::get(Type::getVoidTy(context), {pointer, count, count},
                                             /*isVarArg=*/false);
  HostEmitter(
      kernel, target,
      AddHostFunction(type, llvm::Function::ExternalLinkage, target.vector_bytes, name, module))
      .EmitRange();
}

llvm::Function* EmitAllIterations(const Kernel& kernel, const HostTarget& target,
                                  const std::string& name, llvm::Module* module) {
  llvm::LLVMContext& context = module->getContext();
  const std::vector<Type*> params(kernel.params.size(), llvm::PointerType::getUnqual(context));
  auto* const type = llvm::FunctionType::get(Type::getVoidTy(context), params, /*isVarArg=*/false);
  llvm::Function* const function =
      AddHostFunction(type, llvm::Function::InternalLinkage, target.vector_bytes, name, module);
  HostEmitter(kernel, target, function).EmitAllIterations();
  return function;
}

}  // namespace tessera::worker::codegen
