// Elementwise ops, with the implicit casts of the functions on Values: results against C++
// functions, recorded graphs against the evaluator, derivatives, types, errors. Expected floats are
// computed in double and rounded once, as the ops are defined.
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <variant>

#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/eval/eval.h"
#include "ir/narrow_float.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/registry.h"
#include "ir/scalar_math.h"
#include "ir/transform/transform.h"

namespace tessera::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr DType kComputable[] = {DType::kBool, DType::kS32, DType::kU32, DType::kS64,
                                 DType::kBF16, DType::kF32, DType::kF64};

Array Eval(const OpDef& def, std::vector<Array> in, Attrs attrs = {}) {
  absl::StatusOr<std::vector<Array>> out = EvaluateOp(def, {}, in, attrs);
  EXPECT_THAT(out.status(), IsOk()) << std::string(def.name);
  return out.ok() ? (*out)[0] : Array();
}
Array F64(std::vector<double> v) {
  return Array::Of(DType::kF64, {static_cast<int64_t>(v.size())}, v);
}
Array Ints(DType dtype, const std::vector<int64_t>& v) {
  std::vector<Array> elements;
  Array out(dtype, {static_cast<int64_t>(v.size())});
  for (size_t i = 0; i < v.size(); ++i)
    std::memcpy(out.MutableData() + i * ByteWidth(dtype), Array::ScalarInt(dtype, v[i]).data(),
                ByteWidth(dtype));
  return out;
}
std::vector<int64_t> IntsOf(const Array& a) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < a.num_elements(); ++i) out.push_back(a.IntAt(i));
  return out;
}
Attrs Direction(const char* d) { return {{"direction", std::string(d)}}; }
Attrs To(DType d) { return {{"dtype", d}}; }

// Returns whether the bits are equal. All NaNs count as equal.
bool SameBits(double a, double b) {
  return (a != a && b != b) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}
// Returns `exact` rounded to `dtype`: once to f32, and from there to bf16.
double Rounded(DType dtype, double exact) {
  if (dtype == DType::kF64) return exact;
  const float f = static_cast<float>(exact);
  return dtype == DType::kF32 ? f : Bf16ToFloat(FloatToBf16(f));
}

const std::vector<double> kTricky = {
    0.0,   -0.0,  1.0,    -1.0,      0.5,          -0.5,         1.5,   2.5,   -2.5,
    3.0,   -7.25, 1e-3,   -1e-3,     1e-30,        100.0,        -100., 1e30,  -1e30,
    1e38,  -1e38, 88.5,   -88.5,     0.9999,       -0.9999,      kInf,  -kInf, kNaN,
    1e-44, 1e300, 1e-320, 12345.678, 2147483648.0, -2147483649.0};

// ---- Values. -----------------------------------------------------------------------------------

struct UnaryRow {
  const OpDef& def;
  std::function<double(double)> f;
};
const UnaryRow kUnaryRows[] = {
    {ops::kAbs, [](double x) { return std::fabs(x); }},
    {ops::kNeg, [](double x) { return -x; }},
    {ops::kSign, [](double x) { return x != x || x == 0 ? x
                                       : x > 0          ? 1.0
                                                        : -1.0; }},
    {ops::kExp, [](double x) { return std::exp(x); }},
    {ops::kExpm1, [](double x) { return std::expm1(x); }},
    {ops::kLog, [](double x) { return std::log(x); }},
    {ops::kLog1p, [](double x) { return std::log1p(x); }},
    {ops::kTanh, [](double x) { return std::tanh(x); }},
    {ops::kSin, [](double x) { return std::sin(x); }},
    {ops::kCos, [](double x) { return std::cos(x); }},
    {ops::kTan, [](double x) { return std::tan(x); }},
    {ops::kSqrt, [](double x) { return std::sqrt(x); }},
    {ops::kRsqrt, [](double x) { return 1.0 / std::sqrt(x); }},
    {ops::kCbrt, [](double x) { return std::cbrt(x); }},
    {ops::kErf, [](double x) { return std::erf(x); }},
    {ops::kCeil, [](double x) { return std::ceil(x); }},
    {ops::kFloor, [](double x) { return std::floor(x); }},
    {ops::kRoundNearestAfz, [](double x) { return std::round(x); }},
    {ops::kRoundNearestEven, [](double x) { return std::rint(x); }},
    {ops::kStopGradient, [](double x) { return x; }},
};

TEST(Elementwise, UnaryFloatsAreTheExactFunctionRoundedOnce) {
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kF64}) {
    const Array x = Array::Of(dtype, {static_cast<int64_t>(kTricky.size())}, kTricky);
    for (const UnaryRow& row : kUnaryRows) {
      const Array y = Eval(row.def, {x});
      ASSERT_EQ(y.dtype(), dtype);
      for (int64_t i = 0; i < x.num_elements(); ++i)
        EXPECT_TRUE(SameBits(y.At(i), Rounded(dtype, row.f(x.At(i)))))
            << std::string(row.def.name) << " " << std::string(DTypeName(dtype)) << "(" << x.At(i)
            << ") = " << y.At(i) << ", expected " << Rounded(dtype, row.f(x.At(i)));
    }
  }
}

double IeeeMax(double x, double y) {
  if (x != x || y != y) return kNaN;
  return x == y ? (std::signbit(x) ? y : x) : std::fmax(x, y);
}
struct BinaryRow {
  const OpDef& def;
  std::function<double(double, double)> f;
};
const BinaryRow kBinaryRows[] = {
    {ops::kAdd, [](double x, double y) { return x + y; }},
    {ops::kSub, [](double x, double y) { return x - y; }},
    {ops::kMul, [](double x, double y) { return x * y; }},
    {ops::kDiv, [](double x, double y) { return x / y; }},
    {ops::kRem, [](double x, double y) { return std::fmod(x, y); }},
    {ops::kPow, [](double x, double y) { return std::pow(x, y); }},
    {ops::kAtan2, [](double x, double y) { return std::atan2(x, y); }},
    {ops::kMax, IeeeMax},
    {ops::kMin, [](double x, double y) { return -IeeeMax(-x, -y); }},
};

// Returns all pairs of `values`, as the list of first and the list of second elements.
template <class T>
std::pair<std::vector<T>, std::vector<T>> Pairs(const std::vector<T>& values) {
  std::pair<std::vector<T>, std::vector<T>> out;
  for (const T& a : values)
    for (const T& b : values) {
      out.first.push_back(a);
      out.second.push_back(b);
    }
  return out;
}

TEST(Elementwise, BinaryFloatsAreTheExactFunctionRoundedOnce) {
  const auto [a, b] = Pairs(kTricky);
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kF64}) {
    const Array x = Array::Of(dtype, {static_cast<int64_t>(a.size())}, a);
    const Array y = Array::Of(dtype, {static_cast<int64_t>(b.size())}, b);
    for (const BinaryRow& row : kBinaryRows) {
      const Array z = Eval(row.def, {x, y});
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        const double expected = Rounded(dtype, row.f(x.At(i), y.At(i)));
        EXPECT_TRUE(SameBits(z.At(i), expected))
            << std::string(row.def.name) << " " << std::string(DTypeName(dtype)) << "(" << x.At(i)
            << ", " << y.At(i) << ") = " << z.At(i) << ", expected " << expected;
      }
    }
  }
}

using Wide = __int128;
struct IntRow {
  const OpDef& def;
  std::function<Wide(Wide, Wide, int bits)> f;  // the result is cut to the dtype's bits
};
Wide LowBits(Wide x, int bits) { return x & ((Wide{1} << bits) - 1); }
const IntRow kIntRows[] = {
    {ops::kAdd, [](Wide x, Wide y, int) { return x + y; }},
    {ops::kSub, [](Wide x, Wide y, int) { return x - y; }},
    {ops::kMul, [](Wide x, Wide y, int) { return x * y; }},
    {ops::kDiv, [](Wide x, Wide y, int) { return y == 0 ? -1 : x / y; }},
    {ops::kRem, [](Wide x, Wide y, int) { return y == 0 ? x : x % y; }},
    {ops::kMax, [](Wide x, Wide y, int) { return std::max(x, y); }},
    {ops::kMin, [](Wide x, Wide y, int) { return std::min(x, y); }},
    {ops::kAnd, [](Wide x, Wide y, int) { return x & y; }},
    {ops::kOr, [](Wide x, Wide y, int) { return x | y; }},
    {ops::kXor, [](Wide x, Wide y, int) { return x ^ y; }},
    {ops::kShiftLeft,
     [](Wide x, Wide y, int bits) { return LowBits(y, bits) >= bits ? 0 : LowBits(x, bits) << y; }},
    {ops::kShiftRightLogical,
     [](Wide x, Wide y, int bits) { return LowBits(y, bits) >= bits ? 0 : LowBits(x, bits) >> y; }},
    {ops::kShiftRightArithmetic,
     [](Wide x, Wide y, int bits) {
       const Wide sign = (x >> (bits - 1)) & 1, filled = LowBits(x, bits) - (sign << bits);
       return filled >> (LowBits(y, bits) >= bits ? bits - 1 : y);
     }},
    {ops::kPow,
     [](Wide x, Wide y, int bits) -> Wide {
       if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
       Wide p = 1;  // the caller leaves out exponents above 150
       for (Wide k = 0; k < y && k < 200; ++k)
         p = LowBits(static_cast<Wide>(static_cast<unsigned __int128>(p) * LowBits(x, bits)), bits);
       return p;
     }},
};

