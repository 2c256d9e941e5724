// Expresses ops that StableHLO lacks by ops that it has. The rows of export_ops.cc use these
// functions: their ops are written inline or as the decomposition of a composite.
#include <algorithm>
#include <limits>
#include <utility>

#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/ops/rules/windows.h"
#include "ir/stablehlo/exporter.h"

namespace tessera::ir::stablehlo {
namespace {

using ops::DimsExcept;
using ops::Geometry;
using ops::WindowDims;

Value BroadcastTo(Value x, const Dims& shape) {
  return x.shape() == shape ? x : BroadcastInDim(x, shape, {});
}

// ---- Elementwise: the scalar graph, applied to arrays. ------------------------------------------
std::vector<Value> EmitGraph(const ScalarGraph& graph, const std::vector<Value>& in,
                             const Dims& shape, Value (*erf)(Value));

// Computes erf from -1 to 1. Reference: Cephes, ndtr.c.
Value ErfWithin1(Value x) {
  constexpr double kNumerator[] = {9.60497373987051638749, 9.00260197203842689217e1,
                                   2.23200534594684319226e3, 7.00332514112805075473e3,
                                   5.55923013010394962768e4};
  constexpr double kDenominator[] = {1.0,
                                     3.35617141647503099647e1,
                                     5.21357949780152679795e2,
                                     4.59432382970980127987e3,
                                     2.26290000613890934246e4,
                                     4.92673942608635921086e4};
  const Value square = Mul(x, x);
  const auto horner = [&](absl::Span<const double> coefficients) {
    Value sum = FullLike(x, coefficients[0]);
    for (const double c : coefficients.subspan(1)) {
      const Value scaled = Mul(sum, square);
      sum = Add(scaled, FullLike(x, c));
    }
    return sum;
  };
  const Value over = Mul(x, horner(kNumerator));
  return Div(over, horner(kDenominator));
}
// Computes erf of an f64. Beyond 1 it uses erfc, whose graph contains an erf that is used only
// below 1.
Value Erf64(Value x) {
  const Value size = Abs(x);
  const ScalarGraph erfc = ops::kErfc.scalar.record({}, DType::kF64, DType::kF64);
  const Value rest = EmitGraph(Canonical(erfc), {size}, x.shape(), ErfWithin1)[0];
  const Value sign = Sign(x);
  const Value far = Mul(sign, Sub(FullLike(x, 1), rest));
  const Value near = ErfWithin1(x);
  return Select(Compare(size, FullLike(x, 1), "LT"), near, far);
}
Value ErfThroughF64(Value x) { return Convert(Erf64(Convert(x, DType::kF64)), x.dtype()); }

// Returns the op for a primitive, or null if the op has attributes.
const OpDef* OpOf(ScalarPrim prim) {
  static constexpr std::pair<ScalarPrim, const OpDef*> kOps[] = {
      {ScalarPrim::kAdd, &ops::kAdd},
      {ScalarPrim::kSub, &ops::kSub},
      {ScalarPrim::kMul, &ops::kMul},
      {ScalarPrim::kDiv, &ops::kDiv},
      {ScalarPrim::kRem, &ops::kRem},
      {ScalarPrim::kNeg, &ops::kNeg},
      {ScalarPrim::kAbs, &ops::kAbs},
      {ScalarPrim::kMin, &ops::kMin},
      {ScalarPrim::kMax, &ops::kMax},
      {ScalarPrim::kExp, &ops::kExp},
      {ScalarPrim::kExpm1, &ops::kExpm1},
      {ScalarPrim::kLog, &ops::kLog},
      {ScalarPrim::kLog1p, &ops::kLog1p},
      {ScalarPrim::kSin, &ops::kSin},
      {ScalarPrim::kCos, &ops::kCos},
      {ScalarPrim::kTan, &ops::kTan},
      {ScalarPrim::kTanh, &ops::kTanh},
      {ScalarPrim::kAtan2, &ops::kAtan2},
      {ScalarPrim::kPow, &ops::kPow},
      {ScalarPrim::kSqrt, &ops::kSqrt},
      {ScalarPrim::kRsqrt, &ops::kRsqrt},
      {ScalarPrim::kCbrt, &ops::kCbrt},
      {ScalarPrim::kFloor, &ops::kFloor},
      {ScalarPrim::kCeil, &ops::kCeil},
      {ScalarPrim::kAnd, &ops::kAnd},
      {ScalarPrim::kOr, &ops::kOr},
      {ScalarPrim::kXor, &ops::kXor},
      {ScalarPrim::kNot, &ops::kNot},
      {ScalarPrim::kClz, &ops::kClz},
      {ScalarPrim::kIsFinite, &ops::kIsFinite},
      {ScalarPrim::kSelect, &ops::kSelect},
      {ScalarPrim::kRoundEven, &ops::kRoundNearestEven},
      {ScalarPrim::kRoundAway, &ops::kRoundNearestAfz},
      {ScalarPrim::kShl, &ops::kShiftLeft},
      {ScalarPrim::kShrA, &ops::kShiftRightArithmetic},
      {ScalarPrim::kShrL, &ops::kShiftRightLogical},
      {ScalarPrim::kPopCount, &ops::kPopulationCount}};
  const auto* const row = std::find_if(std::begin(kOps), std::end(kOps),
                                       [&](const auto& r) { return r.first == prim; });
  return row == std::end(kOps) ? nullptr : row->second;
}
std::string_view DirectionOf(ScalarPrim prim) {
  switch (prim) {
    case ScalarPrim::kEq:
      return "EQ";
    case ScalarPrim::kNe:
      return "NE";
    case ScalarPrim::kLt:
      return "LT";
    case ScalarPrim::kLe:
      return "LE";
    case ScalarPrim::kGt:
      return "GT";
    default:
      return "GE";
  }
}

Value EmitNode(const ScalarNode& node, const std::vector<Value>& args, Builder& b,
               const std::vector<Value>& in, const Dims& shape, Value (*erf)(Value)) {
  switch (node.prim) {
    case ScalarPrim::kInput:
      return BroadcastTo(in[static_cast<size_t>(node.value)], shape);
    case ScalarPrim::kConstant:
      return BroadcastTo(
          Constant(b, IsFloat(node.dtype) ? Array::Scalar(node.dtype, node.value)
                                          : Array::ScalarInt(node.dtype, node.int_value)),
          shape);
    case ScalarPrim::kErf:
      return erf(args[0]);
    case ScalarPrim::kConvert:
      return Convert(args[0], node.dtype);
    case ScalarPrim::kBitcast:
      return BitcastConvert(args[0], node.dtype);
    default:
      break;
  }
  if (const OpDef* const op = OpOf(node.prim); op != nullptr) return b.Emit1(*op, args);
  return Compare(args[0], args[1], DirectionOf(node.prim));
}
std::vector<Value> EmitGraph(const ScalarGraph& graph, const std::vector<Value>& in,
                             const Dims& shape, Value (*erf)(Value)) {
  std::vector<Value> values;
  for (const ScalarNode& node : graph.nodes) {
    std::vector<Value> args;
    for (const int arg : node.args) args.push_back(values[arg]);
    values.push_back(EmitNode(node, args, in[0].builder(), in, shape, erf));
  }
  std::vector<Value> out;
  for (const int root : graph.roots) out.push_back(values[root]);
  return out;
}

// ---- Orders. ------------------------------------------------------------------------------------
// Returns a comparator for sorts. `less` receives pairs of scalars.
FunctionRef Comparator(const std::vector<Value>& xs,
                       absl::FunctionRef<Value(const std::vector<Value>&)> less) {
  Builder b(Scope{}, "comparator");
  std::vector<Value> params;
  for (const Value x : xs)
    for (int side = 0; side < 2; ++side) params.push_back(b.Param(MakeType(x.dtype(), {})));
  return b.Build({less(params)});
}
// Returns the same number in a dtype that can be computed with.
Value ToComputable(Value x) {
  if (IsComputable(x.dtype())) return x;
  return Convert(x, IsFloat(x.dtype()) ? DType::kF32 : DType::kS32);
}
// Returns a key whose total order is the order of lax.sort: -0 equals +0, and all NaNs are equal.
Value SortKeyOf(Value x) {
  x = ToComputable(x);
  if (!IsFloat(x.dtype())) return x;
  const Value zero = FullLike(x, 0);
  const Value unsigned_zero = Select(Compare(x, zero, "EQ"), zero, x);
  const Value nan = FullLike(x, std::numeric_limits<double>::quiet_NaN());
  return Select(Compare(x, x, "NE"), nan, unsigned_zero);
}
Value CompareInOrder(Value a, Value b, std::string_view direction) {
  return IsFloat(a.dtype()) ? CompareTotalOrder(a, b, direction) : Compare(a, b, direction);
}
std::vector<Value> SortedBy(const RuleContext& c, const std::vector<Value>& xs,
                            const FunctionRef& comparator) {
  const bool stable = !c.attrs.Has("is_stable") || c.attrs.Bool("is_stable");
  return c.b.Emit(ops::kSortBy, xs,
                  {{"dimension", c.attrs.Int("dimension")}, {"is_stable", stable}}, {comparator});
}

}  // namespace

Array IdentityOf(const OpDef& reduction, DType dtype) {
  return ValueOrThrow(
      EvaluateOp(reduction, {}, {Array(dtype, {0})}, {{"dimensions", std::vector<int64_t>{0}}}))[0];
}

std::vector<Value> ExpandElementwise(const RuleContext& c) {
  const ScalarGraph graph =
      c.def.scalar.record(c.attrs, c.in_types.back().dtype, c.out_types[0].dtype);
  return EmitGraph(Canonical(graph), c.in, c.out_types[0].shape, ErfThroughF64);
}

// Follows JAX: the result is the index of the best element. Among equals the lowest index wins, and
// the first NaN wins over everything.
std::vector<Value> ExpandArg(const RuleContext& c) {
  const int64_t dim = c.attrs.Int("dimension");
  const DType index = c.attrs.Dtype("index_dtype"), dtype = c.in[0].dtype();
  const bool is_max = c.def.reduce == ReduceKind::kArgMax;
  Builder b(Scope{}, "better");
  std::vector<Value> params;
  for (int side = 0; side < 2; ++side)
    for (const DType of : {dtype, index}) params.push_back(b.Param(MakeType(of, {})));
  const Value a = params[0], index_a = params[1], other = params[2], index_other = params[3];
  Value better = Compare(a, other, is_max ? "GT" : "LT");
  if (IsFloat(dtype)) better = Or(better, Compare(a, a, "NE"));
  const Value equal = Compare(a, other, "EQ");
  const Value first = And(equal, Compare(index_a, index_other, "LT"));
  const Value best = Select(better, a, other);
  const Value at = Select(Or(better, first), index_a, index_other);
  const FunctionRef computation = b.Build({best, at});
  const Array worst = IdentityOf(is_max ? ops::kReduceMax : ops::kReduceMin, dtype);
  const Value indices = Iota(c.b, index, c.in[0].shape(), static_cast<int>(dim));
  const Value worst_of_all = Constant(c.b, worst);
  const Value zero = Constant(c.b, Array::ScalarInt(index, 0));
  return {Reduce({c.in[0], indices}, {worst_of_all, zero}, computation, {dim})[1]};
}

std::vector<Value> ExpandSort(const RuleContext& c) {
  const auto num_keys = static_cast<size_t>(c.attrs.Int("num_keys"));
  const FunctionRef less = Comparator(c.in, [&](const std::vector<Value>& sides) {
    Value out;
    for (size_t key = num_keys; key-- > 0;) {
      const Value a = SortKeyOf(sides[2 * key]), b = SortKeyOf(sides[2 * key + 1]);
      const Value is_less = CompareInOrder(a, b, "LT");
      out = out ? Or(is_less, And(CompareInOrder(a, b, "EQ"), out)) : is_less;
    }
    return out;
  });
  return SortedBy(c, c.in, less);
}

std::vector<Value> ExpandTopK(const RuleContext& c) {
  const auto dim = static_cast<int>(c.attrs.Int("dimension"));
  const Value indices = Iota(c.b, DType::kS32, c.in[0].shape(), dim);
  const std::vector<Value> xs = {c.in[0], indices};
  const FunctionRef greater = Comparator(xs, [](const std::vector<Value>& sides) {
    const Value a = ToComputable(sides[0]);
    return CompareInOrder(a, ToComputable(sides[1]), "GT");
  });
  std::vector<Value> out = SortedBy(c, xs, greater);
  for (Value& x : out) x = SliceInDim(x, dim, 0, c.attrs.Int("k"));
  return out;
}

// Takes log2(n) steps. Each step combines every element with the element 1, 2, 4 ... before it.
std::vector<Value> ExpandCumlogsumexp(const RuleContext& c) {
  const auto dim = static_cast<int>(c.attrs.Int("dimension"));
  const bool reverse = c.attrs.Bool("reverse");
  const DType dtype = c.in[0].dtype();
  Value x = BitWidth(dtype) < 32 ? Convert(c.in[0], DType::kF32) : c.in[0];
  const int64_t n = x.dim(dim);
  const Value none = FullLike(x, -std::numeric_limits<double>::infinity());
  for (int64_t step = 1; step < n; step *= 2) {
    const Value kept = SliceInDim(x, dim, reverse ? step : 0, reverse ? n : n - step);
    const Value fill = SliceInDim(none, dim, 0, step);
    const Value before = reverse ? Concatenate({kept, fill}, dim) : Concatenate({fill, kept}, dim);
    const Value larger = Max(before, x), difference = Sub(before, x);
    const Value sum = Add(before, x);
    const Value combined = Add(larger, Log1p(Exp(Neg(Abs(difference)))));
    x = Select(Compare(difference, difference, "NE"), sum, combined);  // for infinities and NaN
  }
  return {Convert(x, dtype)};
}

// ---- Windows at indices. ------------------------------------------------------------------------
namespace {

// Returns, for each entry of an index vector, the highest index that keeps a window within `x`.
std::vector<int64_t> HighestIndices(const WindowDims& w, const Type& x, const Dims& window) {
  std::vector<int64_t> out;
  for (const int64_t dim : w.index_map) out.push_back(x.shape[dim] - window[dim]);
  return out;
}
// Returns the indices with a dim for their vectors: if that dim is implicit, it is added with size
// 1.
Value WithVectorDim(Value indices, int64_t* vector_dim) {
  *vector_dim = std::min<int64_t>(*vector_dim, indices.rank());
  return *vector_dim == indices.rank() ? ExpandDims(indices, {indices.rank()}) : indices;
}

}  // namespace

// Gathers the elements of all windows, one dim after the other, by their computed positions.
std::vector<Value> ExpandWindows(const RuleContext& c) {
  const std::vector<int64_t>&dims = c.attrs.Ints("dimensions"),
        &sizes = c.attrs.Ints("window_dimensions"), &strides = c.attrs.Ints("window_strides"),
        &dilations = c.attrs.Ints("window_dilations");
  Value x = c.in[0];
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto d = static_cast<int>(dims[i]);
    const Dims shape = {c.out_types[0].shape[d], sizes[i]};
    const auto counted = [&](int dim, int64_t step) {
      const Value count = Iota(c.b, DType::kS64, shape, dim);
      return Mul(count, FullLike(count, static_cast<double>(step)));
    };
    const Value first = counted(0, strides[i]), within = counted(1, dilations[i]);
    GatherDimensionNumbers numbers;
    numbers.collapsed_slice_dims = numbers.start_index_map = {d};
    for (int at = 0; at < x.rank() + 1; ++at)
      if (at != d && at != d + 1) numbers.offset_dims.push_back(at);
    Dims slice = x.shape();
    slice[d] = 1;
    GatherScatterOptions options;
    options.mode = GatherScatterMode::kClip;
    const Value gathered = Gather(x, ExpandDims(Add(first, within), {2}), numbers, slice, options);
    x = MoveDim(gathered, d + 1, gathered.rank() - 1);
  }
  return {x};
}

