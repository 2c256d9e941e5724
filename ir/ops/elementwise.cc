// Elementwise ops. Each op defines its function on one scalar and its derivative; the family
// (rules/pointwise.h) supplies the rest. The derivatives are JAX's, also at points where the
// function has none.
#include <cmath>
#include <cstring>
#include <numbers>

#include "ir/convert.h"
#include "ir/ops/rules/pointwise.h"
#include "ir/ops/rules/refused.h"
#include "ir/ops/rules/states.h"

namespace tessera::ir::ops {
namespace {

using scalar::Like;
using scalar::TypeOf;
using enum scalar::Domain;

// C++ leaves open which of two arguments is evaluated first. Where both arguments emit ops, the
// first is a named variable, so that every compiler builds the same program.
Value Where(Value pred, Value x, double otherwise) {
  return Select(pred, x, FullLike(x, otherwise));
}
Value IsZero(Value x) { return Compare(x, FullLike(x, 0), "EQ"); }

// Rules of ops that are piecewise constant, or whose results have no tangents.
constexpr AutodiffRules kFlat = {ZeroTangents};

}  // namespace

// ---- Sign and absolute value. ------------------------------------------------------------------
namespace {
Value AbsJvp(Value dx, Value x, Value) {
  const Value rising = Compare(x, FullLike(x, 0), "GE");
  return Select(rising, dx, -dx);
}
Value NegJvp(Value dx, Value, Value) { return -dx; }
Value NegAdjoint(const RuleContext&, Value ct) { return -ct; }

constexpr auto kSignBody = [](auto x) {
  const auto of_nonzero = Select(x < 0, Like(x, -1), Like(x, 1));
  // Zeros keep their sign bit, and NaNs stay NaN.
  return Select((x == 0) | (x != x), x, of_nonzero);
};
}  // namespace
constexpr OpDef kAbs =
    Unary<kSignedNumbers, [](auto x) { return Abs(x); }>("abs", "abs", {Chain<AbsJvp>});
constexpr OpDef kNeg = Unary<kNumbers, [](auto x) { return -x; }>(
    "negate", "neg", {Chain<NegJvp>, Adjoints<NegAdjoint>, SameVmaAsFirst});
constexpr OpDef kSign = Unary<kNumbers, kSignBody>("sign", "sign", kFlat);

// ---- Exponentials and logarithms. --------------------------------------------------------------
namespace {
Value ExpJvp(Value dx, Value, Value y) { return dx * y; }
Value Expm1Jvp(Value dx, Value, Value y) { return dx * (1.0 + y); }
Value LogJvp(Value dx, Value x, Value) { return dx / x; }
Value Log1pJvp(Value dx, Value x, Value) { return dx / (1.0 + x); }
Value LogisticJvp(Value dx, Value, Value y) { return dx * (y * (1.0 - y)); }
Value TanhJvp(Value dx, Value, Value y) {
  const Value rising = dx + dx * y;
  return rising * (1.0 - y);
}
}  // namespace
constexpr OpDef kExp =
    Unary<kFloats, [](auto x) { return Exp(x); }>("exponential", "exp", {Chain<ExpJvp>});
constexpr OpDef kExpm1 = Unary<kFloats, [](auto x) { return Expm1(x); }>(
    "exponential_minus_one", "expm1", {Chain<Expm1Jvp>});
constexpr OpDef kLog = Unary<kFloats, [](auto x) { return Log(x); }>("log", "log", {Chain<LogJvp>});
constexpr OpDef kLog1p =
    Unary<kFloats, [](auto x) { return Log1p(x); }>("log_plus_one", "log1p", {Chain<Log1pJvp>});
constexpr OpDef kLogistic = Unary<kFloats, [](auto x) { return 1.0 / (1.0 + Exp(-x)); }>(
    "logistic", "logistic", {Chain<LogisticJvp>});
constexpr OpDef kTanh =
    Unary<kFloats, [](auto x) { return Tanh(x); }>("tanh", "tanh", {Chain<TanhJvp>});

// ---- Trigonometry. -----------------------------------------------------------------------------
namespace {
Value SinJvp(Value dx, Value x, Value) { return dx * Cos(x); }
Value CosJvp(Value dx, Value x, Value) { return -(dx * Sin(x)); }
Value TanJvp(Value dx, Value, Value y) { return dx * (1.0 + Square(y)); }
// z = atan2(x, y): the angle of the point (y, x).
Value SquaredRadius(Value x, Value y) {
  const Value xx = Square(x);
  return xx + Square(y);
}
Value Atan2JvpX(Value dx, Value x, Value y, Value) { return dx * (y / SquaredRadius(x, y)); }
Value Atan2JvpY(Value dy, Value x, Value y, Value) {
  const Value minus_x = -x;
  return dy * (minus_x / SquaredRadius(x, y));
}
}  // namespace
constexpr OpDef kSin =
    Unary<kFloats, [](auto x) { return Sin(x); }>("sine", "sin", {Chain<SinJvp>});
constexpr OpDef kCos =
    Unary<kFloats, [](auto x) { return Cos(x); }>("cosine", "cos", {Chain<CosJvp>});
constexpr OpDef kTan = Unary<kFloats, [](auto x) { return Tan(x); }>("tan", "tan", {Chain<TanJvp>});
constexpr OpDef kAtan2 = Binary<kFloats, [](auto x, auto y) { return Atan2(x, y); }>(
    "atan2", "atan2", {Chain<Atan2JvpX, Atan2JvpY>});

// ---- Roots. ------------------------------------------------------------------------------------
namespace {
Value SqrtJvp(Value dx, Value, Value y) { return dx * (0.5 / y); }
Value RsqrtJvp(Value dx, Value x, Value y) { return dx * (-0.5 * (y / x)); }
Value CbrtJvp(Value dx, Value, Value y) { return dx * ((1.0 / 3.0) * (1.0 / Square(y))); }
}  // namespace
constexpr OpDef kSqrt =
    Unary<kFloats, [](auto x) { return Sqrt(x); }>("sqrt", "sqrt", {Chain<SqrtJvp>});
constexpr OpDef kRsqrt =
    Unary<kFloats, [](auto x) { return Rsqrt(x); }>("rsqrt", "rsqrt", {Chain<RsqrtJvp>});
constexpr OpDef kCbrt =
    Unary<kFloats, [](auto x) { return Cbrt(x); }>("cbrt", "cbrt", {Chain<CbrtJvp>});

// ---- The error function and its inverse. -------------------------------------------------------
namespace {
Value ErfJvp(Value dx, Value x, Value) {
  return (2.0 * std::numbers::inv_sqrtpi) * (dx * Exp(-Square(x)));
}
Value ErfInvJvp(Value dx, Value, Value y) {
  return (0.5 / std::numbers::inv_sqrtpi) * (dx * Exp(Square(y)));
}

// Coefficients of polynomials, highest power first. Central is for a polynomial in w = -log(1 -
// x^2), Middle and Tail are for polynomials in the square root of w, each minus a constant.
// Reference: Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2011), which is also
// what XLA evaluates.
constexpr float kCentral32[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                -0.00417768164f,  0.246640727f,    1.50140941f};
constexpr float kTail32[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                             -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                             0.00943887047f,   1.00167406f,     2.83297682f};
constexpr double kCentral64[] = {
    -3.6444120640178196996e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,
    1.115787767802518096e-17,   -1.333171662854620906e-16,  2.0972767875968561637e-17,
    6.6376381343583238325e-15,  -4.0545662729752068639e-14, -8.1519341976054721522e-14,
    2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08,
    4.2347877827932403518e-07,  -1.3654692000834678645e-06, -1.3882523362786468719e-05,
    0.0001867342080340571352,   -0.00074070253416626697512, -0.0060336708714301490533,
    0.24015818242558961693,     1.6536545626831027356};
constexpr double kMiddle64[] = {
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
    1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
    2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
    6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
    -0.0037512085075692412107, 0.005370914553590063617,   1.0052589676941592334,
    3.0838856104922207635};
constexpr double kTail64[] = {
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
    -3.7894654401267369937e-09, 7.6157012080783393804e-09,  -1.4960026627149240478e-08,
    2.9147953450901080826e-08,  -6.7711997758452339498e-08, 2.2900482228026654717e-07,
    -9.9298272942317002539e-07, 4.5260625972231537039e-06,  -1.9681778105531670567e-05,
    7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026,
    1.0103004648645343977,      4.8499064014085844221};

constexpr auto kErfInvBody = []<class X>(X x) {
  const X w = -Log1p(-(x * x)), root = Sqrt(w);
  X p = x;
  if constexpr (std::is_same_v<TypeOf<X>, float>) {
    p = Select(w < 5.0, Horner(kCentral32, w - 2.5), Horner(kTail32, root - 3.0));
  } else {
    const X outer = Select(w < 16.0, Horner(kMiddle64, root - 3.25), Horner(kTail64, root - 5.0));
    p = Select(w < 6.25, Horner(kCentral64, w - 3.125), outer);
  }
  return Select(Abs(x) == 1.0, x * std::numeric_limits<TypeOf<X>>::infinity(), p * x);
};
}  // namespace
constexpr OpDef kErf = Unary<kFloats, [](auto x) { return Erf(x); }>("erf", "erf", {Chain<ErfJvp>});
constexpr OpDef kErfInv = Unary<kFloats, kErfInvBody>("erf_inv", "erf_inv", {Chain<ErfInvJvp>});

// ---- Rounding. ---------------------------------------------------------------------------------
constexpr OpDef kCeil = Unary<kFloats, [](auto x) { return Ceil(x); }>("ceil", "ceil", kFlat);
constexpr OpDef kFloor = Unary<kFloats, [](auto x) { return Floor(x); }>("floor", "floor", kFlat);
constexpr OpDef kRoundNearestAfz =
    Unary<kFloats, [](auto x) { return RoundAway(x); }>("round_nearest_afz", "round", kFlat);
constexpr OpDef kRoundNearestEven =
    Unary<kFloats, [](auto x) { return RoundEven(x); }>("round_nearest_even", "round_even", kFlat);

// ---- Arithmetic. -------------------------------------------------------------------------------
namespace {
Value SameTangent(Value d, Value, Value, Value) { return d; }
Value NegatedTangent(Value d, Value, Value, Value) { return -d; }
Value SameCotangent(const RuleContext&, Value ct) { return ct; }

// A sum of two unreduced values is unreduced. An unreduced value cannot be added to a value
// that is not unreduced.
absl::Status AddStates(const InferContext& c, std::vector<Type>* out) {
  const Type &x = c.in[0], &y = c.in[1];
  if (x.unreduced == y.unreduced) return derive::VaryingAllEqual(c, out);
  if (!x.unreduced.empty() && !y.unreduced.empty())
    return ShardingError(c, "lhs and rhs must be unreduced along the same mesh axes. Got lhs=",
                         AxesToString(x.unreduced), ", rhs=", AxesToString(y.unreduced));
  const char* const which = x.unreduced.empty() ? "rhs" : "lhs";
  return ShardingError(c, which, " is unreduced while ", x.unreduced.empty() ? "lhs" : "rhs",
                       " is not. `add` operation does not allow this because there will be "
                       "implicit communication. Please reduce ",
                       which, " via `reshard` before calling `add`. Got ", x.ToString(), " and ",
                       y.ToString());
}

Value MulJvpX(Value dx, Value, Value y, Value) { return dx * y; }
Value MulJvpY(Value dy, Value x, Value, Value) { return x * dy; }
Value MulAdjointX(const RuleContext& c, Value ct) { return ct * NonLinearOperand(c, 1); }
Value MulAdjointY(const RuleContext& c, Value ct) { return NonLinearOperand(c, 0) * ct; }

// An unreduced value times a value that is equal everywhere (reduced) is unreduced.
absl::Status MulStates(const InferContext& c, std::vector<Type>* out) {
  const Type &x = c.in[0], &y = c.in[1];
  if (x.unreduced.empty() && y.unreduced.empty()) return derive::VaryingAllEqual(c, out);
  TESSERA_RETURN_IF_ERROR(derive::CheckVaryingEqual(c));
  const Type &partial = x.unreduced.empty() ? y : x, &factor = x.unreduced.empty() ? x : y;
  if (!factor.unreduced.empty())
    return ShardingError(c, "lhs and rhs to `mul` cannot be unreduced since mul is bilinear. Got ",
                         x.ToString(), " and ", y.ToString());
  if (factor.reduced != partial.unreduced || !partial.reduced.empty())
    return ShardingError(c,
                         x.unreduced.empty() ? "LHS should be reduced along the same axes RHS"
                                             : "RHS should be reduced along the same axes LHS",
                         " is unreduced on. Got lhs=", x.ToString(), " and rhs=", y.ToString());
  (*out)[0].varying = partial.varying;
  (*out)[0].unreduced = partial.unreduced;
  return absl::OkStatus();
}

Value DivJvpX(Value dx, Value, Value y, Value) { return dx / y; }
Value DivJvpY(Value dy, Value x, Value y, Value) {
  const Value numerator = -dy * x;
  return numerator * (1.0 / Square(y));
}
Value DivAdjointX(const RuleContext& c, Value ct) { return ct / NonLinearOperand(c, 1); }

// x rem y = x - y * trunc(x / y).
Value Truncated(Value x) {
  const Value sign = Sign(x);
  return sign * Floor(Abs(x));
}
Value RemJvpY(Value dy, Value x, Value y, Value) {
  const Value minus_dy = -dy;
  return minus_dy * Truncated(x / y);
}

Value PowJvpX(Value dx, Value x, Value y, Value) { return dx * (y * Pow(x, y - FullLike(y, 1))); }
// Computes d/dy x^y = log(x) x^y, which is 0 where x is 0.
Value PowJvpY(Value dy, Value x, Value, Value z) {
  const Value is_zero = IsZero(x);
  return dy * (Log(Select(is_zero, FullLike(x, 1), x)) * z);
}

// Returns 1 where `operand` is the result, but 1/2 where both operands are, and 0 elsewhere.
Value ShareOf(Value operand, Value other, Value result) {
  const Value one = FullLike(result, 1);
  const Value is_result = Where(Compare(operand, result, "EQ"), one, 0);
  return is_result / Where(Compare(other, result, "NE"), one, 2);
}
Value ExtremumJvpX(Value dx, Value x, Value y, Value z) { return dx * ShareOf(x, y, z); }
Value ExtremumJvpY(Value dy, Value x, Value y, Value z) { return dy * ShareOf(y, x, z); }
}  // namespace
constexpr OpDef kAdd = Binary<kNumbers, [](auto x, auto y) { return x + y; }>(
    "add", "add",
    {Chain<SameTangent, SameTangent>, Adjoints<SameCotangent, SameCotangent>, AddStates});
constexpr OpDef kSub = Binary<kNumbers, [](auto x, auto y) { return x - y; }>(
    "subtract", "sub", {Chain<SameTangent, NegatedTangent>, Adjoints<SameCotangent, NegAdjoint>});
constexpr OpDef kMul = Binary<kNumbers, [](auto x, auto y) { return x * y; }>(
    "multiply", "mul", {Chain<MulJvpX, MulJvpY>, Adjoints<MulAdjointX, MulAdjointY>, MulStates});
constexpr OpDef kDiv = Binary<kNumbers, [](auto x, auto y) { return x / y; }>(
    "divide", "div", {Chain<DivJvpX, DivJvpY>, Adjoints<DivAdjointX, nullptr>});
constexpr OpDef kRem = Binary<kNumbers, [](auto x, auto y) { return Rem(x, y); }>(
    "remainder", "rem", {Chain<SameTangent, RemJvpY>});
constexpr OpDef kPow = Binary<kNumbers, [](auto x, auto y) { return Pow(x, y); }>(
    "power", "pow", {Chain<PowJvpX, PowJvpY>});
constexpr OpDef kMax = Binary<kAnything, [](auto x, auto y) { return Max(x, y); }>(
    "maximum", "max", {Chain<ExtremumJvpX, ExtremumJvpY>});
constexpr OpDef kMin = Binary<kAnything, [](auto x, auto y) { return Min(x, y); }>(
    "minimum", "min", {Chain<ExtremumJvpX, ExtremumJvpY>});

// ---- Bits.  Integers and bools have no tangents. -----------------------------------------------
constexpr OpDef kNot = Unary<kBits, [](auto x) { return ~x; }>("not", "not", kFlat);
constexpr OpDef kPopulationCount =
    Unary<kInts, [](auto x) { return PopCount(x); }>("popcnt", "population_count", kFlat);
constexpr OpDef kClz =
    Unary<kInts, [](auto x) { return Clz(x); }>("count_leading_zeros", "clz", kFlat);
constexpr OpDef kAnd = Binary<kBits, [](auto x, auto y) { return x & y; }>("and", "and", kFlat);
constexpr OpDef kOr = Binary<kBits, [](auto x, auto y) { return x | y; }>("or", "or", kFlat);
constexpr OpDef kXor = Binary<kBits, [](auto x, auto y) { return x ^ y; }>("xor", "xor", kFlat);
constexpr OpDef kShiftLeft =
    Binary<kInts, [](auto x, auto y) { return x << y; }>("shift_left", "shift_left", kFlat);
constexpr OpDef kShiftRightArithmetic = Binary<kInts, [](auto x, auto y) { return ShrA(x, y); }>(
    "shift_right_arithmetic", "shift_right_arithmetic", kFlat);
constexpr OpDef kShiftRightLogical = Binary<kInts, [](auto x, auto y) { return ShrL(x, y); }>(
    "shift_right_logical", "shift_right_logical", kFlat);

// ---- Predicates. -------------------------------------------------------------------------------
namespace {
constexpr auto kRunIsFinite = [](const Attrs&, DType operand, DType, auto run) {
  scalar::DispatchCompute<kFloats>(operand, [&]<DType kD>(DTypeTag<kD>) {
    run.template Call<DType::kBool, kD>([](auto x) { return IsFinite(x); });
  });
};

// Calls f with the relation that `direction` names. Returns false if there is no such relation.
template <class F>
bool WithRelation(std::string_view direction, F f) {
  if (direction == "EQ") return f([](auto x, auto y) { return x == y; }), true;
  if (direction == "NE") return f([](auto x, auto y) { return x != y; }), true;
  if (direction == "LT") return f([](auto x, auto y) { return x < y; }), true;
  if (direction == "LE") return f([](auto x, auto y) { return x <= y; }), true;
  if (direction == "GT") return f([](auto x, auto y) { return x > y; }), true;
  if (direction == "GE") return f([](auto x, auto y) { return x >= y; }), true;
  return false;
}

// Returns the bits of a float as an integer that ascends in IEEE 754's total order: -NaN, -inf, ...
// -0, 0, ... inf, NaN.
template <class X>
auto InTotalOrder(X x) {
  if constexpr (scalar::kIsFloat<X>) {
    using Bits = std::conditional_t<sizeof(TypeOf<X>) == 8, int64_t, int32_t>;
    const auto bits = scalar::Bitcast<Bits>(x);
    return Select(bits < 0, bits ^ std::numeric_limits<Bits>::max(), bits);
  } else {
    return x;
  }
}

absl::StatusOr<std::vector<Type>> InferCompare(const InferContext& c) {
  const std::string& direction = c.attrs.Str("direction");
  if (!WithRelation(direction, [](auto) {}))
    return ValueError(c, "direction is '", direction, "'; expected one of EQ, NE, LT, LE, GT, GE");
  if (!c.attrs.Has("compare_type")) return InferPredicate<kAnything>(c);
  if (c.attrs.Str("compare_type") != "TOTALORDER")
    return ValueError(c, "compare_type is '", c.attrs.Str("compare_type"),
                      "'; expected TOTALORDER, or no compare_type");
  return InferPredicate<kFloats>(c);
}
constexpr auto kRunCompare = [](const Attrs& attrs, DType operand, DType, auto run) {
  const bool is_total_order = attrs.Has("compare_type");
  scalar::DispatchCompute<kAnything>(operand, [&]<DType kD>(DTypeTag<kD>) {
    WithRelation(attrs.Str("direction"), [&](auto relation) {
      if (!is_total_order) return run.template Call<DType::kBool, kD, kD>(relation);
      run.template Call<DType::kBool, kD, kD>([relation](auto x, auto y) {
        const auto a = InTotalOrder(x);
        return relation(a, InTotalOrder(y));
      });
    });
  });
};
constexpr AttrSpec kCompareAttrs[] = {{"direction", AttrKind::kString},
                                      {"compare_type", AttrKind::kString, /*required=*/false}};
}  // namespace
constexpr OpDef kIsFinite = Elementwise("is_finite", "is_finite", 1, InferPredicate<kFloats>,
                                        kScalarFrom<kRunIsFinite>, kFlat);
constexpr OpDef kCompare = Elementwise("compare", "compare", 2, InferCompare,
                                       kScalarFrom<kRunCompare>, kFlat, kCompareAttrs);

// ---- select: on_true where pred, else on_false. ------------------------------------------------
namespace {
absl::StatusOr<std::vector<Type>> InferSelect(const InferContext& c) {
  const Type& pred = c.in[0];
  const absl::Span<const Type> cases = c.in.subspan(1);
  if (pred.dtype != DType::kBool)
    return TypeError(c, "`which` must be bool, got ", ToAbsl(DTypeName(pred.dtype)),
                     "; compare it with zero first");
  TESSERA_RETURN_IF_ERROR(CheckSameDType(c, cases));
  if (cases[0].shape != cases[1].shape)
    return TypeError(c, "select cases must have the same shapes, got ", TupleOf(cases[0].shape),
                     ", ", TupleOf(cases[1].shape));
  if (pred.rank() != 0 && pred.shape != cases[0].shape)
    return TypeError(
        c, "select `which` must be scalar or have the same shape as cases, got `which` shape ",
        TupleOf(pred.shape), " but case shape ", TupleOf(cases[0].shape));
  Type out = MakeType(cases[0].dtype, cases[0].shape);
  out.weak = cases[0].weak && cases[1].weak;
  return std::vector<Type>{out};
}

absl::Status SelectSharding(const InferContext& c, std::vector<Type>* out) {
  const Type &pred = c.in[0], &x = c.in[1], &y = c.in[2];
  if (x.sharding != y.sharding)
    return ShardingError(c, "select cases must have the same shardings, got ", x.ToString(), ", ",
                         y.ToString(), "; reshard one");
  if (pred.rank() != 0 && pred.sharding != x.sharding)
    return ShardingError(c,
                         "select `which` must be scalar or have the same sharding as cases, got ",
                         pred.ToString(), " and ", x.ToString(), "; reshard one");
  (*out)[0].sharding = x.sharding;
  return absl::OkStatus();
}

absl::Status SelectStates(const InferContext& c, std::vector<Type>* out) {
  return SameStatesAs(c, 1, 3, "select cases must have the same shardings", out);
}

// Moves elements as bytes, whatever their dtype.
void EvalSelect(const Attrs&, DType operand, DType, const void* const* in, void* const* out,
                int64_t n) {
  const int64_t width = ByteWidth(operand);
  const auto* pred = static_cast<const uint8_t*>(in[0]);
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(static_cast<std::byte*>(out[0]) + i * width,
                static_cast<const std::byte*>(in[pred[i] != 0 ? 1 : 2]) + i * width, width);
}
ScalarGraph RecordSelect(const Attrs&, DType operand, DType) {
  ScalarGraph graph;
  const int pred = graph.Add(ScalarPrim::kInput, DType::kBool, {}, 0);
  const int on_true = graph.Add(ScalarPrim::kInput, operand, {}, 1);
  const int on_false = graph.Add(ScalarPrim::kInput, operand, {}, 2);
  graph.roots = {graph.Add(ScalarPrim::kSelect, operand, {pred, on_true, on_false})};
  return graph;
}

std::vector<Value> SelectJvp(const RuleContext& c, Values d) {
  if (!d[1] && !d[2]) return {Value()};
  const auto tangent = [&](int i) { return d[i] ? d[i] : Zeros(c.b, c.in[i].type()); };
  return {Select(c.in[0], tangent(1), tangent(2))};
}
Value SelectAdjointTrue(const RuleContext& c, Value ct) {
  return Select(NonLinearOperand(c, 0), ct, Zeros(c.b, ct.type()));
}
Value SelectAdjointFalse(const RuleContext& c, Value ct) {
  return Select(NonLinearOperand(c, 0), Zeros(c.b, ct.type()), ct);
}

consteval OpDef SelectDef() {
  OpDef d = Elementwise(
      "select", "select_n", 3, InferSelect, {EvalSelect, RecordSelect},
      {SelectJvp, Adjoints<nullptr, SelectAdjointTrue, SelectAdjointFalse>, SelectStates});
  d.sharding = SelectSharding;
  return Checked(d);
}
}  // namespace
constexpr OpDef kSelect = SelectDef();

// ---- clamp: min(max(x, min), max). -------------------------------------------------------------
namespace {
constexpr auto kClampBody = [](auto min, auto x, auto max) { return Min(Max(x, min), max); };

absl::StatusOr<std::vector<Type>> InferClamp(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckDomain(c, kAnything));
  TESSERA_RETURN_IF_ERROR(CheckSameDType(c, c.in));
  const Type& x = c.in[1];
  for (int i : {0, 2}) {
    const char* name = i == 0 ? "min" : "max";
    if (c.in[i].rank() != 0 && c.in[i].shape != x.shape)
      return TypeError(c, "clamp requires ", name, ".shape == operand.shape or ", name,
                       ".shape == (), got ", name, ".shape=", TupleOf(c.in[i].shape),
                       ", operand.shape=", TupleOf(x.shape));
  }
  Type out = MakeType(x.dtype, x.shape);
  out.weak = c.in[0].weak && x.weak && c.in[2].weak;
  return std::vector<Type>{out};
}

// Broadcasts a bound, or the tangent of a bound, to the operand's shape.
Value BroadcastBound(Value bound, const Type& out) {
  if (bound.rank() != out.rank()) bound = BroadcastInDim(bound, out.shape, {});
  return ShardedLike(bound, out);
}
// The result's tangent is that of the operand where the operand lies strictly inside the bounds,
// and that of a bound where the operand lies outside. It is zero where the operand equals a bound.
std::vector<Value> ClampJvp(const RuleContext& c, Values d) {
  const Type& type = c.out_types[0];
  const Value min = BroadcastBound(c.in[0], type), x = ShardedLike(c.in[1], type),
              max = BroadcastBound(c.in[2], type);
  const Value min_cuts = Compare(min, x, "GT"), above_min = Compare(x, min, "GT");
  const Value where[] = {And(min_cuts, Compare(min, max, "LT")),
                         And(above_min, Compare(x, max, "LT")), Compare(max, x, "LT")};
  Value sum;
  for (int i = 0; i < 3; ++i)
    if (d[i]) sum = AddTangents(sum, Where(where[i], BroadcastBound(d[i], type), 0), type);
  return {sum};
}
}  // namespace
constexpr OpDef kClamp =
    Elementwise("clamp", "clamp", 3, InferClamp, kScalarOf<kAnything, 3, kClampBody>, {ClampJvp});

