// The ops sort, sort_by and top_k.
//
// sort puts elements in the order of lax.sort: numbers ascending, -0 equal to +0, NaNs last, false
// before true. sort_by follows its comparator. top_k follows IEEE's total order from the greatest
// element down. Reference: jax.lax.sort, jax.lax.top_k; StableHLO's sort.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "ir/ops/regions/computation.h"
#include "ir/ops/rules/comparator.h"
#include "ir/ops/rules/dims.h"
#include "ir/strided.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

int DimOf(const Attrs& attrs) { return static_cast<int>(attrs.Int("dimension")); }

absl::Status CheckOrdered(const InferContext& c, const Type& key) {
  if (!IsComplex(key.dtype)) return absl::OkStatus();
  return TypeError(c, "does not accept dtype ", ToAbsl(DTypeName(key.dtype)), " as a key; ",
                   "expected a real type");
}

std::vector<Value> NoTangents(const RuleContext& c) {
  return std::vector<Value>(c.out_types.size());
}

// Returns the elements of `x` along `dim` that `indices` names, like lax's take_along_axis. All
// other dims of both must agree.
Value TakeAlong(Value x, Value indices, int dim) {
  GatherDimensionNumbers dims;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  for (int64_t d : DimsExcept(x.rank(), {dim})) {
    dims.operand_batching_dims.push_back(d);
    dims.start_indices_batching_dims.push_back(d);
  }
  Dims single;
  for (int d = 0; d < x.rank(); ++d) single.push_back(std::min<int64_t>(x.dim(d), 1));
  return Gather(x, ExpandDims(indices, {indices.rank()}), dims, std::move(single),
                {.mode = GatherScatterMode::kPromiseInBounds});
}

// ---- The order. ----

// Returns a number for the element of `x` at the flat index `at`. The numbers are ordered as the
// elements are. `total` selects IEEE's total order, which SortRule::descending requires.
uint64_t Rank(const Array& x, int64_t at, bool total) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (total && IsComputable(x.dtype()) && IsFloat(x.dtype())) {
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
std::vector<int64_t> OrderOf(absl::Span<const Array> keys, int64_t begin, int64_t stride, int64_t n,
                             bool descending, int64_t k) {
  std::vector<std::vector<uint64_t>> ranks;
  for (const Array& key : keys) {
    std::vector<uint64_t>& of_key = ranks.emplace_back(n);
    for (int64_t i = 0; i < n; ++i) of_key[i] = Rank(key, begin + i * stride, descending);
  }
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  const auto is_before = [&](int64_t a, int64_t b) {
    for (const std::vector<uint64_t>& of_key : ranks)
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

// Checks the operands of sort and sort_by, and returns the types of the results.
Types InferRows(const InferContext& c) {
  if (c.in.empty()) return TypeError(c, "takes at least one operand, got nothing");
  TESSERA_RETURN_IF_ERROR(CheckDimension(c));
  std::vector<Type> out;
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (c.in[i].shape != c.in[0].shape)
      return TypeError(c, "operand ", i, " is ", c.in[i].ToString(), ", operand 0 is ",
                       c.in[0].ToString(), "; expected equal shapes");
    Type t = MakeType(c.in[i].dtype, c.in[i].shape);
    t.weak = c.in[i].weak;
    out.push_back(std::move(t));
  }
  return out;
}

Types InferSort(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferRows(c));
  const int64_t keys = c.attrs.Int("num_keys");
  if (keys < 1 || keys > static_cast<int64_t>(c.in.size()))
    return ValueError(c, "num_keys is ", keys, "; expected one in [1, ", c.in.size(),
                      "], the number of operands");
  for (int64_t i = 0; i < keys; ++i) TESSERA_RETURN_IF_ERROR(CheckOrdered(c, c.in[i]));
  return out;
}

Signature SortFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = Pointwise(c, out);
  s.factors[DimOf(c.attrs)].kind = FactorKind::kPermutation;
  return s;
}

// JAX's own rule: the operands agree, and the sorted dim is not sharded.
absl::Status SortSharding(const InferContext& c, std::vector<Type>* out) {
  for (const Type& t : c.in) {
    if (t.sharding != c.in[0].sharding)
      return ShardingError(c, "got operands of different shardings: ", TypesToString(c.in),
                           "; reshard them alike");
    if (!t.axes_of(DimOf(c.attrs)).empty())
      return ShardingError(c,
                           "operands must be unsharded over the sorting dimension: the sorted dim ",
                           DimOf(c.attrs), " of ", t.ToString(),
                           " is sharded; reshard the operand to leave it whole");
  }
  return ShardingOfFirst(c, out);
}