// StableHLO's gather clips indices. So this gathers with clipped indices, and then replaces the
// windows that were not within the operand by the fill value. Indices are compared as s64.
std::vector<Value> ExpandFilledGather(const RuleContext& c) {
  const WindowDims w(c.attrs, ops::kGatherNames);
  const Type& type = c.out_types[0];
  const std::optional<Array> fill =
      c.def.index_map({c.def, c.b.scope(), c.in_types, c.attrs, c.regions}, c.out_types).literal;
  Attrs attrs = c.attrs;
  attrs.Set("mode", ops::NameOf(GatherScatterMode::kClip));
  attrs.Erase("fill_value");
  const Value gathered = c.b.Emit1(c.def, c.in, attrs);
  // Find the windows within the operand. The conversion of an unsigned 64-bit index that is too
  // large is negative, so its window is outside, as it should be.
  int64_t vector_dim = w.index_vector_dim;
  const Value indices = Convert(WithVectorDim(c.in[1], &vector_dim), DType::kS64);
  const std::vector<int64_t> highest =
      HighestIndices(w, c.in_types[0], c.attrs.Ints("slice_sizes"));
  const auto entries = static_cast<int64_t>(highest.size());
  const Array limits(DType::kS64, {entries},
                     absl::MakeConstSpan(reinterpret_cast<const std::byte*>(highest.data()),
                                         highest.size() * sizeof(int64_t)));
  const auto along = [&](const Value entry) {
    return BroadcastInDim(entry, indices.shape(), {vector_dim});
  };
  const Value first = along(BroadcastInDim(Constant(c.b, DType::kS64, 0), {entries}, {}));
  const Value last = along(c.b.Emit1(ops::kConstant, {}, {{"value", limits}}));
  const Value above = Compare(indices, first, "GE"), below = Compare(indices, last, "LE");
  const Value inside = ReduceAnd(And(above, below), {vector_dim});
  const Value spread = BroadcastInDim(inside, type.shape, DimsExcept(type.rank(), w.window));
  return {Select(spread, gathered, BroadcastTo(Constant(c.b, *fill), type.shape))};
}