// ---- convert: the value in another dtype. ------------------------------------------------------
namespace {
absl::StatusOr<std::vector<Type>> InferConvert(const InferContext& c) {
  Type out = MakeType(c.attrs.Dtype("dtype"), c.in[0].shape);
  out.weak = c.attrs.Has("weak") && c.attrs.Bool("weak");
  return std::vector<Type>{out};
}
// A conversion between floats keeps an unreduced value unreduced although it rounds, as in JAX.
// Integers have no such rule: they are never sums of tangents.
absl::Status ConvertStates(const InferContext& c, std::vector<Type>* out) {
  return IsFloat(c.in[0].dtype) && IsFloat((*out)[0].dtype) ? SameVmaAsFirst(c, out)
                                                            : derive::VaryingAllEqual(c, out);
}

void EvalConvert(const Attrs&, DType operand, DType result, const void* const* in, void* const* out,
                 int64_t n) {
  ConvertElements(operand, in[0], result, out[0], n);
}
// Converts by way of the dtypes in which operand and result are computed (ComputeDType). f64
// becomes f16 in one step, so that it is rounded only once.
ScalarGraph RecordConvert(const Attrs&, DType operand, DType result) {
  ScalarGraph graph;
  int id = graph.Add(ScalarPrim::kInput, operand, {}, 0);
  const auto convert = [&](DType to) {
    if (graph.nodes[id].dtype != to) id = graph.Add(ScalarPrim::kConvert, to, {id});
  };
  convert(ComputeDType(operand));
  if (operand != DType::kF64 || result != DType::kF16) convert(ComputeDType(result));
  convert(result);
  graph.roots = {id};
  return graph;
}

std::vector<Value> ConvertJvp(const RuleContext& c, Values d) {
  const DType to = c.out_types[0].dtype;
  return {d[0] && IsInexact(to) ? Convert(d[0], to) : Value()};
}
Value ConvertAdjoint(const RuleContext& c, Value ct) { return Convert(ct, c.in_types[0].dtype); }
constexpr AttrSpec kConvertAttrs[] = {{"dtype", AttrKind::kDType},
                                      {"weak", AttrKind::kBool, false}};
}  // namespace
constexpr OpDef kConvert =
    Elementwise("convert", "convert_element_type", 1, InferConvert, {EvalConvert, RecordConvert},
                {ConvertJvp, Adjoints<ConvertAdjoint>, ConvertStates}, kConvertAttrs);

