// Decides how the ops of one function are cut before any of them is emitted. The partitioner calls
// it once per function and region. Which sums wait is decided here and not later by a rewrite of
// the device program, because only here are the shardings known that the readers of the sums want
// (docs/decisions/0017).
#include "server/planner/cuts.h"

#include <algorithm>
#include <cstdint>

#include "server/planner/bytes.h"
#include "server/planner/reshard.h"

namespace tessera::server::planner {
namespace {

using ir::AxisList;
using ir::DimAxes;
using ir::Function;
using ir::Op;
using ir::ValueId;

// The readers of a value: how many there are, and the last one's op and operand.
struct LastReader {
  int reads = 0;
  int op = -1;  // index of the op, or -1 if the last reader is the function's result
  int operand = 0;
};
std::vector<LastReader> LastReadersOf(const Function& f) {
  std::vector<LastReader> last_readers(f.types.size());
  for (size_t i = 0; i < f.ops.size(); ++i)
    for (size_t k = 0; k < f.ops[i].operands.size(); ++k) {
      LastReader& r = last_readers[f.ops[i].operands[k]];
      r = {r.reads + 1, static_cast<int>(i), static_cast<int>(k)};
    }
  for (size_t k = 0; k < f.results.size(); ++k) {
    LastReader& r = last_readers[f.results[k]];
    r = {r.reads + 1, -1, static_cast<int>(k)};
  }
  return last_readers;
}

bool Uses(const DimAxes& dims, const AxisList& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](const std::string& axis) { return DimOf(dims, axis) >= 0; });
}

// The cost of a cut: the bytes that each device sends to reshard the operands and results, and the
// number of shards into which the op's work is cut.
struct CutCost {
  int64_t bytes = 0;
  int64_t shards = 1;
};
CutCost CostOf(const Function& f, const Op& op, const ir::Signature& sig,
               const std::vector<AxisList>& factor_axes, const std::vector<DimAxes>& in,
               const std::vector<DimAxes>& out) {
  const ir::Mesh& mesh = f.scope.mesh;
  CutCost cost;
  for (const AxisList& axes : factor_axes) cost.shards *= mesh.SizeOf(axes);
  for (size_t k = 0; k < in.size(); ++k)
    cost.bytes = Plus(cost.bytes, BytesToReshard(mesh, f.types[op.operands[k]], in[k],
                                                 ir::JoinAxes(sig.operands[k], factor_axes)));
  for (size_t r = 0; r < out.size(); ++r) {
    const ir::Type& type = f.types[op.results[r]];
    AxisList pending = ir::derive::SummedAxes(sig, factor_axes);
    std::erase_if(pending, [&](const std::string& a) { return type.unreduced.contains(a); });
    cost.bytes = Plus(
        cost.bytes,
        BytesToReshard(mesh, type, ir::JoinAxes(sig.results[r], factor_axes), out[r], pending));
  }
  return cost;
}

// Returns the axes by which each factor is cut. Starts with the axes that all tensors together
// suggest. Replaces them by the suggestion of the operands, of the results, of a single operand, or
// of a single operand and the results, if the other suggestion sends fewer bytes and cuts the work
// into at least as many shards.
std::vector<AxisList> CheapestFactorAxes(const Function& f, const Op& op, const ir::Signature& sig,
                                         const std::vector<DimAxes>& in,
                                         const std::vector<DimAxes>& out) {
  std::vector<AxisList> best = ChooseFactorAxes(f, op, sig, in, out);
  if (op.def->partition.written()) return best;
  const CutCost all = CostOf(f, op, sig, best, in, out);
  if (all.bytes == 0) return best;
  int64_t least = all.bytes;
  std::vector<DimAxes> no_in, no_out;
  for (const DimAxes& dims : in) no_in.emplace_back(dims.size());
  for (const DimAxes& dims : out) no_out.emplace_back(dims.size());
  const auto consider = [&](const std::vector<DimAxes>& some_in,
                            const std::vector<DimAxes>& some_out) {
    std::vector<AxisList> axes = ChooseFactorAxes(f, op, sig, some_in, some_out);
    const CutCost cost = CostOf(f, op, sig, axes, in, out);
    if (cost.bytes >= least || cost.shards < all.shards) return;
    best = std::move(axes);
    least = cost.bytes;
  };
  consider(in, no_out);
  consider(no_in, out);
  constexpr size_t kOperandsMax = 8;  // bounds the time, which is quadratic in the operands
  for (size_t k = 0; k < in.size() && in.size() > 1 && in.size() <= kOperandsMax; ++k) {
    std::vector<DimAxes> one_in = no_in;
    one_in[k] = in[k];
    consider(one_in, no_out);
    consider(one_in, out);
  }
  return best;
}

