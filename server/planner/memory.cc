// Bounds the memory of a device program for MakePlan. The coordinator refuses a plan whose bound
// exceeds a device's memory, so the bound must not be below what a worker takes: each function here
// follows what the worker's compiler and backends do for an op, and counts the worst case.
#include "server/planner/memory.h"

#include <algorithm>
#include <set>
#include <vector>

#include "ir/array.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "ir/eval/memory.h"
#include "ir/op_def.h"
#include "server/planner/bytes.h"

namespace tessera::server::planner {
namespace {

using ir::Function;
using ir::Op;
using ir::Type;
using ir::ValueId;

constexpr int64_t kAlignment = 64;  // alignment of every value in a worker's memory
// A reduction of this many elements or more may keep partial results of kPartialsBytes.
constexpr int64_t kLongReductionMin = 1 << 12;
constexpr int64_t kPartialsBytes = 8192;

// Returns the bytes that a worker allocates for a value. The sums of this file saturate (bytes.h),
// because a single value may have 2^61 bytes.
int64_t AllocatedBytes(const Type& t) {
  return Plus(t.num_bytes(), kAlignment - 1) / kAlignment * kAlignment;
}

// ---- Copies that a worker makes for an op. ----

// Returns the positions in `dims` of the factors that `wanted` lists, except for dims of size 1.
std::vector<int> PositionsOf(const ir::TensorFactors& dims, const ir::TensorFactors& wanted,
                             const Type& t) {
  std::vector<int> at;
  for (const ir::FactorList& factor : wanted) {
    const auto found = std::find(dims.begin(), dims.end(), factor);
    const auto d = static_cast<int>(found - dims.begin());
    if (found != dims.end() && t.shape[d] > 1) at.push_back(d);
  }
  return at;
}

// Returns whether the operand of a contraction can be read as matrices without packing it. The dims
// of each role (batch, free and contracted) must be adjacent. Batch dims and free dims must have
// the result's order, and contracted dims the order of the first operand. The last dim must not be
// a batch dim.
bool IsMatrices(const ir::Signature& s, int operand, const Type& t) {
  const ir::TensorFactors &mine = s.operands[operand], &other = s.operands[1 - operand];
  const auto has = [](const ir::TensorFactors& dims, const ir::FactorList& f) {
    return std::find(dims.begin(), dims.end(), f) != dims.end();
  };
  ir::TensorFactors batch, free, contracted;
  for (const ir::FactorList& f : s.results[0])
    if (has(mine, f)) (has(other, f) ? batch : free).push_back(f);
  for (const ir::FactorList& f : s.operands[0])
    if (!has(s.results[0], f)) contracted.push_back(f);
  const std::vector<int> big = PositionsOf(mine, mine, t);
  for (const ir::TensorFactors* role : {&batch, &free, &contracted}) {
    const std::vector<int> at = PositionsOf(mine, *role, t);
    if (at.empty()) continue;
    if (std::search(big.begin(), big.end(), at.begin(), at.end()) == big.end()) return false;
    if (role == &batch && at.back() == big.back()) return false;
  }
  return true;
}

// Returns whether the strides belong to a dense array, with its dims in any order.
bool IsDense(const ir::Dims& sizes, const ir::Dims& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size of each dim
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1) dims.emplace_back(strides[d], sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != next) return false;
    next *= size;
  }
  return true;
}

// Returns whether the dims of the result have the order of the map's dims (batch, m, n).
bool IsInOrder(const ir::ContractionMap& map) {
  std::vector<int64_t> strides;
  size_t d = 0;
  for (const ir::Dims* sizes : {&map.batch, &map.m, &map.n})
    for (const int64_t size : *sizes) {
      if (size != 1) strides.push_back(map.c_strides[d]);
      ++d;
    }
  return std::is_sorted(strides.rbegin(), strides.rend());
}