// ---- bitcast_convert: the same bits read as another dtype of the same width. -------------------
namespace {
absl::StatusOr<std::vector<Type>> InferBitcast(const InferContext& c) {
  const DType from = c.in[0].dtype, to = c.attrs.Dtype("dtype");
  if (BitWidth(from) != BitWidth(to) || (from == DType::kBool) != (to == DType::kBool))
    return TypeError(c, "cannot read ", ToAbsl(DTypeName(from)), " (", BitWidth(from), " bits) as ",
                     ToAbsl(DTypeName(to)), " (", BitWidth(to), " bits); the widths must agree");
  return std::vector<Type>{MakeType(to, c.in[0].shape)};
}
void EvalBitcast(const Attrs&, DType operand, DType, const void* const* in, void* const* out,
                 int64_t n) {
  if (n > 0) std::memcpy(out[0], in[0], n * ByteWidth(operand));
}
ScalarGraph RecordBitcast(const Attrs&, DType operand, DType result) {
  ScalarGraph graph;
  int id = graph.Add(ScalarPrim::kInput, operand, {}, 0);
  if (operand != result) id = graph.Add(ScalarPrim::kBitcast, result, {id});
  graph.roots = {id};
  return graph;
}
constexpr AttrSpec kBitcastAttrs[] = {{"dtype", AttrKind::kDType}};
}  // namespace
constexpr OpDef kBitcastConvert =
    Elementwise("bitcast_convert", "bitcast_convert_type", 1, InferBitcast,
                {EvalBitcast, RecordBitcast}, kFlat, kBitcastAttrs);

