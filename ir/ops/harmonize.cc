// The elementwise ops as functions on Values, and the implicit casts they insert: JAX's, and no
// others.  Shapes of arrays are never broadcast here.
#include <algorithm>
#include <optional>

#include "ir/ops.h"
#include "ir/ops/dims.h"

namespace tessera::ir {
namespace {

bool IsConstant(Value v) {
  const Op* op = v.builder().DefiningOp(v);
  return op && op->def == &ops::kConstant;
}

// bool < integer < floating: a weak type may be promoted, never demoted.
int CategoryOf(DType d) { return d == DType::kBool ? 0 : IsInteger(d) ? 1 : 2; }

Value ConvertWeak(Value x, DType dtype, bool weak) {
  if (x.dtype() == dtype && x.type().weak == weak) return x;
  return x.builder().Emit1(
      ops::kConvert, {x}, weak ? Attrs{{"dtype", dtype}, {"weak", true}} : Attrs{{"dtype", dtype}});
}

// The dtype weak operands take: that of the strong ones, or, if all are weak, the highest.
std::optional<DType> CommonDType(Values operands) {
  std::optional<DType> strong, weak;
  for (const Value& v : operands) {
    std::optional<DType>& best = v.type().weak ? weak : strong;
    if (!v.type().weak && strong) continue;  // strong ones that differ are inference's error
    const auto rank = [](DType d) { return std::pair(CategoryOf(d), ByteWidth(d)); };
    if (!best || rank(*best) < rank(v.dtype())) best = v.dtype();
  }
  return strong ? strong : weak;
}

std::vector<Value> MatchDTypes(std::vector<Value> operands) {
  const std::optional<DType> dtype = CommonDType(operands);
  const bool all_weak =
      std::all_of(operands.begin(), operands.end(), [](const Value& v) { return v.type().weak; });
  for (Value& v : operands)
    if (v.type().weak && CategoryOf(v.dtype()) <= CategoryOf(*dtype))
      v = ConvertWeak(v, *dtype, all_weak);
  return operands;
}

// Which operands are rank-0 literals: weakly typed, or a constant.
std::vector<bool> NumbersAmong(Values operands) {
  std::vector<bool> out;
  for (const Value& v : operands) out.push_back(v.rank() == 0 && (v.type().weak || IsConstant(v)));
  return out;
}

// Literals take the shape and sharding of the array operand.
std::vector<Value> MatchShapes(std::vector<Value> operands, const std::vector<bool>& is_number) {
  const auto array =
      std::find_if(operands.begin(), operands.end(), [](const Value& v) { return v.rank() > 0; });
  if (array == operands.end()) return operands;
  const Type& like = array->type();
  for (size_t i = 0; i < operands.size(); ++i)
    if (is_number[i]) operands[i] = ops::BroadcastLike(operands[i], like, {});
  return operands;
}

// Makes dtypes and shapes agree, but not the varying axes.
std::vector<Value> MatchTypes(std::vector<Value> operands) {
  const std::vector<bool> is_number = NumbersAmong(operands);
  return MatchShapes(MatchDTypes(std::move(operands)), is_number);
}

}  // namespace

std::vector<Value> MatchVarying(std::vector<Value> operands) {
  AxisSet varying;
  for (const Value& v : operands) varying.insert(v.type().varying.begin(), v.type().varying.end());
  for (Value& v : operands) {
    AxisSet missing;
    std::set_difference(varying.begin(), varying.end(), v.type().varying.begin(),
                        v.type().varying.end(), std::inserter(missing, missing.end()));
    v = Pvary(v, missing);
  }
  return operands;
}

std::vector<Value> Harmonize(std::vector<Value> operands) {
  return MatchVarying(MatchTypes(std::move(operands)));
}

#define TESSERA_OP(Symbol, wire, lax)
#define TESSERA_UNARY(Symbol, wire, lax) \
  Value Symbol(Value x) { return x.builder().Emit1(ops::k##Symbol, {x}); }
#define TESSERA_BINARY(Symbol, wire, lax) \
  Value Symbol(Value x, Value y) { return x.builder().Emit1(ops::k##Symbol, Harmonize({x, y})); }
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP

Value Compare(Value x, Value y, std::string_view direction) {
  return x.builder().Emit1(ops::kCompare, Harmonize({x, y}),
                           {{"direction", std::string(direction)}});
}

Value CompareTotalOrder(Value x, Value y, std::string_view direction) {
  return x.builder().Emit1(
      ops::kCompare, Harmonize({x, y}),
      {{"direction", std::string(direction)}, {"compare_type", std::string("TOTALORDER")}});
}

Value Select(Value pred, Value on_true, Value on_false) {
  const std::vector<Value> cases = MatchTypes({on_true, on_false});
  return pred.builder().Emit1(ops::kSelect, MatchVarying({pred, cases[0], cases[1]}));
}

Value Clamp(Value min, Value x, Value max) {
  // Bounds may stay scalars; a literal that arrays clamp may not.
  std::vector<Value> in = x.rank() == 0 ? MatchTypes({min, x, max}) : MatchDTypes({min, x, max});
  return x.builder().Emit1(ops::kClamp, MatchVarying(std::move(in)));
}

Value Convert(Value x, DType dtype) { return ConvertWeak(x, dtype, /*weak=*/false); }

Value BitcastConvert(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder().Emit1(ops::kBitcastConvert, {x}, {{"dtype", dtype}});
}

Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits) {
  return x.builder().Emit1(
      ops::kReducePrecision, {x},
      {{"exponent_bits", int64_t{exponent_bits}}, {"mantissa_bits", int64_t{mantissa_bits}}});
}

Value Square(Value x) { return x * x; }

Value StopGradient(Value x) {
  return IsInexact(x.dtype()) ? x.builder().Emit1(ops::kStopGradient, {x}) : x;
}

}  // namespace tessera::ir