// Returns the bytes of the copies that a worker makes for a contraction. An operand is copied to
// pad it, to convert it to the wider dtype in which the worker computes, and to pack it into
// matrices. The result is copied to convert it back, and to reorder its dims. All copies count as
// live at once.
int64_t CopyBytesForContraction(const Function& f, const Op& op) {
  const ir::Signature s = ir::SignatureOf(f, op);
  const std::vector<Type> in = {f.types[op.operands[0]], f.types[op.operands[1]]};
  const std::vector<Type> out = {f.types[op.results[0]]};
  const ir::ContractionMap map =
      op.def->contraction_map({*op.def, f.scope, in, op.attrs, op.regions}, out);
  int64_t bytes = 0;
  const auto add = [&](Type t, int copies) {
    t.dtype = ir::ComputeDType(t.dtype);
    for (; copies > 0; --copies) bytes = Plus(bytes, AllocatedBytes(t));
  };
  for (int k : {0, 1}) {
    Type t = in[k];
    const bool converted = ir::ComputeDType(t.dtype) != t.dtype;
    const bool padded = k == 0 && !map.low.empty();
    if (padded) t.shape = ir::PaddedShape(map, t.shape);
    add(t, padded + converted);
    // If windows overlap, as in a convolution, packing copies some elements several times, so the
    // packed operand has the size of the map's matrices, not of the operand.
    ir::Dims matrices = map.batch;
    const bool is_a = k == map.a;
    const ir::Dims* const roles[] = {is_a ? &map.m : &map.k, is_a ? &map.k : &map.n};
    for (const ir::Dims* dims : roles) matrices.insert(matrices.end(), dims->begin(), dims->end());
    const ir::Dims& strides = is_a ? map.a_strides : map.b_strides;
    // A matrix that the whole batch shares (batch strides of 0) is read or packed only once.
    const auto batch_end = strides.begin() + static_cast<int64_t>(map.batch.size());
    if (std::all_of(strides.begin(), batch_end, [](int64_t stride) { return stride == 0; }))
      std::fill_n(matrices.begin(), map.batch.size(), 1);
    const bool dense = IsDense(matrices, strides);
    if (!dense || !IsMatrices(s, k, in[k])) add(ir::MakeType(t.dtype, matrices), 1);
  }
  add(out[0], (ir::ComputeDType(out[0].dtype) != out[0].dtype) + !IsInOrder(map));
  return bytes;
}

// Returns the bytes of the copies that a worker makes for a collective. Blocks must be contiguous
// while they are exchanged, so an array is copied if it is cut or joined along a dim other than the
// first.
int64_t CopyBytesForCollective(const Function& f, const Op& op) {
  const Type &in = f.types[op.operands[0]], &out = f.types[op.results[0]];
  const auto copy = [](const Type& t, int64_t dim) {
    for (int64_t d = 0; d < dim; ++d)
      if (t.shape[d] != 1) return AllocatedBytes(t);
    return int64_t{0};
  };
  switch (op.def->collective) {
    case ir::CollectiveKind::kAllGather:
      return copy(out, op.attrs.Int("all_gather_dimension"));
    case ir::CollectiveKind::kReduceScatter:
      return copy(in, op.attrs.Int("scatter_dimension"));
    case ir::CollectiveKind::kAllToAll:
      return Plus(copy(in, op.attrs.Int("split_dimension")),
                  copy(out, op.attrs.Int("concat_dimension")));
    default:
      return 0;
  }
}

// Returns the bytes that a sort routine uses besides operands and results: two arrays of keys with
// their positions, and counts of digits (it is a radix sort). If only a few elements of a long row
// are kept, the routine first finds those elements and then sorts only them.
int64_t ScratchBytesForSort(const Function& f, const Op& op) {
  constexpr int64_t kThreadsMax = 256, kKeptMax = 8192;
  constexpr int64_t kElementsPerCount = 1 << 14, kCountBytes = 1024;
  const ir::SortRule rule = op.def->sort(op.attrs);
  const Type& in = f.types[op.operands[0]];
  int64_t bytes = 8;  // size of a key and its position
  for (int k = 0; k < rule.num_keys; ++k)
    if (ir::ByteWidth(f.types[op.operands[k]].dtype) > 4) bytes = 16;
  const int64_t n = in.shape[rule.dimension], kept = rule.kept.value_or(n);
  const bool finds_first = rule.num_keys == 1 && kept <= std::min(kKeptMax, n / 8 / kThreadsMax);
  const int64_t elements = finds_first ? kThreadsMax * kept : in.num_elements();
  return Plus(Plus(bytes * elements, bytes * elements),
              kCountBytes * (2 + elements / kElementsPerCount));
}

// Returns the bytes of the copies for a gather: the index of each element that it reads, and the
// values that it fills in.
int64_t CopyBytesForGather(const Function& f, const Op& op) {
  if (op.operands.size() < 2 || f.types[op.operands[1]].rank() == 0) return 0;
  Type indices = f.types[op.results[0]];
  indices.dtype = f.types[op.operands[1]].dtype;
  return Plus(AllocatedBytes(f.types[op.results[0]]), AllocatedBytes(indices));
}

