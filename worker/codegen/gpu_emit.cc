#include "worker/codegen/gpu_emit.h"

#include <functional>
#include <limits>

#include "base/log.h"
#include "worker/codegen/gpu_nodes.h"
#include "worker/codegen/math.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ReduceKind;
using ir::ScalarPrim;
using llvm::Type;
using llvm::Value;

bool IsArgReduction(ReduceKind kind) {
  return kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMin;
}

class GpuEmitter : private GpuNodes {
 public:
  GpuEmitter(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module)
      : GpuNodes(kernel, plan, entry, module), accumulators_(kernel.nodes.size()) {}

  void Emit() {
    switch (plan_.layout) {
      case GpuPlan::Layout::kNothing:
        break;
      case GpuPlan::Layout::kElementwise:
        EmitElementwise();
        break;
      case GpuPlan::Layout::kRows:
        EmitRows();
        break;
      case GpuPlan::Layout::kColumns:
        EmitColumns();
        break;
    }
    b_.CreateRetVoid();
  }

 private:
  struct Accumulator {
    llvm::AllocaInst* value;  // where the partial result is kept
    llvm::AllocaInst* index;  // of argmax and argmin; else null
  };
  // A partial result in registers.
  struct Partial {
    Value* value;
    Value* index;
  };

  // ---- Layouts. --------------------------------------------------------------------------------