// Returns the comparator with params for one more operand, which it ignores.
FunctionRef WithOneMore(const Function& comparator, DType dtype) {
  Builder b(comparator.scope, comparator.name);
  std::vector<Value> params;
  for (const Type& t : comparator.param_types()) params.push_back(b.Param(t));
  for (int side = 0; side < 2; ++side) b.Param(MakeType(dtype, {}));
  return b.Build(Inline(b, comparator, params));
}

// Tangents follow their primals. An iota that is sorted along with them tells where each element
// came from.
std::vector<Value> SortJvp(const RuleContext& c, Values tangents) {
  if (std::none_of(tangents.begin(), tangents.end(), [](const Value& t) { return t.valid(); }))
    return NoTangents(c);
  const int dim = DimOf(c.attrs);
  Type at = c.in[0].type();
  at.dtype = IndexTypeFor(at.shape[dim]);
  at.weak = false;
  std::vector<Value> in = c.in;
  in.push_back(ShardedLike(Iota(c.b, at.dtype, at.shape, dim), at));
  in = MatchVarying(std::move(in));
  std::vector<FunctionRef> regions = RegionsOf(c);
  for (FunctionRef& comparator : regions) comparator = WithOneMore(*comparator, at.dtype);
  const Value from = c.b.Emit(c.def, in, c.attrs, std::move(regions)).back();
  std::vector<Value> out;
  for (const Value& t : tangents) out.push_back(t ? TakeAlong(t, from, dim) : Value());
  return out;
}

Batched BatchSort(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(BatchInFront(c, dims, i, size));
  Attrs attrs = c.attrs;
  attrs.Set("dimension", c.attrs.Int("dimension") + 1);
  std::vector<Value> out =
      c.b.Emit(c.def, MatchVarying(std::move(in)), std::move(attrs), RegionsOf(c));
  return {out, std::vector<int>(out.size(), 0)};
}

// If the sorted dim is cut, an all-to-all makes it whole and cuts another dim instead, if there is
// one whose size is a multiple of the number of shards. Another all-to-all undoes this after
// sorting. Otherwise the dim is gathered, and each shard keeps its own block of the sorted result.
std::vector<Value> PartitionSort(const RuleContext& c, const PartitionContext& p) {
  const int dim = DimOf(c.attrs);
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  const auto sorted = [&](const std::vector<Value>& in) {
    return c.b.Emit(c.def, in, c.attrs, RegionsOf(c));
  };
  if (axes.empty()) return sorted(c.in);
  const int64_t shards = c.b.mesh().SizeOf(axes);
  int other = -1;
  for (int d = 0; d < c.in[0].rank(); ++d)
    if (d != dim && c.in[0].dim(d) > 0 && c.in[0].dim(d) % shards == 0) other = d;
  std::vector<Value> in, out;
  if (other >= 0) {
    for (const Value& x : c.in) in.push_back(AllToAll(x, axes, other, dim, /*tiled=*/true));
    for (const Value& x : sorted(in)) out.push_back(AllToAll(x, axes, dim, other, /*tiled=*/true));
    return out;
  }
  for (const Value& x : c.in) in.push_back(AllGather(x, axes, dim, /*tiled=*/true));
  const int64_t block = c.in[0].dim(dim);
  const Value begin = BlockBegin(c.b, axes, block);
  for (const Value& x : sorted(in)) {
    std::vector<Value> starts(x.rank(), Constant(c.b, DType::kS32, 0));
    starts[dim] = begin;
    out.push_back(DynamicSlice(x, std::move(starts), c.in[0].shape()));
  }
  return out;
}

// Counts one comparison for each element and each level of a merge sort.
Cost SortCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost;
  const int64_t n = c.in[0].shape[DimOf(c.attrs)];
  cost.flops = static_cast<double>(c.in[0].num_elements()) *
               static_cast<double>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  return cost;
}

