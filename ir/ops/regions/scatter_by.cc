// The op scatter_by: combines updates with the elements of several operands at once, by any
// computation, in windows that begin where index vectors say (ir/ops/rules/windows.h). The operands
// have one shape; then come the indices, and the updates of each operand. ScatterBy emits one of
// the other scatters instead if that scatter gives the same result.
//
// Updates are applied in the order of their positions, row-major.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ir/ops/regions/computation.h"
#include "ir/ops/rules/scattering.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

// Returns the number of operands that have updates.
size_t NumScattered(size_t operands) { return (operands - 1) / 2; }
// Returns operand k, the indices and the updates of operand k, which are the operands of the other
// scatters.
template <class T>
std::vector<T> ScatterOperands(absl::Span<const T> operands, size_t k) {
  const size_t n = NumScattered(operands.size());
  return {operands[k], operands[n], operands[n + 1 + k]};
}
InferContext WithOperands(const InferContext& c, absl::Span<const Type> in) {
  return {c.def, c.scope, in, c.attrs, c.regions};
}

Types InferScatterBy(const InferContext& c) {
  if (c.in.size() < 3 || c.in.size() % 2 == 0)
    return TypeError(c, "takes operands, the indices and as many updates as operands, got ",
                     c.in.size(), " operands in all");
  const size_t n = NumScattered(c.in.size());
  std::vector<Type> out;
  std::vector<DType> dtypes;
  for (size_t k = 0; k < n; ++k) {
    const std::vector<Type> in = ScatterOperands(c.in, k), first = ScatterOperands(c.in, 0);
    if (in[0].shape != first[0].shape || in[2].shape != first[2].shape)
      return TypeError(c, "operand ", k, " is ", in[0].ToString(), " with updates ",
                       in[2].ToString(), ", operand 0 is ", first[0].ToString(), " with updates ",
                       first[2].ToString(), "; expected equal shapes");
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Type> inferred, InferScatter(WithOperands(c, in)));
    out.push_back(inferred[0]);
    dtypes.push_back(in[0].dtype);
  }
  const std::vector<DType> results = dtypes;
  dtypes.insert(dtypes.end(), results.begin(), results.end());
  TESSERA_RETURN_IF_ERROR(CheckComputation(c, dtypes, results));
  return out;
}

Signature ScatterByFactors(const InferContext& c, absl::Span<const Type> out) {
  const std::vector<Type> in = ScatterOperands(c.in, 0);
  Signature s = FactorsOfScatter(WithOperands(c, in), out);
  const std::vector<TensorFactors> operands = s.operands;
  s.operands.assign(out.size(), operands[0]);
  s.operands.push_back(operands[1]);
  s.operands.insert(s.operands.end(), out.size(), operands[2]);
  s.results.assign(out.size(), operands[0]);
  return s;
}

absl::Status ScatterBySharding(const InferContext& c, std::vector<Type>* out) {
  for (size_t k = 0; k < out->size(); ++k) {
    const std::vector<Type> in = ScatterOperands(c.in, k);
    std::vector<Type> result = {(*out)[k]};
    TESSERA_RETURN_IF_ERROR(ScatterSharding(WithOperands(c, in), &result));
    (*out)[k] = result[0];
  }
  return absl::OkStatus();
}

Batched BatchScatterBy(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const size_t n = c.out_types.size();
  const bool are_indices_batched = dims[n] >= 0;
  Attrs attrs = WithBatchSharding(c.attrs, 0, BatchAxes(c, dims));
  BatchedDims(ScatterDimsOf(c.attrs), /*is_operand_batched=*/true, are_indices_batched)
      .WriteTo(&attrs, kScatterNames);
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const bool is_unbatched = i == n && !are_indices_batched;
    in.push_back(is_unbatched ? c.in[i] : BatchInFront(c, dims, i, size));
  }
  return {c.b.Emit(c.def, MatchVarying(std::move(in)), std::move(attrs), RegionsOf(c)),
          std::vector<int>(n, 0)};
}

std::vector<Value> PartitionScatterBy(const RuleContext& c, const PartitionContext& p) {
  const WindowDims w = ScatterDimsOf(c.attrs);
  RuleContext first = c;
  first.in = ScatterOperands<Value>(c.in, 0);
  first.in_types = ScatterOperands<Type>(c.in_types, 0);
  const Geometry g(w, first.in[0].rank(), first.in[1].rank());
  const LocalIndices local = LocalIndicesOf(first, p, w, ScatterWindow(g, first.in_types[2].shape));
  std::vector<Value> in = c.in;
  in[c.out_types.size()] = local.indices;
  return c.b.Emit(c.def, in, LocalScatterAttrs(c, local), RegionsOf(c));
}

Cost ScatterByCost(const InferContext& c, absl::Span<const Type> out) {
  Cost sum;
  for (size_t k = 0; k < out.size(); ++k) {
    const std::vector<Type> in = ScatterOperands(c.in, k);
    sum.bytes += ScatterCost(WithOperands(c, in), out.subspan(k, 1)).bytes;
  }
  sum.flops = FlopsOf(c, c.in.back().num_elements());
  return sum;
}

ScatterMap MapScatterBy(const InferContext& c) {
  const std::vector<Type> in = ScatterOperands(c.in, 0);
  ScatterMap map = MapScatter(WithOperands(c, in));
  for (DynamicOffset& shift : map.shifts)
    shift.operand = static_cast<int>(NumScattered(c.in.size()));
  return map;
}