TEST(Elementwise, BinaryIntegersFollowXla) {
  for (DType dtype : {DType::kS32, DType::kU32, DType::kS64}) {
    const int bits = static_cast<int>(8 * ByteWidth(dtype));
    const int64_t top = int64_t{1} << (bits - 2);
    std::vector<int64_t> values = {0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 100, 123456789};
    if (IsSignedInt(dtype)) {
      for (int64_t v : {int64_t{-1}, int64_t{-2}, int64_t{-7}, int64_t{-64}, -top - top,
                        top - 1 + top, top, -top})
        values.push_back(v);
    } else {
      for (int64_t v : {0xffffffffLL, 0x80000000LL, 0x7fffffffLL}) values.push_back(v);
    }
    const auto [a, b] = Pairs(values);
    for (const IntRow& row : kIntRows) {
      const Array z = Eval(row.def, {Ints(dtype, a), Ints(dtype, b)});
      for (size_t i = 0; i < a.size(); ++i) {
        if (&row.def == &ops::kPow && b[i] > 150) continue;
        EXPECT_EQ(LowBits(z.IntAt(i), bits), LowBits(row.f(a[i], b[i], bits), bits))
            << std::string(row.def.name) << " " << std::string(DTypeName(dtype)) << "(" << a[i]
            << ", " << b[i] << ") = " << z.IntAt(i);
      }
    }
  }
}

TEST(Elementwise, IntegerPowersWrap) {
  EXPECT_THAT(IntsOf(Eval(ops::kPow, {Ints(DType::kS32, {3, -1, 2, 2, 0}),
                                      Ints(DType::kS32, {1000001, 2147483647, 31, 32, 0})})),
              ElementsAre(static_cast<int32_t>([] {
                            uint32_t p = 1;
                            for (int i = 0; i < 1000001; ++i) p *= 3;
                            return p;
                          }()),
                          -1, INT32_MIN, 0, 1));
}

TEST(Elementwise, UnaryIntegersFollowXla) {
  const Array s = Ints(DType::kS32, {0, 1, -1, 5, INT32_MIN, INT32_MAX});
  EXPECT_THAT(IntsOf(Eval(ops::kAbs, {s})), ElementsAre(0, 1, 1, 5, INT32_MIN, INT32_MAX));
  EXPECT_THAT(IntsOf(Eval(ops::kNeg, {s})), ElementsAre(0, -1, 1, -5, INT32_MIN, -INT32_MAX));
  EXPECT_THAT(IntsOf(Eval(ops::kSign, {s})), ElementsAre(0, 1, -1, 1, -1, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kNot, {s})), ElementsAre(-1, -2, 0, -6, INT32_MAX, INT32_MIN));
  EXPECT_THAT(IntsOf(Eval(ops::kPopulationCount, {s})), ElementsAre(0, 1, 32, 2, 1, 31));
  EXPECT_THAT(IntsOf(Eval(ops::kClz, {s})), ElementsAre(32, 31, 0, 29, 0, 1));
  const Array u = Ints(DType::kU32, {0, 1, 0x80000000});
  EXPECT_THAT(IntsOf(Eval(ops::kSign, {u})), ElementsAre(0, 1, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kNeg, {u})), ElementsAre(0, 0xffffffff, 0x80000000));
  const Array l = Ints(DType::kS64, {0, -1, INT64_MIN, 1});
  EXPECT_THAT(IntsOf(Eval(ops::kAbs, {l})), ElementsAre(0, 1, INT64_MIN, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kPopulationCount, {l})), ElementsAre(0, 64, 1, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kClz, {l})), ElementsAre(64, 0, 0, 63));
}

TEST(Elementwise, BoolOpsFollowTheTruthTable) {
  const Array x = Ints(DType::kBool, {0, 0, 1, 1}), y = Ints(DType::kBool, {0, 1, 0, 1});
  EXPECT_THAT(IntsOf(Eval(ops::kAnd, {x, y})), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kOr, {x, y})), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kXor, {x, y})), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(IntsOf(Eval(ops::kMax, {x, y})), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kMin, {x, y})), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(IntsOf(Eval(ops::kNot, {x})), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(IntsOf(Eval(ops::kCompare, {x, y}, Direction("LT"))), ElementsAre(0, 1, 0, 0));
}

TEST(Elementwise, LogisticStaysFinite) {
  const Array x = Array::Of(DType::kF32, {5}, {0, 100, -100, 2, kNaN});
  const Array y = Eval(ops::kLogistic, {x});
  EXPECT_EQ(y.At(0), 0.5);
  EXPECT_EQ(y.At(1), 1);
  EXPECT_EQ(y.At(2), 0);
  EXPECT_NEAR(y.At(3), 1 / (1 + std::exp(-2.0)), 1e-7);
  EXPECT_TRUE(std::isnan(y.At(4)));
}

// The inverse is checked by erf itself, up to the digits that rounding of the argument has lost.
TEST(Elementwise, ErfInvUndoesErf) {
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::kF64, 4e-15), std::pair(DType::kF32, 3e-7)}) {
    for (double p : {1e-30, 1e-10, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.999999}) {
      for (double sign : {1.0, -1.0}) {
        const double at = Array::Of(dtype, {1}, {sign * p}).At(0);
        const double x = Eval(ops::kErfInv, {Array::Of(dtype, {1}, {at})}).At(0);
        // Newton's correction is the error of x.
        const double slope = 2 / std::sqrt(M_PI) * std::exp(-x * x);
        // 1 - x^2 has lost this much of its last digits, in this op as in XLA's.
        const double lost = tolerance / 4 / (1 - at * at) / std::max(1.0, 2 * std::fabs(x));
        EXPECT_LE(std::fabs((std::erf(x) - at) / slope),
                  tolerance * std::fabs(x) + lost * std::fabs(at))
            << std::string(DTypeName(dtype)) << " erf_inv(" << at << ") = " << x;
      }
    }
    const Array edge = Eval(ops::kErfInv, {Array::Of(dtype, {5}, {1, -1, 0, 1.5, kNaN})});
    EXPECT_EQ(edge.At(0), kInf);
    EXPECT_EQ(edge.At(1), -kInf);
    EXPECT_EQ(edge.At(2), 0);
    EXPECT_TRUE(std::isnan(edge.At(3)));
    EXPECT_TRUE(std::isnan(edge.At(4)));
  }
  // In f64, this p is so close to 1 that only the polynomial for the tail is accurate.
  const double x = Eval(ops::kErfInv, {F64({1 - 1e-12})}).At(0);
  EXPECT_NEAR(std::erfc(x) / 1e-12, 1, 2e-4);  // 1 - p has four digits left
}

TEST(Elementwise, ComparisonsAreIeee) {
  const auto [a, b] = Pairs<double>({-kInf, -1, -0.0, 0.0, 1, kInf, kNaN});
  const std::pair<const char*, std::function<bool(double, double)>> rows[] = {
      {"EQ", [](double x, double y) { return x == y; }},
      {"NE", [](double x, double y) { return x != y; }},
      {"LT", [](double x, double y) { return x < y; }},
      {"LE", [](double x, double y) { return x <= y; }},
      {"GT", [](double x, double y) { return x > y; }},
      {"GE", [](double x, double y) { return x >= y; }}};
  for (DType dtype : {DType::kBF16, DType::kF32, DType::kF64})
    for (const auto& [direction, f] : rows) {
      const Dims shape = {static_cast<int64_t>(a.size())};
      const Array z = Eval(ops::kCompare, {Array::Of(dtype, shape, a), Array::Of(dtype, shape, b)},
                           Direction(direction));
      ASSERT_EQ(z.dtype(), DType::kBool);
      for (size_t i = 0; i < a.size(); ++i)
        EXPECT_EQ(z.IntAt(i), f(a[i], b[i])) << a[i] << direction << b[i];
    }
  // Unsigned integers are ordered by their unsigned values.
  EXPECT_THAT(IntsOf(Eval(ops::kCompare, {Ints(DType::kU32, {0x80000000}), Ints(DType::kU32, {1})},
                          Direction("GT"))),
              ElementsAre(1));
  EXPECT_THAT(IntsOf(Eval(ops::kIsFinite, {Array::Of(DType::kBF16, {4}, {1, kInf, kNaN, -kInf})})),
              ElementsAre(1, 0, 0, 0));
}

