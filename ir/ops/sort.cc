// The ops sort and top_k.
//
// sort puts elements in the order of lax.sort: numbers ascending, -0 equal to +0, NaNs last, false
// before true. top_k follows IEEE's total order from the greatest element down. Reference:
// jax.lax.sort, jax.lax.top_k; StableHLO's sort.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/sorting.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

absl::Status CheckOrdered(const InferContext& c, const Type& key) {
  if (!IsComplex(key.dtype)) return absl::OkStatus();
  return TypeError(c, "does not accept dtype ", ToAbsl(DTypeName(key.dtype)), " as a key; ",
                   "expected a real type");
}

// ---- The order. ----

// Returns a number for the element of `x` at the flat index `at`. The numbers are ordered as the
// elements are, by IEEE's total order if `by_total_order` is true. SortRule::descending requires
// this order.
uint64_t OrderKey(const Array& x, int64_t at, bool by_total_order) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (by_total_order && IsComputable(x.dtype()) && IsFloat(x.dtype())) {
    const int64_t width = ByteWidth(x.dtype());
    uint64_t bits = 0;
    std::memcpy(&bits, x.data() + at * width, width);
    bits <<= 64 - 8 * width;
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
  if (!IsFloat(x.dtype())) {
    const auto bits = static_cast<uint64_t>(x.IntAt(at));
    return IsSignedInt(x.dtype()) ? bits ^ kSign : bits;
  }
  const double v = x.At(at);
  if (std::isnan(v)) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// Returns the indices of the n elements of a row in the order of their keys. If k < n, only the
// first `k` entries are in order. Element i of the row is at begin + i * stride. Elements that are
// equal stay in their order.
std::vector<int64_t> SortedIndices(absl::Span<const Array> keys, int64_t begin, int64_t stride,
                                   int64_t n, bool descending, int64_t k) {
  std::vector<std::vector<uint64_t>> order_keys;
  for (const Array& key : keys) {
    std::vector<uint64_t>& of_key = order_keys.emplace_back(n);
    for (int64_t i = 0; i < n; ++i) of_key[i] = OrderKey(key, begin + i * stride, descending);
  }
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const auto is_before = [&](int64_t a, int64_t b) {
    for (const std::vector<uint64_t>& of_key : order_keys)
      if (of_key[a] != of_key[b]) return (of_key[a] < of_key[b]) != descending;
    return a < b;
  };
  if (k < n) {
    std::partial_sort(order.begin(), order.begin() + k, order.end(), is_before);
  } else {
    std::sort(order.begin(), order.end(), is_before);
  }
  return order;
}

// Calls f(begin, row) for each row along `dim` of an array of this shape. `begin` is the flat index
// of the row's first element, and `row` is the number of the row.
template <class F>
void ForEachRow(const Dims& shape, int dim, const F& f) {
  const int64_t stride = StridesOf(shape)[dim], n = shape[dim];
  int64_t rows = 1;
  for (size_t d = 0; d < shape.size(); ++d) rows *= static_cast<int>(d) == dim ? 1 : shape[d];
  for (int64_t row = 0; row < rows; ++row) f(row / stride * stride * n + row % stride, row);
}

// ---- sort: operands of one shape along `dimension`, by the first `num_keys`. ----

Types InferSort(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferSortedRows(c));
  const int64_t keys = c.attrs.Int("num_keys");
  if (keys < 1 || keys > static_cast<int64_t>(c.in.size()))
    return ValueError(c, "num_keys is ", keys, "; expected one in [1, ", c.in.size(),
                      "], the number of operands");
  for (int64_t i = 0; i < keys; ++i) TESSERA_RETURN_IF_ERROR(CheckOrdered(c, c.in[i]));
  return out;
}