Arrays EvalSort(const EvalContext& c, absl::Span<const Array> in) {
  const int dim = DimOf(c.attrs);
  const Dims& shape = in[0].shape();
  const int64_t n = shape[dim], stride = StridesOf(shape)[dim];
  std::vector<Array> out;
  for (const Array& x : in) out.emplace_back(x.dtype(), shape);
  if (in[0].num_elements() == 0) return out;
  const auto keys = in.subspan(0, c.attrs.Int("num_keys"));
  ForEachRow(shape, dim, [&](int64_t begin, int64_t) {
    const std::vector<int64_t> order = OrderOf(keys, begin, stride, n, /*descending=*/false, n);
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
  return {.dimension = DimOf(attrs), .num_keys = static_cast<int>(attrs.Int("num_keys"))};
}

// Fills in the fields that sort and sort_by share.
consteval OpDef Sorting(OpDef d) {
  d.family = Family::kReduction;
  d.num_operands = kAnyNumber;
  d.factors = SortFactors;
  d.sharding = SortSharding;
  d.varying = Derived{};
  d.jvp = SortJvp;
  d.transpose = Refused{"it is not linear"};
  d.batch = BatchSort;
  d.partition = PartitionSort;
  return Checked(d);
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

// ---- sort_by: operands of one shape along `dimension`, in the order of a comparator. ----
namespace {

Types InferSortBy(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferRows(c));
  std::vector<DType> params;
  for (const Type& t : c.in) params.insert(params.end(), 2, t.dtype);
  TESSERA_RETURN_IF_ERROR(CheckComputation(c, params, {DType::kBool}));
  return out;
}

Cost SortByCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost = SortCost(c, out);
  cost.flops = FlopsOf(c, static_cast<int64_t>(std::min(cost.flops, 0x1p62)));
  return cost;
}

// Calls f(stride, places) for each stage of a network that sorts n elements. In a stage, the
// element at each of `places` is compared with the one `stride` places after it, and the two are
// exchanged if necessary. No element is in two pairs of a stage. Reference: Batcher's merge
// exchange; Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
template <class F>
absl::Status ForEachStage(int64_t n, const F& f) {
  if (n < 2) return absl::OkStatus();
  const int64_t top = int64_t{1} << (std::bit_width(static_cast<uint64_t>(n - 1)) - 1);
  for (int64_t p = top; p > 0; p /= 2) {
    int64_t residue = 0, stride = p;
    for (int64_t q = top;; q /= 2) {
      std::vector<int64_t> places;
      for (int64_t i = 0; i < n - stride; ++i)
        if ((i & p) == residue) places.push_back(i);
      TESSERA_RETURN_IF_ERROR(f(stride, places));
      if (q == p) break;
      stride = q - p;
      residue = p;
    }
  }
  return absl::OkStatus();
}

// Calls f with an array of `width` bytes, a power of two, as the type of an element.
template <int64_t kWidth = 1, class F>
void WithElement(int64_t width, const F& f) {
  if constexpr (kWidth < 16) {
    if (width != kWidth) return WithElement<2 * kWidth>(width, f);
  }
  f(std::array<std::byte, kWidth>());
}

// Rows of elements that are exchanged during sorting. Each row has the elements of every operand,
// and the place where each element stood at first.
class Rows {
 public:
  // The last dim of `xs` holds the rows, of `n` elements each.
  Rows(std::vector<Array> xs, int64_t n) : xs_(std::move(xs)), n_(n) {
    came_.resize(xs_[0].num_elements());
    for (size_t i = 0; i < came_.size(); ++i) came_[i] = static_cast<int64_t>(i);
  }
  const std::vector<Array>& xs() const { return xs_; }

  // Returns the pairs of elements at `places` and `by` places after them, in every row, as a
  // comparator takes them: for every operand first the elements of the pairs that stood later
  // before sorting, then those that stood earlier.
  std::vector<Array> Pairs(int64_t by, const std::vector<int64_t>& places) const {
    std::vector<Array> sides;
    const auto pairs = static_cast<int64_t>(places.size()) * num_rows();
    for (const Array& x : xs_)
      for (const bool later : {true, false}) {
        Array& side = sides.emplace_back(x.dtype(), Dims{pairs});
        WithElement(ByteWidth(x.dtype()), [&](auto element) {
          using T = decltype(element);
          const auto* from = reinterpret_cast<const T*>(x.data());
          auto* to = reinterpret_cast<T*>(side.MutableData());
          ForEach(by, places, [&](int64_t a, int64_t b) {
            *to++ = from[(came_[a] > came_[b]) == later ? a : b];
          });
        });
      }
    return sides;
  }
  // Puts each pair in order. The element that stood later before sorting goes first if `is_less`
  // holds for the pair. Otherwise the other element goes first.
  void Exchange(int64_t by, const std::vector<int64_t>& places, const bool* is_less) {
    for (Array& x : xs_)
      WithElement(ByteWidth(x.dtype()), [&](auto element) {
        auto* const data = reinterpret_cast<decltype(element)*>(x.MutableData());
        const bool* less = is_less;
        ForEach(by, places, [&](int64_t a, int64_t b) {
          if (*less++ == (came_[b] > came_[a])) std::swap(data[a], data[b]);
        });
      });
    ForEach(by, places, [&](int64_t a, int64_t b) {
      if (*is_less++ == (came_[b] > came_[a])) std::swap(came_[a], came_[b]);
    });
  }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(came_.size()) / n_; }
  template <class F>
  void ForEach(int64_t by, const std::vector<int64_t>& places, const F& f) const {
    for (int64_t row = 0; row < num_rows(); ++row)
      for (const int64_t i : places) f(row * n_ + i, row * n_ + i + by);
  }

  std::vector<Array> xs_;
  int64_t n_;
  std::vector<int64_t> came_;  // the place where each element stood at first
};

// Sorts with a network, which makes the same comparisons whatever their answers are. So all pairs
// of a stage are compared at once, and a comparator that contradicts itself ends with some
// permutation. In a pair, the element that stood first before sorting stays first unless the other
// one is less: elements that are equal stay in their order.
Arrays EvalSortBy(const EvalContext& c, absl::Span<const Array> in) {
  if (in[0].num_elements() == 0) return std::vector<Array>(in.begin(), in.end());
  const int dim = DimOf(c.attrs);
  const int64_t n = in[0].shape()[dim];
  DimList last = DimsExcept(in[0].rank(), {dim});
  last.push_back(dim);
  std::vector<Array> out;
  for (const Array& x : in) out.push_back(Permuted(x, last));
  Rows rows(std::move(out), n);
  TupleEvaluator evaluator(c);
  TESSERA_RETURN_IF_ERROR(
      ForEachStage(n, [&](int64_t by, const std::vector<int64_t>& places) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got,
                                 evaluator.Run(rows.Pairs(by, places)));
        rows.Exchange(by, places, reinterpret_cast<const bool*>(got[0].data()));
        return absl::OkStatus();
      }));
  out.clear();
  for (const Array& x : rows.xs()) out.push_back(Permuted(x, InversePermutation(last)));
  return out;
}