// StableHLO's scatter drops windows that are not within the operand. So this clamps each entry of
// the index vectors to its highest index first. The bounds are capped by the largest value of the
// indices' dtype.
std::vector<Value> ExpandClippedScatter(const RuleContext& c) {
  const WindowDims w(c.attrs, ops::kScatterNames);
  const size_t n = c.in.size() / 2;
  const Type &x = c.in_types[0], &updates = c.in_types[n + 1];
  const Geometry g(w, x.rank(), c.in_types[n].rank());
  Dims window;
  for (const int64_t at : g.operand_to_block) window.push_back(at < 0 ? 1 : updates.shape[at]);
  int64_t vector_dim = w.index_vector_dim;
  std::vector<Value> in = c.in;
  const Value indices = WithVectorDim(c.in[n], &vector_dim);
  const DType dtype = indices.dtype();
  const int bits = BitWidth(dtype) - (IsSignedInt(dtype) ? 1 : 0);
  const int64_t most = bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  std::vector<Value> clipped;
  const std::vector<int64_t> highest = HighestIndices(w, x, window);
  for (size_t k = 0; k < highest.size(); ++k) {
    const auto at = static_cast<int64_t>(k);
    const Value entry = SliceInDim(indices, static_cast<int>(vector_dim), at, at + 1);
    const Value low = Constant(c.b, Array::ScalarInt(dtype, 0));
    const Value high = Constant(c.b, Array::ScalarInt(dtype, std::min(highest[k], most)));
    clipped.push_back(Clamp(low, entry, high));
  }
  if (!clipped.empty()) {
    const Value all = Concatenate(clipped, static_cast<int>(vector_dim));
    in[n] = Reshape(all, c.in[n].shape());
  }
  Attrs attrs = c.attrs;
  attrs.Set("mode", ops::NameOf(GatherScatterMode::kFillOrDrop));
  return c.b.Emit(c.def, in, attrs, {c.regions.begin(), c.regions.end()});
}

}  // namespace tessera::ir::stablehlo
