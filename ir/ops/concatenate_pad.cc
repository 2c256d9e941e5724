// The ops concatenate and pad. Attributes and semantics are StableHLO's.
#include <algorithm>
#include <limits>

#include "ir/ops/rules/movement.h"

namespace tessera::ir::ops {

// ---- concatenate: operands one after the other along `dimension`. ----
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// Checks that the operands agree in dtype and in all other dims, and adds up their sizes along the
// dim. A sum that does not fit in 64 bits is refused, because a program that was read may hold any
// size.
Types InferConcatenate(const InferContext& c) {
  if (c.in.empty()) return ValueError(c, "takes at least one operand, got none");
  const int64_t dim = c.attrs.Int("dimension");
  const Type& first = c.in[0];
  if (dim < 0 || dim >= first.rank())
    return ValueError(c, "dimension ", dim, " is not a dim of ", first.ToString(),
                      "; expected one in [0, ", first.rank(), ")");
  Type out = WithShape(first, first.shape);
  for (size_t i = 1; i < c.in.size(); ++i) {
    const Type& x = c.in[i];
    if (x.dtype != first.dtype)
      return TypeError(c, "operand ", i, " is ", x.ToString(), ", operand 0 is ", first.ToString(),
                       "; expected equal dtypes");
    Dims want = first.shape;
    if (x.rank() == first.rank()) want[dim] = x.shape[dim];
    if (x.shape != want)
      return TypeError(c, "operand ", i, " is ", x.ToString(), ", operand 0 is ", first.ToString(),
                       "; cannot concatenate arrays with shapes that differ in dimensions other "
                       "than the one being concatenated (",
                       dim, ")");
    if (__builtin_add_overflow(out.shape[dim], x.shape[dim], &out.shape[dim]))
      return ValueError(c, "the result would have too many elements");
    out.weak = out.weak && x.weak;
  }
  return std::vector<Type>{out};
}

Signature ConcatenateFactors(const InferContext& c, absl::Span<const Type> out) {
  Signature s = PointwiseFactors(c, out);
  const int64_t dim = c.attrs.Int("dimension");
  s.factors[dim].kind = FactorKind::kReplicated;
  for (size_t i = 0; i < c.in.size(); ++i)
    s.operands[i][dim] = {s.Add(FactorKind::kReplicated, c.in[i].shape[dim])};
  return s;
}

absl::Status ConcatenateSharding(const InferContext& c, std::vector<Type>* out) {
  for (const Type& x : c.in)
    if (x.sharding != c.in[0].sharding)
      return ShardingError(c, "All operands should have the same sharding. Got ",
                           c.in[0].ToString(), " and ", x.ToString(), "; reshard one of them");
  (*out)[0].sharding = c.in[0].sharding;
  return absl::OkStatus();
}

// The op is linear in all operands at once, so operands that are unreduced over the same axes may
// be concatenated.
absl::Status ConcatenateStates(const InferContext& c, std::vector<Type>* out) {
  for (const Type& x : c.in)
    if (x.varying != c.in[0].varying || x.unreduced != c.in[0].unreduced ||
        x.reduced != c.in[0].reduced)
      return derive::VaryingAllEqual(c, out);
  return SameVmaAsFirst(c, out);
}

std::vector<Value> TransposeConcatenate(const RuleContext& c, Values cts,
                                        const std::vector<bool>& linear) {
  std::vector<Value> out(c.in_types.size());
  if (!cts[0]) return out;
  const int64_t dim = c.attrs.Int("dimension");
  DimList start(c.out_types[0].rank(), 0), limit = c.out_types[0].shape;
  for (size_t i = 0; i < out.size(); ++i) {
    limit[dim] = start[dim] + c.in_types[i].shape[dim];
    if (linear[i]) out[i] = ShardedLike(Slice(cts[0], start, limit), c.in_types[i]);
    start[dim] = limit[dim];
  }
  return out;
}

Batched BatchConcatenate(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(BatchInFront(c, dims, i, size));
  return {{Concatenate(in, static_cast<int>(c.attrs.Int("dimension")) + 1)}, {0}};
}

IndexMap ConcatenateMap(const InferContext& c, absl::Span<const Type>) {
  const int64_t dim = c.attrs.Int("dimension");
  IndexMap map;
  int64_t start = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    IndexPiece piece = ContiguousPiece(static_cast<int>(i), c.in[i].shape);
    piece.start[dim] = start;
    start += c.in[i].shape[dim];
    map.pieces.push_back(std::move(piece));
  }
  return map;
}

constexpr AttrSpec kConcatenateAttrs[] = {{"dimension", AttrKind::kInt}};

}  // namespace

constexpr OpDef kConcatenate = Movement({.name = "concatenate",
                                         .lax_name = "concatenate",
                                         .num_operands = kAnyNumber,
                                         .attrs = kConcatenateAttrs,
                                         .infer = InferConcatenate,
                                         .factors = ConcatenateFactors,
                                         .sharding = ConcatenateSharding,
                                         .varying = ConcatenateStates,
                                         .transpose = TransposeConcatenate,
                                         .batch = BatchConcatenate,
                                         .index_map = ConcatenateMap});

