// Proves the arithmetic of reductions at its edges: zeros with signs, rounding of half floats,
// integers that wrap, and unaligned memory. The tests call the reducers directly, without a
// communicator.
#include "worker/collectives/reduce.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

// Returns the sum of `inputs`, which are one element each.
template <typename T>
T SumOf(ir::DType dtype, const std::vector<T>& inputs) {
  std::vector<const std::byte*> in;
  for (const T& input : inputs) in.push_back(reinterpret_cast<const std::byte*>(&input));
  T result;
  std::byte* const out[] = {reinterpret_cast<std::byte*>(&result)};
  (*FindReducer(ir::ReduceKind::kSum, dtype))(in, absl::MakeConstSpan(out), sizeof(T));
  return result;
}

// Reduces two elements whose bits are `a` and `b`.
template <typename T>
T ReduceTwo(ir::ReduceKind reduce, ir::DType dtype, T a, T b) {
  const std::byte* const in[] = {reinterpret_cast<const std::byte*>(&a),
                                 reinterpret_cast<const std::byte*>(&b)};
  T result;
  std::byte* const out[] = {reinterpret_cast<std::byte*>(&result)};
  (*FindReducer(reduce, dtype))(absl::MakeConstSpan(in), absl::MakeConstSpan(out), sizeof(T));
  return result;
}

TEST(Reduce, MinusZeroIsLessThanZeroInEveryFloat) {
  const auto check = [](ir::DType dtype, auto minus_zero) {
    const decltype(minus_zero) zero = 0;
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMax, dtype, minus_zero, zero), zero);
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMax, dtype, zero, minus_zero), zero);
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMax, dtype, minus_zero, minus_zero), minus_zero);
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMin, dtype, minus_zero, zero), minus_zero);
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMin, dtype, zero, minus_zero), minus_zero);
    EXPECT_EQ(ReduceTwo(ir::ReduceKind::kMin, dtype, zero, zero), zero);
  };
  check(ir::DType::kF16, uint16_t{0x8000});
  check(ir::DType::kBF16, uint16_t{0x8000});
  check(ir::DType::kF32, uint32_t{0x80000000});
  check(ir::DType::kF64, uint64_t{1} << 63);
}

float HalfToFloat(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const float fraction = static_cast<float>(half & 1023) / 1024;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -14);
  return sign * std::ldexp(1 + fraction, exponent - 15);
}
bool IsHalfNan(uint16_t half) { return (half & 0x7fff) > 0x7c00; }

TEST(Reduce, EveryHalfSurvivesWideningAndNarrowing) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t f16 = SumOf<uint16_t>(ir::DType::kF16, {half});
    if (IsHalfNan(half)) {
      ASSERT_TRUE(IsHalfNan(f16)) << bits;
    } else {
      ASSERT_EQ(f16, half);
    }
    const uint16_t bf16 = SumOf<uint16_t>(ir::DType::kBF16, {half});
    const bool nan = std::isnan(std::bit_cast<float>(bits << 16));
    ASSERT_EQ(bf16, nan ? half | 0x40 : half);
  }
}

TEST(Reduce, HalfSumsRoundToNearestEven) {
  for (uint32_t a = 0; a < 0x10000; a += 7) {
    for (const uint32_t b : {0x0001u, 0x03ffu, 0x0400u, 0x3c01u, 0x8002u, 0x7bffu, 0xbfffu}) {
      const float exact = HalfToFloat(a) + HalfToFloat(b);
      const uint16_t sum =
          SumOf<uint16_t>(ir::DType::kF16, {static_cast<uint16_t>(a), static_cast<uint16_t>(b)});
      if (std::isnan(exact)) {
        ASSERT_TRUE(IsHalfNan(sum));
        continue;
      }
      if (std::abs(exact) >= 65520.0f) {
        ASSERT_EQ(sum & 0x7fff, 0x7c00);
        continue;
      }
      // Neither neighbour is nearer to the exact sum, and a tie went to the even one.
      const float error = std::abs(HalfToFloat(sum) - exact);
      for (const int step : {-1, 1}) {
        const auto neighbour = static_cast<uint16_t>(sum + step);
        if (((neighbour ^ sum) & 0x8000) != 0 || (neighbour & 0x7fff) >= 0x7c00) continue;
        const float other = std::abs(HalfToFloat(neighbour) - exact);
        ASSERT_TRUE(error < other || (error == other && (sum & 1) == 0)) << a << " + " << b;
      }
    }
  }
}

TEST(Reduce, SignedOverflowWraps) {
  EXPECT_EQ(SumOf<int32_t>(ir::DType::kS32, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(SumOf<int64_t>(ir::DType::kS64, {INT64_MIN, -1}), INT64_MAX);
  EXPECT_EQ(SumOf<int8_t>(ir::DType::kS8, {100, 100}), -56);
}

TEST(Reduce, OperandsMayBeUnaligned) {
  alignas(8) std::byte memory[3][17] = {};
  const double one = 1.5, two = 2.25;
  std::memcpy(memory[0] + 1, &one, sizeof(one));
  std::memcpy(memory[1] + 3, &two, sizeof(two));
  const std::byte* const in[] = {memory[0] + 1, memory[1] + 3};
  std::byte* const out[] = {memory[2] + 5};
  (*FindReducer(ir::ReduceKind::kSum, ir::DType::kF64))(absl::MakeConstSpan(in),
                                                        absl::MakeConstSpan(out), sizeof(double));
  double sum;
  std::memcpy(&sum, memory[2] + 5, sizeof(sum));
  EXPECT_EQ(sum, 3.75);
}

}  // namespace
}  // namespace tessera::worker
