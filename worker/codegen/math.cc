// EmitPrim: turns each scalar primitive of a kernel into LLVM IR. The host emitter and the GPU
// emitter call it first for every scalar node. Where it returns null they use wide_math.h or a
// library function.
#include "worker/codegen/math.h"

#include <cmath>
#include <limits>

#include "worker/codegen/math_functions.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;
using llvm::IRBuilderBase;
using llvm::Type;
using llvm::Value;

Type* LanesType(Type* element, int lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
}
int LanesOf(Value* v) {
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return type == nullptr ? 1 : static_cast<int>(type->getNumElements());
}
bool IsF32OrF64(DType d) { return d == DType::kF32 || d == DType::kF64; }

// Emits the primitives that need the same code for ints and floats.
Value* CommonPrim(ScalarPrim prim, V x, V y) {
  switch (prim) {
    case ScalarPrim::kAdd:
      return (x + y).get();
    case ScalarPrim::kSub:
      return (x - y).get();
    case ScalarPrim::kMul:
      return (x * y).get();
    case ScalarPrim::kNeg:
      return (-x).get();
    case ScalarPrim::kEq:
      return Eq(x, y).get();
    case ScalarPrim::kNe:
      return Ne(x, y).get();
    default:
      return nullptr;
  }
}

// ---- Integers: the rules of XLA, as in ir/scalar_math.h. ----

V IntDivOrRem(bool is_div, bool is_signed, V x, V y) {
  const V zero = Eq(y, y.OfInt(0));
  IRBuilderBase& b = x.b();
  if (!is_signed) {
    const V safe = Select(zero, y.OfInt(1), y);
    return is_div ? Select(zero, x.OfInt(-1), x.With(b.CreateUDiv(x.get(), safe.get())))
                  : Select(zero, x, x.With(b.CreateURem(x.get(), safe.get())));
  }
  // The instruction may trap if the divisor is 0 or -1, so these divisors are replaced.
  const V minus_one = Eq(y, y.OfInt(-1));
  const V safe = Select(zero | minus_one, y.OfInt(1), y);
  if (is_div) {
    const V quotient = x.With(b.CreateSDiv(x.get(), safe.get()));
    return Select(zero, x.OfInt(-1), Select(minus_one, -x, quotient));
  }
  return Select(zero, x, x.With(b.CreateSRem(x.get(), safe.get())));
}

// Emits a power by squaring. It goes over every bit of the exponent, so that all lanes take the
// same number of steps.
V IntPow(bool is_signed, V x, V y) {
  V result = x.OfInt(1), base = x;
  for (unsigned bit = 0; bit < x.bits(); ++bit) {
    const V set = Ne(y & y.OfInt(static_cast<int64_t>(uint64_t{1} << bit)), y.OfInt(0));
    result = Select(set, result * base, result);
    base = base * base;
  }
  if (!is_signed) return result;
  const V odd = Ne(y & y.OfInt(1), y.OfInt(0));
  const V of_minus_one = Select(odd, x.OfInt(-1), x.OfInt(1));
  const V inverse =
      Select(Eq(x, x.OfInt(1)), x.OfInt(1), Select(Eq(x, x.OfInt(-1)), of_minus_one, x.OfInt(0)));
  return Select(y < y.OfInt(0), inverse, result);
}

// Emits a shift. Shifting by the width of the type or more gives 0, or copies of the sign.
V Shift(ScalarPrim prim, V x, V amount) {
  IRBuilderBase& b = x.b();
  const V width = amount.OfInt(x.bits());
  const V inside = x.With(b.CreateICmpULT(amount.get(), width.get()));
  if (prim == ScalarPrim::kShrA) {
    const V by = Select(inside, amount, width - amount.OfInt(1));
    return x.With(b.CreateAShr(x.get(), by.get()));
  }
  const V by = Select(inside, amount, amount.OfInt(0));
  const V shifted = x.With(prim == ScalarPrim::kShl ? b.CreateShl(x.get(), by.get())
                                                    : b.CreateLShr(x.get(), by.get()));
  return Select(inside, shifted, x.OfInt(0));
}

