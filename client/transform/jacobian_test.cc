// Tests of jacfwd, jacrev and hessian. Most tests run both ways, by columns and by rows, and expect
// the same blocks. Traced functions run on the reference evaluator.
#include "client/transform/jacobian.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/evaluated.h"

namespace tessera {

struct Line {
  Array slope, intercept;
  int degree;
};
TESSERA_TREE(Line, slope, intercept, degree)

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using testing::Values;
using testing::Vec;

// Runs `check` with jacfwd (by columns) and then with jacrev (by rows), which must give the same
// results.
template <class Check>
void InBothWays(const Check& check) {
  check([](auto f) { return jacfwd(f); });
  check([](auto f) { return jacrev(f); });
}

TEST(JacobianTest, HasTheResultsDimsThenTheArguments) {
  InBothWays([](auto way) {
    const auto f = [](Array x) { return stack({x[0] * x[1], x[0] + square(x[2]), 3 * x[1]}); };
    const auto out = Evaluated(way(f), Vec({1, 2, .5}));
    EXPECT_EQ(out[0].shape(), (Dims{3, 3}));
    EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 1, 0, 1, 0, 1, 0, 3, 0));
    const auto matrix =
        Evaluated(way([](Array m) { return sum(m * m, 1); }), Host({1, 2, 3, 4, 5, 6}, {2, 3}));
    EXPECT_EQ(matrix[0].shape(), (Dims{2, 2, 3}));
    EXPECT_THAT(matrix[0].ToDoubles(), ElementsAre(2, 4, 6, 0, 0, 0, 0, 0, 0, 8, 10, 12));
  });
}

TEST(JacobianTest, OfScalarsAndOfResultsIndependentOfTheArgument) {
  InBothWays([](auto way) {
    EXPECT_THAT(Values(way([](Array x) { return x * x; }), Host({3}, {})), ElementsAre(6));
    const auto zero = Evaluated(way([](Array) { return ones({3}); }), Vec({1, 2}));
    EXPECT_EQ(zero[0].shape(), (Dims{3, 2}));
    EXPECT_THAT(zero[0].ToDoubles(), ElementsAre(0, 0, 0, 0, 0, 0));
    EXPECT_EQ(Evaluated(way([](Array x) { return 2 * x; }), Vec({}))[0].shape(), (Dims{0, 0}));
  });
}

TEST(JacobianTest, OfTreesIsATreeOfTrees) {
  const auto check = [](auto way) {
    const auto f = [way](Array w, Array b) {
      const auto outer = [](Array w, Array b) {
        return std::pair(expand_dims(w, 1) * b, sum(w) * b[0]);
      };
      // The type is {outer product by {w, b}, sum by {w, b}}.
      const std::pair<std::tuple<Array, Array>, std::tuple<Array, Array>> jacobian =
          way(outer)(w, b);
      return jacobian;
    };
    const auto out = Evaluated(f, Vec({1, 2}), Vec({3, 4, 5}));
    ASSERT_EQ(out.size(), 4);
    EXPECT_EQ(out[0].shape(), (Dims{2, 3, 2}));
    EXPECT_THAT(out[0].ToDoubles(), ElementsAre(3, 0, 4, 0, 5, 0, 0, 3, 0, 4, 0, 5));
    EXPECT_EQ(out[1].shape(), (Dims{2, 3, 3}));
    EXPECT_THAT(out[1].ToDoubles(),
                ElementsAre(1, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 2, 0, 0, 0, 2));
    EXPECT_THAT(out[2].ToDoubles(), ElementsAre(3, 3));
    EXPECT_THAT(out[3].ToDoubles(), ElementsAre(3, 0, 0));
  };
  check([](auto f) { return jacfwd<0, 1>(f); });
  check([](auto f) { return jacrev<0, 1>(f); });
}

TEST(JacobianTest, OfAStructIsThatStructWithItsStatics) {
  InBothWays([](auto way) {
    const auto f = [way](Array slope, Array intercept, Array x) {
      const auto predict = [](const Line& line, Array x) {
        return line.slope * lax::integer_pow(x, line.degree) + line.intercept;
      };
      const Line gradient = way(predict)(Line{slope, intercept, 2}, x);
      EXPECT_EQ(gradient.degree, 2);
      return std::pair(gradient.slope, gradient.intercept);
    };
    const auto out = Evaluated(f, Host({7}, {}), Host({1}, {}), Vec({2, 3}));
    EXPECT_THAT(out[0].ToDoubles(), ElementsAre(4, 9));
    EXPECT_THAT(out[1].ToDoubles(), ElementsAre(1, 1));
  });
}

TEST(JacobianTest, AuxIsNotDifferentiated) {
  const auto f = [](Array x) { return std::pair(square(x), x > 2); };
  for (const auto& out :
       {Evaluated(jacfwd(f, has_aux), Vec({1, 3})), Evaluated(jacrev(f, has_aux), Vec({1, 3}))}) {
    ASSERT_EQ(out.size(), 2);
    EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 0, 0, 6));
    EXPECT_EQ(out[1].dtype(), DType::kBool);
    EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 1));
  }
}