// ---- pad: puts `interior` elements between those of x, then pads (or crops, where negative) both
// edges. ----
namespace {

Types InferPad(const InferContext& c) {
  const Type& x = c.in[0];
  const DimList &low = c.attrs.Ints("edge_padding_low"), &high = c.attrs.Ints("edge_padding_high"),
                &interior = c.attrs.Ints("interior_padding");
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "edge_padding_low", low.size(), x.rank()));
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "edge_padding_high", high.size(), x.rank()));
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "interior_padding", interior.size(), x.rank()));
  if (c.in[1].rank() != 0 || c.in[1].dtype != x.dtype)
    return TypeError(c, "padding_value is ", c.in[1].ToString(), "; expected a scalar ",
                     ToAbsl(DTypeName(x.dtype)), "[]");
  Dims shape;
  for (int d = 0; d < x.rank(); ++d) {
    if (interior[d] < 0)
      return ValueError(c, "interior_padding of dim ", d, " is ", interior[d],
                        "; expected a non-negative amount");
    const __int128 n = static_cast<__int128>(low[d]) + high[d] + x.shape[d] +
                       static_cast<__int128>(std::max<int64_t>(x.shape[d] - 1, 0)) * interior[d];
    if (n < 0 || n > std::numeric_limits<int64_t>::max())
      return ValueError(c, "padding of dim ", d, " of ", x.ToString(), " by (", low[d], ", ",
                        high[d], ", ", interior[d],
                        ") gives no valid size; expected one in [0, 2^63)");
    shape.push_back(static_cast<int64_t>(n));
  }
  return std::vector<Type>{WithShape(x, shape)};
}

bool PadsNothing(const Attrs& attrs, int64_t size, int d) {
  return attrs.Ints("edge_padding_low")[d] == 0 && attrs.Ints("edge_padding_high")[d] == 0 &&
         (size <= 1 || attrs.Ints("interior_padding")[d] == 0);
}

// A dim that grows passes through in blocks if each element of x, with the fills around it, becomes
// a block of the same size in the result. This holds if low + high == interior.
Signature PadFactors(const InferContext& c, absl::Span<const Type> out) {
  return PassThroughInBlocks(c, out, [&](int d) -> int64_t {
    const int64_t size = c.in[0].shape[d], low = c.attrs.Ints("edge_padding_low")[d],
                  high = c.attrs.Ints("edge_padding_high")[d];
    if (PadsNothing(c.attrs, size, d)) return size;
    // Block i of the result has `low` fills, element i and `high` fills.
    const bool is_in_blocks = size > 0 && low >= 0 && high >= 0 && size <= out[0].shape[d] &&
                              low + high == c.attrs.Ints("interior_padding")[d];
    return is_in_blocks ? size : 0;
  });
}

absl::Status PadSharding(const InferContext& c, std::vector<Type>* out) {
  return KeepShardingIfDivisible(c, "padding", &(*out)[0]);
}

DimList Negated(DimList list) {
  for (int64_t& n : list) n = -n;
  return list;
}

// Returns the type of a mask with the shape, sharding and varying axes of an array of type `x`.
Type MaskType(Type x) {
  x.dtype = DType::kBool;
  x.unreduced = x.reduced = {};
  return x;
}

// The cotangent of x is the slice at x's elements. The cotangent of padding_value is the sum of the
// remaining elements.
std::vector<Value> TransposePad(const RuleContext& c, Values cts, const std::vector<bool>& linear) {
  std::vector<Value> out(2);
  if (!cts[0]) return out;
  const Type& x = c.in_types[0];
  const DimList &low = c.attrs.Ints("edge_padding_low"), &high = c.attrs.Ints("edge_padding_high"),
                &interior = c.attrs.Ints("interior_padding");
  Value zero = Constant(c.b, x.dtype, 0);
  if (linear[0]) {
    Value spread = Pad(cts[0], zero, Negated(low), Negated(high));
    DimList stride;
    for (int d = 0; d < x.rank(); ++d) stride.push_back(x.shape[d] <= 1 ? 1 : interior[d] + 1);
    out[0] = ShardedLike(Slice(spread, DimList(x.rank(), 0), spread.shape(), stride), x);
  }
  if (linear[1]) {
    const Value inside = Full(c.b, MaskType(x), 0);
    Value fill = Pad(inside, Constant(c.b, DType::kBool, 1), low, high, interior);
    std::vector<Value> v = MatchVarying({fill, cts[0]});
    Value rest = Select(v[0], v[1], FullLike(v[1], 0));
    out[1] = ReduceSum(rest, DimsExcept(rest.rank(), {}));
  }
  return out;
}

