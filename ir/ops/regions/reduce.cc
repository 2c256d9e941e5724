// The op reduce: arrays of one shape, combined over dims by any computation.
//
// The computation must be associative, as StableHLO and lax require. Neighbours are therefore
// combined in pairs, which keeps the order of the elements and lets all pairs be computed at once.
// The operands are the arrays and as many initial values. An initial value is a scalar that comes
// before all elements.
//
// Reference: StableHLO's reduce; jax.lax.reduce.
#include <algorithm>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/eval/eval.h"
#include "ir/ops/regions/computation.h"
#include "ir/ops/regions/region.h"
#include "ir/ops/rules/dims.h"
#include "ir/strided.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

const DimList& ReducedDims(const Attrs& attrs) { return attrs.Ints("dimensions"); }

// Returns the dims from minor to major. Reducing rows before columns keeps the elements in
// row-major order.
DimList MinorToMajor(DimList dims) {
  std::sort(dims.rbegin(), dims.rend());
  return dims;
}

// ArrayOperands returns the first half of the operands, the arrays. Inits returns the second half,
// the initial values.
template <class T>
std::vector<T> ArrayOperands(const std::vector<T>& operands) {
  return {operands.begin(), operands.begin() + operands.size() / 2};
}
template <class T>
std::vector<T> Inits(const std::vector<T>& operands) {
  return {operands.begin() + operands.size() / 2, operands.end()};
}

// ---- Types and shardings. ----

// Checks in lax's words that arrays and initial values fit together, then that the computation
// takes scalars of their dtypes. The weak flag survives where both the array and its initial value
// are weak.
Types InferReduce(const InferContext& c) {
  const size_t n = c.in.size() / 2;
  if (n == 0 || c.in.size() % 2 != 0)
    return TypeError(c, "takes one operand or more and as many initial values, got ", c.in.size(),
                     " operands");
  const absl::Span<const Type> xs = c.in.subspan(0, n), inits = c.in.subspan(n);
  TESSERA_RETURN_IF_ERROR(CheckDistinctDims(c, "dimensions", ReducedDims(c.attrs), xs[0].rank()));
  std::vector<Type> out;
  for (size_t k = 0; k < n; ++k) {
    if (xs[k].shape != xs[0].shape)
      return TypeError(c, "operand ", k, " is ", xs[k].ToString(), ", operand 0 is ",
                       xs[0].ToString(), "; expected equal shapes");
    if (inits[k].rank() != 0)
      return ValueError(c, "found non-scalar initial value: ", inits[k].ToString());
    if (inits[k].dtype != xs[k].dtype)
      return TypeError(c,
                       "operand dtypes should match corresponding initial value dtypes, got "
                       "operands=[",
                       TypesToString(xs), "] and initial_values=[", TypesToString(inits), "]");
    Type t = MakeType(xs[k].dtype, {});
    for (int64_t d : DimsExcept(xs[k].rank(), ReducedDims(c.attrs)))
      t.shape.push_back(xs[k].shape[d]);
    t.weak = xs[k].weak && inits[k].weak;
    out.push_back(std::move(t));
  }
  std::vector<DType> params = DTypesOf(xs);
  params.insert(params.end(), params.begin(), params.begin() + n);
  TESSERA_RETURN_IF_ERROR(CheckComputation(c, params, DTypesOf(xs)));
  return out;
}

Signature ReduceFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  TensorFactors whole, kept;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool is_reduced = Contains(ReducedDims(c.attrs), d);
    whole.push_back(
        {s.Add(is_reduced ? FactorKind::kReduction : FactorKind::kPassThrough, c.in[0].shape[d])});
    if (!is_reduced) kept.push_back(whole.back());
  }
  s.operands.assign(out.size(), whole);
  s.operands.resize(2 * out.size());
  s.results.assign(out.size(), kept);
  return s;
}

// A sharded dim may be reduced. The result's type lacks the axes of that dim.
absl::Status ReduceSharding(const InferContext& c, std::vector<Type>* out) {
  for (size_t k = 0; k < out->size(); ++k) {
    if (!c.in[k].is_sharded()) continue;
    for (int64_t d : DimsExcept(c.in[k].rank(), ReducedDims(c.attrs)))
      (*out)[k].sharding.push_back(c.in[k].axes_of(static_cast<int>(d)));
    Normalize(&(*out)[k]);
  }
  return absl::OkStatus();
}