TEST(Elementwise, SelectAndClampTakeScalars) {
  const Array t = F64({1, 2, 3}), f = F64({-1, -2, -3});
  EXPECT_THAT(Eval(ops::kSelect, {Ints(DType::kBool, {1, 0, 1}), t, f}).ToDoubles(),
              ElementsAre(1, -2, 3));
  EXPECT_THAT(Eval(ops::kSelect, {Array::Scalar(DType::kBool, 0), t, f}).ToDoubles(),
              ElementsAre(-1, -2, -3));
  const auto scalar = [](double v) { return Array::Scalar(DType::kF64, v); };
  EXPECT_THAT(Eval(ops::kClamp, {scalar(0), F64({-1, 0.5, 9}), scalar(2)}).ToDoubles(),
              ElementsAre(0, 0.5, 2));
  EXPECT_THAT(Eval(ops::kClamp, {F64({0, 1, 2}), F64({-1, 0.5, 9}), scalar(1.5)}).ToDoubles(),
              ElementsAre(0, 1, 1.5));
  EXPECT_TRUE(std::isnan(Eval(ops::kClamp, {scalar(0), F64({kNaN}), scalar(2)}).At(0)));
}

TEST(Elementwise, FloatsBecomeIntegersTowardsZeroAndSaturate) {
  const std::vector<double> x = {0,          -0.0,       0.9,           -0.9, 1.5, -1.5,
                                 2147483647, 2147483648, -2147483649.0, 4e9,  5e9, 1e30,
                                 -1e30,      kInf,       -kInf,         kNaN};
  const auto reference = [](double v, double low, double high) {
    return v != v ? 0 : v <= low ? low : v >= high ? high : std::trunc(v);
  };
  const Array s = Eval(ops::kConvert, {F64(x)}, To(DType::kS32));
  const Array u = Eval(ops::kConvert, {F64(x)}, To(DType::kU32));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(s.IntAt(i), reference(x[i], INT32_MIN, INT32_MAX)) << x[i];
    EXPECT_EQ(u.IntAt(i), reference(x[i], 0, UINT32_MAX)) << x[i];
  }
  EXPECT_THAT(IntsOf(Eval(ops::kConvert, {F64({1e19, -1e19, 9e15, kNaN})}, To(DType::kS64))),
              ElementsAre(INT64_MAX, INT64_MIN, 9000000000000000, 0));
  // 2^31 and 2^63 are floats, but the largest integers below them are not.
  EXPECT_THAT(
      IntsOf(Eval(ops::kConvert, {Array::Of(DType::kF32, {2}, {2147483648.0, 2147483520.0})},
                  To(DType::kS32))),
      ElementsAre(INT32_MAX, 2147483520));
  EXPECT_THAT(IntsOf(Eval(ops::kConvert, {F64({0, -0.0, 0.1, kNaN, 2})}, To(DType::kBool))),
              ElementsAre(0, 0, 1, 1, 1));
}

TEST(Elementwise, OtherConversions) {
  EXPECT_THAT(IntsOf(Eval(ops::kConvert, {Ints(DType::kS64, {-1, (int64_t{1} << 32) + 5})},
                          To(DType::kU32))),
              ElementsAre(0xffffffff, 5));
  EXPECT_THAT(IntsOf(Eval(ops::kConvert, {Ints(DType::kU32, {0xffffffff})}, To(DType::kS32))),
              ElementsAre(-1));
  EXPECT_THAT(IntsOf(Eval(ops::kConvert, {Ints(DType::kS32, {-1})}, To(DType::kS64))),
              ElementsAre(-1));
  EXPECT_THAT(Eval(ops::kConvert, {Ints(DType::kU32, {0xffffffff})}, To(DType::kF64)).ToDoubles(),
              ElementsAre(4294967295.0));
  EXPECT_THAT(Eval(ops::kConvert, {Ints(DType::kS32, {16777217})}, To(DType::kF32)).ToDoubles(),
              ElementsAre(16777216.0));
  EXPECT_THAT(Eval(ops::kConvert, {Ints(DType::kBool, {0, 1})}, To(DType::kBF16)).ToDoubles(),
              ElementsAre(0, 1));
  EXPECT_THAT(
      Eval(ops::kConvert, {Array::Of(DType::kF32, {2}, {1.00390625, 1.01171875})}, To(DType::kBF16))
          .ToDoubles(),
      ElementsAre(1.0, 1.015625));  // halfway: to even
}

TEST(Elementwise, BitcastKeepsBits) {
  const Array x = Array::Of(DType::kF32, {3}, {1, -0.0, -kInf});
  const Array bits = Eval(ops::kBitcastConvert, {x}, To(DType::kU32));
  EXPECT_THAT(IntsOf(bits), ElementsAre(0x3f800000, 0x80000000, 0xff800000));
  EXPECT_EQ(Eval(ops::kBitcastConvert, {bits}, To(DType::kF32)), x);
  EXPECT_THAT(IntsOf(Eval(ops::kBitcastConvert, {F64({-2})}, To(DType::kS64))),
              ElementsAre(static_cast<int64_t>(0xc000000000000000)));
}

TEST(Elementwise, ReducePrecisionToBf16IsConversion) {
  std::mt19937 rng(7);
  std::vector<double> values = kTricky;
  for (int i = 0; i < 1000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(rng())));
  const Array x = Array::Of(DType::kF32, {static_cast<int64_t>(values.size())}, values);
  const Array y = Eval(ops::kReducePrecision, {x},
                       {{"exponent_bits", int64_t{8}}, {"mantissa_bits", int64_t{7}}});
  for (int64_t i = 0; i < x.num_elements(); ++i)
    EXPECT_TRUE(SameBits(y.At(i), Bf16ToFloat(FloatToBf16(static_cast<float>(x.At(i))))))
        << x.At(i);
}

TEST(Elementwise, ReducePrecisionToF16OverflowsAndFlushes) {
  const Attrs f16 = {{"exponent_bits", int64_t{5}}, {"mantissa_bits", int64_t{10}}};
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Array x = Array::Of(
        dtype, {8}, {65504, 65519, 65520, -1e9, 6.2e-5, 1e-5, -1e-5, 1.0009765625 + 0.0004});
    EXPECT_THAT(
        Eval(ops::kReducePrecision, {x}, f16).ToDoubles(),
        ElementsAre(65504, 65504, kInf, -kInf, std::ldexp(std::rint(std::ldexp(6.2e-5, 24)), -24),
                    0, -0.0, 1.0009765625));
    EXPECT_TRUE(
        std::isnan(Eval(ops::kReducePrecision, {Array::Of(dtype, {1}, {kNaN})}, f16).At(0)));
  }
}

// StableHLO's interpreter and XLA's evaluator make NaN infinite too.
TEST(Elementwise, ReducePrecisionToNoMantissaMakesNanInfinite) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const Array x = Array::Of(dtype, {5}, {kNaN, -kNaN, -kInf, 1.5, -3});
    for (const int64_t exponent : {5, 8, 11})
      EXPECT_THAT(Eval(ops::kReducePrecision, {x},
                       {{"exponent_bits", exponent}, {"mantissa_bits", int64_t{0}}})
                      .ToDoubles(),
                  ElementsAre(kInf, kInf, -kInf, 2, -2));
  }
}

// ---- The recorded graphs. ----------------------------------------------------------------------

// The value of a node. A bf16 is held as a float.
using ScalarValue = std::variant<bool, int32_t, uint32_t, int64_t, float, double>;

