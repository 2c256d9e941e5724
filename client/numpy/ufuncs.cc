// The functions of ufuncs.h. Each checks the dtypes of its operands, brings them to a common type
// and emits a few ops that follow jax.numpy's formula.
#include "client/ufuncs.h"

#include <cmath>
#include <limits>

#include "client/apply/operand.h"
#include "client/numpy/reductions.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::ApplyArgs;
using internal::Binary;
using internal::CommonDType;
using internal::InexactOf;
using internal::Operands;
using internal::SiteOf;
using internal::ThrowError;
using internal::Unary;
using internal::UnaryInexact;
using ir::Value;
using Vs = std::vector<Value>;

Array BinaryInexact(std::string_view name, const Arg& x, const Arg& y,
                    absl::FunctionRef<Value(Value, Value)> op) {
  return Binary(name, x, y, op, InexactOf(CommonDType({x, y})));
}
void NeedReal(std::string_view name, const std::vector<Arg>& args) {
  const DType dtype = CommonDType(args);
  if (!ir::IsComplex(dtype)) return;
  ThrowError(ErrorKind::kTypeError, SiteOf(args), ToAbsl(name),
             " does not support complex-valued inputs, got ", ToAbsl(ir::DTypeName(dtype)));
}
// Returns s32 if all operands are bools, for functions that do not compute with bools; else
// nullopt, which stands for the common dtype.
std::optional<DType> NumberDType(const std::vector<Arg>& args) {
  return CommonDType(args) == DType::kBool ? std::optional(DType::kS32) : std::nullopt;
}
Array BinaryOfNumbers(std::string_view name, const Arg& x, const Arg& y,
                      absl::FunctionRef<Value(Value, Value)> op) {
  NeedReal(name, {x, y});
  return ApplyArgs(
      name, {x, y}, Operands::kPromote, [&](ir::Builder&, Vs v) { return op(v[0], v[1]); },
      NumberDType({x, y}));
}

Value ToBool(Value x) {
  return x.dtype() == DType::kBool ? x : ir::Compare(x, ir::FullLike(x, 0), "NE");
}
Value AllFalse(Value x) { return ir::Full(x.builder(), DType::kBool, x.shape(), 0); }
Value IsNan(Value x) { return ir::IsInexact(x.dtype()) ? ir::Compare(x, x, "NE") : AllFalse(x); }
Value Equals(Value x, double value) { return ir::Compare(x, ir::FullLike(x, value), "EQ"); }
Value Below(Value x, double value) { return ir::Compare(x, ir::FullLike(x, value), "LT"); }
Value Scaled(Value x, double by) { return ir::Mul(x, ir::FullLike(x, by)); }
// Applies `f` to x or, if x is complex, to its real and imaginary parts.
Value ApplyToParts(Value x, absl::FunctionRef<Value(Value)> f) {
  if (!ir::IsComplex(x.dtype())) return f(x);
  const Value re = f(ir::Real(x));
  return ir::Complex(re, f(ir::Imag(x)));
}

}  // namespace

// ---- Functions of one array. --------------------------------------------------------------------

Array log2(const Arg& x) {
  return UnaryInexact("log2", x, [](Value v) {
    return ApplyToParts(ir::Log(v),
                        [](Value part) { return ir::Div(part, ir::Log(ir::FullLike(part, 2))); });
  });
}
Array log10(const Arg& x) {
  return UnaryInexact("log10", x, [](Value v) {
    return ApplyToParts(ir::Log(v), [](Value part) { return Scaled(part, 0.4342944819032518); });
  });
}
Array deg2rad(const Arg& x) {
  return UnaryInexact("deg2rad", x, [](Value v) { return Scaled(v, M_PI / 180); });
}
Array rad2deg(const Arg& x) {
  return UnaryInexact("rad2deg", x, [](Value v) { return Scaled(v, 180 / M_PI); });
}
Array radians(const Arg& x) { return deg2rad(x); }
Array degrees(const Arg& x) { return rad2deg(x); }
Array reciprocal(const Arg& x) {
  return UnaryInexact("reciprocal", x, [](Value v) { return ir::IntegerPow(v, -1); });
}
Array sinc(const Arg& x) {
  return UnaryInexact("sinc", x, [](Value v) {
    const Value at_zero = Equals(v, 0), one = ir::FullLike(v, 1);
    const Value angle_in_radians = Scaled(v, M_PI);
    const Value safe = ir::Select(at_zero, one, angle_in_radians);
    return ir::Select(at_zero, one, ir::Div(ir::Sin(safe), safe));
  });
}
Array fabs(const Arg& x) {
  NeedReal("fabs", {x});
  return UnaryInexact("fabs", x, ir::Abs);
}
Array rint(const Arg& x) {
  return UnaryInexact("rint", x, [](Value v) { return ApplyToParts(v, ir::RoundNearestEven); });
}
Array angle(const Arg& z, bool deg) {
  return UnaryInexact("angle", z, [&](Value v) {
    const Value re = ir::IsComplex(v.dtype()) ? ir::Real(v) : v;
    const Value im = ir::IsComplex(v.dtype()) ? ir::Imag(v) : ir::FullLike(v, 0);
    const Value radians = ir::Atan2(im, re);
    return deg ? Scaled(radians, 180 / M_PI) : radians;
  });
}