Cost ReduceCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost;
  cost.flops = FlopsOf(c, c.in[0].num_elements());
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  return cost;
}

// ---- The reduction as ordinary ops, for transforms that have no rule of their own. ----

// Returns `count` elements of `x` along `dim`: first, first + 2 and so on.
Value EverySecond(Value x, int dim, int64_t first, int64_t count) {
  Dims start(x.rank(), 0), limit = x.shape(), strides(x.rank(), 1);
  start[dim] = first;
  limit[dim] = first + 2 * count - 1;
  strides[dim] = 2;
  return Slice(x, std::move(start), std::move(limit), std::move(strides));
}

// Reduces rows along `dim` by combining pairs of neighbours. The results keep the dim, with one
// element.
std::vector<Value> ReduceRowsInPairs(const FunctionRef& computation, std::vector<Value> xs,
                                     int dim) {
  while (xs[0].dim(dim) > 1) {
    const int64_t n = xs[0].dim(dim), half = n / 2;
    std::vector<Value> pairs;
    for (const int64_t first : {0, 1})
      for (const Value& x : xs) pairs.push_back(EverySecond(x, dim, first, half));
    std::vector<Value> got = MapComputation(computation, std::move(pairs));
    for (size_t k = 0; k < xs.size(); ++k)
      xs[k] = n % 2 == 0 ? got[k] : Concatenate({got[k], SliceInDim(xs[k], dim, n - 1, n)}, dim);
  }
  return xs;
}

// Reduces the arrays as ordinary ops. `inits` have the results' shape. If a dim is cut by
// axes[dim], each shard reduces its block, and the results of all blocks are gathered and reduced
// again. Rows are reduced before columns, so that the elements keep their order.
std::vector<Value> ReduceInPairs(const FunctionRef& computation, std::vector<Value> xs,
                                 const std::vector<Value>& inits, const DimList& dimensions,
                                 const DimAxes& axes) {
  for (const int64_t d : MinorToMajor(dimensions)) {
    const int dim = static_cast<int>(d);
    if (xs[0].dim(dim) == 0) return inits;
    // Unshard the dim: its axes need not divide the halves.
    for (Value& x : xs) {
      Type whole = x.type();
      whole.set_axes_of(dim, {});
      x = ShardedLike(x, whole);
    }
    xs = ReduceRowsInPairs(computation, std::move(xs), dim);
    if (axes[dim].empty()) continue;
    for (Value& x : xs) x = AllGather(x, axes[dim], dim, /*tiled=*/true);
    xs = ReduceRowsInPairs(computation, std::move(xs), dim);
  }
  for (Value& x : xs) x = Squeeze(x, dimensions);
  return MapComputation(computation, Concat(inits, xs));
}

// Returns the reduction in pairs as a function of the op's operands, so that it can be
// differentiated or batched.
FunctionRef PairwiseFunction(const RuleContext& c, const std::vector<Type>& in,
                             const std::vector<Type>& out) {
  Builder b(c.b.scope(), "reduce");
  std::vector<Value> params;
  for (const Type& t : in) params.push_back(b.Param(t));
  std::vector<Value> inits = Inits(params);
  for (size_t k = 0; k < inits.size(); ++k) inits[k] = BroadcastLike(inits[k], out[k], {});
  std::vector<Value> got = ReduceInPairs(c.regions[0], ArrayOperands(params), inits,
                                         ReducedDims(c.attrs), DimAxes(in[0].rank()));
  for (size_t k = 0; k < got.size(); ++k) got[k] = ShardedLike(got[k], out[k]);
  return b.Build(got);
}

// Differentiates the reduction in pairs, as JAX does. This includes the initial values.
std::vector<Value> ReduceJvp(const RuleContext& c, Values tangents) {
  const FunctionRef f = PairwiseFunction(c, TypesOf(c.in), TypesOf(c.out));
  const JvpResult jvp = ValueOrThrow(Jvp(*f, AreValid(tangents)));
  const std::vector<Value> got = Inline(c.b, *jvp.fn, Concat(c.in, DropAbsent(tangents)));
  const std::vector<Value> out(got.begin() + c.out.size(), got.end());
  return ScatterByMask(out, jvp.out_active);
}