// Calls f with a C++ value of the dtype.
template <class F>
ScalarValue WithType(DType d, F f) {
  switch (d) {
    case DType::kBool:
      return f(bool{});
    case DType::kS32:
      return f(int32_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kS64:
      return f(int64_t{});
    case DType::kF64:
      return f(double{});
    default:
      return f(float{});
  }
}
ScalarValue ScalarAt(const Array& a, int64_t i) {
  return WithType(a.dtype(), [&]<class T>(T) -> ScalarValue {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(a.At(i));
    if constexpr (!std::is_floating_point_v<T>) return static_cast<T>(a.IntAt(i));
  });
}

// Computes one node that is a function of its arguments, all of the same C++ type T.
template <class T>
std::optional<ScalarValue> Compute(ScalarPrim prim, const std::vector<T>& x) {
  namespace m = scalar::math;
#define TESSERA_1(Name)                                              \
  if (prim == ScalarPrim::k##Name && x.size() == 1) {                \
    if constexpr (requires { m::Name(x[0]); }) return m::Name(x[0]); \
  }
#define TESSERA_2(Name)                                                          \
  if (prim == ScalarPrim::k##Name && x.size() == 2) {                            \
    if constexpr (requires { m::Name(x[0], x[1]); }) return m::Name(x[0], x[1]); \
  }
  // clang-format off
  TESSERA_1(Neg) TESSERA_1(Abs) TESSERA_1(Exp) TESSERA_1(Expm1) TESSERA_1(Log) TESSERA_1(Log1p)
  TESSERA_1(Sin) TESSERA_1(Cos) TESSERA_1(Tan) TESSERA_1(Tanh) TESSERA_1(Sqrt) TESSERA_1(Rsqrt)
  TESSERA_1(Cbrt) TESSERA_1(Erf) TESSERA_1(Floor) TESSERA_1(Ceil) TESSERA_1(RoundEven)
  TESSERA_1(RoundAway) TESSERA_1(Not) TESSERA_1(PopCount) TESSERA_1(Clz) TESSERA_1(IsFinite)
  TESSERA_2(Add) TESSERA_2(Sub) TESSERA_2(Mul) TESSERA_2(Div) TESSERA_2(Rem) TESSERA_2(Min)
  TESSERA_2(Max) TESSERA_2(Atan2) TESSERA_2(Pow) TESSERA_2(And) TESSERA_2(Or) TESSERA_2(Xor)
  TESSERA_2(Shl) TESSERA_2(ShrA) TESSERA_2(ShrL) TESSERA_2(Eq) TESSERA_2(Ne) TESSERA_2(Lt)
  TESSERA_2(Le) TESSERA_2(Gt) TESSERA_2(Ge)
#undef TESSERA_1
#undef TESSERA_2
  return std::nullopt;
  // clang-format on
}

// Interprets one node of a graph, with scalar_math.h for the primitives. `env` has the values of
// the nodes before it. Returns nullopt if the node has arguments for which there is no such
// primitive.
std::optional<ScalarValue> RunNode(const ScalarNode& n, const std::vector<ScalarValue>& env,
                                   const std::vector<ScalarValue>& in) {
  if (n.prim == ScalarPrim::kInput) return in[static_cast<size_t>(n.value)];
  if (n.prim == ScalarPrim::kConstant)
    return WithType(n.dtype, [&]<class T>(T) -> ScalarValue {
      return std::is_floating_point_v<T> ? static_cast<T>(n.value) : static_cast<T>(n.int_value);
    });
  if (n.prim == ScalarPrim::kSelect)
    return env[std::get<bool>(env[n.args[0]]) ? n.args[1] : n.args[2]];
  return std::visit(
      [&]<class T>(T first) -> std::optional<ScalarValue> {
        if (n.prim == ScalarPrim::kConvert) {
          const ScalarValue to = WithType(n.dtype, [&]<class To>(To) -> ScalarValue {
            return scalar::math::Convert<To>(first);
          });
          return n.dtype == DType::kBF16
                     ? ScalarValue(Bf16ToFloat(FloatToBf16(std::get<float>(to))))
                     : to;
        }
        if (n.prim == ScalarPrim::kBitcast) {
          std::optional<ScalarValue> out;
          WithType(n.dtype, [&]<class To>(To) -> ScalarValue {
            if constexpr (sizeof(To) == sizeof(T)) out = std::bit_cast<To>(first);
            return {};
          });
          return out;
        }
        std::vector<T> args;
        for (int a : n.args) {
          if (!std::holds_alternative<T>(env[a])) return std::nullopt;
          args.push_back(std::get<T>(env[a]));
        }
        if constexpr (std::is_same_v<T, bool>) {
          // Compute as integers, because vector<bool> hands out proxies.
          const std::vector<int32_t> wide(args.begin(), args.end());
          if (n.prim == ScalarPrim::kNot) return ScalarValue(!args[0]);
          std::optional<ScalarValue> c = Compute<int32_t>(n.prim, wide);
          if (c && std::holds_alternative<int32_t>(*c))
            return ScalarValue(std::get<int32_t>(*c) != 0);
          return c;
        } else {
          return Compute<T>(n.prim, args);
        }
      },
      env[n.args[0]]);
}

std::vector<ScalarValue> RunGraph(const ScalarGraph& g, const std::vector<ScalarValue>& in) {
  std::vector<ScalarValue> env;
  for (const ScalarNode& n : g.nodes) {
    const std::optional<ScalarValue> value = RunNode(n, env, in);
    if (!value) {
      ADD_FAILURE() << "cannot interpret " << std::string(ScalarPrimName(n.prim)) << " in\n"
                    << g.ToString();
      return std::vector<ScalarValue>(g.roots.size());
    }
    // The node states its dtype, and the value has that dtype.
    const bool typed =
        WithType(n.dtype, []<class T>(T v) -> ScalarValue { return v; }).index() == value->index();
    EXPECT_TRUE(typed) << std::string(ScalarPrimName(n.prim)) << " is not "
                       << std::string(DTypeName(n.dtype));
    env.push_back(*value);
  }
  std::vector<ScalarValue> out;
  for (int r : g.roots) out.push_back(env[r]);
  return out;
}

bool SameScalar(const ScalarValue& a, const ScalarValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class T>(T x) {
        const T y = std::get<T>(b);
        if constexpr (std::is_floating_point_v<T>) return SameBits(x, y);
        return x == y;
      },
      a);
}

Array RandomArray(DType dtype, int64_t n, std::mt19937_64& rng) {
  Array a(dtype, {n});
  if (IsFloat(dtype)) {
    for (int64_t i = 0; i < n; ++i)
      a.Set(i, i < static_cast<int64_t>(kTricky.size())
                   ? kTricky[(i * 7 + rng()) % kTricky.size()]
                   : std::normal_distribution<double>(0, 3)(rng));
  } else {
    std::byte* p = a.MutableData();
    for (int64_t i = 0; i < a.num_bytes(); ++i) p[i] = static_cast<std::byte>(rng());
    for (int64_t i = 0; i < n; ++i) {
      if (dtype == DType::kBool) p[i] &= std::byte{1};
      if (dtype != DType::kBool && i % 2)
        a.Set(i, static_cast<double>(rng() % 40) - (dtype == DType::kU32 ? 0 : 5));
    }
  }
  return a;
}

std::vector<Attrs> AttrsToTry(const OpDef& def) {
  if (&def == &ops::kCompare) {
    std::vector<Attrs> out;
    for (const char* d : {"EQ", "NE", "LT", "LE", "GT", "GE"}) out.push_back(Direction(d));
    return out;
  }
  if (&def == &ops::kConvert || &def == &ops::kBitcastConvert) {
    std::vector<Attrs> out;
    for (DType d : kComputable) out.push_back(To(d));
    return out;
  }
  if (&def == &ops::kCheckpointName) return {{{"name", std::string("hidden")}}};
  if (&def == &ops::kReducePrecision)
    return {{{"exponent_bits", int64_t{5}}, {"mantissa_bits", int64_t{10}}},
            {{"exponent_bits", int64_t{8}}, {"mantissa_bits", int64_t{7}}},
            {{"exponent_bits", int64_t{4}}, {"mantissa_bits", int64_t{0}}}};
  if (def.name == "integer_pow")
    return {{{"y", int64_t{3}}}, {{"y", int64_t{-2}}}, {{"y", int64_t{12}}}};
  return {{}};
}