// Emits a primitive of integers or bools that CommonPrim does not cover, or returns null. The bits
// are those of ir/scalar_math.h, so cases that LLVM leaves undefined (division by 0, shifts by
// the width) go through helpers that define them.
Value* IntPrim(IRBuilderBase& b, ScalarPrim prim, DType dtype, V x, V y) {
  // Bools compare as unsigned bits.
  const bool is_signed = ir::IsSignedInt(dtype);
  const auto less = [&](V p, V q) {
    return p.With(is_signed ? b.CreateICmpSLT(p.get(), q.get())
                            : b.CreateICmpULT(p.get(), q.get()));
  };
  switch (prim) {
    case ScalarPrim::kAbs:
      return is_signed ? Select(x < x.OfInt(0), -x, x).get() : x.get();
    case ScalarPrim::kDiv:
    case ScalarPrim::kRem:
      return IntDivOrRem(prim == ScalarPrim::kDiv, is_signed, x, y).get();
    case ScalarPrim::kPow:
      return IntPow(is_signed, x, y).get();
    case ScalarPrim::kMin:
      return Select(less(y, x), y, x).get();
    case ScalarPrim::kMax:
      return Select(less(x, y), y, x).get();
    case ScalarPrim::kAnd:
      return (x & y).get();
    case ScalarPrim::kOr:
      return (x | y).get();
    case ScalarPrim::kXor:
      return (x ^ y).get();
    case ScalarPrim::kNot:
      return (~x).get();
    case ScalarPrim::kShl:
    case ScalarPrim::kShrA:
    case ScalarPrim::kShrL:
      return Shift(prim, x, y).get();
    case ScalarPrim::kPopCount:
      return x.Unary(llvm::Intrinsic::ctpop).get();
    case ScalarPrim::kClz:
      return b.CreateIntrinsic(llvm::Intrinsic::ctlz, {x.type()}, {x.get(), b.getFalse()});
    case ScalarPrim::kLt:
      return less(x, y).get();
    case ScalarPrim::kLe:
      return (~less(y, x)).get();
    case ScalarPrim::kGt:
      return less(y, x).get();
    case ScalarPrim::kGe:
      return (~less(x, y)).get();
    default:
      return nullptr;
  }
}

// ---- Floats. ----

// Returns NaN if either argument is NaN, and treats -0 as less than +0. Equal numbers have equal
// bits, except zeros, whose signs are combined.
V Extremum(bool is_max, V x, V y) {
  const V xb = x.Bits(), yb = y.Bits();
  const V same = (is_max ? xb & yb : xb | yb).AsFloat();
  const V best = Select(is_max ? x > y : x < y, x, y);
  return Select(IsNan(x), x, Select(Eq(x, y), same, best));
}

// Rounds half away from zero. The difference from the truncated value is exact, and so is its
// comparison with a half.
V RoundAway(V x) {
  const V whole = x.Unary(llvm::Intrinsic::trunc);
  const V up = whole + CopySign(x.Of(1), x);
  const V rounded = Select(Abs(x - whole) >= 0.5, up, whole);
  // The sign makes -0.3 give -0.
  return CopySign(rounded, x);
}

// Emits a primitive of f32 or f64 that CommonPrim does not cover, or returns null. Every result has
// the bits of ir/scalar_math.h, except that Rsqrt rounds twice. Functions such as Exp are not
// here but in math_functions.cc and wide_math.cc.
Value* FloatPrim(ScalarPrim prim, V x, V y) {
  switch (prim) {
    case ScalarPrim::kDiv:
      return (x / y).get();
    case ScalarPrim::kAbs:
      return Abs(x).get();
    case ScalarPrim::kMin:
    case ScalarPrim::kMax:
      return Extremum(prim == ScalarPrim::kMax, x, y).get();
    case ScalarPrim::kSqrt:
      return Sqrt(x).get();
    case ScalarPrim::kRsqrt:
      return (1.0 / Sqrt(x)).get();
    case ScalarPrim::kFloor:
      return x.Unary(llvm::Intrinsic::floor).get();
    case ScalarPrim::kCeil:
      return x.Unary(llvm::Intrinsic::ceil).get();
    case ScalarPrim::kRoundEven:
      return x.Unary(llvm::Intrinsic::nearbyint).get();
    case ScalarPrim::kRoundAway:
      return RoundAway(x).get();
    case ScalarPrim::kIsFinite:
      return (Abs(x) < std::numeric_limits<double>::infinity()).get();
    case ScalarPrim::kLt:
      return (x < y).get();
    case ScalarPrim::kLe:
      return (x <= y).get();
    case ScalarPrim::kGt:
      return (x > y).get();
    case ScalarPrim::kGe:
      return (x >= y).get();
    default:
      return nullptr;
  }
}

using F32Function = V (*)(V);
F32Function FunctionOfF32(ScalarPrim prim) {
  switch (prim) {
    case ScalarPrim::kExp:
      return ExpF32;
    case ScalarPrim::kLog:
      return LogF32;
    case ScalarPrim::kTanh:
      return TanhF32;
    case ScalarPrim::kErf:
      return ErfF32;
    default:
      return nullptr;
  }
}