Array positive(const Arg& x) {
  return Unary("positive", x, [](Value v) { return v; });
}
Array trunc(const Arg& x) {
  NeedReal("trunc", {x});
  return Unary("trunc", x, [](Value v) {
    if (!ir::IsInexact(v.dtype())) return v;
    const Value up = ir::Ceil(v);
    return ir::Select(Below(v, 0), up, ir::Floor(v));
  });
}
Array isnan(const Arg& x) { return Unary("isnan", x, IsNan); }
Array isinf(const Arg& x) {
  return Unary("isinf", x, [](Value v) {
    if (!ir::IsInexact(v.dtype())) return AllFalse(v);
    if (!ir::IsComplex(v.dtype())) return Equals(ir::Abs(v), HUGE_VAL);
    const Value re = Equals(ir::Abs(ir::Real(v)), HUGE_VAL);
    return ir::Or(re, Equals(ir::Abs(ir::Imag(v)), HUGE_VAL));
  });
}
Array isposinf(const Arg& x) {
  NeedReal("isposinf", {x});
  return Unary("isposinf", x, [](Value v) {
    return ir::IsInexact(v.dtype()) ? Equals(v, HUGE_VAL) : AllFalse(v);
  });
}
Array isneginf(const Arg& x) {
  NeedReal("isneginf", {x});
  return Unary("isneginf", x, [](Value v) {
    return ir::IsInexact(v.dtype()) ? Equals(v, -HUGE_VAL) : AllFalse(v);
  });
}
Array isfinite(const Arg& x) { return is_finite(x); }
Array signbit(const Arg& x) {
  NeedReal("signbit", {x});
  return Unary("signbit", x, [](Value v) {
    if (v.dtype() == DType::kBool) return AllFalse(v);
    if (!ir::IsInexact(v.dtype())) return Below(v, 0);
    const int width = ir::BitWidth(v.dtype());
    const DType bits_dtype = width == 64   ? DType::kS64
                             : width == 32 ? DType::kS32
                             : width == 16 ? DType::kS16
                                           : DType::kS8;
    return Below(ir::BitcastConvert(v, bits_dtype), 0);
  });
}
Array bitwise_not(const Arg& x) { return Unary("bitwise_not", x, ir::Not); }
Array invert(const Arg& x) { return bitwise_not(x); }
Array nan_to_num(const Arg& x, const NanToNum& by) {
  const auto replaced = [&](Value v) {
    const bool f16 = v.dtype() == DType::kF16;
    const double most = v.dtype() == DType::kF64    ? std::numeric_limits<double>::max()
                        : v.dtype() == DType::kBF16 ? 0x1.FEp127
                        : f16                       ? 65504
                                                    : std::numeric_limits<float>::max();
    Value out = ir::Select(IsNan(v), ir::FullLike(v, by.nan), v);
    out = ir::Select(Equals(out, HUGE_VAL), ir::FullLike(v, by.posinf.value_or(most)), out);
    return ir::Select(Equals(out, -HUGE_VAL), ir::FullLike(v, by.neginf.value_or(-most)), out);
  };
  return Unary("nan_to_num", x,
               [&](Value v) { return ir::IsInexact(v.dtype()) ? ApplyToParts(v, replaced) : v; });
}

// ---- Functions of two arrays. -------------------------------------------------------------------

