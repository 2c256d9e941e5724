// The GPU emitter: one kernel to one LLVM function, laid out as its plan says. gpu_module.cc calls
// EmitGpu for each kernel of a module. This file has the loops, the reductions within a block and
// the combination of blocks; gpu_nodes.cc has the code inside the loops.
#include "worker/codegen/gpu_emit.h"

#include <bit>
#include <functional>

#include "worker/codegen/combine.h"
#include "worker/codegen/gpu_nodes.h"
#include "worker/codegen/math.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using llvm::Value;

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
      case GpuPlan::Layout::kScan:
        EmitScan();
        break;
    }
    b_.CreateRetVoid();
  }

 private:
  struct Accumulator {
    llvm::AllocaInst* value;  // the partial result
    // The index of the best element (argmax and argmin), else null.
    llvm::AllocaInst* index;
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
    // The thread after the threads of whole groups computes the last elements one by one.
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

  // Emits the layout in which `threads_per_row` threads reduce a row. The row is cut into groups of
  // `lanes` elements, and thread t takes the groups t, t + threads_per_row, t + 2 threads_per_row,
  // and so on. Then the lanes, the threads of a warp and the warps of a block are combined, in an
  // order that the plan fixes, so that a sum has the same bits on every device. Shuffles need all
  // threads of a warp, which is why no thread leaves early.
  void EmitRows() {
    const int threads = plan_.threads_per_row;
    const int64_t rows_per_block = plan_.block[0] / threads;
    Value* const tid = ThreadIdxX();
    Value* const row = b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(rows_per_block)),
                                    b_.CreateUDiv(tid, Int(threads)));
    Value* const lane = b_.CreateURem(tid, Int(threads));
    // Threads beyond the last row reduce the last row too, so that all threads reach the shuffles,
    // but they do not store.
    Value* const inside = b_.CreateICmpSLT(row, Int(kernel_.num_iterations()));
    SetCoords(b_.CreateSelect(inside, row, Int(kernel_.num_iterations() - 1)), 0,
              kernel_.num_parallel());
    EmitLevel(Level::kBefore, 1);
    StartReductions(plan_.lanes);

    const int64_t reduced = kernel_.num_reduced_elements();
    const int64_t whole = reduced / plan_.lanes * plan_.lanes;
    const int64_t turn = int64_t{threads} * plan_.lanes;
    const Range share = BlockShare(whole, turn);
    ForShare(share, b_.CreateMul(lane, Int(plan_.lanes)), turn, whole % turn == 0, [&](Value* r) {
      SetCoords(r, kernel_.num_parallel(), kernel_.rank());
      EmitLevel(Level::kInner, plan_.lanes);
      AccumulateElements(r, plan_.lanes);
    });
    // Fewer than `lanes` elements may be left over, but only if the kernel has a single row
    // (IsWideAccess). The row's first block reduces them.
    if (whole < reduced) {
      Value* const first = b_.CreateAdd(lane, Int(whole));
      For(plan_.blocks_per_result == 1
              ? first
              : b_.CreateSelect(b_.CreateICmpEQ(share.begin, Int(0)), first, Int(reduced)),
          Int(reduced), threads, [&](Value* r) {
            SetCoords(r, kernel_.num_parallel(), kernel_.rank());
            EmitLevel(Level::kInner, 1);
            AccumulateElements(r, 1);
          });
    }
    std::vector<Partial> partials = CombineLanes(plan_.lanes);
    for (int mask = std::min(threads, kWarpSize) / 2; mask > 0; mask /= 2)
      CombineByShuffle(mask, &partials);
    Value* leads = b_.CreateICmpEQ(lane, Int(0));
    if (threads > kWarpSize) CombineWarps(tid, threads / kWarpSize, &partials);
    If(b_.CreateAnd(leads, inside),
       [&] { CombineBlocksAndStore(row, kernel_.num_iterations(), partials, 1); });
  }

  void EmitColumns() {
    const int lanes = plan_.lanes;
    const int64_t split = plan_.block[1];
    Value* const x = ThreadIdxX();
    Value* const y = split > 1 ? ThreadIdxY() : Int(0);
    Value* const group = b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(plan_.block[0])), x);
    const int64_t groups = kernel_.num_iterations() / lanes;
    Value* const inside = b_.CreateICmpSLT(group, Int(groups));
    Value* const clamped_group = b_.CreateSelect(inside, group, Int(groups - 1));
    SetCoords(b_.CreateMul(clamped_group, Int(lanes)), 0, kernel_.num_parallel());
    EmitLevel(Level::kBefore, lanes);
    StartReductions(lanes);
    ForShare(BlockShare(kernel_.num_reduced_elements(), split), y, split,
             kernel_.num_reduced_elements() % split == 0, [&](Value* r) {
               SetCoords(r, kernel_.num_parallel(), kernel_.rank());
               EmitLevel(Level::kInner, lanes);
               AccumulateElements(r, lanes);
             });
    std::vector<Partial> partials;  // ordered by reduction, then by lane
    for (int id : Reductions())
      for (int l = 0; l < lanes; ++l) partials.push_back(Read(accumulators_[id][l]));
    if (split > 1) CombineColumns(x, y, split, &partials);
    If(b_.CreateAnd(b_.CreateICmpEQ(y, Int(0)), inside),
       [&] { CombineBlocksAndStore(group, groups, partials, lanes); });
  }

  void EmitScan() {
    const int64_t points = kernel_.num_iterations();
    Value* const thread =
        b_.CreateAdd(b_.CreateMul(BlockIdxX(), Int(plan_.block[0])), ThreadIdxX());
    If(b_.CreateICmpSLT(thread, Int(points * plan_.owners)), [&] {
      // Neighbouring threads take neighbouring points, whose elements may be neighbours in memory,
      // too.
      Value* const owner = b_.CreateUDiv(thread, Int(points));
      SetCoords(b_.CreateURem(thread, Int(points)), 0, kernel_.num_parallel());
      EmitLevel(Level::kBefore, 1);
      StartReductions(1);
      For(Int(0), Int(kernel_.num_reduced_elements()), 1, [&](Value* r) {
        SetCoords(r, kernel_.num_parallel(), kernel_.rank());
        if (plan_.owners == 1) return EmitScanned();
        If(b_.CreateICmpEQ(OwnerOf(kernel_.stores[0].access), owner), [&] { EmitScanned(); });
      });
    });
  }
  void EmitScanned() {
    EmitLevel(Level::kInner, 1, [&](int id) {
      const Node& node = kernel_.nodes[id];
      const Accumulator& acc = accumulators_[id][0];
      const Partial sum = Combine(node, Read(acc), {ValueAt(node.args[0], 0), nullptr});
      Write(sum, acc);
      values_[id] = {sum.value};
    });
    EmitStores(1);
  }
  // Returns the owner of the access's element, as a hash of its place among the elements of its
  // parallel point. Neighbours get different owners. The hash is the high bits of the product with
  // 2^32 / phi (Knuth, The Art of Computer Programming 6.4).
  Value* OwnerOf(const Access& access) {
    Value* const element = ElementIndexFrom(access, kernel_.num_parallel());
    Value* const hash =
        b_.CreateMul(b_.CreateZExtOrTrunc(element, b_.getInt32Ty()), b_.getInt32(2654435769));
    return b_.CreateZExtOrTrunc(
        b_.CreateLShr(hash, 32 - std::countr_zero(static_cast<uint32_t>(plan_.owners))),
        index_type_);
  }

  // The range of the reduced elements that this block reduces. BlockShare cuts `count` elements at
  // multiples of `turn`, the number of elements that the block's threads reduce in one iteration.
  struct Range {
    Value* begin;
    Value* end;
  };
  Range BlockShare(int64_t count, int64_t turn) {
    if (plan_.blocks_per_result == 1) return {Int(0), Int(count)};
    const int64_t turns = (count + turn - 1) / turn;
    const int64_t share_size =
        (turns + plan_.blocks_per_result - 1) / plan_.blocks_per_result * turn;
    Value* const begin = b_.CreateMul(BlockIdxY(), Int(share_size));
    Value* const end = b_.CreateAdd(begin, Int(share_size));
    return {begin, b_.CreateSelect(b_.CreateICmpSLT(end, Int(count)), end, Int(count))};
  }

  // Loops over a thread's elements of the share: every `turn`th from `first` on. If all threads
  // have equally many (`even`), the trip count is uniform, so that the assembler may unroll the
  // loop.
  void ForShare(const Range& share, Value* first, int64_t turn, bool even,
                const std::function<void(Value*)>& body) {
    if (!even) return For(b_.CreateAdd(share.begin, first), share.end, turn, body);
    For(share.begin, share.end, turn, [&](Value* base) { body(b_.CreateAdd(base, first)); });
  }

  // Combines the partial results of the blocks that share a result, and stores the result. For each
  // result, one thread of every block that shares it runs this code. Every block stores its partial
  // results to memory. The block that arrives last combines all of them in the order of the block
  // numbers, so that the bits do not depend on the order of arrival.
  void CombineBlocksAndStore(Value* result, int64_t num_results,
                             const std::vector<Partial>& partials, int lanes) {
    const int64_t blocks = plan_.blocks_per_result;
    if (blocks == 1) return EmitAfterReductions(partials, lanes);
    int64_t words = 0;
    for (const Partial& partial : partials) words += partial.index == nullptr ? 1 : 2;
    llvm::GlobalVariable* const memory =
        DeviceGlobal("partials", b_.getInt64Ty(), num_results * blocks * words);
    llvm::GlobalVariable* const counters = DeviceGlobal("counters", b_.getInt32Ty(), num_results);
    // The partial results are laid out by result, then by block.
    const auto words_of = [&](Value* block) -> WordAddress {
      Value* const first =
          b_.CreateMul(b_.CreateAdd(b_.CreateMul(result, Int(blocks)), block), Int(words));
      return [this, memory, first](int64_t word) {
        return b_.CreateGEP(b_.getInt64Ty(), memory, b_.CreateAdd(first, Int(word)));
      };
    };
    StorePartials(partials, words_of(BlockIdxY()));
    Fence();
    Value* const counter = b_.CreateGEP(b_.getInt32Ty(), counters, result);
    Value* const arrived_before =
        b_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, counter, b_.getInt32(1), llvm::MaybeAlign(4),
                           llvm::AtomicOrdering::Monotonic);
    If(b_.CreateICmpEQ(arrived_before, b_.getInt32(static_cast<uint32_t>(blocks - 1))), [&] {
      Fence();
      b_.CreateStore(b_.getInt32(0), counter);  // reset for the next launch
      const auto accumulators = ResultAccumulators(lanes);
      const auto load = [&](Value* block) {
        return LoadPartials(partials, words_of(block), /*is_volatile=*/true);
      };
      const std::vector<Partial> first = load(Int(0));
      for (size_t i = 0; i < first.size(); ++i) Write(first[i], *accumulators[i].second);
      For(Int(1), Int(blocks), 1, [&](Value* block) { Accumulate(load(block), accumulators); });
      std::vector<Partial> all;
      for (const auto& [node, acc] : accumulators) all.push_back(Read(*acc));
      EmitAfterReductions(all, lanes);
    });
  }
  using NodeAccumulators = std::vector<std::pair<const Node*, const Accumulator*>>;
  void Accumulate(const std::vector<Partial>& partials, const NodeAccumulators& accumulators) {
    for (size_t i = 0; i < partials.size(); ++i) {
      const auto& [node, acc] = accumulators[i];
      Write(Combine(*node, Read(*acc), partials[i]), *acc);
    }
  }
  // Returns the accumulator of each reduction and lane of the results, in the order of the
  // partials.
  NodeAccumulators ResultAccumulators(int lanes) {
    NodeAccumulators all;
    for (int id : Reductions())
      for (int l = 0; l < lanes; ++l) all.emplace_back(&kernel_.nodes[id], &accumulators_[id][l]);
    return all;
  }

  // Emits the nodes after the reductions, from the results of the reductions: `lanes` results of
  // each.
  void EmitAfterReductions(const std::vector<Partial>& partials, int lanes) {
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
  DType OperandOf(const Node& node) const { return kernel_.nodes[node.args[0]].dtype; }

  // The combination is commutative, so that all threads of a butterfly shuffle get the same result.
  Partial Combine(const Node& node, const Partial& x, const Partial& y) {
    return codegen::Combine(b_, node.reduce, OperandOf(node), x, y);
  }

  void StartReductions(int lanes) {
    for (int id : Reductions()) {
      const Node& node = kernel_.nodes[id];
      accumulators_[id].clear();
      for (int l = 0; l < lanes; ++l) {
        Partial identity = IdentityOf(b_, node.reduce, OperandOf(node), index_type_);
        // The first result of a scan is the first element, even if it is -0.
        if (kernel_.scans && node.reduce == ir::ReduceKind::kSum && ir::IsFloat(node.dtype))
          identity.value = ConstantOf(b_, node.dtype, -0.0, 0);
        const bool arg = identity.index != nullptr;
        accumulators_[id].push_back(
            {Local(identity.value->getType()), arg ? Local(index_type_) : nullptr});
        Write(identity, accumulators_[id].back());
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
  // Adds element r, and the elements at the lanes beside it, to the accumulators.
  void AccumulateElements(Value* r, int lanes) {
    for (int id : Reductions()) {
      const Node& node = kernel_.nodes[id];
      for (int l = 0; l < lanes; ++l) {
        const Accumulator& acc = accumulators_[id][l];
        // With layout kRows the lanes are elements of the reduced dim. With kColumns each lane has
        // its own result.
        Value* const index = plan_.layout == GpuPlan::Layout::kRows ? b_.CreateAdd(r, Int(l)) : r;
        Write(Combine(node, Read(acc), {ValueAt(node.args[0], l), index}), acc);
      }
    }
  }

  std::vector<Partial> CombineLanes(int lanes) {
    std::vector<Partial> partials;
    for (int id : Reductions()) {
      Partial combined = Read(accumulators_[id][0]);
      for (int l = 1; l < lanes; ++l)
        combined = Combine(kernel_.nodes[id], combined, Read(accumulators_[id][l]));
      partials.push_back(combined);
    }
    return partials;
  }

  void CombineByShuffle(int mask, std::vector<Partial>* partials) {
    const std::vector<int> ids = Reductions();
    for (size_t i = 0; i < ids.size(); ++i) {
      Partial& mine = (*partials)[i];
      const Partial other = {Shuffle(mine.value, mask),
                             mine.index == nullptr ? nullptr : Shuffle(mine.index, mask)};
      mine = Combine(kernel_.nodes[ids[i]], mine, other);
    }
  }

  // Returns the address of the n-th word of some partials. A value or an index takes one word.
  using WordAddress = std::function<Value*(int64_t)>;
  void StorePartials(const std::vector<Partial>& partials, const WordAddress& address) {
    int64_t word = 0;
    const auto store = [&](Value* v) {
      b_.CreateStore(v->getType()->isIntegerTy(1) ? b_.CreateZExt(v, b_.getInt8Ty()) : v,
                     address(word++));
    };
    for (const Partial& partial : partials) {
      store(partial.value);
      if (partial.index != nullptr) store(partial.index);
    }
  }
  // Loads partials with the types of `like`.
  std::vector<Partial> LoadPartials(const std::vector<Partial>& like, const WordAddress& address,
                                    bool is_volatile = false) {
    int64_t word = 0;
    const auto load = [&](Value* v) -> Value* {
      const bool is_bool = v->getType()->isIntegerTy(1);
      Value* const loaded =
          b_.CreateLoad(is_bool ? b_.getInt8Ty() : v->getType(), address(word++), is_volatile);
      return is_bool ? b_.CreateTrunc(loaded, b_.getInt1Ty()) : loaded;
    };
    std::vector<Partial> partials;
    for (const Partial& partial : like) {
      Value* const value = load(partial.value);
      partials.push_back({value, partial.index == nullptr ? nullptr : load(partial.index)});
    }
    return partials;
  }
  // Returns the addresses of the words of thread `number` of `count` threads in shared memory. Word
  // i of all threads lies together, so the words of one thread lie `count` words apart.
  WordAddress SharedWords(Value* number, int64_t count) {
    return [this, number, count](int64_t word) {
      return SharedWordAddress(b_.CreateAdd(number, Int(word * count)));
    };
  }

  // Combines the partials of the row's warps, and leaves the result in every thread. `warps` is a
  // power of two.
  void CombineWarps(Value* tid, int warps, std::vector<Partial>* partials) {
    Value* const lane = b_.CreateURem(tid, Int(kWarpSize));
    If(b_.CreateICmpEQ(lane, Int(0)),
       [&] { StorePartials(*partials, SharedWords(b_.CreateUDiv(tid, Int(kWarpSize)), warps)); });
    Barrier();
    *partials = LoadPartials(*partials, SharedWords(b_.CreateURem(lane, Int(warps)), warps));
    for (int mask = warps / 2; mask > 0; mask /= 2) CombineByShuffle(mask, partials);
  }

  // Combines the partials of the threads that share a column, in the order of y. The first thread
  // gets the result.
  void CombineColumns(Value* x, Value* y, int64_t split, std::vector<Partial>* partials) {
    const int64_t width = plan_.block[0];
    StorePartials(*partials,
                  SharedWords(b_.CreateAdd(b_.CreateMul(y, Int(width)), x), split * width));
    Barrier();
    const auto accumulators = ResultAccumulators(plan_.lanes);
    If(b_.CreateICmpEQ(y, Int(0)), [&] {
      For(Int(1), Int(split), 1, [&](Value* other) {
        Value* const thread = b_.CreateAdd(x, b_.CreateMul(other, Int(width)));
        Accumulate(LoadPartials(*partials, SharedWords(thread, split * width)), accumulators);
      });
    });
    for (size_t i = 0; i < partials->size(); ++i) (*partials)[i] = Read(*accumulators[i].second);
  }

  std::vector<std::vector<Accumulator>> accumulators_;  // indexed by node, then by lane
};

}  // namespace

void EmitGpu(const Kernel& kernel, const GpuPlan& plan, const std::string& entry,
             llvm::Module* module) {
  GpuEmitter(kernel, plan, entry, module).Emit();
}

}  // namespace tessera::worker::codegen
