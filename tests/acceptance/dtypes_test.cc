// Tests arrays of every dtype on an embedded cluster. They are sharded, moved, exchanged and read
// back with arbitrary bits, and programs compute with the narrow dtypes in compiled kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DTypes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 4})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }

  static Mesh Square() {
    return make_mesh({2, 2}, {"x", "y"}, std::vector<AxisType>(2, AxisType::kAuto));
  }

  // Returns an array whose elements differ and have arbitrary bits, as far as the dtype allows.
  // Booleans and integers of 2 and 4 bits are only 0 and 1, because the upper bits of such an
  // integer repeat its sign.
  static ir::Array Odd(DType dtype, Dims shape) {
    ir::Array a(dtype, std::move(shape));
    const bool small = ir::IsInteger(dtype) && ir::BitWidth(dtype) < 8;
    const auto width = static_cast<size_t>(ir::ByteWidth(dtype));
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      if (small || dtype == kBool) {
        a.Set(i, static_cast<double>(i % 2));
        continue;
      }
      const uint64_t words[2] = {0x9e3779b97f4a7c15u * static_cast<uint64_t>(i + 1), ~uint64_t(i)};
      std::memcpy(a.MutableData() + static_cast<size_t>(i) * width, words, width);
    }
    return a;
  }
};

// Moves arrays of every dtype in all ways and compares the bits.
TEST_F(DTypes, AnyBitsMoveOverAnyMesh) {
  const Mesh mesh = Square();
  for (int d = 0; d < ir::kNumDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    SCOPED_TRACE(std::string(ir::DTypeName(dtype)));
    const ir::Array host = Odd(dtype, {8, 4});
    const Array cut = put(host, mesh, P("x", "y"));
    // The array is moved from devices to other devices, then through a program with two ops that
    // move data, and back to the host.
    const Array rows = put(cut, mesh, P(std::vector<std::string>{"x", "y"}, {}));
    const auto turned = jit([](Array x) { return transpose(concatenate({x, flip(x, 0)}, 1)); });
    const ir::Array got = turned(rows).value();
    ShardMapOptions unchecked;
    unchecked.check_vma = false;
    const auto gather = shard_map([](Array b) { return lax::all_gather(b, "x", 0, true); }, mesh,
                                  {P("x", "y")}, P({}, "y"), unchecked);
    EXPECT_EQ(jit(gather)(cut).value(), host);
    const auto width = static_cast<size_t>(ir::ByteWidth(dtype));
    ASSERT_EQ(got.shape(), (Dims{8, 8}));
    for (int64_t i = 0; i < 8; ++i)
      for (int64_t j = 0; j < 8; ++j) {
        const int64_t row = i < 4 ? j : 7 - j;
        ASSERT_EQ(std::memcmp(got.data() + static_cast<size_t>(i * 8 + j) * width,
                              host.data() + static_cast<size_t>(row * 4 + i % 4) * width, width),
                  0)
            << i << ", " << j;
      }
  }
}

TEST_F(DTypes, ComplexNumbersAreSummedOverDevices) {
  const Mesh mesh = Square();
  const std::vector<std::complex<float>> values = {{1, 2}, {3, -4}, {0.5f, 0}, {0, 8}};
  const Array x = put(array(values), mesh, P("x"));
  const auto sum = jit(shard_map([](Array b) { return lax::psum(b, "x"); }, mesh, {P("x")}, P()));
  EXPECT_THAT(sum(x).get<std::complex<double>>(),
              ElementsAre(std::complex<double>(1.5, 2), std::complex<double>(3, 4)));
}

TEST_F(DTypes, NarrowIntegersWrapAndSumInThirtyTwoBits) {
  const Mesh mesh = Square();
  const Array x = put(array(std::vector<int8_t>{100, 100, -100, 127}), mesh, P("x"));
  const auto doubled = jit([](Array v) { return v + v; });
  EXPECT_EQ(doubled(x).dtype(), kS8);
  EXPECT_THAT(doubled(x).get<int>(), ElementsAre(-56, -56, 56, -2));
  EXPECT_EQ(sum(x).dtype(), kS32);
  EXPECT_EQ(sum(x).item<int>(), 227);
  const Array big = array(std::vector<uint64_t>{~uint64_t{0}, 3});
  EXPECT_THAT(lax::div(big, 2).get<uint64_t>(), ElementsAre(~uint64_t{0} / 2, 1));
  EXPECT_EQ(big.to_string(), "Array<u64[2]> [18446744073709551615, 3]");
}

TEST_F(DTypes, HalfPrecisionTrains) {
  const Mesh mesh = Square();
  const auto loss = [](Array w, Array x) { return mean(square(matmul(x, w))); };
  const Array w = put(full({16, 4}, 0.25, kF16).value(), mesh, P({}, "y"));
  const Array x = put(full({8, 16}, 0.5, kF16).value(), mesh, P("x", {}));
  const Array g = jit(grad(loss))(w, x);
  EXPECT_EQ(g.dtype(), kF16);
  // The gradient of mean((x w)^2) by w is 2 x^T (x w) / 32, so each element is 2 * 8 * 0.5 * 2 /
  // 32.
  EXPECT_THAT(g.get<float>(), ::testing::Each(0.5f));
}

TEST_F(DTypes, WhatHasNoPromotionSaysSoAtItsLine) {
  const Array a = array(std::vector<float>{1}).astype(DType::kF8E4M3FN);
  const Array b = array(std::vector<float>{1});
  const Error e = testing::ErrorOf([&] { a + b; });
  EXPECT_THAT(e.what(), HasSubstr("f8e4m3fn and f32 have no implicit promotion path"));
  EXPECT_THAT(e.what(), HasSubstr("dtypes_test.cc:"));
  EXPECT_THAT((a.astype(kF32) + b).get<float>(), ElementsAre(2));
}

}  // namespace
}  // namespace tessera
