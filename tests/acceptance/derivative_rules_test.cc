// Tests functions with custom derivative rules on an embedded cluster. The rules are sent to the
// coordinator as part of the program, and the devices run the function or its derivative, sharded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "client/tessera.h"
#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class DerivativeRules : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 4})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }

  static Mesh Square() {
    return make_mesh({2, 2}, {"x", "y"}, std::vector<AxisType>(2, AxisType::kAuto));
  }
};

// The identity function, with a gradient that is clamped to the range from -1 to 1.
Array Clipped(const Array& x) {
  return custom_vjp(
      [](const Array& v) { return v; }, [](const Array& v) { return std::pair(v, None); },
      [](NoneType, const Array& g) { return std::tuple(lax::clamp(-1.0, g, 1.0)); })(x);
}

TEST_F(DerivativeRules, ABackwardRuleRunsShardedInALoop) {
  const Mesh mesh = Square();
  const Array x = put(array(std::vector<float>{1, -2, 0.25f, 3}), mesh, P("x"));
  const auto loss = [](Array v) {
    const auto step = [](const Array& c) { return Clipped(c * 4); };
    return sum(square(fori_loop(
        0, 2, [&](const Array&, const Array& c) { return step(c); }, v)));
  };
  // The loss is 256 x^2. In the backward pass, the cotangent 32 x is clamped to +-1 and multiplied
  // by 4; then its result is clamped and multiplied once more.
  EXPECT_THAT(jit(grad(loss))(x).get<double>(), ElementsAre(4, -4, 4, 4));
  EXPECT_EQ(jit(loss)(x).item<float>(), 256 * (1 + 4 + 0.0625f + 9));
}

TEST_F(DerivativeRules, ForwardModeOverABackwardRuleNamesTheUsersLine) {
  const auto f = jit([](Array x) { return jvp(Clipped, std::tuple(x), std::tuple(x)).second; });
  const Error e = testing::ErrorOf([&] { f(array(std::vector<float>{1})).wait(); });
  EXPECT_THAT(e.what(), HasSubstr("can't apply forward-mode differentiation (jvp) to a custom_vjp "
                                  "function."));
  EXPECT_THAT(e.what(), HasSubstr("derivative_rules_test.cc:"));
}

TEST_F(DerivativeRules, ASolverIsDifferentiatedAtItsSolution) {
  const Mesh mesh = Square();
  const Array a = put(array(std::vector<float>{1, 1.5f, 0.5f, 1.25f}), mesh, P("x"));
  const Array b = put(array(std::vector<float>{3, 5, -1, 2}), mesh, P("y"));
  const auto solve = [](const Array& c, const Array& d) {
    const auto matvec = [&](const Array& x) { return c * x; };
    const auto iterate = [](const auto& mv, const Array& rhs) {
      return while_loop([&](const Array& x) { return lax::gt(max(abs(rhs - mv(x))), 1e-6); },
                        [&](const Array& x) { return x + 0.5 * (rhs - mv(x)); }, zeros_like(rhs));
    };
    return sum(lax::custom_linear_solve(matvec, d, iterate, None, {.symmetric = true}));
  };
  const auto [da, db] = jit(grad<0, 1>(solve))(a, b);
  const std::vector<double> minus_x_over_a = {-3, -5 / 2.25, 4, -2 / 1.5625};
  const std::vector<double> one_over_a = {1, 1 / 1.5, 2, 0.8};
  EXPECT_THAT(da.get<double>(), Pointwise(DoubleNear(1e-4), minus_x_over_a));
  EXPECT_THAT(db.get<double>(), Pointwise(DoubleNear(1e-4), one_over_a));
}

}  // namespace
}  // namespace tessera