constexpr AttrSpec kSortByAttrs[] = {{"dimension", AttrKind::kInt}, {"is_stable", AttrKind::kBool}};

}  // namespace

constexpr OpDef kSortBy = Sorting({.name = "sort_by",
                                   .lax_name = "sort",
                                   .regions = kOneComputation,
                                   .attrs = kSortByAttrs,
                                   .lowering = Lowering::kHost,
                                   .infer = InferSortBy,
                                   .cost = SortByCost,
                                   .eval = EvalSortBy});

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
  values.shape[DimOf(c.attrs)] = k;
  values.weak = x.weak;
  return std::vector<Type>{values, MakeType(DType::kS32, values.shape)};
}

Signature TopKFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s;
  s.operands.resize(1);
  TensorFactors kept;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool best = d == DimOf(c.attrs);
    s.operands[0].push_back(
        {s.Add(best ? FactorKind::kReduction : FactorKind::kPassThrough, c.in[0].shape[d])});
    kept.push_back(best ? FactorList{s.Add(FactorKind::kReplicated, out[0].shape[d])}
                        : s.operands[0][d]);
  }
  s.results = {kept, kept};
  s.reduce = ReduceKind::kMax;
  return s;
}

absl::Status TopKSharding(const InferContext& c, std::vector<Type>* out) {
  const Type& x = c.in[0];
  if (!x.axes_of(DimOf(c.attrs)).empty())
    return ShardingError(c, "dim ", DimOf(c.attrs), " of ", x.ToString(),
                         " is sharded; reshard the operand to leave it whole");
  return ShardingOfFirst(c, out);
}

std::vector<Value> TopKJvp(const RuleContext& c, Values tangents) {
  if (!tangents[0]) return NoTangents(c);
  return {TakeAlong(tangents[0], c.out[1], DimOf(c.attrs)), Value()};
}