// If the padding value is batched, pads with zeros, pads a mask in the same way, and selects the
// padding value where the mask was padded.
Batched BatchPad(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  Value x = BatchInFront(c, dims, 0, size);
  const DimList low = WithInserted(c.attrs.Ints("edge_padding_low"), 0, int64_t{0});
  const DimList high = WithInserted(c.attrs.Ints("edge_padding_high"), 0, int64_t{0});
  const DimList interior = WithInserted(c.attrs.Ints("interior_padding"), 0, int64_t{0});
  if (dims[1] < 0) return {{Pad(x, c.in[1], low, high, interior)}, {0}};
  Value padded = Pad(x, Constant(c.b, x.dtype(), 0), low, high, interior);
  const Value inside = Full(c.b, MaskType(x.type()), 0);
  Value fill = Pad(inside, Constant(c.b, DType::kBool, 1), low, high, interior);
  Value values = BroadcastLike(c.in[1], padded.type(), {0});
  std::vector<Value> v = MatchVarying({fill, values, padded});
  return {{Select(v[0], v[1], v[2])}, {0}};
}

// The map fills the result with the padding value, then copies the part of x that is within bounds.
IndexMap PadMap(const InferContext& c, absl::Span<const Type> out) {
  IndexPiece fill = ContiguousPiece(1, out[0].shape);
  fill.strides.assign(out[0].rank(), 0);
  IndexMap map{{fill}, {}};
  const std::optional<IndexPiece> piece =
      derive::PadPiece(c.in[0].shape, out[0].shape, c.attrs.Ints("edge_padding_low"),
                       c.attrs.Ints("interior_padding"));
  if (piece) map.pieces.push_back(*piece);
  return map;
}

constexpr AttrSpec kPadAttrs[] = {{"edge_padding_low", AttrKind::kInts},
                                  {"edge_padding_high", AttrKind::kInts},
                                  {"interior_padding", AttrKind::kInts}};

}  // namespace

constexpr OpDef kPad = Movement({.name = "pad",
                                 .lax_name = "pad",
                                 .num_operands = 2,
                                 .attrs = kPadAttrs,
                                 .infer = InferPad,
                                 .factors = PadFactors,
                                 .sharding = PadSharding,
                                 .varying = Derived{},
                                 .transpose = TransposePad,
                                 .batch = BatchPad,
                                 .index_map = PadMap});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

Value Concatenate(std::vector<Value> xs, int dimension) {
  if (xs.empty())
    Throw(ErrorKind::kValueError, "concatenate: takes at least one operand, got none");
  auto strong = std::find_if(xs.begin(), xs.end(), [](Value x) { return !x.type().weak; });
  const Value like = strong == xs.end() ? xs[0] : *strong;
  for (Value& x : xs) x = ops::ConvertIfWeak(x, like);
  xs = MatchVarying(std::move(xs));
  return like.builder().Emit1(ops::kConcatenate, xs, {{"dimension", int64_t{dimension}}});
}

namespace {

bool IsZero(Value v) {
  const Op* const op = v.builder().DefiningOp(v);
  if (!op || op->def != &ops::kConstant) return false;
  const Array& value = op->attrs.Literal("value");
  const std::byte* const bytes = value.bytes().get();
  return std::all_of(bytes, bytes + value.num_bytes(),
                     [](std::byte b) { return b == std::byte{0}; });
}

// Makes a padding value unreduced and reduced along the axes along which `x` is, if the value is
// invarying along all axes. Where `x` is unreduced along Explicit axes, the value is the summand of
// one shard, and the summands of the other shards are zeros. Along Manual axes, the value must be
// zero.
Value PaddingLike(Value x, Value padding_value) {
  const Type &want = x.type(), &have = padding_value.type();
  if (have.unreduced == want.unreduced && have.reduced == want.reduced) return padding_value;
  // If the value varies along an axis, inference reports the error.
  if (!have.NonInvaryingAxes().empty()) return padding_value;
  AxisSet manual;
  for (const std::string& a : want.unreduced)
    if (x.builder().mesh().IsManual(a)) manual.insert(a);
  if (!manual.empty() && IsZero(padding_value))
    padding_value = VaryUnreducedCast(Pvary(padding_value, manual), manual);
  padding_value = ReducedAlong(padding_value, want.reduced);
  AxisSet unreduced = padding_value.type().unreduced;
  for (const std::string& a : want.unreduced)
    if (!x.builder().mesh().IsManual(a)) unreduced.insert(a);
  return ops::WithStates(padding_value, unreduced, padding_value.type().reduced);
}

}  // namespace

Value Pad(Value x, Value padding_value, std::vector<int64_t> low, std::vector<int64_t> high,
          std::vector<int64_t> interior) {
  if (interior.empty()) interior.assign(x.rank(), 0);
  const std::vector<int64_t> zeros(x.rank(), 0);
  if (low == zeros && high == zeros && interior == zeros) return x;
  padding_value = PaddingLike(x, ops::ConvertIfWeak(padding_value, x));
  return x.builder().Emit1(ops::kPad, MatchVarying({x, padding_value}),
                           {{"edge_padding_low", std::move(low)},
                            {"edge_padding_high", std::move(high)},
                            {"interior_padding", std::move(interior)}});
}

}  // namespace tessera::ir