Array add(const Arg& x, const Arg& y) { return x + y; }
Array subtract(const Arg& x, const Arg& y) { return x - y; }
Array multiply(const Arg& x, const Arg& y) { return x * y; }
Array divide(const Arg& x, const Arg& y) { return x / y; }
Array true_divide(const Arg& x, const Arg& y) { return x / y; }
Array negative(const Arg& x) { return -x; }
Array greater(const Arg& x, const Arg& y) { return x > y; }
Array greater_equal(const Arg& x, const Arg& y) { return x >= y; }
Array less(const Arg& x, const Arg& y) { return x < y; }
Array less_equal(const Arg& x, const Arg& y) { return x <= y; }

Array floor_divide(const Arg& x, const Arg& y) {
  return BinaryOfNumbers("floor_divide", x, y, [](Value a, Value b) {
    const Value rest = ir::Rem(a, b), one = ir::FullLike(a, 1);
    const Value not_whole = ir::Compare(rest, ir::FullLike(rest, 0), "NE");
    if (ir::IsUnsignedInt(a.dtype())) return ir::Div(a, b);
    if (!ir::IsInexact(a.dtype())) {
      const Value quotient = ir::Div(a, b);
      const Value signs = ir::Sign(a);
      const Value differ = ir::Compare(signs, ir::Sign(b), "NE");
      return ir::Select(ir::And(differ, not_whole), ir::Sub(quotient, one), quotient);
    }
    const Value whole = ir::Select(Equals(b, 0), a, ir::Sub(a, rest));
    const Value quotient = ir::Div(whole, b);
    const Value signs = ir::Sign(b);
    const Value differ = ir::Compare(signs, ir::Sign(rest), "NE");
    const Value lower = ir::Sub(quotient, one);
    return ir::RoundNearestAfz(ir::Select(ir::And(not_whole, differ), lower, quotient));
  });
}
std::pair<Array, Array> divmod(const Arg& x, const Arg& y) {
  const Array quotient = floor_divide(x, y);
  return {quotient, remainder(x, y)};
}
Array mod(const Arg& x, const Arg& y) { return remainder(x, y); }
Array fmod(const Arg& x, const Arg& y) {
  return BinaryOfNumbers("fmod", x, y, [](Value a, Value b) {
    if (ir::IsInexact(a.dtype())) return ir::Rem(a, b);
    return ir::Rem(a, ir::Select(Equals(b, 0), ir::FullLike(b, 1), b));
  });
}
Array fmax(const Arg& x, const Arg& y) {
  NeedReal("fmax", {x, y});
  return Binary("fmax", x, y, [](Value a, Value b) {
    const Value larger = ir::Compare(a, b, "GT");
    return ir::Select(ir::Or(larger, IsNan(b)), a, b);
  });
}
Array fmin(const Arg& x, const Arg& y) {
  NeedReal("fmin", {x, y});
  return Binary("fmin", x, y, [](Value a, Value b) {
    const Value less = ir::Compare(a, b, "LT");
    return ir::Select(ir::Or(less, IsNan(b)), a, b);
  });
}
Array logical_xor(const Arg& x, const Arg& y) {
  return Binary("logical_xor", x, y, [](Value a, Value b) {
    const Value left = ToBool(a);
    return ir::Xor(left, ToBool(b));
  });
}
Array bitwise_and(const Arg& x, const Arg& y) { return Binary("bitwise_and", x, y, ir::And); }
Array bitwise_or(const Arg& x, const Arg& y) { return Binary("bitwise_or", x, y, ir::Or); }
Array bitwise_xor(const Arg& x, const Arg& y) { return Binary("bitwise_xor", x, y, ir::Xor); }
Array left_shift(const Arg& x, const Arg& y) {
  return BinaryOfNumbers("left_shift", x, y, ir::ShiftLeft);
}
Array right_shift(const Arg& x, const Arg& y) {
  return BinaryOfNumbers("right_shift", x, y, [](Value a, Value b) {
    return ir::IsUnsignedInt(a.dtype()) ? ir::ShiftRightLogical(a, b)
                                        : ir::ShiftRightArithmetic(a, b);
  });
}
Array float_power(const Arg& x, const Arg& y) {
  return BinaryInexact("float_power", x, y, ir::Pow);
}