// Returns whether the op can be applied to pending sums: applied to summands of its operands, it
// must give summands of its results. For this it must be linear in all operands at once. The
// results of the op must also have no more elements than its operands, so that waiting makes the
// sum no larger. Sums in f16 never wait, because the range of f16 is small: partial sums may exceed
// it although the whole sum does not.
bool AcceptsPendingSums(const Function& f, const Op& op) {
  const ir::DType dtype = f.types[op.operands[0]].dtype;
  if (op.def->partition.written() || dtype == ir::DType::kF16) return false;
  int64_t in = 0, out = 0;
  for (const ValueId v : op.operands) {
    if (f.types[v].dtype != dtype) return false;
    in += f.types[v].num_elements();
  }
  for (const ValueId v : op.results) {
    if (f.types[v].dtype != dtype) return false;
    out += f.types[v].num_elements();
  }
  if (out > in) return false;
  return op.def->lowering == ir::Lowering::kScalar
             ? ir::IsLinear(op.def->scalar.record(op.attrs, dtype, dtype))
             : op.def->jvp.derived();
}

}  // namespace

// Walks over the ops in order. For each op, chooses the axes of its factors, then whether the op
// takes its operands as pending sums. The sum of a value may wait only if the value has a single
// reader and its shards need not be moved. All other sums are completed right after the op, so that
// exchanges begin early. At last, if a single reader wants blocks of the sum, the sum is completed
// to these blocks by a reduce-scatter.
CutPlan PlanCuts(const Function& f, const FunctionShardings& s,
                 const std::vector<DimAxes>& wanted) {
  CutPlan plan;
  plan.ops.resize(f.ops.size());
  plan.complete_to.resize(f.types.size());
  const std::vector<LastReader> last_readers = LastReadersOf(f);
  std::vector<AxisList> pending(f.types.size());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    // The operands of an op with planned regions are complete and keep their shardings.
    if (op.def->data_flow) continue;
    OpCut& cut = plan.ops[i];
    const ir::Signature& sig = s.signatures[i];
    const std::vector<DimAxes> in = ir::ElementsAt(s.shardings, op.operands);
    const std::vector<DimAxes> out = ir::ElementsAt(s.shardings, op.results);
    cut.factor_axes = CheapestFactorAxes(f, op, sig, in, out);
    // Returns whether operand k may stay a pending sum: its shards need not be moved, all operands
    // are pending sums along the same axes, and no other op reads this operand.
    const auto may_stay_pending = [&](size_t k) {
      const ValueId v = op.operands[k];
      const DimAxes need = ir::JoinAxes(sig.operands[k], cut.factor_axes);
      return last_readers[v].reads == 1 && pending[v] == pending[op.operands[0]] && need == in[k] &&
             !Uses(need, pending[v]);
    };
    // These pending sums follow from the operands' types. Others are decided below.
    for (const ValueId v : op.operands)
      for (std::string& axis : PendingSumAxes(f, v))
        if (DimOf({cut.pending_axes}, axis) < 0) cut.pending_axes.push_back(std::move(axis));
    const bool has_typed_sums = !cut.pending_axes.empty();
    if (!has_typed_sums && !op.operands.empty() && !pending[op.operands[0]].empty() &&
        AcceptsPendingSums(f, op)) {
      size_t k = 0;
      while (k < op.operands.size() && may_stay_pending(k)) ++k;
      if (k == op.operands.size()) cut.pending_axes = pending[op.operands[0]];
    }
    if (!cut.pending_axes.empty() && !has_typed_sums)
      for (const ValueId v : op.operands) plan.complete_to[v] = std::nullopt;
    AxisList result_axes = cut.pending_axes;
    if (!op.def->partition.written()) {
      const AxisList own = ir::derive::SummedAxes(sig, cut.factor_axes);
      result_axes.insert(result_axes.end(), own.begin(), own.end());
    }
    if (result_axes.empty()) continue;
    for (size_t r = 0; r < op.results.size(); ++r) {
      const ValueId v = op.results[r];
      if (!PendingSumAxes(f, v).empty()) continue;
      plan.complete_to[v] = s.shardings[v];
      // If the result has to be moved, or is cut by these axes, its sum is completed on the way.
      if (ir::JoinAxes(sig.results[r], cut.factor_axes) == s.shardings[v] &&
          !Uses(s.shardings[v], result_axes))
        pending[v] = result_axes;
    }
  }
  // If a value has a single reader, that reader's cut says which blocks of the sum it wants.
  for (size_t v = 0; v < pending.size(); ++v) {
    if (pending[v].empty() || !plan.complete_to[v] || last_readers[v].reads != 1) continue;
    const LastReader& reader = last_readers[v];
    DimAxes want;
    if (reader.op < 0) {
      want = wanted[reader.operand];
    } else if (!f.ops[reader.op].def->data_flow) {
      const OpCut& cut = plan.ops[reader.op];
      want = ir::JoinAxes(s.signatures[reader.op].operands[reader.operand], cut.factor_axes);
    }
    if (Uses(want, pending[v])) plan.complete_to[v] = want;
  }
  return plan;
}

}  // namespace tessera::server::planner