// ---- Conversions. ----

// Rounds to nearest even. A NaN keeps its upper bits and becomes quiet.
V F32ToBf16(V x) {
  const V u = x.Bits();
  const V is_odd = Ne(u & u.OfInt(0x10000), u.OfInt(0));
  const V rounded = u + Select(is_odd, u.OfInt(0x8000), u.OfInt(0x7fff));
  const V quiet = u | u.OfInt(0x400000);
  // The masked bits are already those of the f32, so that widening the result again needs no shift.
  const V upper = Select(IsNan(x), quiet, rounded) & u.OfInt(0xffff0000);
  const V bits = upper.ShiftRight(16);
  return x.With(x.b().CreateTrunc(bits.get(), bits.TypeOf(x.b().getInt16Ty())));
}
V Bf16ToF32(V bits) {
  const V wide = bits.With(bits.b().CreateZExt(bits.get(), bits.TypeOf(bits.b().getInt32Ty())));
  return (wide << 16).AsF32();
}

// Emit the conversions FloatToF16 and F16ToFloat of ir/narrow_float.h.
V F32ToF16(V x) {
  const V u = x.Bits();
  const V sign = u.ShiftRight(16) & u.OfInt(0x8000);
  const V magnitude = u & u.OfInt(0x7fffffff);
  const V odd = magnitude.ShiftRight(13) & u.OfInt(1);
  const V rounded = (magnitude + u.OfInt(0xfff) + odd - u.OfInt(0x38000000)).ShiftRight(13);
  const V subnormal = (magnitude.AsF32() + x.Of(0.5)).Bits() - u.OfInt(0x3f000000);
  const V number = Select(magnitude < u.OfInt(0x38800000), subnormal, rounded);
  const V nan = u.OfInt(0x7e00) | (magnitude.ShiftRight(13) & u.OfInt(0x1ff));
  const V finite = Select(magnitude >= u.OfInt(0x477ff000), u.OfInt(0x7c00), number);
  const V bits = sign | Select(magnitude > u.OfInt(0x7f800000), nan, finite);
  return x.With(x.b().CreateTrunc(bits.get(), bits.TypeOf(x.b().getInt16Ty())));
}
V F16ToF32(V bits) {
  const V wide = bits.With(bits.b().CreateZExt(bits.get(), bits.TypeOf(bits.b().getInt32Ty())));
  const V sign = (wide & wide.OfInt(0x8000)) << 16;
  const V magnitude = wide & wide.OfInt(0x7fff);
  const V shifted = magnitude << 13;
  const V finite = (shifted.AsF32() * 0x1p112).Bits();
  const V special = shifted | wide.OfInt(0x7f800000);
  return (sign | Select(magnitude >= wide.OfInt(0x7c00), special, finite)).AsF32();
}
// Rounds once in effect: first to an f32 whose last bit tells that the value is not exact, then to
// f16.
V F64ToF16(V x) {
  IRBuilderBase& b = x.b();
  const V nearest = x.With(b.CreateFPTrunc(x.get(), x.TypeOf(b.getFloatTy())));
  const V back = x.With(b.CreateFPExt(nearest.get(), x.type()));
  const V u = nearest.Bits();
  const V below = Select(Abs(back) > Abs(x), u - u.OfInt(1), u) | u.OfInt(1);
  const V exact = Eq(back, x) | IsNan(x);
  return F32ToF16(Select(exact, u, below).AsF32());
}

// Rounds towards zero and saturates, and turns NaN to 0. The instruction is applied to numbers in
// range only.
V FloatToInt(V x, DType to) {
  IRBuilderBase& b = x.b();
  const bool is_signed = ir::IsSignedInt(to);
  const int width = static_cast<int>(8 * ir::ByteWidth(to));
  const int digits = is_signed ? width - 1 : width;
  const double above = std::ldexp(1.0, digits), below = is_signed ? -above : 0.0;
  const V too_big = x >= above, too_small = x <= below;
  const V inside = Select(too_big | too_small | IsNan(x), x.Of(0), x);
  Type* const type = x.TypeOf(b.getIntNTy(width));
  const V cut =
      x.With(is_signed ? b.CreateFPToSI(inside.get(), type) : b.CreateFPToUI(inside.get(), type));
  const uint64_t ones = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const V biggest = cut.OfInt(static_cast<int64_t>(is_signed ? ones >> 1 : ones));
  const V smallest = is_signed ? ~biggest : cut.OfInt(0);
  return Select(too_big, biggest, Select(too_small, smallest, cut));
}