// Returns the bytes of the partial results of a reduction by a computation, which is a function
// that the program gives instead of a sum, maximum and so on. Each kernel leaves a smaller partial
// result, and the partial results before and after a kernel are live at once.
int64_t CopyBytesForComputation(const Function& f, const Op& op,
                                const ir::ScalarGraph& computation) {
  const ir::Signature s = ir::SignatureOf(f, op);
  std::set<int> kept;
  for (const ir::FactorList& dim : s.results[0]) kept.insert(dim.begin(), dim.end());
  ir::Dims shape = f.types[op.operands[0]].shape;
  int64_t before = 0, most = 0;  // partial results before a kernel, and the most live at once
  for (int d = static_cast<int>(shape.size()); d-- > 0;) {
    const ir::FactorList& dim = s.operands[0][d];
    if (std::all_of(dim.begin(), dim.end(), [&](int f) { return kept.count(f) > 0; })) continue;
    while (shape[d] > 1) {
      shape[d] = ir::NumRuns(shape[d], computation);
      int64_t after = 0;
      for (size_t k = 0; k < op.results.size(); ++k)
        after = Plus(after, AllocatedBytes(ir::MakeType(f.types[op.operands[k]].dtype, shape)));
      most = std::max(most, Plus(before, after));
      before = after;
    }
  }
  return most;
}

// Returns the bytes of the partial results of a reduction.
int64_t CopyBytesForReduction(const Function& f, const Op& op) {
  if (ir::HasComputation(*op.def))
    return CopyBytesForComputation(f, op, *ir::GraphOf(*op.regions[0]));
  return f.types[op.operands[0]].num_elements() < kLongReductionMin ? 0 : kPartialsBytes;
}

// Returns whether the op cannot be compiled, so that the reference evaluator on the host runs it.
bool IsEvaluated(const Function& f, const Op& op) {
  switch (op.def->lowering) {
    case ir::Lowering::kHost:
      return true;
    case ir::Lowering::kScalar:
      return !ir::HasKernels(op.def->scalar.record(op.attrs, f.type(op.operands.back()).dtype,
                                                   f.type(op.results[0]).dtype));
    case ir::Lowering::kReduce:
    case ir::Lowering::kScatter:
      return ir::HasComputation(*op.def) ? !ir::GraphOf(*op.regions[0])
                                         : op.def->reduce != ir::ReduceKind::kNone &&
                                               !ir::IsComputable(f.type(op.operands[0]).dtype);
    case ir::Lowering::kScan:
      return !ir::IsComputable(f.type(op.operands[0]).dtype);
    default:
      return false;
  }
}

// Returns the bytes of the evaluator's copies of operands and results, and of its scratch memory.
int64_t CopyBytesForEvaluation(const Function& f, const Op& op) {
  int64_t bytes = ir::ScratchBytes(f, op);
  for (const std::vector<ValueId>* values : {&op.operands, &op.results})
    for (ValueId v : *values) bytes = Plus(bytes, AllocatedBytes(f.types[v]));
  return bytes;
}

// Returns the bytes of the copies and the scratch memory that a worker needs while it runs the op.
int64_t CopyBytesFor(const Function& f, const Op& op) {
  if (IsEvaluated(f, op)) return CopyBytesForEvaluation(f, op);
  switch (op.def->lowering) {
    case ir::Lowering::kContract:
      return CopyBytesForContraction(f, op);
    case ir::Lowering::kCollective:
      return op.operands.empty() ? 0 : CopyBytesForCollective(f, op);
    case ir::Lowering::kSort:
      return ScratchBytesForSort(f, op);
    case ir::Lowering::kDynamicIndex:
      return CopyBytesForGather(f, op);
    case ir::Lowering::kReduce:
      return CopyBytesForReduction(f, op);
    case ir::Lowering::kRegion:
      return kAlignment;  // memory for the condition of a loop
    default:
      return 0;
  }
}

// ---- How long values live. ----

// Returns whether a worker may delay the op until its result is read.
bool MayBeDelayed(const Op& op, int uses) {
  switch (op.def->lowering) {
    case ir::Lowering::kIndexMap:
    case ir::Lowering::kDynamicIndex:
    case ir::Lowering::kReduce:
      return true;
    case ir::Lowering::kScalar:
      return uses <= 1 || op.operands.size() == 1;
    default:
      return false;
  }
}

