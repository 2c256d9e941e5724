// Arithmetic and checks on dims, the sharding helpers of ops that change shapes, and the exchange
// of halos between shards. The rules of most op families call these functions: inference calls the
// checks, batching the functions with `Batch` in their names, and the partition stage WithHalo and
// BlockBegin.
#include "ir/ops/rules/dims.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_join.h"

namespace tessera::ir::ops {

bool Contains(absl::Span<const int64_t> dims, int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

DimList DimsExcept(int rank, absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  DimList out;
  for (int64_t d = 0; d < rank; ++d)
    if (!Contains(a, d) && !Contains(b, d)) out.push_back(d);
  return out;
}

DimList InversePermutation(absl::Span<const int64_t> permutation) {
  DimList inverse(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i) inverse[permutation[i]] = i;
  return inverse;
}

absl::Status CheckDistinctDims(const InferContext& c, std::string_view what,
                               absl::Span<const int64_t> dims, int rank) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0 || dims[i] >= rank)
      return ValueError(c, ToAbsl(what), " [", absl::StrJoin(dims, ","), "] names dim ", dims[i],
                        "; expected dims in [0, ", rank, ")");
    if (Contains(dims.subspan(0, i), dims[i]))
      return ValueError(c, ToAbsl(what), " [", absl::StrJoin(dims, ","), "] names dim ", dims[i],
                        " twice; expected each dim at most once");
  }
  return absl::OkStatus();
}

absl::Status CheckDimension(const InferContext& c) {
  const int64_t dim = c.attrs.Int("dimension");
  if (dim >= 0 && dim < c.in[0].rank()) return absl::OkStatus();
  return ValueError(c, "dimension ", dim, " is not a dim of ", c.in[0].ToString(),
                    "; expected one in [0, ", c.in[0].rank(), ")");
}

absl::StatusOr<bool> ApplyOutSharding(const InferContext& c, Type* out, bool allow_unreduced) {
  if (!c.attrs.Has("out_sharding")) return false;
  const PartitionSpec& spec = c.attrs.Spec("out_sharding");
  if (static_cast<int>(spec.dims.size()) > out->rank())
    return ValueError(c, "out_sharding ", spec.ToString(), " has ", spec.dims.size(),
                      " entries, the result has rank ", out->rank(), "; drop the extra entries");
  if (!allow_unreduced && (!spec.unreduced.empty() || !spec.reduced.empty()))
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat(ToAbsl(c.def.lax_name), ": out_sharding ", spec.ToString(),
                                  " with unreduced or reduced axes is not implemented; give the "
                                  "sharding of the finished result"));
  for (const AxisList* axes : {&spec.unreduced, &spec.reduced})
    for (const std::string& a : *axes)
      if (!c.scope.mesh.Has(a) || c.scope.mesh.TypeOf(a) != AxisType::kExplicit)
        return ValueError(c, "out_sharding ", spec.ToString(), " names axis '", a,
                          "', which is not an Explicit axis of mesh ", c.scope.mesh.ToString());
  out->sharding = spec.dims;
  out->sharding.resize(out->rank());
  Normalize(out);
  return true;
}

absl::Status KeepShardingIfDivisible(const InferContext& c, std::string_view doing, Type* out) {
  const Type& x = c.in[0];
  if (!x.is_sharded()) return absl::OkStatus();
  // A single element is not sharded.
  if (out->num_elements() == 1 && x.num_elements() != 1) return absl::OkStatus();
  for (int d = 0; d < out->rank(); ++d) {
    const int64_t shards = c.scope.mesh.SizeOf(x.axes_of(d));
    if (out->shape[d] % shards != 0)
      return ShardingError(c, ToAbsl(doing), " on sharded dims where out dim (", out->shape[d],
                           ") is not divisible by mesh axes (", shards, ") with spec (",
                           absl::StrJoin(x.axes_of(d), ","), ") is not implemented: operand ",
                           x.ToString(), " on dim ", d, "; reshard the operand first");
  }
  out->sharding = x.sharding;
  return absl::OkStatus();
}

absl::Status SameShardingAsFirst(const InferContext& c, std::vector<Type>* out) {
  for (Type& t : *out) t.sharding = c.in[0].sharding;
  return absl::OkStatus();
}