Value* ConvertTo(DType from, DType to, V x) {
  IRBuilderBase& b = x.b();
  if (from == to) return x.get();
  if (from == DType::kBF16) return ConvertTo(DType::kF32, to, Bf16ToF32(x));
  if (from == DType::kF16) return ConvertTo(DType::kF32, to, F16ToF32(x));
  if (from == DType::kF64 && to == DType::kF16) return F64ToF16(x).get();
  if (to == DType::kBF16) return F32ToBf16(x.With(ConvertTo(from, DType::kF32, x))).get();
  if (to == DType::kF16) return F32ToF16(x.With(ConvertTo(from, DType::kF32, x))).get();
  if (to == DType::kBool) return Ne(x, x.is_float() ? x.Of(0) : x.OfInt(0)).get();
  Type* const type = x.TypeOf(RegisterType(b.getContext(), to));
  if (IsF32OrF64(from)) {
    return IsF32OrF64(to) ? b.CreateFPCast(x.get(), type) : FloatToInt(x, to).get();
  }
  const bool is_signed = ir::IsSignedInt(from);
  if (!IsF32OrF64(to)) return b.CreateIntCast(x.get(), type, is_signed);
  return is_signed ? b.CreateSIToFP(x.get(), type) : b.CreateUIToFP(x.get(), type);
}

}  // namespace

Type* RegisterType(llvm::LLVMContext& context, DType dtype, int lanes) {
  if (dtype == DType::kBool) return LanesType(Type::getInt1Ty(context), lanes);
  if (dtype == DType::kF32) return LanesType(Type::getFloatTy(context), lanes);
  if (dtype == DType::kF64) return LanesType(Type::getDoubleTy(context), lanes);
  const unsigned bits = static_cast<unsigned>(8 * ir::ByteWidth(dtype));
  return LanesType(Type::getIntNTy(context, bits), lanes);
}

Type* MemoryType(llvm::LLVMContext& context, DType dtype, int lanes) {
  return dtype == DType::kBool ? LanesType(Type::getInt8Ty(context), lanes)
                               : RegisterType(context, dtype, lanes);
}

Value* FromMemory(IRBuilderBase& b, DType dtype, Value* stored) {
  return dtype == DType::kBool ? b.CreateIsNotNull(stored) : stored;
}

Value* ToMemory(IRBuilderBase& b, DType dtype, Value* value) {
  if (dtype != DType::kBool) return value;
  return b.CreateZExt(value, MemoryType(b.getContext(), dtype, LanesOf(value)));
}

Value* ConstantOf(IRBuilderBase& b, DType dtype, double value, int64_t int_value, int lanes) {
  Type* const type = RegisterType(b.getContext(), dtype, lanes);
  return IsF32OrF64(dtype) ? llvm::ConstantFP::get(type, value)
                           : llvm::ConstantInt::get(type, static_cast<uint64_t>(int_value),
                                                    /*IsSigned=*/true);
}

// Emits one scalar primitive, or returns null if this file does not cover it. Conversions and
// selections come first, since their operand may be any dtype. Then the code that ints and floats
// share is tried, and then the functions of each.
Value* EmitPrim(IRBuilderBase& b, ScalarPrim prim, DType operand, DType result,
                llvm::ArrayRef<Value*> args) {
  switch (prim) {
    case ScalarPrim::kInput:
    case ScalarPrim::kConstant:
      return nullptr;
    case ScalarPrim::kSelect:
      return b.CreateSelect(args[0], args[1], args[2]);
    case ScalarPrim::kConvert:
      return ir::IsComputable(operand) && ir::IsComputable(result)
                 ? ConvertTo(operand, result, V(b, args[0]))
                 : nullptr;
    case ScalarPrim::kBitcast: {
      Type* const type = RegisterType(b.getContext(), result, LanesOf(args[0]));
      return args[0]->getType()->getPrimitiveSizeInBits() == type->getPrimitiveSizeInBits()
                 ? b.CreateBitCast(args[0], type)
                 : nullptr;
    }
    default:
      break;
  }
  const V x(b, args[0]), y(b, args[args.size() - 1]);
  const bool is_int = operand == DType::kBool || ir::IsInteger(operand);
  if (!is_int && !IsF32OrF64(operand)) return nullptr;
  if (Value* const value = CommonPrim(prim, x, y)) return value;
  if (is_int) return IntPrim(b, prim, operand, x, y);
  if (Value* const value = FloatPrim(prim, x, y)) return value;
  const F32Function function = operand == DType::kF32 ? FunctionOfF32(prim) : nullptr;
  return function == nullptr ? nullptr : function(x).get();
}

}  // namespace tessera::worker::codegen