Batched BatchReduce(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const size_t n = c.out_types.size();
  const std::vector<int> front(n, 0);
  const bool same_inits =
      std::all_of(dims.begin() + n, dims.end(), [](int dim) { return dim < 0; });
  if (!same_inits) {
    const FunctionRef f = PairwiseFunction(c, c.in_types, c.out_types);
    const std::vector<int> of_params(dims.begin(), dims.end());
    return {Inline(c.b, *ValueOrThrow(Batch(*f, of_params, size, front)).fn, c.in), front};
  }
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i)
    in.push_back(i < n ? BatchInFront(c, dims, i, size) : c.in[i]);
  Attrs attrs = c.attrs;
  attrs.Set("dimensions", PastBatch(ReducedDims(c.attrs), 0));
  return {c.b.Emit(c.def, MatchVarying(std::move(in)), std::move(attrs), RegionsOf(c)), front};
}

// Emits the op itself if no reduced dim is cut. Otherwise it reduces in pairs, because the partial
// results of a computation cannot be completed by a sum or maximum over devices: they have to be
// gathered in order.
std::vector<Value> PartitionReduce(const RuleContext& c, const PartitionContext& p) {
  const DimAxes axes = JoinAxes(p.signature.operands[0], p.factor_axes);
  const DimList& dims = ReducedDims(c.attrs);
  if (std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return axes[d].empty(); }))
    return c.b.Emit(c.def, c.in, c.attrs, RegionsOf(c));
  std::vector<Value> inits = Inits(c.in);
  for (size_t k = 0; k < inits.size(); ++k) inits[k] = BroadcastLike(inits[k], p.local_out[k], {});
  return ReduceInPairs(c.regions[0], ArrayOperands(c.in), inits, dims, axes);
}

// ---- Reference semantics. ----

// Replaces the first n / 2 of the rows of `x`, which has shape (outer, n, inner), by `pairs`. Drops
// the other rows, except for the last one if n is odd.
Array Paired(const Array& x, const Array& pairs) {
  const int64_t outer = x.shape()[0], n = x.shape()[1], inner = x.shape()[2], half = n / 2;
  const Array whole = pairs.Reshaped({outer, half, inner});
  if (n % 2 == 0) return whole;
  Array out(x.dtype(), {outer, half + 1, inner});
  WriteBlock(&out, {0, 0, 0}, whole);
  WriteBlock(&out, {0, half, 0}, SliceBlock(x, {0, n - 1, 0}, {outer, 1, inner}));
  return out;
}

// Combines pairs of neighbours like ReduceInPairs, dim by dim, so that the evaluator gives what the
// emitted ops give. All pairs of a step are evaluated in one call of TupleEvaluator, because a call
// for each pair would walk over the computation's ops every time.
Arrays EvalReduce(const EvalContext& c, absl::Span<const Array> in) {
  const size_t n = in.size() / 2;
  std::vector<Array> xs(in.begin(), in.begin() + n), inits;
  for (size_t k = 0; k < n; ++k)
    inits.push_back(ReadStrided(in[n + k], 0, {0}, {c.out_types[k].num_elements()}));
  TupleEvaluator evaluator(c);
  Dims shape = in[0].shape();
  for (const int64_t d : MinorToMajor(ReducedDims(c.attrs))) {
    int64_t outer = 1, inner = 1;
    for (int64_t o = 0; o < d; ++o) outer *= shape[o];
    for (size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
    for (Array& x : xs) x = x.Reshaped({outer, shape[d], inner});
    while (xs[0].shape()[1] > 1) {
      const int64_t rows = xs[0].shape()[1];
      std::vector<Array> halves;
      for (const int64_t first : {0, 1})
        for (const Array& x : xs)
          halves.push_back(ReadStrided(x, first * inner, {rows * inner, 2 * inner, 1},
                                       {outer, rows / 2, inner}));
      TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got, evaluator.Run(halves));
      for (size_t k = 0; k < n; ++k) xs[k] = Paired(xs[k], got[k]);
    }
    shape[d] = std::min<int64_t>(shape[d], 1);
  }
  // Without elements, the initial values are the result.
  if (xs[0].num_elements() > 0) {
    inits.insert(inits.end(), xs.begin(), xs.end());
    TESSERA_ASSIGN_OR_RETURN(inits, evaluator.Run(inits));
  }
  std::vector<Array> out;
  for (size_t k = 0; k < n; ++k) out.push_back(inits[k].Reshaped(c.out_types[k].shape));
  return out;
}