// For every op with a scalar function, on every dtype it accepts, the graph gives the bits that the
// evaluator gives.
TEST(Elementwise, EveryGraphComputesWhatTheEvaluatorDoes) {
  std::mt19937_64 rng(20240521);
  int compared = 0;
  for (const OpDef* def : AllOps()) {
    if (!def->scalar.eval) continue;
    int dtypes = 0;
    for (DType dtype : kComputable)
      for (const Attrs& attrs : AttrsToTry(*def)) {
        std::vector<Array> in;
        std::vector<Type> types;
        for (int i = 0; i < def->num_operands; ++i) {
          const DType d = def == &ops::kSelect && i == 0 ? DType::kBool : dtype;
          in.push_back(RandomArray(d, 200, rng));
          types.push_back(MakeType(d, {200}));
        }
        const auto out_types = InferTypes(*def, {}, types, attrs, {});
        if (!out_types.ok()) continue;  // the dtype is not in the op's domain
        ++dtypes;
        TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> out, EvaluateOp(*def, {}, in, attrs));
        const ScalarGraph g = def->scalar.record(attrs, dtype, (*out_types)[0].dtype);
        ASSERT_EQ(g.roots.size(), out.size());
        ASSERT_FALSE(g.nodes.empty());
        EXPECT_THAT(g.ToString(), HasSubstr("Input"));
        for (int64_t i = 0; i < 200; ++i) {
          std::vector<ScalarValue> scalars;
          for (const Array& a : in) scalars.push_back(ScalarAt(a, i));
          const std::vector<ScalarValue> got = RunGraph(g, scalars);
          for (size_t k = 0; k < got.size(); ++k) {
            ASSERT_TRUE(SameScalar(got[k], ScalarAt(out[k], i)))
                << std::string(def->name) << " on " << std::string(DTypeName(dtype)) << " element "
                << i << "\n"
                << g.ToString();
            ++compared;
          }
        }
      }
    EXPECT_GT(dtypes, 0) << std::string(def->name) << " accepts no dtype";
  }
  EXPECT_GT(compared, 20000);
}

TEST(ScalarGraph, IsCanonical) {
  // 1 / (1 + exp(-x)) has the constant once, its nodes are depth first, and bf16 is widened and
  // rounded once.
  EXPECT_EQ(ops::kLogistic.scalar.record({}, DType::kBF16, DType::kBF16).ToString(),
            "%0 = Constant 1 : f32\n"
            "%1 = Input 0 : bf16\n"
            "%2 = Convert %1 : f32\n"
            "%3 = Neg %2 : f32\n"
            "%4 = Exp %3 : f32\n"
            "%5 = Add %0, %4 : f32\n"
            "%6 = Div %0, %5 : f32\n"
            "%7 = Convert %6 : bf16\n"
            "return %7\n");
}

// ---- Derivatives. ------------------------------------------------------------------------------

// Returns a function of f64 operands of `shape` that consists of one op.
FunctionRef OneOp(const OpDef& def, int operands, const Attrs& attrs, Dims shape = {1}) {
  Builder b{Scope{}};
  std::vector<Value> params;
  for (int i = 0; i < operands; ++i) params.push_back(b.Param(MakeType(DType::kF64, shape)));
  return b.Build(b.Emit(def, params, attrs));
}

double CallScalar(const Function& f, const std::vector<double>& x, size_t result = 0) {
  std::vector<Array> in;
  for (double v : x) in.push_back(F64({v}));
  const auto out = Evaluate(f, in);
  EXPECT_THAT(out.status(), IsOk());
  return out.ok() ? (*out)[result].At(0) : kNaN;
}

// Returns the derivative by jvp along operand `i`.
double Partial(const OpDef& def, const std::vector<double>& x, size_t i, const Attrs& attrs = {}) {
  std::vector<bool> active(x.size(), false);
  active[i] = true;
  const auto jvp =
      Jvp(*OneOp(def, static_cast<int>(x.size()), attrs), active, /*instantiate=*/true);
  EXPECT_THAT(jvp.status(), IsOk());
  if (!jvp.ok()) return kNaN;
  std::vector<double> args = x;
  args.push_back(1);
  return CallScalar(*jvp->fn, args, 1);
}

struct JvpRow {
  const OpDef& def;
  std::vector<std::vector<double>> points;
};
// Compares at points where the functions are smooth, also at points on both sides of the bounds of
// clamp.
TEST(Elementwise, DerivativesAreFiniteDifferences) {
  const std::vector<std::vector<double>> unary = {{0.3}, {-0.7}, {0.95}},
                                         positive = {{0.3}, {2.7}, {11}};
  const std::vector<std::vector<double>> binary = {{0.3, 0.8}, {1.7, -2.2}, {-3.1, 0.6}};
  const JvpRow rows[] = {
      {ops::kAbs, unary},
      {ops::kNeg, unary},
      {ops::kSign, unary},
      {ops::kExp, unary},
      {ops::kExpm1, unary},
      {ops::kLog, positive},
      {ops::kLog1p, unary},
      {ops::kLogistic, unary},
      {ops::kTanh, unary},
      {ops::kSin, unary},
      {ops::kCos, unary},
      {ops::kTan, unary},
      {ops::kSqrt, positive},
      {ops::kRsqrt, positive},
      {ops::kCbrt, unary},
      {ops::kErf, unary},
      {ops::kErfInv, unary},
      {ops::kCeil, unary},
      {ops::kFloor, unary},
      {ops::kRoundNearestAfz, unary},
      {ops::kRoundNearestEven, unary},
      {ops::kAdd, binary},
      {ops::kSub, binary},
      {ops::kMul, binary},
      {ops::kDiv, binary},
      {ops::kRem, {{5.3, 2.1}, {-5.3, 2.1}, {5.3, -2.1}, {0.3, 0.8}}},
      {ops::kPow, {{0.3, 0.8}, {1.7, -2.2}, {3.1, 4.5}}},
      {ops::kMax, binary},
      {ops::kMin, binary},
      {ops::kAtan2, binary},
      {ops::kClamp, {{0, 0.5, 1}, {0, -0.5, 1}, {0, 1.5, 1}, {1, 0.5, 0.2}, {1, 1.5, 0.2}}},
  };
  const double h = 1e-6;
  for (const JvpRow& row : rows)
    for (const std::vector<double>& x : row.points)
      for (size_t i = 0; i < x.size(); ++i) {
        // For a clamp whose bounds cross, JAX differentiates `max` alone.
        std::vector<double> up = x, down = x;
        up[i] += h;
        down[i] -= h;
        const FunctionRef f = OneOp(row.def, static_cast<int>(x.size()), {});
        const double expected = (CallScalar(*f, up) - CallScalar(*f, down)) / (2 * h);
        EXPECT_NEAR(Partial(row.def, x, i), expected, 1e-6 * std::max(1.0, std::fabs(expected)))
            << std::string(row.def.name) << " along operand " << i << " at "
            << ::testing::PrintToString(x);
      }
}

TEST(Elementwise, DerivativesAtKinksFollowJax) {
  EXPECT_EQ(Partial(ops::kMax, {2, 2}, 0), 0.5);
  EXPECT_EQ(Partial(ops::kMax, {2, 2}, 1), 0.5);
  EXPECT_EQ(Partial(ops::kMin, {2, 2}, 1), 0.5);
  EXPECT_EQ(Partial(ops::kAbs, {0}, 0), 1);
  EXPECT_EQ(Partial(ops::kPow, {0, 2}, 0), 0);
  EXPECT_EQ(Partial(ops::kPow, {0, 1}, 0), 1);
  EXPECT_EQ(Partial(ops::kPow, {0, 2}, 1), 0);
  EXPECT_EQ(Partial(ops::kPow, {2, 0}, 0), 0);
  EXPECT_EQ(Partial(ops::kSqrt, {0}, 0), kInf);
  EXPECT_EQ(Partial(ops::kClamp, {0, 0, 1}, 1), 0);  // at a bound
  EXPECT_EQ(Partial(ops::kClamp, {0, 1, 1}, 2), 0);
}

TEST(Elementwise, StopGradientHasNoTangent) {
  Builder b{Scope{}};
  const Value x = b.Param(MakeType(DType::kF64, {1}));
  const FunctionRef f = b.Build({StopGradient(x), x * StopGradient(x)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const JvpResult jvp, Jvp(*f, {true}));
  EXPECT_THAT(jvp.out_active, ElementsAre(false, true));
  EXPECT_EQ(CallScalar(*jvp.fn, {3, 1}, 2), 3);
}

TEST(Elementwise, IntegersHaveNoTangents) {
  Builder b{Scope{}};
  const Value x = b.Param(MakeType(DType::kF32, {2}));
  const Value n = Convert(x, DType::kS32);
  const FunctionRef f =
      b.Build({n, Compare(x, x, "LT"), Convert(n, DType::kF32), BitcastConvert(x, DType::kU32)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const JvpResult jvp, Jvp(*f, {true}));
  EXPECT_THAT(jvp.out_active, ElementsAre(false, false, false, false));
}

// Checks <ct, f(x)> = <transpose(ct), x> for an f that is linear in operand `i`, with the others
// fixed.
void CheckTranspose(const FunctionRef& f, size_t i, std::vector<Array> in,
                    const std::string& what) {
  std::vector<bool> linear(in.size(), false);
  linear[i] = true;
  const auto transposed = TransposeFunction(*f, linear);
  ASSERT_THAT(transposed.status(), IsOk()) << what;
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> y, Evaluate(*f, in));
  const Array ct = Array::Of(y[0].dtype(), y[0].shape(), {0.5, -1.25, 3});
  std::vector<Array> args;
  for (size_t k = 0; k < in.size(); ++k)
    if (k != i) args.push_back(in[k]);
  args.push_back(ct);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> back, Evaluate(**transposed, args));
  ASSERT_EQ(back.size(), 1u) << what;
  ASSERT_EQ(back[0].dtype(), in[i].dtype()) << what;
  double left = 0, right = 0;
  for (int k = 0; k < 3; ++k) {
    left += ct.At(k) * y[0].At(k);
    right += back[0].At(k) * in[i].At(k);
  }
  EXPECT_NEAR(left, right, 1e-12) << what;
  EXPECT_NE(left, 0) << what;
}

