// Lowers reductions. The op's factors tell which dims of the operand the result has; the others are
// reduced. Long reductions are cut in two, and reductions by a computation (a region that combines
// two elements) combine the same pairs as the reference evaluator.
#include <algorithm>
#include <cstdlib>

#include "ir/eval/eval.h"
#include "worker/program/lowerer.h"

namespace tessera::worker::program {
namespace {

using ir::Dims;

// A reduction of at least kLongReductionMin elements per result is done in two stages, if it has
// fewer than half of kPartialsMax results. The first stage makes up to kPartialsMax partial
// results. A reduction of columns, where neighbouring results come from neighbouring elements, has
// the lower limit kLongColumnMin. It reads whole rows, so threads can share its work only after the
// rows are cut into parts.
constexpr int64_t kLongReductionMin = 1 << 15, kLongColumnMin = 1 << 12;
constexpr int64_t kPartialsMax = 1024;
constexpr int64_t kPartElementsMin = 1024;  // reduced elements for each partial result

}  // namespace

ir::Signature Lowerer::SignatureOf(const OpContext& ctx) {
  const std::vector<ir::Type> in = ctx.in_types(), out = ctx.out_types();
  return ctx.def().factors({ctx.def(), ctx.f.scope, in, ctx.op.attrs, ctx.op.regions}, out);
}

std::set<int> Lowerer::FactorsIn(const ir::TensorFactors& dims) {
  std::set<int> all;
  for (const ir::FactorList& dim : dims) all.insert(dim.begin(), dim.end());
  return all;
}

bool Lowerer::HasAll(const std::set<int>& factors, const ir::FactorList& dim) {
  return std::all_of(dim.begin(), dim.end(), [&](int f) { return factors.count(f) > 0; });
}

bool Lowerer::IsEmpty(const OpContext& ctx) {
  const std::vector<ir::Type> in = ctx.in_types();
  return std::any_of(in.begin(), in.end(), [](const ir::Type& t) { return t.num_elements() == 0; });
}

// The result of an op with empty operands is a constant, which the evaluator computes.
std::optional<std::vector<int>> Lowerer::LowerEmpty(const OpContext& ctx) {
  std::vector<ir::Array> operands;
  for (const ir::Type& t : ctx.in_types()) operands.emplace_back(t.dtype, t.shape);
  const absl::StatusOr<std::vector<ir::Array>> values =
      ir::EvaluateOp(ctx.def(), ctx.f.scope, operands, ctx.op.attrs);
  if (!values.ok()) return std::nullopt;
  return std::vector<int>{NewConstant((*values)[0])};
}

Lowerer::ReducedDims Lowerer::ReducedDimsOf(const OpContext& ctx) {
  const ir::Signature s = SignatureOf(ctx);
  const std::set<int> kept_factors = FactorsIn(s.results[0]);
  ReducedDims dims;
  for (int d = 0; d < ctx.in(0).rank(); ++d)
    (HasAll(kept_factors, s.operands[0][d]) ? dims.kept : dims.reduced).push_back(d);
  return dims;
}

std::optional<std::vector<int>> Lowerer::LowerReduce(const OpContext& ctx) {
  if (ir::HasComputation(ctx.def())) return LowerReduceByComputation(ctx);
  if (IsEmpty(ctx)) return LowerEmpty(ctx);
  const auto [kept, reduced] = ReducedDimsOf(ctx);
  if (reduced.empty()) return std::vector<int>{ctx.operands[0]};
  const Dims strides = ir::StridesOf(ctx.in(0).shape);
  ReduceItem item;
  item.kind = ctx.def().reduce;
  item.box = Joined({Pick(ctx.in(0).shape, kept), Pick(ctx.in(0).shape, reduced)});
  item.num_reduced = static_cast<int>(reduced.size());
  item.access.strides = Joined({Pick(strides, kept), Pick(strides, reduced)});
  if (codegen::IsArgReduction(item.kind) && item.num_reduced != 1) return std::nullopt;
  // AddReduction may add a dim.
  if (item.box.size() >= kGroupDimsMax) return std::nullopt;
  const int result = NewValue(ctx.out(0));
  AddReduction(ctx.operands[0], result, std::move(item));
  return std::vector<int>{result};
}

// Adds a reduction. A long reduction to few elements is done in two stages: first to partial
// results, one for each part of the reduced elements, and then to the result. The parts give work
// to many threads, and make rounding errors smaller.
void Lowerer::AddReduction(int operand, int result, ReduceItem item) {
  const int num_parallel = static_cast<int>(item.box.size()) - item.num_reduced;
  const absl::Span<const int64_t> box = item.box;
  const int64_t kept = NumElements(box.subspan(0, num_parallel));
  const int64_t reduced = NumElements(box.subspan(num_parallel));
  // Whether neighbouring results come from neighbouring elements.
  const bool reduces_columns =
      num_parallel > 0 && item.box[num_parallel - 1] > 1 &&
      std::abs(item.access.strides[num_parallel - 1]) < std::abs(item.access.strides.back());
  if (codegen::IsArgReduction(item.kind) ||
      reduced < (reduces_columns ? kLongColumnMin : kLongReductionMin) ||
      kept >= kPartialsMax / 2) {
    Add({operand}, {result}, std::move(item));
    return;
  }
  // Each index of the first reduced dims is a part of its own, and the next dim is cut into as many
  // parts as one of its divisors.
  const int64_t parts_max = std::min(kPartialsMax / kept, reduced / kPartElementsMin);
  int64_t parts = 1;
  int d = num_parallel;
  while (parts * item.box[d] <= parts_max) parts *= item.box[d++];
  int64_t cut = parts_max / parts;
  while (item.box[d] % cut != 0) --cut;
  if (cut > 1) {
    const Split split{d, item.box[d] / cut};
    Apply(split, &item.box);
    Apply(split, &item.access);
    parts *= cut;
    ++d;
  }
  if (parts < 2) {
    Add({operand}, {result}, std::move(item));
    return;
  }
  item.num_reduced = static_cast<int>(item.box.size()) - d;
  const ir::DType accumulator = ir::ComputeDType(out_.values[result].dtype);
  ReduceItem second_stage;
  second_stage.kind = item.kind;
  second_stage.box.assign(item.box.begin(), item.box.begin() + num_parallel);
  second_stage.box.push_back(parts);
  second_stage.num_reduced = 1;
  second_stage.access = DenseAccess(second_stage.box, static_cast<int>(second_stage.box.size()));
  if (reduces_columns) {
    // The parts come first, so that columns stay next to each other.
    const auto parts_first = [&](Dims* dims) {
      std::rotate(dims->begin(), dims->begin() + num_parallel, dims->begin() + d);
    };
    parts_first(&item.box);
    parts_first(&item.access.strides);
    second_stage.access = DenseAccess(second_stage.box, num_parallel);
    second_stage.access.strides.back() = kept;
  }
  const int partial = NewValue(accumulator, kept * parts);
  Add({operand}, {partial}, std::move(item));
  Add({partial}, {result}, std::move(second_stage));
}

// Lowers a reduction by a computation. Neighbours along a dim are combined in the same pairs as in
// the evaluator, minor dims first. Each kernel does the pairs of several levels, so that it turns a
// run of neighbours into one element. The initial values, which are the second half of the
// operands, are combined at last.
std::optional<std::vector<int>> Lowerer::LowerReduceByComputation(const OpContext& ctx) {
  const size_t n = ctx.op.results.size();
  const std::optional<ir::ScalarGraph> computation = ComputationOf(ctx);
  if (!computation) return std::nullopt;
  std::vector<int> xs(ctx.operands.begin(), ctx.operands.begin() + n);
  const std::vector<int> inits(ctx.operands.begin() + n, ctx.operands.end());
  const std::vector<int> results = NewResults(ctx);
  if (ctx.in(0).num_elements() == 0) {
    for (size_t k = 0; k < n; ++k)
      Add({inits[k]}, {results[k]}, ViewItem{{{out_.values[results[k]].elements}, {0, {0}, {}}}});
    return results;
  }
  Dims shape = ctx.in(0).shape;
  std::vector<int> reduced = ReducedDimsOf(ctx).reduced;
  std::sort(reduced.rbegin(), reduced.rend());
  for (const int d : reduced) {
    const int64_t outer = ElementsBefore(shape, d), inner = ElementsFrom(shape, d + 1);
    for (; shape[d] > 1; shape[d] = ir::NumRuns(shape[d], *computation))
      xs = CombineRuns(*computation, xs, {outer, shape[d], inner});
  }
  GraphBuilder graph;
  std::vector<int> in;
  std::vector<int> operands = Joined({inits, xs});
  for (const int v : operands)
    in.push_back(graph.Input(static_cast<int>(in.size()), out_.values[v].dtype));
  Add(std::move(operands), results,
      ScalarItem{std::move(graph).WithRoots(graph.Apply(*computation, in))});
  return results;
}

// Takes values of shape (outer, rows, inner), and combines each run of rows to one row.
std::vector<int> Lowerer::CombineRuns(const ir::ScalarGraph& computation,
                                      const std::vector<int>& xs, const Dims& shape) {
  const int64_t outer = shape[0], rows = shape[1], inner = shape[2];
  const int64_t length = ir::RunLength(rows, computation), runs = rows / length,
                rest = rows % length;
  if (runs == 0) return CombineEqualRuns(computation, xs, shape, {0, 1, rest});
  const std::vector<int> whole = CombineEqualRuns(computation, xs, shape, {0, runs, length});
  if (rest == 0) return whole;
  const std::vector<int> last = CombineEqualRuns(computation, xs, shape, {runs * length, 1, rest});
  std::vector<int> results;
  const auto piece = [&](int operand, int64_t from, int64_t count) {
    const Dims strides = {(runs + 1) * inner, inner, 1};
    return PiecesItem::Piece{{outer, count, inner},
                             operand,
                             {0, {count * inner, inner, 1}, {}},
                             {from * inner, strides, {}}};
  };
  for (size_t k = 0; k < xs.size(); ++k) {
    results.push_back(NewValue(out_.values[xs[k]].dtype, outer * (runs + 1) * inner));
    Add({whole[k], last[k]}, {results[k]}, PiecesItem{{piece(0, 0, runs), piece(1, runs, 1)}});
  }
  return results;
}

// Combines runs of rows of one length. Each row of a run is a view of the operand, and the graph
// combines the rows in pairs, level by level, which is the evaluator's order. It is one kernel, in
// which the intermediate results stay in registers.
std::vector<int> Lowerer::CombineEqualRuns(const ir::ScalarGraph& computation,
                                           const std::vector<int>& xs, const Dims& shape,
                                           const Runs& runs) {
  const int64_t rows = shape[1], inner = shape[2];
  const Dims box = {shape[0], runs.count, inner};
  const Dims strides = {rows * inner, runs.length * inner, 1};
  GraphBuilder graph;
  std::vector<int> views;
  std::vector<std::vector<int>> elements;  // the nodes of each row of a run
  for (int64_t row = 0; row < runs.length; ++row) {
    std::vector<int>& element = elements.emplace_back();
    for (const int x : xs) {
      const ir::DType dtype = out_.values[x].dtype;
      element.push_back(graph.Input(static_cast<int>(views.size()), dtype));
      views.push_back(NewValue(dtype, NumElements(box)));
      Add({x}, {views.back()}, ViewItem{{box, {(runs.first + row) * inner, strides, {}}}});
    }
  }
  while (elements.size() > 1) {
    std::vector<std::vector<int>> combined;
    for (size_t i = 0; i + 1 < elements.size(); i += 2)
      combined.push_back(graph.Apply(computation, Joined({elements[i], elements[i + 1]})));
    if (elements.size() % 2 != 0) combined.push_back(elements.back());
    elements = std::move(combined);
  }
  std::vector<int> results;
  for (const int x : xs) results.push_back(NewValue(out_.values[x].dtype, NumElements(box)));
  Add(std::move(views), results, ScalarItem{std::move(graph).WithRoots(elements[0])});
  return results;
}

}  // namespace tessera::worker::program