Arrays EvalSort(const EvalContext& c, absl::Span<const Array> in) {
  const int dim = SortedDim(c.attrs);
  const Dims& shape = in[0].shape();
  const int64_t n = shape[dim], stride = StridesOf(shape)[dim];
  std::vector<Array> out;
  for (const Array& x : in) out.emplace_back(x.dtype(), shape);
  if (in[0].num_elements() == 0) return out;
  const auto keys = in.subspan(0, c.attrs.Int("num_keys"));
  ForEachRow(shape, dim, [&](int64_t begin, int64_t) {
    const std::vector<int64_t> order =
        SortedIndices(keys, begin, stride, n, /*descending=*/false, n);
    for (size_t k = 0; k < in.size(); ++k) {
      const int64_t width = ByteWidth(in[k].dtype());
      std::byte* const to = out[k].MutableData();
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(in[k].data() + (begin + order[i] * stride) * width, width,
                    to + (begin + i * stride) * width);
    }
  });
  return out;
}

SortRule SortOfKeys(const Attrs& attrs) {
  return {.dimension = SortedDim(attrs), .num_keys = static_cast<int>(attrs.Int("num_keys"))};
}

constexpr AttrSpec kSortAttrs[] = {
    {"dimension", AttrKind::kInt}, {"is_stable", AttrKind::kBool}, {"num_keys", AttrKind::kInt}};

}  // namespace

constexpr OpDef kSort = Sorting({.name = "sort",
                                 .lax_name = "sort",
                                 .attrs = kSortAttrs,
                                 .lowering = Lowering::kSort,
                                 .infer = InferSort,
                                 .cost = SortCost,
                                 .eval = EvalSort,
                                 .sort = SortOfKeys});

// ---- top_k: the `k` largest elements along `dimension`, and their indices. The order is that of
// XLA: +0 is larger than -0, a NaN is larger than infinity, and a NaN with a sign is smaller than
// all numbers. ----
namespace {

Types InferTopK(const InferContext& c) {
  const Type& x = c.in[0];
  TESSERA_RETURN_IF_ERROR(CheckOrdered(c, x));
  TESSERA_RETURN_IF_ERROR(CheckDimension(c));
  const int64_t k = c.attrs.Int("k"), n = x.shape[c.attrs.Int("dimension")];
  if (k < 0 || k > n)
    return ValueError(c, "k argument to top_k must be no larger than size along axis; got k=", k,
                      " with shape ", x.ToString(), " and dimension ", c.attrs.Int("dimension"));
  Type values = MakeType(x.dtype, x.shape);
  values.shape[SortedDim(c.attrs)] = k;
  values.weak = x.weak;
  return std::vector<Type>{values, MakeType(DType::kS32, values.shape)};
}

Signature TopKFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  s.operands.resize(1);
  TensorFactors kept;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool is_sorted_dim = d == SortedDim(c.attrs);
    s.operands[0].push_back({s.Add(
        is_sorted_dim ? FactorKind::kReduction : FactorKind::kPassThrough, c.in[0].shape[d])});
    kept.push_back(is_sorted_dim ? FactorList{s.Add(FactorKind::kReplicated, out[0].shape[d])}
                                 : s.operands[0][d]);
  }
  s.results = {kept, kept};
  s.reduce = ReduceKind::kMax;
  return s;
}

absl::Status TopKSharding(const InferContext& c, std::vector<Type>* out) {
  const Type& x = c.in[0];
  if (!x.axes_of(SortedDim(c.attrs)).empty())
    return ShardingError(c, "dim ", SortedDim(c.attrs), " of ", x.ToString(),
                         " is sharded; reshard the operand to leave it whole");
  return SameShardingAsFirst(c, out);
}

std::vector<Value> TopKJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return std::vector<Value>(c.out_types.size());
  return {TakeAlong(tangents[0], c.out[1], SortedDim(c.attrs)), Value()};
}

Batched BatchTopK(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  Attrs attrs = c.attrs;
  attrs.Set("dimension", PastBatch(c.attrs.Int("dimension"), dims[0]));
  return {c.b.Emit(c.def, {c.in[0]}, std::move(attrs)), {dims[0], dims[0]}};
}

