// Predicts the memory that an evaluation takes. The planner's bound on memory counts it, and so
// does the CPU backend for the programs and steps that it evaluates.
#include "ir/eval/memory.h"

#include <algorithm>
#include <vector>

#include "ir/op_def.h"

namespace tessera::ir {
namespace {

int64_t BytesOf(const Function& f, const std::vector<ValueId>& values) {
  int64_t bytes = 0;
  for (const ValueId v : values) bytes += f.type(v).num_bytes();
  return bytes;
}

// Returns the bytes that EvalContraction allocates besides its result: operand 0 with zeros
// inserted, and tables with the offsets of the elements that are multiplied.
int64_t ScratchForContraction(const InferContext& c, const std::vector<Type>& out) {
  const absl::Span<const Type> in = c.in;
  const ContractionMap map = c.def.contraction_map(c, out);
  const auto count = [](const Dims& sizes) { return MakeType(DType::kS64, sizes).num_elements(); };
  const int64_t padded =
      map.low.empty() ? 0
                      : count(PaddedShape(map, in[0].shape)) * ByteWidth(ComputeDType(in[0].dtype));
  const int64_t positions =
      3 * count(map.batch) + 2 * count(map.m) + 2 * count(map.n) + 2 * count(map.k);
  return padded + positions * static_cast<int64_t>(sizeof(int64_t));
}

}  // namespace

// Adds up the allocations that the evaluators of ops make beside their results. The cases mirror
// the code of eval.cc and ir/derive; an op that allocates on its own declares it by
// `OpDef::scratch`. Regions run one after the other, so only the largest counts.
int64_t ScratchBytes(const Function& f, const Op& op) {
  int64_t scratch = 0;
  for (const FunctionRef& region : op.regions) {
    scratch = std::max(scratch, PeakBytes(*region));
  }
  const bool elementwise = op.def->scalar.eval != nullptr && !op.results.empty();
  // An elementwise op expands scalar operands. A contraction or a collective may copy its operands
  // once.
  const bool copies =
      op.def->lowering == Lowering::kContract || op.def->lowering == Lowering::kCollective;
  // Evaluating a computation copies the elements that it combines twice from the operands, together
  // with their positions.
  const bool gathers = !op.regions.empty() && !op.def->has_planned_regions();
  for (const ValueId v : op.operands) {
    if (gathers) {
      scratch += 2 * f.type(v).num_bytes() +
                 f.type(v).num_elements() * static_cast<int64_t>(sizeof(int64_t));
    }
    if (elementwise && f.type(v).rank() != f.type(op.results[0]).rank()) {
      scratch += f.type(op.results[0]).num_elements() * ByteWidth(f.type(v).dtype);
    }
    if (copies) scratch += f.type(v).num_bytes();
  }
  if (op.def->lowering == Lowering::kCollective) scratch += BytesOf(f, op.results);
  if (op.def->contraction_map == nullptr && op.def->scratch == nullptr) return scratch;
  std::vector<Type> in, out;
  for (const ValueId v : op.operands) in.push_back(f.type(v));
  for (const ValueId v : op.results) out.push_back(f.type(v));
  const InferContext c{*op.def, f.scope, in, op.attrs, op.regions};
  if (op.def->contraction_map != nullptr) scratch += ScratchForContraction(c, out);
  if (op.def->scratch != nullptr) scratch += op.def->scratch(c, out);
  return scratch;
}

int64_t PeakBytes(const Function& f) {
  // Params belong to the caller and live to the end. The results live to the end, too.
  constexpr int kForever = 1 << 30;
  std::vector<int> last(f.types.size(), -1);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (const ValueId v : f.ops[i].operands) last[v] = static_cast<int>(i);
    for (const ValueId v : f.ops[i].results) last[v] = static_cast<int>(i);
  }
  for (const ValueId v : f.results) last[v] = kForever;
  std::vector<std::vector<ValueId>> dead(f.ops.size());
  int64_t live = 0;
  for (int v = 0; v < f.num_params; ++v) live += f.types[v].num_bytes();
  const int64_t params = live;
  for (size_t v = f.num_params; v < last.size(); ++v) {
    if (last[v] >= 0 && last[v] != kForever) dead[last[v]].push_back(static_cast<int>(v));
  }
  // A value that is returned twice, or is also an argument, is copied to a buffer for each result.
  int64_t peak = params + BytesOf(f, f.results);
  for (size_t i = 0; i < f.ops.size(); ++i) {
    live += BytesOf(f, f.ops[i].results);
    peak = std::max(peak, live + ScratchBytes(f, f.ops[i]));
    live -= BytesOf(f, dead[i]);
  }
  return peak;
}

}  // namespace tessera::ir