TEST(Elementwise, TransposesKeepTheInnerProduct) {
  const Array x = F64({1.5, -2, 0.25}), y = F64({4, 0.5, -8});
  const auto function_of = [](const OpDef& def, int n) { return OneOp(def, n, {}, {3}); };
  CheckTranspose(function_of(ops::kNeg, 1), 0, {x}, "neg");
  CheckTranspose(function_of(ops::kMul, 2), 0, {x, y}, "mul lhs");
  CheckTranspose(function_of(ops::kMul, 2), 1, {x, y}, "mul rhs");
  CheckTranspose(function_of(ops::kDiv, 2), 0, {x, y}, "div");
  CheckTranspose(OneOp(ops::kConvert, 1, To(DType::kF32), {3}), 0, {x}, "convert");
  CheckTranspose(OneOp(ops::kCheckpointName, 1, {{"name", std::string("a")}}, {3}), 0, {x},
                 "checkpoint_name");
  for (size_t side : {1u, 2u}) {
    Builder b{Scope{}};
    const Value p = b.Param(MakeType(DType::kBool, {3}));
    std::vector<Value> cases = {b.Param(MakeType(DType::kF64, {3})),
                                b.Param(MakeType(DType::kF64, {3}))};
    // The other case is the constant zero, so that the select is linear.
    std::vector<Value> in = {Zeros(b, cases[0].type()), Zeros(b, cases[0].type())};
    in[side - 1] = cases[side - 1];
    CheckTranspose(b.Build({Select(p, in[0], in[1])}), side, {Ints(DType::kBool, {1, 0, 1}), x, y},
                   "select");
  }
}

TEST(Elementwise, TransposeOfSumsReachesBothOperands) {
  for (const OpDef* def : {&ops::kAdd, &ops::kSub}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const FunctionRef t,
                                 TransposeFunction(*OneOp(*def, 2, {}, {1}), {true, true}));
    EXPECT_EQ(CallScalar(*t, {3}, 0), 3);
    EXPECT_EQ(CallScalar(*t, {3}, 1), def == &ops::kAdd ? 3 : -3);
  }
}

TEST(Elementwise, TransposeOfANonlinearOpIsRefusedByName) {
  EXPECT_THAT(
      TransposeFunction(*OneOp(ops::kExp, 1, {}), {true}),
      ReasonIs("NOT_IMPLEMENTED",
               HasSubstr(
                   "Transpose rule (for reverse-mode differentiation) for 'exp' not implemented")));
  EXPECT_THAT(
      TransposeFunction(*OneOp(ops::kDiv, 2, {}), {false, true}),
      ReasonIs("NOT_IMPLEMENTED",
               HasSubstr(
                   "Transpose rule (for reverse-mode differentiation) for 'div' not implemented")));
  EXPECT_THAT(TransposeFunction(*OneOp(ops::kStopGradient, 1, {}), {true}),
              ReasonIs("NOT_IMPLEMENTED", HasSubstr("its derivative is zero by definition")));
}

// ---- Batching. ---------------------------------------------------------------------------------

TEST(Elementwise, VmapOfScalarOperandsIsALoop) {
  Builder b{Scope{}};
  const Value p = b.Param(MakeType(DType::kBool, {}));
  const Value x = b.Param(MakeType(DType::kF64, {3})), y = b.Param(MakeType(DType::kF64, {3}));
  const Value top = b.Param(MakeType(DType::kF64, {}));
  const FunctionRef f = b.Build({Select(p, x, y), Clamp(Constant(b, DType::kF64, 0), x, top)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const BatchResult batched, Batch(*f, {0, 1, -1, 0}, 2, {0, 0}));
  const Array ps = Ints(DType::kBool, {1, 0}), tops = F64({1, 2}), ys = F64({7, 8, 9});
  const Array xs = Array::Of(DType::kF64, {3, 2}, {-1, 10, 2, 20, 3, 30});
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> out,
                               Evaluate(*batched.fn, {ps, xs, ys, tops}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(-1, 2, 3, 7, 8, 9));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 1, 1, 2, 2, 2));
}

// ---- Errors. -----------------------------------------------------------------------------------

absl::Status ErrorOf(const OpDef& def, std::vector<Type> in, const Attrs& attrs = {},
                     const Scope& scope = {}) {
  return InferTypes(def, scope, in, attrs, {}).status();
}
Type T(std::string_view text) { return ParseType(text).value(); }

// The texts of the errors begin with lax's words for the same fault.
TEST(ElementwiseErrors, SayWhatLaxSays) {
  EXPECT_THAT(ErrorOf(ops::kExp, {T("s32[3]")}),
              ReasonIs("TYPE_ERROR", "exp: requires a floating dtype, got s32; convert it"));
  EXPECT_THAT(ErrorOf(ops::kAnd, {T("f32[]"), T("f32[]")}),
              ReasonIs("TYPE_ERROR", "and: requires an integer or bool dtype, got f32"));
  EXPECT_THAT(ErrorOf(ops::kAdd, {T("bool[]"), T("bool[]")}),
              ReasonIs("TYPE_ERROR", "add: requires an integer or floating dtype, got bool"));
  EXPECT_THAT(ErrorOf(ops::kAbs, {T("u32[]")}),
              ReasonIs("TYPE_ERROR", "abs: requires a signed integer or floating dtype, got u32"));
  EXPECT_THAT(ErrorOf(ops::kShiftLeft, {T("bool[]"), T("bool[]")}),
              ReasonIs("TYPE_ERROR", "shift_left: requires an integer dtype, got bool"));
  EXPECT_THAT(ErrorOf(ops::kMax, {T("c64[]"), T("c64[]")}),
              ReasonIs("TYPE_ERROR", "max: requires a bool, integer or floating dtype, got c64"));
  EXPECT_THAT(ErrorOf(ops::kExp, {T("f8e5m2[3]")}),
              ReasonIs("NOT_IMPLEMENTED", "exp: no kernels for dtype f8e5m2"));
  EXPECT_THAT(ErrorOf(ops::kMul, {T("f32[3]"), T("s32[3]")}),
              ReasonIs("TYPE_ERROR",
                       "mul: dtypes differ: f32 and s32; convert one with convert_element_type"));
  EXPECT_THAT(ErrorOf(ops::kMul, {T("f32[3]"), T("f32[4]")}),
              ReasonIs("TYPE_ERROR", "mul: got incompatible shapes for broadcasting: (3,), (4,)"));
  EXPECT_THAT(ErrorOf(ops::kMul, {T("f32[]"), T("f32[2,4]")}),
              ReasonIs("TYPE_ERROR", "got incompatible shapes for broadcasting: (), (2, 4)"));
  EXPECT_THAT(ErrorOf(ops::kCompare, {T("f32[]"), T("f32[]")}, Direction("XX")),
              ReasonIs("VALUE_ERROR", "compare: direction is 'XX'; expected one of EQ"));
  EXPECT_THAT(ErrorOf(ops::kBitcastConvert, {T("f32[]")}, To(DType::kF64)),
              ReasonIs("TYPE_ERROR", "cannot read f32 (32 bits) as f64 (64 bits)"));
}