// Returns whether the copies that a worker makes for the op may be live until its result is read.
// This holds for the partial results of a reduction by a computation.
bool KeepsCopies(const Op& op) {
  return op.def->lowering == ir::Lowering::kReduce && ir::HasComputation(*op.def) &&
         ir::GraphOf(*op.regions[0]);
}

// Returns for each value the index of the last op during which it is live, or -1 if no op makes or
// reads it. An op that may be delayed keeps its operands live until the last reader of its result.
// One operand that is no larger than the result is exempt: the delayed op's result, which has no
// memory yet, is counted from the op on and covers that operand.
std::vector<int> LastOps(const Function& f) {
  std::vector<int> last(f.types.size(), -1), uses(f.types.size(), 0);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (ValueId v : f.ops[i].operands) {
      last[v] = static_cast<int>(i);
      ++uses[v];
    }
    for (ValueId v : f.ops[i].results) last[v] = static_cast<int>(i);
  }
  for (size_t i = f.ops.size(); i-- > 0;) {
    const Op& op = f.ops[i];
    if (op.results.empty() || !MayBeDelayed(op, uses[op.results[0]])) continue;
    int last_read = -1;
    for (ValueId v : op.results) last_read = std::max(last_read, last[v]);
    bool replaced = false;
    for (ValueId v : op.operands) {
      if (!replaced && AllocatedBytes(f.types[v]) <= AllocatedBytes(f.types[op.results[0]])) {
        replaced = true;
      } else {
        last[v] = std::max(last[v], last_read);
      }
    }
  }
  for (ValueId v : f.results) last[v] = static_cast<int>(f.ops.size());
  for (int i = 0; i < f.num_params; ++i) last[i] = static_cast<int>(f.ops.size());
  return last;
}

// Returns the most bytes that are live at once. `held_bytes` is the size of the params and results.
int64_t Peak(const Function& f, int64_t held_bytes);

// Returns the peak of a region. The region's params and results may have memory of their own.
int64_t PeakOfRegion(const Function& f) {
  int64_t held_bytes = 0;
  for (int i = 0; i < f.num_params; ++i) held_bytes = Plus(held_bytes, AllocatedBytes(f.types[i]));
  for (ValueId v : f.results) held_bytes = Plus(held_bytes, AllocatedBytes(f.types[v]));
  return Peak(f, held_bytes);
}

// Walks over the ops and adds up the temporaries that are live. The params and results are in
// `held_bytes` from the beginning. While an op runs, its regions' peak and its copies come on top.
// Regions of one op do not run at the same time, so the largest of them counts.
int64_t Peak(const Function& f, int64_t held_bytes) {
  const std::vector<int> last = LastOps(f);
  const auto is_temporary = [&](ValueId v) { return last[v] < static_cast<int>(f.ops.size()); };
  // For each op, the temporaries whose last use it is.
  std::vector<std::vector<ValueId>> dead(f.ops.size());
  for (ValueId v = 0; v < static_cast<ValueId>(last.size()); ++v)
    if (last[v] >= 0 && is_temporary(v)) dead[last[v]].push_back(v);
  std::vector<int64_t> kept(f.ops.size(), 0);  // for each op, bytes of copies that end with it
  int64_t live = held_bytes, peak = held_bytes;
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (ValueId v : f.ops[i].results)
      if (is_temporary(v)) live = Plus(live, AllocatedBytes(f.types[v]));
    int64_t inner = 0;
    for (const ir::FunctionRef& r : f.ops[i].regions) inner = std::max(inner, PeakOfRegion(*r));
    const int64_t copies = CopyBytesFor(f, f.ops[i]);
    peak = std::max(peak, Plus(live, Plus(inner, copies)));
    if (KeepsCopies(f.ops[i])) {
      int last_read = 0;
      for (ValueId v : f.ops[i].results) last_read = std::max(last_read, last[v]);
      live = Plus(live, copies);
      if (last_read < static_cast<int>(f.ops.size()))
        kept[last_read] = Plus(kept[last_read], copies);
    }
    for (ValueId v : dead[i]) live -= AllocatedBytes(f.types[v]);
    live -= kept[i];
  }
  return peak;
}

}  // namespace

MemoryBound BoundMemory(const Function& f) {
  MemoryBound m;
  for (int i = 0; i < f.num_params; ++i) m.arguments = Plus(m.arguments, f.types[i].num_bytes());
  for (ValueId v : f.results) m.results = Plus(m.results, f.types[v].num_bytes());
  m.peak = Peak(f, Plus(m.arguments, m.results));
  return m;
}

}  // namespace tessera::server::planner
