// Tests of the functions of math.h on this host: how far their results are from the exact values
// over all exponents, the results for special values, and that all targets give the same bits. Each
// function is compiled as a kernel of one primitive.
#include "worker/codegen/math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/codegen/host_code.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/scalar_fn.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;

// Runs one primitive over the elements of `args` on a target.
std::vector<float> Apply(const std::string& target, ScalarPrim prim,
                         const std::vector<std::vector<float>>& args) {
  const auto n = static_cast<int64_t>(args[0].size());
  const Kernel kernel = KernelOfPrim(prim, DType::kF32, DType::kF32, n);
  HostCompilerOptions options;
  options.target = target;
  HostCompiler compiler(options);
  const auto code = compiler.Compile({kernel});
  EXPECT_THAT(code, IsOk());
  std::vector<float> out(n);
  std::vector<void*> buffers;
  for (const std::vector<float>& arg : args) buffers.push_back(const_cast<float*>(arg.data()));
  buffers.push_back(out.data());
  (*code)->function(0)(buffers.data(), 0, n);
  return out;
}

std::vector<std::string> Targets() {
  std::vector<std::string> names;
  for (const HostTarget& target : HostTargets())
    if (CpuRuns(target)) names.push_back(target.name);
  return names;
}

// Returns samples of every exponent and both signs. Each exponent has `per_exponent` mantissas,
// evenly spread from a start that differs by exponent.
std::vector<float> DenseSamples(int per_exponent) {
  std::vector<float> samples;
  constexpr uint32_t kMantissas = 1u << 23;
  const uint32_t step = kMantissas / per_exponent;
  for (uint32_t exponent = 0; exponent < 255; ++exponent)
    for (int k = 0; k < per_exponent; ++k)
      for (const uint32_t sign : {0u, 0x80000000u})
        samples.push_back(
            std::bit_cast<float>(sign | exponent << 23 | (k * step + exponent * 7919 % step)));
  return samples;
}

// Returns |got - exact| in units in the last place of the f32 nearest to `exact`.
double UlpsApart(float got, double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e9;
  int exponent = 0;
  std::frexp(nearest, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(got - exact) / ulp;
}

struct FunctionRow {
  ScalarPrim prim;
  double (*exact)(double);
};
double Rsqrt(double x) { return 1 / std::sqrt(x); }
const FunctionRow kFunctions[] = {
    {ScalarPrim::kExp, std::exp},     {ScalarPrim::kLog, std::log},
    {ScalarPrim::kTanh, std::tanh},   {ScalarPrim::kErf, std::erf},
    {ScalarPrim::kRsqrt, Rsqrt},      {ScalarPrim::kExpm1, std::expm1},
    {ScalarPrim::kLog1p, std::log1p}, {ScalarPrim::kSin, std::sin},
    {ScalarPrim::kCos, std::cos},     {ScalarPrim::kTan, std::tan},
    {ScalarPrim::kCbrt, std::cbrt},
};
struct BinaryRow {
  ScalarPrim prim;
  double (*exact)(double, double);
};
const BinaryRow kBinaries[] = {{ScalarPrim::kPow, std::pow}, {ScalarPrim::kAtan2, std::atan2}};

TEST(Math, FunctionsAreWithinTwoUlps) {
  const std::vector<float> x = DenseSamples(/*per_exponent=*/8192);
  for (const FunctionRow& row : kFunctions) {
    const std::vector<float> y = Apply("host", row.prim, {x});
    double worst = 0;
    float at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double ulps = UlpsApart(y[i], row.exact(x[i]));
      if (ulps > worst) {
        worst = ulps;
        at = x[i];
      }
    }
    EXPECT_LE(worst, 2.0) << ScalarPrimName(row.prim) << "(" << at << ")";
    std::printf("%s: at most %.3f ulp, at %.9g\n", std::string(ScalarPrimName(row.prim)).c_str(),
                worst, at);
  }
}

// Combines every exponent with every other one, and with the special values.
TEST(Math, BinaryFunctionsAreWithinTwoUlps) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      0.0f,          -0.0f,       kInf,      -kInf,  std::numeric_limits<float>::quiet_NaN(),
      1.0f,          -1.0f,       2.0f,      -2.0f,  3.0f,
      -3.0f,         0.5f,        -0.5f,     1e-45f, 16777217.0f,
      2147483648.0f, 0.99999994f, 1.0000001f};
  const std::vector<float> dense = DenseSamples(/*per_exponent=*/2);
  values.insert(values.end(), dense.begin(), dense.end());
  std::vector<float> x, y;
  for (const float a : values) {
    for (const float b : values) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  // These are bases near 1 with large powers, for which the result is neither 0 nor infinite.
  for (int i = 0; i < 100'000; ++i) {
    x.push_back(std::ldexp(1.0f + static_cast<float>(i % 997) / 997, i % 40 - 20));
    y.push_back(static_cast<float>(i % 1009 - 504) * 0.01f);
  }
  for (const BinaryRow& row : kBinaries) {
    const std::vector<float> z = Apply("host", row.prim, {x, y});
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = row.exact(x[i], y[i]);
      ASSERT_LE(UlpsApart(z[i], exact), 2) << ScalarPrimName(row.prim) << "(" << x[i] << ", "
                                           << y[i] << ") is " << z[i] << ", expected " << exact;
      ASSERT_TRUE(exact != 0 || std::signbit(z[i]) == std::signbit(exact))
          << ScalarPrimName(row.prim) << "(" << x[i] << ", " << y[i] << ")";
    }
  }
}

TEST(Math, SpecialValuesAreThoseOfTheLibrary) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> x = {0.0f,
                                -0.0f,
                                kInf,
                                -kInf,
                                nan,
                                -nan,
                                kTiny,
                                -kTiny,
                                1.0f,
                                -1.0f,
                                std::numeric_limits<float>::min(),
                                std::numeric_limits<float>::max(),
                                std::numeric_limits<float>::lowest(),
                                88.8f,
                                -103.9f,
                                -104.1f};
  for (const std::string& target : Targets()) {
    for (const FunctionRow& row : kFunctions) {
      const std::vector<float> y = Apply(target, row.prim, {x});
      for (size_t i = 0; i < x.size(); ++i) {
        const auto want = static_cast<float>(row.exact(x[i]));
        const bool same = std::isnan(want) ? std::isnan(y[i])
                                           : UlpsApart(y[i], row.exact(x[i])) <= 2 &&
                                                 std::signbit(y[i]) == std::signbit(want);
        EXPECT_TRUE(same) << target << " " << ScalarPrimName(row.prim) << "(" << x[i] << ") is "
                          << y[i] << ", expected " << want;
      }
    }
  }
}

// A fused multiply-add is fused even on CPUs that have no instruction for it.
TEST(Math, EveryTargetGivesTheSameBits) {
  const std::vector<float> x = DenseSamples(/*per_exponent=*/64);
  for (const FunctionRow& row : kFunctions) {
    const std::vector<float> first = Apply("baseline", row.prim, {x});
    for (const std::string& target : Targets()) {
      const std::vector<float> y = Apply(target, row.prim, {x});
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(first[i]) ||
                    (std::isnan(y[i]) && std::isnan(first[i])))
            << target << " " << ScalarPrimName(row.prim) << "(" << x[i] << ")";
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker::codegen