TEST(ElementwiseErrors, TernaryOpsNameTheFault) {
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("s32[]"), T("f32[2]"), T("f32[2]")}),
              ReasonIs("TYPE_ERROR", "select_n: `which` must be bool, got s32"));
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("bool[]"), T("f32[2]"), T("f32[3]")}),
              ReasonIs("TYPE_ERROR", "select cases must have the same shapes, got (2,), (3,)"));
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("bool[3]"), T("f32[2]"), T("f32[2]")}),
              ReasonIs("TYPE_ERROR", "must be scalar or have the same shape as cases"));
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("bool[]"), T("f32[2]"), T("f64[2]")}),
              ReasonIs("TYPE_ERROR", "select_n: dtypes differ: f32 and f64"));
  EXPECT_THAT(
      ErrorOf(ops::kClamp, {T("f32[]"), T("f32[2]"), T("f32[3]")}),
      ReasonIs("TYPE_ERROR", "clamp requires max.shape == operand.shape or max.shape == ()"));
  EXPECT_THAT(ErrorOf(ops::kReducePrecision, {T("f32[]")},
                      {{"exponent_bits", int64_t{0}}, {"mantissa_bits", int64_t{1}}}),
              ReasonIs("VALUE_ERROR", "exponent_bits is 0; expected 1 to 64"));
  EXPECT_THAT(ErrorOf(ops::kReducePrecision, {T("f32[]")},
                      {{"exponent_bits", int64_t{1}}, {"mantissa_bits", int64_t{-1}}}),
              ReasonIs("VALUE_ERROR", "mantissa_bits is -1; expected 0 to 64"));
}

// ---- Shardings and states. ---------------------------------------------------------------------

Scope ExplicitScope() {
  return {Mesh{{{"x", 2, AxisType::kExplicit}, {"y", 2, AxisType::kExplicit}}}, true};
}
Scope ManualScope() { return {Mesh{{{"x", 2, AxisType::kManual}}}, true}; }
std::string TypeOf(const OpDef& def, const Scope& scope, std::vector<Type> in,
                   const Attrs& attrs = {}) {
  const auto out = InferTypes(def, scope, in, attrs, {});
  return out.ok() ? (*out)[0].ToString() : std::string(out.status().message());
}

TEST(ElementwiseTypes, ExplicitShardingsUnifyOrAreAmbiguous) {
  const Scope s = ExplicitScope();
  EXPECT_EQ(TypeOf(ops::kMul, s, {T("f32[8@x,2]"), T("f32[8,2@y]")}), "f32[8@x,2@y]");
  EXPECT_EQ(TypeOf(ops::kExp, s, {T("f32[8@x,2]")}), "f32[8@x,2]");
  EXPECT_THAT(ErrorOf(ops::kMul, {T("f32[8@x,2]"), T("f32[8@y,2]")}, {}, s),
              ReasonIs("SHARDING_TYPE_ERROR", "mul got incompatible shardings for broadcasting"));
  EXPECT_EQ(TypeOf(ops::kSelect, s, {T("bool[]"), T("f32[8@x]"), T("f32[8@x]")}), "f32[8@x]");
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("bool[]"), T("f32[8@x]"), T("f32[8]")}, {}, s),
              ReasonIs("SHARDING_TYPE_ERROR", "select cases must have the same shardings"));
  EXPECT_THAT(ErrorOf(ops::kSelect, {T("bool[8]"), T("f32[8@x]"), T("f32[8@x]")}, {}, s),
              ReasonIs("SHARDING_TYPE_ERROR", "must be scalar or have the same sharding as cases"));
}