namespace {

bool IsExplicit(const Mesh& mesh, const std::string& axis) {
  return mesh.Has(axis) && mesh.TypeOf(axis) == AxisType::kExplicit;
}
// Returns the Explicit ones among `axes`.
AxisList ExplicitAxesOf(const Mesh& mesh, const AxisSet& axes) {
  AxisList out;
  for (const std::string& a : axes)
    if (IsExplicit(mesh, a)) out.push_back(a);
  return out;
}
// Returns a spec with the sharding of `like`'s dims and with the Explicit axes along which `x` is
// unreduced or reduced.
PartitionSpec SpecLike(const Type& like, Value x) {
  PartitionSpec spec;
  spec.dims = like.sharding;
  spec.dims.resize(like.shape.size());
  spec.unreduced = ExplicitAxesOf(x.builder().mesh(), x.type().unreduced);
  spec.reduced = ExplicitAxesOf(x.builder().mesh(), x.type().reduced);
  return spec;
}
// Returns the value resharded to `spec`. A sharding_constraint would not do: on Explicit axes it
// only checks that the value already has the sharding.
Value ReshardTo(Value x, PartitionSpec spec) {
  return x.builder().Emit1(kBroadcastInDim, {x},
                           {{"shape", x.shape()},
                            {"broadcast_dimensions", DimsExcept(x.rank(), {})},
                            {"out_sharding", std::move(spec)}});
}

}  // namespace

Value ShardedLike(Value x, Type like) {
  return x.type().sharding == like.sharding ? x : ReshardTo(x, SpecLike(like, x));
}

Value WithStates(Value x, const AxisSet& unreduced, const AxisSet& reduced) {
  const Mesh& mesh = x.builder().mesh();
  PartitionSpec spec = SpecLike(x.type(), x);
  const AxisList unreduced_axes = ExplicitAxesOf(mesh, unreduced),
                 reduced_axes = ExplicitAxesOf(mesh, reduced);
  if (spec.unreduced == unreduced_axes && spec.reduced == reduced_axes) return x;
  spec.unreduced = unreduced_axes;
  spec.reduced = reduced_axes;
  return ReshardTo(x, std::move(spec));
}

Value BroadcastLike(Value x, const Type& like, DimList dims) {
  Attrs attrs{{"shape", like.shape}, {"broadcast_dimensions", std::move(dims)}};
  SetOutSharding(&attrs, like, x);
  return x.builder().Emit1(kBroadcastInDim, {x}, std::move(attrs));
}

void SetOutSharding(Attrs* attrs, const Type& like, Value x) {
  if (like.is_sharded()) attrs->Set("out_sharding", SpecLike(like, x));
}

DimList PastBatch(absl::Span<const int64_t> dims, int batch) {
  DimList out;
  for (int64_t d : dims) out.push_back(PastBatch(d, batch));
  return out;
}

AxisList BatchAxes(const RuleContext& c, absl::Span<const int> dims) {
  if (!c.batch.sharding.empty()) return c.batch.sharding;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0 && c.in[i]) return c.in[i].type().axes_of(dims[i]);
  return {};
}

Value BatchInFront(const RuleContext& c, absl::Span<const int> dims, size_t i, int64_t size) {
  const Value x = c.in[i];
  if (dims[i] >= 0) return MoveDim(x, dims[i], 0);
  Type like = x.type();
  like.shape.insert(like.shape.begin(), size);
  like.sharding.resize(x.rank());
  like.sharding.insert(like.sharding.begin(), BatchAxes(c, dims));
  Normalize(&like);
  DimList at;
  for (int d = 0; d < x.rank(); ++d) at.push_back(d + 1);
  return BroadcastLike(x, like, at);
}

Attrs WithBatchSharding(Attrs attrs, int at, const AxisList& axes) {
  if (!attrs.Has("out_sharding")) return attrs;
  PartitionSpec spec = attrs.Spec("out_sharding");
  if (static_cast<int>(spec.dims.size()) < at) spec.dims.resize(at);
  spec.dims.insert(spec.dims.begin() + at, axes);
  if (!spec.open.empty()) {
    spec.open.resize(spec.dims.size() - 1);
    spec.open.insert(spec.open.begin() + at, false);
  }
  attrs.Set("out_sharding", spec);
  return attrs;
}