// ---- reduce_precision: rounds to a float with fewer bits, in place. ----------------------------
namespace {
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, int64_t, uint32_t>;

// Rounds a float to fewer bits. NaN stays NaN, or becomes infinity if no mantissa bit is left to
// tell them apart. Reference: XLA's EmitReducePrecisionIR, and StableHLO's interpreter.
struct PrecisionReduction {
  int exponent_bits, mantissa_bits;

  // Works on the bits: it rounds the mantissa in the integer domain, and then replaces numbers
  // whose exponent is out of range. An integer sum carries into the exponent where rounding needs
  // it. Evaluator and graph share this code, so that every backend rounds alike.
  template <class X>
  X operator()(X x) const {
    using T = TypeOf<X>;
    constexpr int kMantissaBits = std::numeric_limits<T>::digits - 1;
    constexpr int kExponentBits = 8 * sizeof(T) - 1 - kMantissaBits;
    constexpr int64_t kSignMask = std::is_same_v<T, double> ? INT64_MIN : int64_t{1} << 31;
    constexpr int64_t kExponentMask = ((int64_t{1} << kExponentBits) - 1) << kMantissaBits;
    auto bits = scalar::Bitcast<BitsOf<T>>(x);
    const auto sign = bits & kSignMask;
    // Rounds to nearest, ties to even. A carry raises the exponent.
    if (mantissa_bits < kMantissaBits) {
      const int64_t last = int64_t{1} << (kMantissaBits - mantissa_bits);
      const auto odd = ShrL(bits & last, Like(bits, kMantissaBits - mantissa_bits));
      bits = (bits + (odd + (last / 2 - 1))) & ~(last - 1);
    }
    // Numbers that are too large become infinity, and those that are too small become zero.
    if (exponent_bits < kExponentBits) {
      const int64_t bias = (int64_t{1} << (kExponentBits - 1)) - 1;
      const int64_t reach = (int64_t{1} << (exponent_bits - 1)) - 1;
      const auto exponent = bits & kExponentMask;
      bits = Select(exponent > ((bias + reach) << kMantissaBits), sign | kExponentMask, bits);
      bits = Select(exponent <= ((bias - reach) << kMantissaBits), sign, bits);
    }
    // A float without mantissa bits has no code for NaN: the exponent of all ones means infinity.
    const X of_nan = mantissa_bits > 0 ? x : Like(x, std::numeric_limits<T>::infinity());
    return Select(x != x, of_nan, scalar::Bitcast<T>(bits));
  }
};
PrecisionReduction ReductionOf(const Attrs& attrs) {
  return {static_cast<int>(attrs.Int("exponent_bits")),
          static_cast<int>(attrs.Int("mantissa_bits"))};
}

absl::StatusOr<std::vector<Type>> InferReducePrecision(const InferContext& c) {
  const int64_t exponent = c.attrs.Int("exponent_bits"), mantissa = c.attrs.Int("mantissa_bits");
  if (exponent < 1 || exponent > 64)
    return ValueError(c, "exponent_bits is ", exponent, "; expected 1 to 64");
  if (mantissa < 0 || mantissa > 64)
    return ValueError(c, "mantissa_bits is ", mantissa, "; expected 0 to 64");
  return InferSame(c, kFloats);
}
constexpr auto kRunReducePrecision = [](const Attrs& attrs, DType operand, DType, auto run) {
  RunSame<kFloats, 1>(operand, ReductionOf(attrs), run);
};
Value ReducePrecisionAdjoint(const RuleContext& c, Value ct) {
  return c.b.Emit1(c.def, {ct}, c.attrs);
}
constexpr AttrSpec kReducePrecisionAttrs[] = {{"exponent_bits", AttrKind::kInt},
                                              {"mantissa_bits", AttrKind::kInt}};
}  // namespace
// The result of an unreduced operand is unreduced, as in JAX, although each summand is rounded by
// itself and the sum of the rounded summands is not the rounded sum.
constexpr OpDef kReducePrecision = Elementwise(
    "reduce_precision", "reduce_precision", 1, InferReducePrecision,
    kScalarFrom<kRunReducePrecision>, {Derived{}, Adjoints<ReducePrecisionAdjoint>, SameVmaAsFirst},
    kReducePrecisionAttrs);