  void EmitElementwise() {
    const int64_t n = kernel_.num_iterations();
    Value* const thread =
        b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(plan_.block[0])), ThreadIdxX());
    Value* const first = b_.CreateMul(thread, Int(plan_.lanes));
    const int64_t whole = n / plan_.lanes * plan_.lanes;
    If(b_.CreateICmpSLT(first, Int(whole)), [&] {
      SetCoords(first, 0, kernel_.rank());
      EmitElements(plan_.lanes);
    });
    // The last ones, one a thread: the threads after those of whole groups are at most one.
    if (whole == n) return;
    If(b_.CreateICmpEQ(first, Int(whole)), [&] {
      For(Int(whole), Int(n), 1, [&](Value* i) {
        SetCoords(i, 0, kernel_.rank());
        EmitElements(1);
      });
    });
  }
  void EmitElements(int lanes) {
    EmitLevel(Level::kBefore, lanes);
    EmitStores(lanes);
  }

  void EmitRows() {
    const int threads = plan_.threads_per_row;
    const int64_t rows_per_block = plan_.block[0] / threads;
    Value* const tid = ThreadIdxX();
    Value* const row = b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(rows_per_block)),
                                    b_.CreateUDiv(tid, Int(threads)));
    Value* const lane = b_.CreateURem(tid, Int(threads));
    // Threads beyond the last row reduce it too, so that all threads reach the shuffles, but do
    // not store.
    Value* const inside = b_.CreateICmpSLT(row, Int(kernel_.num_iterations()));
    SetCoords(b_.CreateSelect(inside, row, Int(kernel_.num_iterations() - 1)), 0,
              kernel_.num_parallel());
    EmitLevel(Level::kBefore, 1);
    StartReductions(plan_.lanes);

    const int64_t reduced = NumReduced();
    const int64_t whole = reduced / plan_.lanes * plan_.lanes;
    const int64_t turn = int64_t{threads} * plan_.lanes;
    const Range share = Share(whole, turn);
    ForShare(share, b_.CreateMul(lane, Int(plan_.lanes)), turn, whole % turn == 0, [&](Value* r) {
      SetCoords(r, kernel_.num_parallel(), kernel_.rank());
      EmitLevel(Level::kInner, plan_.lanes);
      FoldReductions(r, plan_.lanes);
    });
    // A single row may end with fewer elements than lanes: they are for its first block.
    if (whole < reduced) {
      Value* const first = b_.CreateAdd(lane, Int(whole));
      For(plan_.blocks_per_result == 1
              ? first
              : b_.CreateSelect(b_.CreateICmpEQ(share.begin, Int(0)), first, Int(reduced)),
          Int(reduced), threads, [&](Value* r) {
            SetCoords(r, kernel_.num_parallel(), kernel_.rank());
            EmitLevel(Level::kInner, 1);
            FoldReductions(r, 1);
          });
    }
    std::vector<Partial> partials = JoinLanes(plan_.lanes);
    for (int mask = std::min(threads, kWarpSize) / 2; mask > 0; mask /= 2)
      ShuffleJoin(mask, &partials);
    Value* leads = b_.CreateICmpEQ(lane, Int(0));
    if (threads > kWarpSize) JoinWarps(tid, threads / kWarpSize, &partials);
    If(b_.CreateAnd(leads, inside), [&] { Finish(row, kernel_.num_iterations(), partials, 1); });
  }

  void EmitColumns() {
    const int lanes = plan_.lanes;
    const int64_t split = plan_.block[1];
    Value* const x = ThreadIdxX();
    Value* const y = split > 1 ? ThreadIdxY() : Int(0);
    Value* const group = b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(plan_.block[0])), x);
    const int64_t groups = kernel_.num_iterations() / lanes;
    Value* const inside = b_.CreateICmpSLT(group, Int(groups));
    Value* const safe = b_.CreateSelect(inside, group, Int(groups - 1));
    SetCoords(b_.CreateMul(safe, Int(lanes)), 0, kernel_.num_parallel());
    EmitLevel(Level::kBefore, lanes);
    StartReductions(lanes);
    ForShare(Share(NumReduced(), split), y, split, NumReduced() % split == 0, [&](Value* r) {
      SetCoords(r, kernel_.num_parallel(), kernel_.rank());
      EmitLevel(Level::kInner, lanes);
      FoldReductions(r, lanes);
    });
    // Of each reduction, of each lane.
    std::vector<Partial> partials;
    for (int id : Reductions())
      for (int l = 0; l < lanes; ++l) partials.push_back(Read(accumulators_[id][l]));
    if (split > 1) JoinSplits(x, y, split, &partials);
    If(b_.CreateAnd(b_.CreateICmpEQ(y, Int(0)), inside),
       [&] { Finish(group, groups, partials, lanes); });
  }

  // The part of `count` reduced elements that is for this block, in whole turns.
  struct Range {
    Value* begin;
    Value* end;
  };
  Range Share(int64_t count, int64_t turn) {
    if (plan_.blocks_per_result == 1) return {Int(0), Int(count)};
    const int64_t turns = (count + turn - 1) / turn;
    const int64_t share = (turns + plan_.blocks_per_result - 1) / plan_.blocks_per_result * turn;
    Value* const begin = b_.CreateMul(BlockIdxY(), Int(share));
    Value* const end = b_.CreateAdd(begin, Int(share));
    return {begin, b_.CreateSelect(b_.CreateICmpSLT(end, Int(count)), end, Int(count))};
  }

  // A thread's elements of the share: every `turn`th from `first` on. If all threads have the same
  // number (`even`), the trip count is uniform, so that the assembler may unroll the loop.
  void ForShare(const Range& share, Value* first, int64_t turn, bool even,
                const std::function<void(Value*)>& body) {
    if (!even) return For(b_.CreateAdd(share.begin, first), share.end, turn, body);
    For(share.begin, share.end, turn, [&](Value* base) { body(b_.CreateAdd(base, first)); });
  }

  // One thread handles the results of its block: every block stores its partial results, and the
  // block that arrives last combines all of them in the order of the block numbers.
  void Finish(Value* result, int64_t num_results, const std::vector<Partial>& partials, int lanes) {
    const int64_t blocks = plan_.blocks_per_result;
    if (blocks == 1) return FinishRow(partials, lanes);
    int64_t words = 0;
    for (const Partial& partial : partials) words += partial.index == nullptr ? 1 : 2;
    llvm::GlobalVariable* const memory =
        DeviceGlobal("partials", b_.getInt64Ty(), num_results * blocks * words);
    llvm::GlobalVariable* const counters = DeviceGlobal("counters", b_.getInt32Ty(), num_results);
    // By result, by block.
    const auto word_of = [&](Value* block) {
      return b_.CreateMul(b_.CreateAdd(b_.CreateMul(result, Int(blocks)), block), Int(words));
    };
    Value* const mine = word_of(BlockIdxY());
    int64_t next = 0;
    const auto put = [&](Value* v) {
      Value* const stored = v->getType()->isIntegerTy(1) ? b_.CreateZExt(v, b_.getInt8Ty()) : v;
      b_.CreateStore(stored,
                     b_.CreateGEP(b_.getInt64Ty(), memory, b_.CreateAdd(mine, Int(next++))));
    };
    for (const Partial& partial : partials) {
      put(partial.value);
      if (partial.index != nullptr) put(partial.index);
    }
    Fence();
    Value* const counter = b_.CreateGEP(b_.getInt32Ty(), counters, result);
    Value* const before = b_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, counter, b_.getInt32(1),
                                             llvm::MaybeAlign(4), llvm::AtomicOrdering::Monotonic);
    If(b_.CreateICmpEQ(before, b_.getInt32(static_cast<uint32_t>(blocks - 1))), [&] {
      Fence();
      b_.CreateStore(b_.getInt32(0), counter);  // for the next launch
      const auto accumulators = ResultAccumulators(lanes);
      const auto take = [&](Value* block) {
        Value* const from = word_of(block);
        int64_t word = 0;
        const auto get = [&](Value* like) -> Value* {
          const bool is_bool = like->getType()->isIntegerTy(1);
          Value* const loaded =
              b_.CreateLoad(is_bool ? b_.getInt8Ty() : like->getType(),
                            b_.CreateGEP(b_.getInt64Ty(), memory, b_.CreateAdd(from, Int(word++))),
                            /*isVolatile=*/true);
          return is_bool ? b_.CreateTrunc(loaded, b_.getInt1Ty()) : loaded;
        };
        std::vector<Partial> taken;
        for (const Partial& like : partials) {
          Value* const value = get(like.value);
          taken.push_back({value, like.index == nullptr ? nullptr : get(like.index)});
        }
        return taken;
      };
      const std::vector<Partial> first = take(Int(0));
      for (size_t i = 0; i < first.size(); ++i) Write(first[i], *accumulators[i].second);
      For(Int(1), Int(blocks), 1, [&](Value* block) {
        const std::vector<Partial> taken = take(block);
        for (size_t i = 0; i < taken.size(); ++i) {
          const auto& [node, acc] = accumulators[i];
          Write(Join(*node, Read(*acc), taken[i]), *acc);
        }
      });
      std::vector<Partial> all;
      for (const auto& [node, acc] : accumulators) all.push_back(Read(*acc));
      FinishRow(all, lanes);
    });
  }
  // Of each reduction and lane of the results, in the order of partials.
  std::vector<std::pair<const Node*, const Accumulator*>> ResultAccumulators(int lanes) {
    std::vector<std::pair<const Node*, const Accumulator*>> all;
    for (int id : Reductions())
      for (int l = 0; l < lanes; ++l) all.emplace_back(&kernel_.nodes[id], &accumulators_[id][l]);
    return all;
  }

  // What follows the reductions, from their results: `lanes` of each.
  void FinishRow(const std::vector<Partial>& partials, int lanes) {
    size_t next = 0;
    for (int id : Reductions()) {
      values_[id].clear();
      for (int l = 0; l < lanes; ++l) {
        const Partial& partial = partials[next++];
        const Node& node = kernel_.nodes[id];
        values_[id].push_back(
            IsArgReduction(node.reduce)
                ? b_.CreateSExtOrTrunc(partial.index, RegisterType(b_.getContext(), node.dtype))
                : partial.value);
      }
    }
    EmitLevel(Level::kAfter, lanes);
    EmitStores(lanes);
  }

  // ---- Reductions. -----------------------------------------------------------------------------

  std::vector<int> Reductions() const {
    std::vector<int> ids;
    for (size_t id = 0; id < kernel_.nodes.size(); ++id)
      if (kernel_.nodes[id].kind == Node::Kind::kReduce) ids.push_back(static_cast<int>(id));
    return ids;
  }
  int64_t NumReduced() const {
    int64_t n = 1;
    for (int d = kernel_.num_parallel(); d < kernel_.rank(); ++d) n *= kernel_.shape[d];
    return n;
  }
  DType OperandOf(const Node& node) const { return kernel_.nodes[node.args[0]].dtype; }

  Value* Identity(const Node& node) {
    const DType dtype = OperandOf(node);
    const double infinity = std::numeric_limits<double>::infinity();
    const auto constant = [&](double number, int64_t integer) {
      return ConstantOf(b_, dtype, number, integer);
    };
    const bool is_signed = ir::IsSignedInt(dtype);
    const int bits = static_cast<int>(8 * ir::ByteWidth(dtype));
    const int64_t ones = dtype == DType::kBool ? 1 : -1;
    const int64_t least = is_signed ? std::numeric_limits<int64_t>::min() >> (64 - bits) : 0;
    const int64_t greatest = is_signed ? std::numeric_limits<int64_t>::max() >> (64 - bits) : ones;
    switch (node.reduce) {
      case ReduceKind::kProd:
        return constant(1, 1);
      case ReduceKind::kMax:
      case ReduceKind::kArgMax:
        return constant(-infinity, least);
      case ReduceKind::kMin:
      case ReduceKind::kArgMin:
        return constant(infinity, greatest);
      case ReduceKind::kAnd:
        return constant(0, ones);
      default:
        return constant(0, 0);
    }
  }

  // Commutative, so that all threads of a butterfly shuffle get the same result.
  Partial Join(const Node& node, Partial x, Partial y) {
    const DType dtype = OperandOf(node);
    const auto prim = [&](ScalarPrim p, DType result, Value* v, Value* w) {
      return EmitPrim(b_, p, dtype, result, {v, w});
    };
    switch (node.reduce) {
      case ReduceKind::kSum:
        return {prim(ScalarPrim::kAdd, dtype, x.value, y.value), nullptr};
      case ReduceKind::kProd:
        return {prim(ScalarPrim::kMul, dtype, x.value, y.value), nullptr};
      case ReduceKind::kMax:
        return {prim(ScalarPrim::kMax, dtype, x.value, y.value), nullptr};
      case ReduceKind::kMin:
        return {prim(ScalarPrim::kMin, dtype, x.value, y.value), nullptr};
      case ReduceKind::kAnd:
        return {prim(ScalarPrim::kAnd, dtype, x.value, y.value), nullptr};
      case ReduceKind::kOr:
        return {prim(ScalarPrim::kOr, dtype, x.value, y.value), nullptr};
      case ReduceKind::kArgMax:
      case ReduceKind::kArgMin:
        break;
      case ReduceKind::kNone:
        TESSERA_CHECK(false) << "a reduction without a kind passed Verify";
    }
    // y replaces x if it is better, or as good and earlier; a NaN is better than any number.
    const ScalarPrim relation =
        node.reduce == ReduceKind::kArgMax ? ScalarPrim::kGt : ScalarPrim::kLt;
    Value* better = prim(relation, DType::kBool, y.value, x.value);
    Value* as_good = prim(ScalarPrim::kEq, DType::kBool, y.value, x.value);
    if (ir::IsFloat(dtype)) {
      Value* const x_nan = prim(ScalarPrim::kNe, DType::kBool, x.value, x.value);
      Value* const y_nan = prim(ScalarPrim::kNe, DType::kBool, y.value, y.value);
      better = b_.CreateOr(better, b_.CreateAnd(y_nan, b_.CreateNot(x_nan)));
      as_good = b_.CreateOr(as_good, b_.CreateAnd(y_nan, x_nan));
    }
    Value* const earlier = b_.CreateICmpSLT(y.index, x.index);
    Value* const replaces = b_.CreateOr(better, b_.CreateAnd(as_good, earlier));
    return {b_.CreateSelect(replaces, y.value, x.value),
            b_.CreateSelect(replaces, y.index, x.index)};
  }

  void StartReductions(int lanes) {
    for (int id : Reductions()) {
      const Node& node = kernel_.nodes[id];
      accumulators_[id].clear();
      for (int l = 0; l < lanes; ++l) {
        Value* const identity = Identity(node);
        Accumulator acc = {Local(identity->getType()), nullptr};
        b_.CreateStore(identity, acc.value);
        if (IsArgReduction(node.reduce)) {
          // An index later than that of every element.
          acc.index = Local(index_type_);
          b_.CreateStore(Int(plan_.wide_index ? std::numeric_limits<int64_t>::max()
                                              : std::numeric_limits<int32_t>::max()),
                         acc.index);
        }
        accumulators_[id].push_back(acc);
      }
    }
  }
  Partial Read(const Accumulator& acc) {
    return {b_.CreateLoad(acc.value->getAllocatedType(), acc.value),
            acc.index == nullptr ? nullptr : b_.CreateLoad(index_type_, acc.index)};
  }
  void Write(Partial partial, const Accumulator& acc) {
    b_.CreateStore(partial.value, acc.value);
    if (acc.index != nullptr) b_.CreateStore(partial.index, acc.index);
  }
  // Element r, and those at the lanes beside it.
  void FoldReductions(Value* r, int lanes) {
    for (int id : Reductions()) {
      const Node& node = kernel_.nodes[id];
      for (int l = 0; l < lanes; ++l) {
        const Accumulator& acc = accumulators_[id][l];
        // In rows the lanes are elements of the reduced dim; in columns each has its own result.
        Value* const index = plan_.layout == GpuPlan::Layout::kRows ? b_.CreateAdd(r, Int(l)) : r;
        Write(Join(node, Read(acc), {At(node.args[0], l), index}), acc);
      }
    }
  }

  std::vector<Partial> JoinLanes(int lanes) {
    std::vector<Partial> partials;
    for (int id : Reductions()) {
      Partial joined = Read(accumulators_[id][0]);
      for (int l = 1; l < lanes; ++l)
        joined = Join(kernel_.nodes[id], joined, Read(accumulators_[id][l]));
      partials.push_back(joined);
    }
    return partials;
  }

  void ShuffleJoin(int mask, std::vector<Partial>* partials) {
    const std::vector<int> ids = Reductions();
    for (size_t i = 0; i < ids.size(); ++i) {
      Partial& mine = (*partials)[i];
      const Partial other = {Shuffle(mine.value, mask),
                             mine.index == nullptr ? nullptr : Shuffle(mine.index, mask)};
      mine = Join(kernel_.nodes[ids[i]], mine, other);
    }
  }

  // Slots are laid out by partial, then by `number` below `count`.
  void Put(Value* number, int64_t count, const std::vector<Partial>& partials) {
    int64_t base = 0;
    const auto put = [&](Value* v) {
      b_.CreateStore(v->getType()->isIntegerTy(1) ? b_.CreateZExt(v, b_.getInt8Ty()) : v,
                     SharedWord(b_.CreateAdd(number, Int(base))));
      base += count;
    };
    for (const Partial& partial : partials) {
      put(partial.value);
      if (partial.index != nullptr) put(partial.index);
    }
  }
  std::vector<Partial> Get(Value* number, int64_t count, const std::vector<Partial>& like) {
    int64_t base = 0;
    const auto get = [&](Value* v) -> Value* {
      const bool is_bool = v->getType()->isIntegerTy(1);
      Value* const slot = SharedWord(b_.CreateAdd(number, Int(base)));
      base += count;
      Value* const loaded = b_.CreateLoad(is_bool ? b_.getInt8Ty() : v->getType(), slot);
      return is_bool ? b_.CreateTrunc(loaded, b_.getInt1Ty()) : loaded;
    };
    std::vector<Partial> partials;
    for (const Partial& partial : like) {
      Value* const value = get(partial.value);
      partials.push_back({value, partial.index == nullptr ? nullptr : get(partial.index)});
    }
    return partials;
  }

  // The results of the row's warps, of which there are a power of two, in every thread.
  void JoinWarps(Value* tid, int warps, std::vector<Partial>* partials) {
    Value* const lane = b_.CreateURem(tid, Int(kWarpSize));
    If(b_.CreateICmpEQ(lane, Int(0)),
       [&] { Put(b_.CreateUDiv(tid, Int(kWarpSize)), warps, *partials); });
    Barrier();
    *partials = Get(b_.CreateURem(lane, Int(warps)), warps, *partials);
    for (int mask = warps / 2; mask > 0; mask /= 2) ShuffleJoin(mask, partials);
  }

  // The results of the threads that share a column, in the order of y, in the first of them.
  void JoinSplits(Value* x, Value* y, int64_t split, std::vector<Partial>* partials) {
    const int64_t width = plan_.block[0];
    Put(b_.CreateAdd(b_.CreateMul(y, Int(width)), x), split * width, *partials);
    Barrier();
    const auto accumulators = ResultAccumulators(plan_.lanes);
    If(b_.CreateICmpEQ(y, Int(0)), [&] {
      For(Int(1), Int(split), 1, [&](Value* other) {
        Value* const slot = b_.CreateAdd(x, b_.CreateMul(other, Int(width)));
        const std::vector<Partial> next = Get(slot, split * width, *partials);
        for (size_t i = 0; i < next.size(); ++i) {
          const auto& [node, acc] = accumulators[i];
          Write(Join(*node, Read(*acc), next[i]), *acc);
        }
      });
    });
    for (size_t i = 0; i < partials->size(); ++i) (*partials)[i] = Read(*accumulators[i].second);
  }
  std::vector<std::vector<Accumulator>> accumulators_;  // of each reduction, of each lane
};

}  // namespace

void EmitGpu(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module) {
  GpuEmitter(kernel, plan, entry, module).Emit();
}

}  // namespace tessera::worker::codegen
