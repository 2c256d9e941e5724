// The elementwise ops as functions on Values (declared in ir/ops.h), and the implicit casts that
// they insert: those of JAX's lax, and no others.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/ops/rules/complex.h"
#include "ir/ops/rules/dims.h"

namespace tessera::ir {
namespace {

bool IsConstant(Value v) {
  const Op* op = v.builder().DefiningOp(v);
  return op && op->def == &ops::kConstant;
}

// Returns the rank of a dtype's category: bool < integer < floating. A weak type may be promoted to
// a higher category, never demoted.
int CategoryRank(DType d) { return d == DType::kBool ? 0 : IsInteger(d) ? 1 : 2; }

Value EmitConvert(Value x, DType dtype, bool weak) {
  if (x.dtype() == dtype && x.type().weak == weak) return x;
  return x.builder().Emit1(
      ops::kConvert, {x}, weak ? Attrs{{"dtype", dtype}, {"weak", true}} : Attrs{{"dtype", dtype}});
}

// Returns the dtype that weak operands take: the dtype of the strong operands or, if all are weak,
// the highest.
std::optional<DType> CommonDType(Values operands) {
  std::optional<DType> strong, weak;
  for (const Value& v : operands) {
    std::optional<DType>& best = v.type().weak ? weak : strong;
    // Strong dtypes that differ are an error, which inference reports.
    if (!v.type().weak && strong) continue;
    const auto rank = [](DType d) { return std::pair(CategoryRank(d), ByteWidth(d)); };
    if (!best || rank(*best) < rank(v.dtype())) best = v.dtype();
  }
  return strong ? strong : weak;
}

std::vector<Value> MatchDTypes(std::vector<Value> operands) {
  const std::optional<DType> dtype = CommonDType(operands);
  const bool all_weak =
      std::all_of(operands.begin(), operands.end(), [](const Value& v) { return v.type().weak; });
  for (Value& v : operands)
    if (v.type().weak && CategoryRank(v.dtype()) <= CategoryRank(*dtype))
      v = EmitConvert(v, *dtype, all_weak);
  return operands;
}

// Returns the shape and sharding that the operands share once scalars, and dims of size 1 in arrays
// of the same rank, are repeated. Returns nullopt if nothing has to be repeated, and also if
// repeating does not make the shapes equal, which inference reports. Throws if the operands'
// shardings do not fit together, because inference would not notice: GrownTo gives an operand that
// it broadcasts the common sharding.
std::optional<Type> CommonShape(Values operands) {
  if (std::all_of(operands.begin(), operands.end(),
                  [&](const Value& v) { return v.shape() == operands[0].shape(); }))
    return std::nullopt;
  std::optional<Type> common;
  AxisSet used;
  for (const Value& v : operands) {
    if (v.rank() == 0) continue;
    if (!common) common = MakeType(v.dtype(), Dims(v.rank(), 1));
    if (v.rank() != common->rank()) return std::nullopt;
    for (int d = 0; d < v.rank(); ++d) {
      int64_t& size = common->shape[d];
      if (v.shape()[d] == 1) continue;
      if (size == 1) size = v.shape()[d];
      if (size != v.shape()[d]) return std::nullopt;
      const AxisList& axes = v.type().axes_of(d);
      if (axes.empty() || axes == common->axes_of(d)) continue;
      const std::string inputs = TypesToString(TypesOf(operands));
      if (!common->axes_of(d).empty())
        Throw(MakeError(ErrorKind::kShardingTypeError,
                        absl::StrCat("got incompatible shardings for broadcasting: ", inputs,
                                     "; reshard one so that they agree")));
      if (std::any_of(axes.begin(), axes.end(), [&](const auto& a) { return used.contains(a); }))
        Throw(MakeError(ErrorKind::kShardingTypeError,
                        absl::StrCat("operation with inputs: ", inputs,
                                     " produces an illegally sharded result: an axis would shard "
                                     "two dims; reshard one operand")));
      used.insert(axes.begin(), axes.end());
      common->set_axes_of(d, axes);
    }
  }
  return common;
}

// Returns `x` broadcast to the shape and sharding of `like`. Dims of size 1 that grow are dropped,
// and broadcast_in_dim adds them anew.
Value GrownTo(Value x, const Type& like) {
  std::vector<int64_t> dropped, kept;
  for (int d = 0; d < x.rank(); ++d) (x.shape()[d] == like.shape[d] ? kept : dropped).push_back(d);
  if (!dropped.empty()) x = Squeeze(x, dropped);
  return ops::BroadcastLike(x, like, kept);
}

std::vector<Value> MatchShapes(std::vector<Value> operands) {
  if (const std::optional<Type> like = CommonShape(operands))
    for (Value& v : operands)
      if (v.shape() != like->shape) v = GrownTo(v, *like);
  return operands;
}

// Makes dtypes agree, and gives literals the shape and sharding of the first array. A literal is a
// scalar that is weakly typed or a constant.
std::vector<Value> MatchLiterals(std::vector<Value> operands) {
  std::vector<bool> is_literal;
  for (const Value& v : operands)
    is_literal.push_back(v.rank() == 0 && (v.type().weak || IsConstant(v)));
  operands = MatchDTypes(std::move(operands));
  const auto array =
      std::find_if(operands.begin(), operands.end(), [](const Value& v) { return v.rank() > 0; });
  if (array == operands.end()) return operands;
  const Type like = array->type();
  for (size_t i = 0; i < operands.size(); ++i)
    if (is_literal[i]) operands[i] = ops::BroadcastLike(operands[i], like, {});
  return operands;
}

}  // namespace

std::vector<Value> MatchVarying(std::vector<Value> operands) {
  AxisSet varying;
  for (const Value& v : operands) varying.insert(v.type().varying.begin(), v.type().varying.end());
  for (Value& v : operands) {
    AxisSet missing;
    std::set_difference(varying.begin(), varying.end(), v.type().varying.begin(),
                        v.type().varying.end(), std::inserter(missing, missing.end()));
    v = !missing.empty() && v.type().reduced == missing ? ReducedVaryCast(v, missing)
                                                        : Pvary(v, missing);
  }
  return operands;
}

namespace {

// Makes scalars reduced along the axes along which other operands are reduced. Changes only scalars
// that are invarying along all axes.
std::vector<Value> MatchReduced(std::vector<Value> operands) {
  AxisSet reduced;
  for (const Value& v : operands) reduced.insert(v.type().reduced.begin(), v.type().reduced.end());
  if (reduced.empty()) return operands;
  for (Value& v : operands)
    if (v.rank() == 0 && v.type().NonInvaryingAxes().empty()) v = ReducedAlong(v, reduced);
  return operands;
}

}  // namespace

std::vector<Value> Harmonize(std::vector<Value> operands) {
  return MatchVarying(MatchShapes(MatchReduced(MatchDTypes(std::move(operands)))));
}

namespace {

// Returns the dtype in which to compute with numbers of at most 8 bits that have no kernels. It
// holds all their values, and the result is rounded, or cut to its low bits, once. Returns nullopt
// for other dtypes.
std::optional<DType> WiderDTypeFor(DType d) {
  if (IsComputable(d) || IsComplex(d)) return std::nullopt;
  if (IsFloat(d)) return DType::kF32;
  return IsSignedInt(d) ? DType::kS8 : DType::kU8;
}
std::optional<DType> WiderDTypeFor(const std::vector<Value>& operands) {
  const bool alike = std::all_of(operands.begin(), operands.end(),
                                 [&](const Value& v) { return v.dtype() == operands[0].dtype(); });
  return alike && !operands.empty() ? WiderDTypeFor(operands[0].dtype()) : std::nullopt;
}
// Returns whether the op may be computed on integers that were converted to more bits: the low bits
// of its result are then the result on the narrow integers.
bool ExtendsToMoreBits(const OpDef& def) {
  const OpDef* const defs[] = {&ops::kAdd, &ops::kSub,  &ops::kMul, &ops::kDiv, &ops::kRem,
                               &ops::kNeg, &ops::kAbs,  &ops::kMax, &ops::kMin, &ops::kAnd,
                               &ops::kOr,  &ops::kSign, &ops::kXor, &ops::kNot};
  return std::find(std::begin(defs), std::end(defs), &def) != std::end(defs);
}

}  // namespace

Value Elementwise(const OpDef& def, std::vector<Value> operands) {
  if (const std::optional<DType> wide = WiderDTypeFor(operands)) {
    const DType dtype = operands[0].dtype();
    const bool can_widen = IsFloat(dtype) ? &def != &ops::kNextafter : ExtendsToMoreBits(def);
    if (can_widen) {
      for (Value& v : operands) v = Convert(v, *wide);
      const Value result = Elementwise(def, std::move(operands));
      return result.dtype() == *wide ? Convert(result, dtype) : result;
    }
  }
  const bool all_complex =
      !operands.empty() && std::all_of(operands.begin(), operands.end(), [&](const Value& v) {
        return IsComplex(v.dtype()) && v.dtype() == operands[0].dtype() &&
               v.shape() == operands[0].shape();
      });
  if (all_complex)
    if (const std::optional<Value> on_parts = ops::ElementwiseOnParts(def, operands))
      return *on_parts;
  return operands[0].builder().Emit1(def, operands);
}

#define TESSERA_OP(Symbol, wire, lax)
#define TESSERA_UNARY(Symbol, wire, lax) \
  Value Symbol(Value x) { return Elementwise(ops::k##Symbol, {x}); }
#define TESSERA_BINARY(Symbol, wire, lax) \
  Value Symbol(Value x, Value y) { return Elementwise(ops::k##Symbol, Harmonize({x, y})); }
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP

Value Compare(Value x, Value y, std::string_view direction) {
  const std::vector<Value> in = Harmonize({x, y});
  const bool is_equality = direction == "EQ" || direction == "NE";
  if (is_equality && IsComplex(in[0].dtype()) && in[0].dtype() == in[1].dtype()) {
    const ops::Parts a = ops::PartsOf(in[0]), b = ops::PartsOf(in[1]);
    const Value re = Compare(a.re, b.re, direction), im = Compare(a.im, b.im, direction);
    return direction == "EQ" ? And(re, im) : Or(re, im);
  }
  if (const std::optional<DType> wide = WiderDTypeFor(in)) {
    const Value a = Convert(in[0], *wide);
    return Compare(a, Convert(in[1], *wide), direction);
  }
  return x.builder().Emit1(ops::kCompare, in, {{"direction", std::string(direction)}});
}

Value CompareTotalOrder(Value x, Value y, std::string_view direction) {
  return x.builder().Emit1(
      ops::kCompare, Harmonize({x, y}),
      {{"direction", std::string(direction)}, {"compare_type", std::string("TOTALORDER")}});
}

Value Select(Value pred, Value on_true, Value on_false) {
  const std::vector<Value> cases = MatchLiterals({on_true, on_false});
  return pred.builder().Emit1(ops::kSelect, MatchVarying({pred, cases[0], cases[1]}));
}

Value Clamp(Value min, Value x, Value max) {
  // The bounds may stay scalars, so their dtypes alone are matched. A literal x between bounds that
  // are arrays must get their shape.
  std::vector<Value> in = x.rank() == 0 ? MatchLiterals({min, x, max}) : MatchDTypes({min, x, max});
  return x.builder().Emit1(ops::kClamp, MatchVarying(std::move(in)));
}

Value Convert(Value x, DType dtype) { return EmitConvert(x, dtype, /*weak=*/false); }

namespace {

DType UnsignedOfBits(int bits) {
  for (int d = 0; d < kNumDTypes; ++d)
    if (const auto dtype = static_cast<DType>(d); IsUnsignedInt(dtype) && BitWidth(dtype) == bits)
      return dtype;
  TESSERA_CHECK(false) << "no unsigned integer has " << bits << " bits";
  return DType::kU8;
}
Value BitcastSameWidth(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder().Emit1(ops::kBitcastConvert, {x}, {{"dtype", dtype}});
}
// Returns 0, width, 2 * width ... along a last dim of size n.
Value BitOffsets(Builder& b, DType dtype, Dims shape, int64_t n, int width) {
  shape.push_back(n);
  const auto last = static_cast<int>(shape.size()) - 1;
  const Value part = Iota(b, dtype, std::move(shape), last);
  return part * FullLike(part, width);
}

}  // namespace

// Emits the op itself only between dtypes of the same width. Between different widths it works on
// unsigned integers: shifts and a convert take an element apart, and shifts and a sum join
// elements. Every backend, transform and sharding rule has these ops already.
Value BitcastConvert(Value x, DType dtype) {
  const int from = BitWidth(x.dtype()), to = BitWidth(dtype);
  const bool has_bits = !IsComplex(x.dtype()) && !IsComplex(dtype) && x.dtype() != DType::kBool &&
                        dtype != DType::kBool;
  const bool fits = from >= to || (x.rank() > 0 && x.dim(x.rank() - 1) * from == to);
  if (has_bits && !fits)
    Throw(MakeError(ErrorKind::kTypeError,
                    absl::StrCat("bitcast_convert_type: cannot read ", x.type().ToString(), " as ",
                                 ToAbsl(DTypeName(dtype)), "; its last dim must hold the ", to,
                                 " bits of an element, ", to / from, " elements of ", from)));
  // If has_bits is false, inference of the op reports the error.
  if (from == to || !has_bits) return BitcastSameWidth(x, dtype);
  // Integers of fewer than 8 bits cannot be shifted, so they are converted to wider ones.
  const DType wide = UnsignedOfBits(std::max({from, to, 8}));
  x = BitcastSameWidth(x, UnsignedOfBits(from));
  x = Convert(x, wide);
  if (from > to) {
    const int64_t n = from / to;
    const Value offsets = BitOffsets(x.builder(), wide, x.shape(), n, to);
    x = ShiftRightLogical(BroadcastNewDim(x, x.rank(), n), offsets);
    return BitcastSameWidth(Convert(x, UnsignedOfBits(to)), dtype);
  }
  const int last = x.rank() - 1;
  Dims shape = x.shape();
  shape.pop_back();
  const Value offsets = BitOffsets(x.builder(), wide, shape, to / from, from);
  // The sum is an `or`: no two elements have a bit in common.
  x = ReduceSum(ShiftLeft(x, offsets), {last});
  return BitcastSameWidth(x, dtype);
}

Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits) {
  return x.builder().Emit1(
      ops::kReducePrecision, {x},
      {{"exponent_bits", int64_t{exponent_bits}}, {"mantissa_bits", int64_t{mantissa_bits}}});
}

Value Square(Value x) { return x * x; }

Value CheckpointName(Value x, std::string name) {
  if (IsComplex(x.dtype())) {
    const Value re = CheckpointName(Real(x), name);
    return Complex(re, CheckpointName(Imag(x), name));
  }
  return x.builder().Emit1(ops::kCheckpointName, {x}, {{"name", std::move(name)}});
}

Value StopGradient(Value x) {
  if (IsComplex(x.dtype())) {
    const Value re = StopGradient(Real(x));
    return Complex(re, StopGradient(Imag(x)));
  }
  return IsInexact(x.dtype()) ? x.builder().Emit1(ops::kStopGradient, {x}) : x;
}

}  // namespace tessera::ir