namespace {
// Returns the larger operand plus added(-|a - b|), the contribution of the smaller one. NaNs, and
// infinities of the same sign, are added instead.
Value LogAdd(Value a, Value b, absl::FunctionRef<Value(Value)> added) {
  const Value most = ir::Max(a, b), distance = ir::Sub(a, b);
  const Value sum = ir::Add(most, added(ir::Neg(ir::Abs(distance))));
  return ir::Select(IsNan(distance), ir::Add(a, b), sum);
}
}  // namespace
Array logaddexp(const Arg& x, const Arg& y) {
  NeedReal("logaddexp", {x, y});
  return BinaryInexact("logaddexp", x, y, [](Value a, Value b) {
    return LogAdd(a, b, [](Value d) { return ir::Log1p(ir::Exp(d)); });
  });
}
Array logaddexp2(const Arg& x, const Arg& y) {
  NeedReal("logaddexp2", {x, y});
  return BinaryInexact("logaddexp2", x, y, [](Value a, Value b) {
    return LogAdd(a, b, [](Value d) { return Scaled(ir::Log1p(ir::Exp2(d)), 1 / std::log(2.0)); });
  });
}
Array hypot(const Arg& x, const Arg& y) {
  NeedReal("hypot", {x, y});
  return BinaryInexact("hypot", x, y, [](Value a, Value b) {
    const Value first = ir::Abs(a), second = ir::Abs(b);
    const Value infinite = Equals(first, HUGE_VAL);
    const Value any_infinite = ir::Or(infinite, Equals(second, HUGE_VAL));
    const Value most = ir::Max(first, second), least = ir::Min(first, second);
    const Value zero = Equals(most, 0), one = ir::FullLike(most, 1);
    const Value ratio = ir::Div(least, ir::Select(zero, one, most));
    const Value root = ir::Sqrt(ir::Add(one, ir::Square(ratio)));
    const Value length = ir::Select(zero, most, ir::Mul(most, root));
    return ir::Select(any_infinite, ir::FullLike(length, HUGE_VAL), length);
  });
}
Array heaviside(const Arg& x, const Arg& y) {
  NeedReal("heaviside", {x, y});
  return BinaryInexact("heaviside", x, y, [](Value a, Value b) {
    const Value zero = ir::FullLike(a, 0);
    const Value above = ir::Compare(a, zero, "GT"), nan = IsNan(a);
    const Value rest = ir::Select(nan, a, b);
    const Value from_zero = ir::Select(above, ir::FullLike(a, 1), rest);
    return ir::Select(Below(a, 0), zero, from_zero);
  });
}
Array copysign(const Arg& x, const Arg& y) {
  NeedReal("copysign", {x, y});
  return BinaryInexact("copysign", x, y, [](Value a, Value b) {
    const DType dtype = b.dtype();
    const DType bits_dtype = dtype == DType::kF64                            ? DType::kS64
                             : dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kS16
                                                                             : DType::kS32;
    const Value size = ir::Abs(a), negative = Below(ir::BitcastConvert(b, bits_dtype), 0);
    return ir::Select(negative, ir::Neg(size), size);
  });
}

Array isclose(const Arg& x, const Arg& y, const CloseOptions& options) {
  return BinaryInexact("isclose", x, y, [&](Value a, Value b) {
    const Value distance = ir::Abs(ir::Sub(a, b)), size = ir::Abs(b);
    const Value most = ir::Add(ir::FullLike(size, options.atol), Scaled(size, options.rtol));
    const Value within = ir::Compare(distance, most, "LE");
    const Value near = ir::And(ir::IsFinite(b), within);
    const Value close = ir::Or(ir::Compare(a, b, "EQ"), near);
    if (!options.equal_nan) return close;
    const Value left = IsNan(a);
    return ir::Or(close, ir::And(left, IsNan(b)));
  });
}
Array allclose(const Arg& x, const Arg& y, const CloseOptions& options) {
  return all(Arg(isclose(x, y, options), SiteOf({x, y})));
}
Array array_equal(const Arg& x, const Arg& y, bool equal_nan) {
  const Site site = SiteOf({x, y});
  const auto shape = [](const Arg& a) { return a.array ? a.array->shape() : Dims{}; };
  if (shape(x) != shape(y)) return full({}, 0, DType::kBool, site);
  return all(Arg(Binary("array_equal", x, y,
                        [&](Value a, Value b) {
                          const Value same = ir::Compare(a, b, "EQ");
                          if (!equal_nan) return same;
                          const Value left = IsNan(a);
                          return ir::Or(same, ir::And(left, IsNan(b)));
                        }),
                 site));
}

}  // namespace tessera