Value ConvertIfWeak(Value x, Value like) {
  return x.type().weak && x.dtype() != like.dtype() ? Convert(x, like.dtype()) : x;
}

absl::StatusOr<int64_t> CountElements(const InferContext& c, const Dims& shape) {
  int64_t n = 1;
  for (int64_t d : shape)
    if (d < 0 || __builtin_mul_overflow(n, d, &n))
      return ValueError(c, "shape [", DimsToString(shape),
                        "] has a negative dim or too many elements; expected a shape that fits in "
                        "memory");
  return n;
}

Attrs LocalShapeAttrs(const RuleContext& c, const PartitionContext& p) {
  Attrs attrs = c.attrs;
  attrs.Set("shape", p.local_out[0].shape);
  attrs.Erase("out_sharding");
  return attrs;
}

DType IndexDTypeFor(int64_t n) {
  return n > std::numeric_limits<int32_t>::max() ? DType::kS64 : DType::kS32;
}

// Builds the block from slices of neighbouring shards, which one ppermute per neighbour delivers. A
// halo may be larger than a block: then it also reaches shards that are two or more hops away.
// Where fewer shards exist than the halo asks for, the rest is padded with zeros, so that every
// shard runs the same program.
Value WithHalo(Value x, int dim, const AxisList& axes, int64_t low, int64_t high) {
  const int64_t n = x.dim(dim), shards = x.builder().mesh().SizeOf(axes);
  // Returns what this shard receives from the block that lies `hop` blocks before its own: the last
  // `count` elements of that block. If `hop` is negative, that block lies after it and its first
  // `count` elements are received.
  const auto receive = [&](int64_t hop, int64_t count) {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t i = 0; i < shards; ++i)
      if (i + hop >= 0 && i + hop < shards) pairs.emplace_back(i, i + hop);
    const Value edge = hop > 0 ? SliceInDim(x, dim, n - count, n) : SliceInDim(x, dim, 0, count);
    return Ppermute(edge, axes, std::move(pairs));
  };
  std::vector<Value> parts = {
      SliceInDim(x, dim, std::clamp<int64_t>(-low, 0, n), n - std::clamp<int64_t>(-high, 0, n))};
  int64_t more_low = std::max<int64_t>(low, 0), more_high = std::max<int64_t>(high, 0);
  for (int64_t hop = 1; hop < shards && (more_low > 0 || more_high > 0); ++hop) {
    const int64_t before = std::min(more_low, n), after = std::min(more_high, n);
    if (before > 0) parts.insert(parts.begin(), receive(hop, before));
    if (after > 0) parts.push_back(receive(-hop, after));
    more_low -= before;
    more_high -= after;
  }
  const Value joined = parts.size() == 1 ? parts[0] : Concatenate(parts, dim);
  if (more_low == 0 && more_high == 0) return joined;
  DimList zeros_low(x.rank(), 0), zeros_high = zeros_low;
  zeros_low[dim] = more_low;
  zeros_high[dim] = more_high;
  const Value zero = Constant(x.builder(), x.dtype(), 0);
  return Pad(joined, zero, std::move(zeros_low), std::move(zeros_high));
}

Value BlockBegin(Builder& b, const AxisList& axes, int64_t size, DType index) {
  const Value block = Convert(AxisIndex(b, axes), index);
  return Mul(block, FullLike(block, static_cast<double>(size)));
}

}  // namespace tessera::ir::ops

namespace tessera::ir {

Value Reshard(Value x, DimAxes dims, const AxisSet& unreduced, const AxisSet& reduced) {
  PartitionSpec spec;
  spec.dims = std::move(dims);
  spec.dims.resize(x.rank());
  spec.unreduced.assign(unreduced.begin(), unreduced.end());
  spec.reduced.assign(reduced.begin(), reduced.end());
  return spec == SpecOf(x.type()) ? x : ops::ReshardTo(x, std::move(spec));
}

Value ReducedAlong(Value x, const AxisSet& axes) {
  const Mesh& mesh = x.builder().mesh();
  AxisSet manual;
  for (const std::string& a : axes)
    if (mesh.IsManual(a)) manual.insert(a);
  const Value v = Preduced(x, manual);
  return manual.size() == axes.size() ? v : ops::WithStates(v, v.type().unreduced, axes);
}

}  // namespace tessera::ir