Batched BatchTopK(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  Attrs attrs = c.attrs;
  attrs.Set("dimension", PastBatch(c.attrs.Int("dimension"), dims[0]));
  return {c.b.Emit(c.def, {c.in[0]}, std::move(attrs)), {dims[0], dims[0]}};
}

// Takes the k largest elements of each block, then the k largest of these. They are gathered in the
// order of the blocks, so that equal elements stay in their order.
std::vector<Value> PartitionTopK(const RuleContext& c, const PartitionContext& p) {
  const int dim = DimOf(c.attrs);
  const AxisList& axes = p.factor_axes[p.signature.operands[0][dim][0]];
  if (axes.empty()) return c.b.Emit(c.def, c.in, c.attrs);
  const int64_t block = c.in[0].dim(dim);
  Attrs of_block = c.attrs;
  of_block.Set("k", std::min(c.attrs.Int("k"), block));
  const std::vector<Value> mine = c.b.Emit(c.def, c.in, std::move(of_block));
  const Value begin = BlockBegin(c.b, axes, block);
  const Value at = Add(mine[1], BroadcastInDim(begin, mine[1].shape(), {}));
  const Value values = AllGather(mine[0], axes, dim, /*tiled=*/true);
  const Value indices = AllGather(at, axes, dim, /*tiled=*/true);
  const std::vector<Value> best = c.b.Emit(c.def, {values}, c.attrs);
  return {best[0], TakeAlong(indices, best[1], dim)};
}

Arrays EvalTopK(const EvalContext& c, absl::Span<const Array> in) {
  const int dim = DimOf(c.attrs);
  const Array& x = in[0];
  const int64_t n = x.shape()[dim], k = c.attrs.Int("k"), stride = StridesOf(x.shape())[dim];
  Array values(x.dtype(), c.out_types[0].shape), indices(DType::kS32, c.out_types[1].shape);
  if (values.num_elements() == 0) return std::vector<Array>{values, indices};
  const int64_t width = ByteWidth(x.dtype());
  std::byte* const to = values.MutableData();
  ForEachRow(x.shape(), dim, [&](int64_t begin, int64_t row) {
    const std::vector<int64_t> order = OrderOf({&x, 1}, begin, stride, n, /*descending=*/true, k);
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
  return {.dimension = DimOf(attrs), .descending = true, .first = attrs.Int("k"), .indices = true};
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

std::vector<Value> SortBy(std::vector<Value> xs, FunctionRef comparator, int dimension,
                          bool is_stable) {
  if (xs.empty()) Throw(ErrorKind::kTypeError, "sort: takes at least one operand, got nothing");
  Builder& b = xs[0].builder();
  xs = MatchVarying(std::move(xs));
  Attrs attrs = {{"dimension", int64_t{dimension}}, {"is_stable", is_stable}};
  const std::optional<ops::KeyOrder> order = ops::OrderOf(*comparator);
  if (!order) return b.Emit(ops::kSortBy, xs, std::move(attrs), {std::move(comparator)});
  // Refuse what the op sort_by refuses, with its errors, although the op sort is emitted.
  ThrowIfError(InferTypes(ops::kSortBy, b.scope(), TypesOf(xs), attrs, {&comparator, 1}).status());
  std::vector<int> places = order->keys;  // the index in `xs` of each operand of the sort
  for (int i = 0; i < static_cast<int>(xs.size()); ++i)
    if (std::find(places.begin(), places.end(), i) == places.end()) places.push_back(i);
  // Reversing before and after a stable ascending sort keeps equal elements in their order.
  const auto reversed = [&](Value x) { return order->descending ? Reverse(x, {dimension}) : x; };
  std::vector<Value> in;
  for (const int i : places) in.push_back(reversed(xs[i]));
  const std::vector<Value> out =
      Sort(std::move(in), dimension, is_stable, static_cast<int>(order->keys.size()));
  for (size_t k = 0; k < places.size(); ++k) xs[places[k]] = reversed(out[k]);
  return xs;
}

std::pair<Value, Value> TopK(Value x, int64_t k, int dimension) {
  const std::vector<Value> best =
      x.builder().Emit(ops::kTopK, {x}, {{"k", k}, {"dimension", int64_t{dimension}}});
  return {best[0], best[1]};
}

}  // namespace tessera::ir