TEST(JacobianTest, OfHolomorphicFunctionsIsTheComplexDerivative) {
  const auto f = [](Array re, Array im) {
    const auto square_of = [](Array z) { return z * z; };
    const Array z = complex(re, im);
    const Array fwd = jacfwd(square_of, {.holomorphic = true})(z);
    const Array rev = jacrev(square_of, {.holomorphic = true})(z);
    return std::tuple(real(fwd), imag(fwd), real(rev), imag(rev));
  };
  const auto out = Evaluated(f, Vec({1, 2}), Vec({1, -1}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 0, 0, 4));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 0, 0, -2));
  EXPECT_EQ(out[2].ToDoubles(), out[0].ToDoubles());
  EXPECT_EQ(out[3].ToDoubles(), out[1].ToDoubles());
}

TEST(JacobianTest, RefusesTypesWithoutDerivatives) {
  const Array integers = abstract({2}, kS32), reals = abstract({2}), z = abstract({2}, kC64);
  const auto same = [](Array x) { return 1 * x; };
  const auto positive = [](Array x) { return x > 0; };
  const auto error = [](auto f, const Array& x) { return ErrorOf([&] { trace(f, x); }); };
  EXPECT_THAT(
      error(jacfwd(same), integers).what(),
      AllOf(HasSubstr("jacfwd requires real-valued inputs"), HasSubstr("args[0] is s32[2]")));
  EXPECT_THAT(error(jacrev(same), integers).what(),
              HasSubstr("jacrev requires real- or complex-valued inputs"));
  EXPECT_THAT(error(jacfwd(same), z).what(), HasSubstr("jacfwd requires real-valued inputs"));
  EXPECT_THAT(error(jacrev(same), z).what(), HasSubstr("jacrev requires real-valued outputs"));
  EXPECT_THAT(error(jacrev(positive), reals).what(),
              AllOf(HasSubstr("jacrev requires real-valued outputs"), HasSubstr("has_aux")));
  EXPECT_THAT(error(jacfwd(positive), reals).what(), HasSubstr("outputs that have tangents"));
  EXPECT_THAT(error(jacfwd(same, {.holomorphic = true}), reals).what(),
              HasSubstr("jacfwd with holomorphic=True requires inputs with complex dtype"));
  EXPECT_THAT(error(jacrev([](Array x) { return abs(x); }, {.holomorphic = true}), z).what(),
              HasSubstr("jacrev with holomorphic=True requires outputs with complex dtype"));
  EXPECT_EQ(error(jacrev(same), integers).kind(), ErrorKind::kTypeError);
}

TEST(HessianTest, OfAPolynomial) {
  const auto f = [](Array x) { return sum(x * x * x) + x[0] * x[1]; };
  EXPECT_THAT(Values(hessian(f), Vec({1, 2, .5})), ElementsAre(6, 1, 0, 1, 12, 0, 0, 0, 3));
  const auto by_both = [](Array x, Array y) {
    return hessian<0, 1>([](Array x, Array y) { return sum(x * x) * y; })(x, y);
  };
  const auto blocks = Evaluated(by_both, Vec({1, 2}), Host({5}, {}));
  ASSERT_EQ(blocks.size(), 4);
  EXPECT_THAT(blocks[0].ToDoubles(), ElementsAre(10, 0, 0, 10));
  EXPECT_THAT(blocks[1].ToDoubles(), ElementsAre(2, 4));
  EXPECT_THAT(blocks[2].ToDoubles(), ElementsAre(2, 4));
  EXPECT_THAT(blocks[3].ToDoubles(), ElementsAre(0));
}

TEST(HessianTest, ReturnsAuxUndifferentiated) {
  const auto f = [](Array x) { return std::pair(sum(square(x)), x + 1); };
  const auto out = Evaluated(hessian(f, has_aux), Vec({1, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 0, 0, 2));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 4));
}

// On Explicit axes, as in JAX, a block of jacfwd is sharded along the result's dims, and a block of
// jacrev along the argument's dims.
TEST(JacobianTest, KeepsShardings) {
  const Mesh explicit_mesh = abstract_mesh({2}, {"x"}, {AxisType::kExplicit});
  Type sharded = ir::MakeType(kF32, {4});
  sharded.sharding = {{"x"}};
  const Array x = abstract_of(sharded);
  const set_mesh mesh(explicit_mesh);
  const auto f = [](Array v) { return v * v; };
  const auto type = [&](auto g) { return trace(g, x).fn()->result_types()[0].ToString(); };
  EXPECT_EQ(type(jacfwd(f)), "f32[4@x,4]");
  EXPECT_EQ(type(jacrev(f)), "f32[4,4@x]");
}
// Inside shard_map, as in JAX, jacrev by an argument that does not vary sums over the devices, and
// jacfwd does not.
TEST(JacobianTest, InShardMapJacrevSumsOverDevices) {
  const auto run = [](auto way) {
    return [way](Array a, Array b) {
      const auto body = [way](Array a, Array b) { return way([b](Array v) { return v * b; })(a); };
      return shard_map(body, abstract_mesh({2}, {"x"}, {AxisType::kAuto}), {P(), P("x")}, P("x"))(
          a, b);
    };
  };
  const ir::Array a = Vec({0, 1}), b = Vec({0, 1, 2, 3});
  EXPECT_THAT(Values(run([](auto f) { return jacfwd(f); }), a, b),
              ElementsAre(0, 0, 0, 1, 2, 0, 0, 3));
  EXPECT_THAT(Values(run([](auto f) { return jacrev(f); }), a, b),
              ElementsAre(2, 0, 0, 4, 2, 0, 0, 4));
}

}  // namespace
}  // namespace tessera