// Takes the k largest elements of each block, then the k largest of these. They are gathered in the
// order of the blocks, so that equal elements stay in their order.
std::vector<Value> PartitionTopK(const RuleContext& c, const PartitionContext& p) {
  const int dim = SortedDim(c.attrs);
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  if (axes.empty()) return c.b.Emit(c.def, c.in, c.attrs);
  const int64_t block = c.in[0].dim(dim);
  Attrs block_attrs = c.attrs;
  block_attrs.Set("k", std::min(c.attrs.Int("k"), block));
  const std::vector<Value> mine = c.b.Emit(c.def, c.in, std::move(block_attrs));
  const Value begin = BlockBegin(c.b, axes, block);
  const Value at = Add(mine[1], BroadcastInDim(begin, mine[1].shape(), {}));
  const Value values = AllGather(mine[0], axes, dim, /*tiled=*/true);
  const Value indices = AllGather(at, axes, dim, /*tiled=*/true);
  const std::vector<Value> best = c.b.Emit(c.def, {values}, c.attrs);
  return {best[0], TakeAlong(indices, best[1], dim)};
}

Arrays EvalTopK(const EvalContext& c, absl::Span<const Array> in) {
  const int dim = SortedDim(c.attrs);
  const Array& x = in[0];
  const int64_t n = x.shape()[dim], k = c.attrs.Int("k"), stride = StridesOf(x.shape())[dim];
  Array values(x.dtype(), c.out_types[0].shape), indices(DType::kS32, c.out_types[1].shape);
  if (values.num_elements() == 0) return std::vector<Array>{values, indices};
  const int64_t width = ByteWidth(x.dtype());
  std::byte* const to = values.MutableData();
  ForEachRow(x.shape(), dim, [&](int64_t begin, int64_t row) {
    const std::vector<int64_t> order =
        SortedIndices({&x, 1}, begin, stride, n, /*descending=*/true, k);
    const int64_t first = row / stride * stride * k + row % stride;
    for (int64_t i = 0; i < k; ++i) {
      std::copy_n(x.data() + (begin + order[i] * stride) * width, width,
                  to + (first + i * stride) * width);
      indices.Set(first + i * stride, static_cast<double>(order[i]));
    }
  });
  return std::vector<Array>{values, indices};
}

SortRule SortToTopK(const Attrs& attrs) {
  return {.dimension = SortedDim(attrs),
          .descending = true,
          .kept = attrs.Int("k"),
          .returns_indices = true};
}

constexpr AttrSpec kTopKAttrs[] = {{"k", AttrKind::kInt}, {"dimension", AttrKind::kInt}};

}  // namespace

constexpr OpDef kTopK = Checked({.name = "top_k",
                                 .lax_name = "top_k",
                                 .family = Family::kReduction,
                                 .num_operands = 1,
                                 .attrs = kTopKAttrs,
                                 .lowering = Lowering::kSort,
                                 .infer = InferTopK,
                                 .factors = TopKFactors,
                                 .sharding = TopKSharding,
                                 .varying = Derived{},
                                 .jvp = TopKJvp,
                                 .transpose = Refused{"it is not linear"},
                                 .batch = BatchTopK,
                                 .partition = PartitionTopK,
                                 .cost = SortCost,
                                 .eval = EvalTopK,
                                 .sort = SortToTopK});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

std::vector<Value> Sort(std::vector<Value> xs, int dimension, bool is_stable, int num_keys) {
  if (xs.empty()) Throw(ErrorKind::kTypeError, "sort: takes at least one operand, got nothing");
  Builder& b = xs[0].builder();
  return b.Emit(ops::kSort, MatchVarying(std::move(xs)),
                {{"dimension", int64_t{dimension}},
                 {"is_stable", is_stable},
                 {"num_keys", int64_t{num_keys}}});
}

std::pair<Value, Value> TopK(Value x, int64_t k, int dimension) {
  const std::vector<Value> best =
      x.builder().Emit(ops::kTopK, {x}, {{"k", k}, {"dimension", int64_t{dimension}}});
  return {best[0], best[1]};
}

}  // namespace tessera::ir