// ---- stop_gradient: returns x and drops its tangent. ---------------------------------------
constexpr OpDef kStopGradient = Unary<kAnything, [](auto x) { return x; }>(
    "stop_gradient", "stop_gradient",
    {ZeroTangents, Refused{"its derivative is zero by definition"}});

// ---- checkpoint_name: returns x. The name is for the policies of checkpoint. ---------------
namespace {
absl::StatusOr<std::vector<Type>> InferCheckpointName(const InferContext& c) {
  if (c.attrs.Str("name").empty()) return ValueError(c, "needs a name that is not empty");
  return InferSame(c, kAnything);
}
std::vector<Value> SameTangents(const RuleContext&, Values tangents) {
  return {tangents.begin(), tangents.end()};
}
constexpr auto kRunCheckpointName = [](const Attrs&, DType operand, DType, auto run) {
  RunSame<kAnything, 1>(
      operand, [](auto x) { return x; }, run);
};
constexpr AttrSpec kCheckpointNameAttrs[] = {{"name", AttrKind::kString}};
}  // namespace
constexpr OpDef kCheckpointName = Elementwise(
    "checkpoint_name", "checkpoint_name", 1, InferCheckpointName, kScalarFrom<kRunCheckpointName>,
    {SameTangents, Adjoints<SameCotangent>}, kCheckpointNameAttrs);

}  // namespace tessera::ir::ops
