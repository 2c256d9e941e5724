// Proves that debug_nans finds the op, the line, the element and the device of a NaN, in every kind
// of program. The programs run on a cluster of four devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "embed/testing/on_cluster.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::Not;

using DebugNansTest = testing::ClusterTest;

TEST_F(DebugNansTest, NamesTheOpTheLineAndTheElement) {
  const debug_nans on;
  int line = 0;
  const auto f = jit([&line](Array x) {
    const Array y = x - 3;
    line = __LINE__ + 1;
    return 2 * log(y);
  });
  EXPECT_THAT(f(array<float>({4, 5})).get<float>().size(), 2);
  const Error e = ErrorOf([&] { f(array<float>({4, 5, 1, 6, 2, 7}, {2, 3})); });
  EXPECT_EQ(e.kind(), ErrorKind::kFloatingPointError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("invalid value (nan) encountered in log, "),
                              HasSubstr("element [0, 2] of f32[2,3], of -2"),
                              HasSubstr("(debug_test.cc:" + std::to_string(line) + ")")));
}

TEST_F(DebugNansTest, NamesTheDevice) {
  const debug_nans on;
  const Mesh mesh = make_mesh({4}, {"x"}, {AxisType::kAuto});
  const Array x = put(testing::Vec({1, 1, 1, 1, 1, -1, 1, 1}), mesh, P("x"));
  const Error e = ErrorOf([&] { jit([](Array x) { return sqrt(x) + 1; })(x); });
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("encountered in sqrt, element [5] of f32[8], of -1, on device "),
                    HasSubstr(std::to_string(x.devices()[2]))));
}

TEST_F(DebugNansTest, IgnoresNansThatWhereDiscards) {
  const debug_nans on;
  const auto f = jit([](Array x) { return where(x > 0, log(x), 0); });
  EXPECT_THAT(f(array<float>({-1, 1})).get<float>(), ElementsAre(0, 0));
  // The gradient does make a NaN: 0 * inf.
  const auto g = jit(grad([](Array x) { return sum(where(x > 0, sqrt(x), 0)); }));
  EXPECT_THAT(ErrorOf([&] {
                g(array<float>({0, 1}));
              }).what(),
              HasSubstr("invalid value (nan) encountered in mul"));
}

TEST_F(DebugNansTest, NamesAnArgumentThatContainsANan) {
  const debug_nans on;
  const auto f = jit([](const std::pair<Array, Array>& p) { return p.first + p.second; });
  const Array nan = array<float>({1, NAN}), one = array<float>({1, 1});
  EXPECT_THAT(ErrorOf([&] { f(std::pair(one, nan)); }).what(),
              HasSubstr("argument args[0][1] already contains one"));
}

TEST_F(DebugNansTest, LooksIntoLoopsBranchesAndRules) {
  const debug_nans on;
  int line = 0;
  const auto step = [&line](const Array& x, NoneType) {
    const Array y = x - 1;
    line = __LINE__ + 1;
    return std::pair(y, log(y));
  };
  const Error loop = ErrorOf([&] {
    jit([&](Array x) { return scan(step, x, None, {.length = 3}).second; })(scalar(2.5F));
  });
  EXPECT_THAT(loop.what(), AllOf(HasSubstr("encountered in scan"), HasSubstr("where log made"),
                                 HasSubstr("of -0.5"),
                                 HasSubstr("(debug_test.cc:" + std::to_string(line) + ")")));
  const auto inner = jit([](Array x) { return sqrt(x); });
  EXPECT_THAT(ErrorOf([&] { jit([&](Array x) { return 1 + inner(x); })(scalar(-1.F)); }).what(),
              HasSubstr("sqrt"));
  const auto ruled = custom_jvp(
      [](Array x) { return log(x); },
      [](const auto& p, const auto& t) { return std::pair(log(std::get<0>(p)), std::get<0>(t)); });
  EXPECT_THAT(ErrorOf([&] { jit(ruled)(scalar(-1.F)); }).what(),
              HasSubstr("encountered in log, the scalar f32, of -1"));
}

TEST_F(DebugNansTest, LooksIntoShardMap) {
  const debug_nans on;
  const Mesh mesh = make_mesh({4}, {"x"}, {AxisType::kAuto});
  const auto f = jit([&](Array x) {
    return shard_map([](Array s) { return lax::psum(log(s), "x"); }, mesh, P("x"), P())(x);
  });
  EXPECT_THAT(
      ErrorOf([&] {
        f(array<float>({1, 1, -2, 1}));
      }).what(),
      AllOf(HasSubstr("where log made"), HasSubstr("of -2"), HasSubstr("at place 2 of the mesh")));
}

TEST_F(DebugNansTest, ChecksOpsOutsideOfJitAndComplexNumbers) {
  const Array x = array<float>({-1}), z = array<std::complex<float>>({{0, 0}});
  EXPECT_THAT(log(x).get<float>(), ElementsAre(::testing::IsNan()));
  const debug_nans on;
  EXPECT_THAT(ErrorOf([&] { log(x); }).what(), HasSubstr("encountered in log"));
  EXPECT_THAT(ErrorOf([&] { z / z; }).what(), HasSubstr("invalid value (nan)"));
  const debug_nans off(false);
  EXPECT_THAT(log(x).get<float>(), ElementsAre(::testing::IsNan()));
}

TEST_F(DebugNansTest, DonatesNothing) {
  const debug_nans on;
  const auto f = jit([](Array x) { return log(x); }, {.donate_argnums = {0}});
  const Array x = array<float>({-1});
  EXPECT_EQ(ErrorOf([&] { f(x); }).kind(), ErrorKind::kFloatingPointError);
  EXPECT_THAT(x.get<float>(), ElementsAre(-1));
}

}  // namespace
}  // namespace tessera