constexpr AttrSpec kReduceAttrs[] = {{"dimensions", AttrKind::kInts}};

}  // namespace

constexpr OpDef kReduce = Checked({.name = "reduce",
                                   .lax_name = "reduce",
                                   .family = Family::kReduction,
                                   .num_operands = kAnyNumber,
                                   .regions = kOneComputation,
                                   .attrs = kReduceAttrs,
                                   .lowering = Lowering::kReduce,
                                   .infer = InferReduce,
                                   .factors = ReduceFactors,
                                   .sharding = ReduceSharding,
                                   .varying = Derived{},
                                   .jvp = ReduceJvp,
                                   .transpose = Refused{"it is not linear"},
                                   .batch = BatchReduce,
                                   .partition = PartitionReduce,
                                   .cost = ReduceCost,
                                   .eval = EvalReduce});

}  // namespace ops

// ---- The function of ops.h. ---------------------------------------------------------------------
namespace {

// A computation that is the single op `combine`, for which there is the op `reduction`. `pair`
// emits `combine`.
struct Monoid {
  const OpDef* combine;
  Value (*pair)(Value, Value);
  const OpDef* reduction;
};
const Monoid* FindMonoid(const Function& computation) {
  static constexpr Monoid kAll[] = {
      {&ops::kAdd, Add, &ops::kReduceSum}, {&ops::kMul, Mul, &ops::kReduceProd},
      {&ops::kMax, Max, &ops::kReduceMax}, {&ops::kMin, Min, &ops::kReduceMin},
      {&ops::kAnd, And, &ops::kReduceAnd}, {&ops::kOr, Or, &ops::kReduceOr},
  };
  const OpDef* const op = ops::SoleOp(computation);
  const auto* at = std::find_if(std::begin(kAll), std::end(kAll),
                                [&](const Monoid& m) { return m.combine == op; });
  return at == std::end(kAll) ? nullptr : at;
}

// Returns whether `init` is a literal that changes nothing: the result of the reduction of no
// elements.
bool IsIdentity(const Monoid& monoid, Value init) {
  const Op* const op = init.builder().DefiningOp(init);
  if (op == nullptr || op->def != &ops::kConstant) return false;
  return ValueOrThrow(EvaluateOp(*monoid.reduction, {}, {Array(init.dtype(), {0})},
                                 {{"dimensions", ops::DimList{0}}}))[0] ==
         op->attrs.Literal("value");
}

}  // namespace

namespace ops {
const OpDef* ReductionBy(const Function& computation) {
  const Monoid* const known = FindMonoid(computation);
  return known == nullptr ? nullptr : known->reduction;
}
}  // namespace ops

std::vector<Value> Reduce(std::vector<Value> xs, std::vector<Value> inits, FunctionRef computation,
                          std::vector<int64_t> dimensions) {
  if (xs.empty()) Throw(ErrorKind::kTypeError, "reduce: takes at least one operand, got nothing");
  Builder& b = xs[0].builder();
  std::sort(dimensions.begin(), dimensions.end());
  std::vector<Value> in = MatchVarying(ops::Concat(xs, inits));
  Attrs attrs = {{"dimensions", dimensions}};
  const Monoid* const known = FindMonoid(*computation);
  if (known == nullptr) return b.Emit(ops::kReduce, in, std::move(attrs), {std::move(computation)});
  // Refuse what the op reduce refuses, with its errors, although another op is emitted.
  ThrowIfError(InferTypes(ops::kReduce, b.scope(), TypesOf(in), attrs, {&computation, 1}).status());
  const Value total =
      dimensions.empty() ? in[0] : b.Emit1(*known->reduction, {in[0]}, std::move(attrs));
  if (IsIdentity(*known, in[1])) return {total};
  return {known->pair(ops::BroadcastLike(in[1], total.type(), {}), total)};
}

}  // namespace tessera::ir