// A set of different elements of an operand and, for each of them, the update to combine it with. A
// wave is computed at once.
struct Wave {
  std::vector<int64_t> elements, updates;
};
// Distributes the updates over waves. An element that is updated several times is in as many waves,
// in the order of its updates.
std::vector<Wave> WavesOf(const EvalContext& c, const Array& x, const Array& indices,
                          const Array& updates) {
  std::vector<Wave> waves;
  if (updates.num_elements() == 0 || x.num_elements() == 0) return waves;
  const WindowDims w = ScatterDimsOf(c.attrs);
  const Geometry g(w, x.rank(), indices.rank());
  const Dims window = ScatterWindow(g, updates.shape());
  const WindowRuns runs(g, x.shape(), window, updates.shape());
  std::unordered_map<int64_t, size_t> num_updates;  // the number of updates of each element so far
  ForEachWindow(w, g, ModeOf(c.attrs), x.shape(), window, indices, updates.shape(),
                [&](int64_t operand, int64_t block) {
                  if (operand < 0) return;
                  for (size_t r = 0; r < runs.operand.size(); ++r)
                    for (int64_t i = 0; i < runs.length; ++i) {
                      const int64_t element = operand + runs.operand[r] + i;
                      const size_t wave = num_updates[element]++;
                      if (wave == waves.size()) waves.emplace_back();
                      waves[wave].elements.push_back(element);
                      waves[wave].updates.push_back(block + runs.block[r] + i);
                    }
                });
  return waves;
}

Array ElementsAt(const Array& x, const std::vector<int64_t>& positions) {
  const int64_t width = ByteWidth(x.dtype());
  Array out(x.dtype(), {static_cast<int64_t>(positions.size())});
  std::byte* to = out.MutableData();
  for (const int64_t at : positions) to = std::copy_n(x.data() + at * width, width, to);
  return out;
}

Arrays EvalScatterBy(const EvalContext& c, absl::Span<const Array> in) {
  const size_t n = NumScattered(in.size());
  std::vector<Array> out(in.begin(), in.begin() + n);
  TupleEvaluator evaluator(c);
  for (const Wave& wave : WavesOf(c, in[0], in[n], in[n + 1])) {
    std::vector<Array> args;
    for (const Array& x : out) args.push_back(ElementsAt(x, wave.elements));
    for (size_t k = 0; k < n; ++k) args.push_back(ElementsAt(in[n + 1 + k], wave.updates));
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got, evaluator.Run(args));
    for (size_t k = 0; k < n; ++k) {
      const int64_t width = ByteWidth(out[k].dtype());
      const std::byte* from = got[k].data();
      std::byte* const to = out[k].MutableData();
      for (const int64_t at : wave.elements) {
        std::copy_n(from, width, to + at * width);
        from += width;
      }
    }
  }
  return out;
}

}  // namespace

constexpr OpDef kScatterBy = Checked({.name = "scatter_by",
                                      .lax_name = "scatter_apply",
                                      .family = Family::kIndexing,
                                      .num_operands = kAnyNumber,
                                      .regions = kOneComputation,
                                      .attrs = kScatteringAttrs,
                                      .lowering = Lowering::kScatter,
                                      .infer = InferScatterBy,
                                      .factors = ScatterByFactors,
                                      .sharding = ScatterBySharding,
                                      .varying = Derived{},
                                      .jvp = Refused{"an update may be applied more than once"},
                                      .transpose = Refused{"it is not linear"},
                                      .batch = BatchScatterBy,
                                      .partition = PartitionScatterBy,
                                      .cost = ScatterByCost,
                                      .scatter_map = MapScatterBy,
                                      .eval = EvalScatterBy});

}  // namespace tessera::ir::ops

// ---- The function of ops.h. ---------------------------------------------------------------------
namespace tessera::ir {
namespace {

// Returns the scatter of one operand that does what scatter_by does with this computation, or null
// if there is none.
const OpDef* KnownScatter(const Function& computation) {
  const bool replaces = computation.num_params == 2 && computation.results == std::vector{1};
  if (replaces) return &ops::kScatter;
  const OpDef* const op = ops::SoleOp(computation);
  return op == &ops::kAdd   ? &ops::kScatterAdd
         : op == &ops::kMul ? &ops::kScatterMul
         : op == &ops::kMin ? &ops::kScatterMin
         : op == &ops::kMax ? &ops::kScatterMax
                            : nullptr;
}

}  // namespace

std::vector<Value> ScatterBy(std::vector<Value> xs, Value indices, std::vector<Value> updates,
                             FunctionRef computation, const ScatterDimensionNumbers& dims,
                             const GatherScatterOptions& options) {
  std::vector<Value> in = xs;
  in.push_back(indices);
  in.insert(in.end(), updates.begin(), updates.end());
  in = MatchVarying(std::move(in));
  Attrs attrs = ops::ScatterAttrs(indices, dims, options);
  Builder& b = indices.builder();
  const OpDef* const known = KnownScatter(*computation);
  if (known == nullptr)
    return b.Emit(ops::kScatterBy, in, std::move(attrs), {std::move(computation)});
  // Refuse what scatter_by refuses, with its errors, although another op is emitted.
  ThrowIfError(
      InferTypes(ops::kScatterBy, b.scope(), TypesOf(in), attrs, {&computation, 1}).status());
  return b.Emit(*known, in, std::move(attrs));
}

}  // namespace tessera::ir