TEST(ElementwiseTypes, TangentsHaveTheShardingOfTheResult) {
  Builder b(ExplicitScope());
  const Value x = b.Param(T("f64[8]")), y = b.Param(T("f64[8@x]"));
  const FunctionRef f = b.Build({x + y, Max(x, y), Clamp(Constant(b, DType::kF64, 0), x, y)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const JvpResult jvp, Jvp(*f, {true, false}));
  for (const Type& t : jvp.fn->result_types()) EXPECT_EQ(t.ToString(), "f64[8@x]");
  Builder b2(ExplicitScope());
  const Value u = b2.Param(T("f64[8]")), v = b2.Param(T("f64[8@x]"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const FunctionRef t,
                               TransposeFunction(*b2.Build({u + v}), {true, true}));
  EXPECT_EQ(t->result_types()[0].ToString(), "f64[8]");
  EXPECT_EQ(t->result_types()[1].ToString(), "f64[8@x]");
}

// Checks which states along a Manual axis each op accepts, and which it refuses.
TEST(ElementwiseTypes, ManualStatesMatchOrAreRefused) {
  const Scope s = ManualScope();
  EXPECT_EQ(TypeOf(ops::kMul, s, {T("f32[3]{V:x}"), T("f32[3]{V:x}")}), "f32[3]{V:x}");
  EXPECT_THAT(
      ErrorOf(ops::kMul, {T("f32[3]{V:x}"), T("f32[3]")}, {}, s),
      ReasonIs("VALUE_ERROR", "Primitive mul requires varying manual axes to match, but got ["));
  EXPECT_EQ(TypeOf(ops::kAdd, s, {T("f32[3]{U:x}"), T("f32[3]{U:x}")}), "f32[3]{U:x}");
  EXPECT_THAT(ErrorOf(ops::kAdd, {T("f32[3]{U:x}"), T("f32[3]")}, {}, s),
              ReasonIs("SHARDING_TYPE_ERROR", "lhs is unreduced while rhs is not"));
  EXPECT_EQ(TypeOf(ops::kMul, s, {T("f32[3]{U:x}"), T("f32[3]{R:x}")}), "f32[3]{U:x}");
  EXPECT_EQ(TypeOf(ops::kMul, s, {T("f32[3]{R:x}"), T("f32[3]{U:x}")}), "f32[3]{U:x}");
  const auto times_terms = [&](const char* other) {
    return ErrorOf(ops::kMul, {T("f32[3]{U:x}"), T(other)}, {}, s);
  };
  EXPECT_THAT(times_terms("f32[3]"),
              ReasonIs("SHARDING_TYPE_ERROR", "RHS should be reduced along the same axes LHS is"));
  EXPECT_THAT(times_terms("f32[3]{U:x}"), ReasonIs("SHARDING_TYPE_ERROR", "mul is bilinear"));
  EXPECT_THAT(times_terms("f32[3]{V:x}"), ReasonIs("VALUE_ERROR", "varying manual axes to match"));
  // A reduced operand must be combined with a reduced one.
  EXPECT_EQ(TypeOf(ops::kMax, s, {T("f32[3]{R:x}"), T("f32[3]{R:x}")}), "f32[3]{R:x}");
  EXPECT_THAT(ErrorOf(ops::kMax, {T("f32[3]{R:x}"), T("f32[3]")}, {}, s),
              ReasonIs("SHARDING_TYPE_ERROR", "Inputs cannot be replicated on the same axes"));
  EXPECT_EQ(TypeOf(ops::kSub, s, {T("f32[3]{U:x}"), T("f32[3]{U:x}")}), "f32[3]{U:x}");
  EXPECT_EQ(TypeOf(ops::kNeg, s, {T("f32[3]{U:x}")}), "f32[3]{U:x}");
  EXPECT_EQ(TypeOf(ops::kConvert, s, {T("f32[3]{U:x}")}, To(DType::kBF16)), "bf16[3]{U:x}");
  EXPECT_THAT(ErrorOf(ops::kConvert, {T("f32[3]{U:x}")}, To(DType::kS32), s),
              ReasonIs("NOT_IMPLEMENTED"));
  for (const OpDef* def : {&ops::kDiv, &ops::kMax})
    EXPECT_THAT(ErrorOf(*def, {T("f32[3]{U:x}"), T("f32[3]{U:x}")}, {}, s),
                ReasonIs("NOT_IMPLEMENTED", HasSubstr("unreduced rule for")));
}

// Select takes unreduced cases if the predicate is not unreduced, and both cases must be in the
// same state.
TEST(ElementwiseTypes, SelectTakesUnreducedCases) {
  const Scope s = ManualScope();
  const Type pred = T("bool[3]"), unreduced = T("f32[3]{U:x}"), reduced = T("f32[3]{R:x}");
  const auto type = [&](const Type& p, const Type& a) {
    return TypeOf(ops::kSelect, s, {p, a, a});
  };
  EXPECT_EQ(type(pred, unreduced), "f32[3]{U:x}");
  EXPECT_EQ(type(T("bool[]"), unreduced), "f32[3]{U:x}");
  EXPECT_EQ(type(T("bool[3]{R:x}"), unreduced), "f32[3]{U:x}");
  EXPECT_EQ(type(pred, reduced), "f32[3]{R:x}");
  EXPECT_EQ(type(T("bool[3]{R:x}"), T("f32[3]")), "f32[3]");
  const auto status_of = [&](const char* p, const char* a, const char* b) {
    return ErrorOf(ops::kSelect, {T(p), T(a), T(b)}, {}, s);
  };
  for (const char* other : {"f32[3]", "f32[3]{R:x}", "f32[3]{U:y}"})
    EXPECT_THAT(status_of("bool[3]", "f32[3]{U:x}", other),
                ReasonIs("SHARDING_TYPE_ERROR", "select cases must have the same shardings. Got"));
  EXPECT_THAT(status_of("bool[3]", "f32[3]{R:x}", "f32[3]"), ReasonIs("SHARDING_TYPE_ERROR"));
  EXPECT_THAT(status_of("bool[3]{V:x}", "f32[3]{U:x}", "f32[3]{U:x}"),
              ReasonIs("VALUE_ERROR", "varying manual axes to match"));
  EXPECT_THAT(status_of("bool[3]{U:x}", "f32[3]{U:x}", "f32[3]{U:x}"),
              ReasonIs("NOT_IMPLEMENTED", "unreduced rule for select_n is not implemented for"));
  EXPECT_EQ(TypeOf(ops::kReducePrecision, s, {unreduced},
                   {{"exponent_bits", int64_t{5}}, {"mantissa_bits", int64_t{1}}}),
            "f32[3]{U:x}");
}

TEST(ElementwiseTypes, DynamicSlicesTakeUnreducedOperands) {
  const Scope s = ManualScope();
  const Attrs sizes = {{"slice_sizes", Dims{2}}};
  EXPECT_EQ(TypeOf(ops::kDynamicSlice, s, {T("f32[4]{U:x}"), T("s32[]")}, sizes), "f32[2]{U:x}");
  EXPECT_EQ(TypeOf(ops::kDynamicSlice, s, {T("f32[4]{R:x}"), T("s32[]")}, sizes), "f32[2]{R:x}");
  EXPECT_THAT(ErrorOf(ops::kDynamicSlice, {T("s32[4]"), T("s32[]{U:x}")}, sizes, s),
              ReasonIs("NOT_IMPLEMENTED",
                       "unreduced rule for dynamic_slice is not implemented for s32[]{U:x}, an "
                       "operand that decides where elements go"));
  const auto update = [&](const char* x, const char* with) {
    return TypeOf(ops::kDynamicUpdateSlice, s, {T(x), T(with), T("s32[]")});
  };
  EXPECT_EQ(update("f32[4]{U:x}", "f32[2]{U:x}"), "f32[4]{U:x}");
  EXPECT_EQ(update("f32[4]{R:x}", "f32[2]{R:x}"), "f32[4]{R:x}");
  for (const auto& [x, with] :
       {std::pair("f32[4]{U:x}", "f32[2]"), {"f32[4]", "f32[2]{U:x}"}, {"f32[4]{R:x}", "f32[2]"}})
    EXPECT_THAT(ErrorOf(ops::kDynamicUpdateSlice, {T(x), T(with), T("s32[]")}, {}, s),
                ReasonIs("SHARDING_TYPE_ERROR",
                         "operand and update must be unreduced, and reduced, along the same axes"));
}

TEST(ElementwiseTypes, PadOfAnUnreducedOperandTakesAnUnreducedOrZeroFill) {
  Builder b(ManualScope());
  const Value x = b.Param(T("f32[4]{U:x}")), fill = b.Param(T("f32[]"));
  const auto type = [](Value v) { return v.type().ToString(); };
  EXPECT_EQ(type(Pad(x, Constant(b, DType::kF32, 0), {1}, {0})), "f32[5]{U:x}");
  EXPECT_EQ(type(Pad(x, ReduceSum(x, {0}), {1}, {0})), "f32[5]{U:x}");
  EXPECT_EQ(type(Pad(b.Param(T("f32[4]{R:x}")), fill, {1}, {0})), "f32[5]{R:x}");
  EXPECT_THAT(CatchStatus([&] { Pad(x, Constant(b, DType::kF32, 5), {1}, {0}); }),
              ReasonIs("NOT_IMPLEMENTED", "unreduced rule for pad is not implemented"));
  EXPECT_THAT(CatchStatus([&] { Pad(x, fill, {1}, {0}); }), ReasonIs("NOT_IMPLEMENTED"));
  // Along an Explicit axis, the padding value is the summand of one shard, and the summands of the
  // other shards are zeros.
  Builder typed(ExplicitScope());
  const Value sum = Reshard(typed.Param(T("f32[4]")), {{}}, {"x"});
  EXPECT_EQ(type(Pad(sum, Constant(typed, DType::kF32, 5), {1}, {0})), "f32[5]{U:x}");
}

// ---- Implicit casts. ---------------------------------------------------------------------------

TEST(Harmonize, WeakOperandsTakeTheOthersDtype) {
  Builder b{Scope{}};
  const Value x = b.Param(T("bf16[3]")), weak = b.Param(T("f32[]~")),
              weak_int = b.Param(T("s32[]~"));
  const Value n = b.Param(T("s32[3]"));
  EXPECT_EQ((x * weak).type().ToString(), "bf16[3]");
  EXPECT_EQ((weak_int + x).type().ToString(), "bf16[3]");
  EXPECT_EQ((n + weak_int).type().ToString(), "s32[3]");
  EXPECT_EQ((weak * weak).type().ToString(), "f32[]~");
  EXPECT_EQ((weak_int * weak).type().ToString(), "f32[]~");
  EXPECT_EQ(Compare(x, weak, "LT").type().ToString(), "bool[3]");
  EXPECT_EQ(Select(Compare(x, weak, "LT"), x, weak).type().ToString(), "bf16[3]");
  EXPECT_EQ(Clamp(weak_int, x, weak).type().ToString(), "bf16[3]");
  EXPECT_EQ(Convert(weak, DType::kF32).type().ToString(), "f32[]");
  // A weak float does not turn an integer array into floats.
  EXPECT_THAT(CatchStatus([&] { n + weak; }),
              ReasonIs("TYPE_ERROR", "add: dtypes differ: s32 and f32"));
}

// Scalars and dims of size 1 grow to the other operand's shape and sharding, but shapes of
// different ranks do not fit.
TEST(Harmonize, ScalarsAndDimsOfSizeOneAreRepeated) {
  Builder b(ExplicitScope());
  const Value x = b.Param(T("f32[8@x]")), scalar = b.Param(T("f32[]")), row = b.Param(T("f32[1]"));
  EXPECT_EQ((x * Constant(b, DType::kF32, 2)).type().ToString(), "f32[8@x]");
  EXPECT_EQ(Select(Compare(x, Constant(b, DType::kF32, 0), "GT"), x, Constant(b, DType::kF32, 0))
                .type()
                .ToString(),
            "f32[8@x]");
  EXPECT_EQ((x * scalar).type().ToString(), "f32[8@x]");
  EXPECT_EQ((x * row).type().ToString(), "f32[8@x]");
  const Value wide = b.Param(T("f32[8@x,4]")), column = b.Param(T("f32[8@x,1]"));
  EXPECT_EQ((column * b.Param(T("f32[1,4]"))).type().ToString(), "f32[8@x,4]");
  EXPECT_THAT(CatchStatus([&] { x* wide; }), ReasonIs("TYPE_ERROR", "got incompatible shapes"));
  // If both operands are sharded, neither gives way, and a mesh axis never cuts two dims.
  EXPECT_THAT(CatchStatus([&] { wide* b.Param(T("f32[8@y,1]")); }),
              ReasonIs("SHARDING_TYPE_ERROR",
                       "got incompatible shardings for broadcasting: "
                       "f32[8@x,4], f32[8@y,1]"));
  EXPECT_THAT(CatchStatus([&] { column* b.Param(T("f32[1,4@x]")); }),
              ReasonIs("SHARDING_TYPE_ERROR", "produces an illegally sharded result"));
  // 2^53 + 1 is not a double, so the constant must not pass through one.
  Builder ints{Scope{}};
  const Value n = ints.Param(T("s64[1]"));
  const FunctionRef f =
      ints.Build({n + Constant(ints, Array::ScalarInt(DType::kS64, 9007199254740993))});
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> out,
                               Evaluate(*f, {Ints(DType::kS64, {0})}));
  EXPECT_EQ(out[0].IntAt(0), 9007199254740993);
}

TEST(Harmonize, InvaryingOperandsArePcast) {
  Builder b(ManualScope());
  const Value x = b.Param(T("f32[3]{V:x}")), y = b.Param(T("f32[3]"));
  EXPECT_EQ((x * y).type().ToString(), "f32[3]{V:x}");
  EXPECT_EQ((x * Constant(b, DType::kF32, 2)).type().ToString(), "f32[3]{V:x}");
  EXPECT_EQ(Select(Compare(y, y, "EQ"), x, y).type().ToString(), "f32[3]{V:x}");
  EXPECT_EQ((y * y).type().ToString(), "f32[3]");
}

}  // namespace
}  // namespace tessera::ir
