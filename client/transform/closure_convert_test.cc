// Tests of closure_convert: the values that it hoists, the arguments that the converted function
// takes, and its errors. Traced functions run on the reference evaluator.
#include "client/transform/closure_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/evaluated.h"
#include "client/transform.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Host;
using testing::Values;
using testing::Vec;

struct Model {
  Array w;
  int power = 1;
};
TESSERA_TREE(Model, w, power)

TEST(ClosureConvertTest, TheConvertedFunctionHasTheOriginalsResults) {
  const auto f = [](Array a) {
    const Array b = a * a;
    int runs = 0;
    const auto [g, hoisted] = closure_convert(
        [&](const Array& x, const Array& y) {
          ++runs;
          return std::pair(x * b + y, a);
        },
        std::tuple(a, a));
    EXPECT_EQ(hoisted.size(), 2) << "b and a";
    EXPECT_EQ(runs, 1);
    const auto [first, second] = g(a + 1, a, hoisted);
    // Pass other values in place of the hoisted ones: b becomes 0.
    const auto [third, fourth] = g(a + 1, a, {hoisted[0] * 0, hoisted[1]});
    EXPECT_EQ(runs, 1) << "g does not trace the function again";
    return std::tuple(first, second, third, fourth);
  };
  EXPECT_THAT(Values([&](Array a) { return std::get<0>(f(a)); }, Vec({2, 3})), ElementsAre(14, 39));
  EXPECT_THAT(Values([&](Array a) { return std::get<1>(f(a)); }, Vec({2, 3})), ElementsAre(2, 3));
  EXPECT_THAT(Values([&](Array a) { return std::get<2>(f(a)); }, Vec({2, 3})), ElementsAre(2, 3));
  EXPECT_THAT(Values([&](Array a) { return std::get<3>(f(a)); }, Vec({2, 3})), ElementsAre(2, 3));
}

TEST(ClosureConvertTest, ACustomRuleDifferentiatesHoistedValues) {
  using Hoisted = std::vector<Array>;
  // The rule triples the derivative, which shows that it is used.
  const auto by_rule = [](const auto& g, const Array& x, const Hoisted& hoisted) {
    return custom_vjp(
        [g](const Array& v, const Hoisted& h) { return g(v, h); },
        [g](const Array& v, const Hoisted& h) { return std::pair(g(v, h), std::pair(v, h)); },
        [g](const std::pair<Array, Hoisted>& at, const Array& ct) {
          const auto f = [g](const Array& v, const Hoisted& h) { return g(v, h); };
          const auto pull = vjp(f, std::tuple(at.first, at.second)).second;
          return tree_map([](const Array& c) { return 3 * c; }, pull(ct));
        })(x, hoisted);
  };
  const auto loss = [&](Array a) {
    const auto [g, hoisted] = closure_convert([&](const Array& x) { return sum(a * a * x); }, a);
    return by_rule(g, lax::stop_gradient(a), hoisted);
  };
  EXPECT_THAT(Values([&](Array a) { return grad(loss)(a); }, Vec({1, 2})), ElementsAre(6, 24));
  const auto without_conversion = [&](Array a) {
    return by_rule([a](const Array& x, const Hoisted&) { return sum(a * a * x); },
                   lax::stop_gradient(a), {});
  };
  EXPECT_EQ(ErrorOf([&] {
              Values([&](Array a) { return grad(without_conversion)(a); }, Vec({1}));
            }).kind(),
            ErrorKind::kNotImplemented)
      << "without closure_convert";
}

TEST(ClosureConvertTest, RunsUnderVmapAndScan) {
  const auto mapped = [](Array a) {
    const Array all = sum(a);
    const auto [g, hoisted] = closure_convert([&](const Array& x) { return all * x; }, all);
    return vmap([g = g, h = hoisted](Array x) { return g(x, h); })(a);
  };
  EXPECT_THAT(Values(mapped, Vec({1, 2})), ElementsAre(3, 6));
  EXPECT_THAT(Values([&](Array a) { return grad([&](Array b) { return sum(mapped(b)); })(a); },
                     Vec({1, 2})),
              ElementsAre(6, 6));
  const auto scanned = [](Array a) {
    const auto [g, hoisted] = closure_convert([&](const Array& x) { return a * x; }, a);
    return scan([&, g = g, h = hoisted](Array c, NoneType) { return std::pair(g(c, h), None); }, a,
                None, {.length = 3})
        .first;
  };
  EXPECT_THAT(Values([&](Array a) { return grad(scanned)(a); }, Host({2}, {})), ElementsAre(32));
}

TEST(ClosureConvertTest, StaticValuesBelongToTheStructure) {
  const auto power = [](const Model& m) {
    Array y = m.w;
    for (int i = 1; i < m.power; ++i) y = y * m.w;
    return y;
  };
  EXPECT_THAT(Values(
                  [&](Array w) {
                    const auto g = closure_convert(power, Model{w, 3}).first;
                    return g(Model{w, 3}, {});
                  },
                  Vec({2})),
              ElementsAre(8));
  const Error e = ErrorOf([&] {
    Values(
        [&](Array w) {
          const auto g = closure_convert(power, Model{w, 3}).first;
          return g(Model{w, 2}, {});
        },
        Vec({2}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("must have the same Pytree structure as the example "
                                        "arguments passed when closure_convert was called"),
                              HasSubstr("args[0].power"), HasSubstr("closure_convert_test.cc:")));
}

TEST(ClosureConvertTest, RefusesArgumentsOfOtherTypesOrNumbers) {
  const auto refused = [](auto call) {
    return ErrorOf([&] {
      Values(
          [&](Array a) {
            const auto [g, hoisted] = closure_convert([&](const Array& x) { return a * x; }, a);
            return call(g, hoisted, a);
          },
          Vec({1, 2}));
    });
  };
  const Error type = refused(
      [](const auto& g, const auto& hoisted, Array a) { return g(a.astype(kS32), hoisted); });
  EXPECT_EQ(type.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(type.what(),
              HasSubstr("closure_convert: args[0] has type s32[2], but the function was converted "
                        "for f32[2]. Call closure_convert with an example of this type"));
  EXPECT_THAT(refused([](const auto& g, const auto& hoisted, Array a) {
                return g(a, {sum(hoisted[0])});
              }).what(),
              HasSubstr("hoisted[0] has type f32[], but the function was converted for f32[2]"));
  EXPECT_THAT(refused([](const auto& g, const auto&, Array a) { return g(a, {}); }).what(),
              HasSubstr("is called with 0 hoisted values, but 1 are expected"));
  EXPECT_THAT(
      refused([](const auto& g, const auto& hoisted, Array) { return g(Array(), hoisted); }).what(),
      HasSubstr("must have the same Pytree structure"));
}

TEST(ClosureConvertTest, ArgumentsHaveTheTypesOfTheExamples) {
  // Converts a closure that captures a, and calls `call`(g, hoisted, b), in a shard_map where a
  // varies over the axis x, and b varies over no axis.
  const auto in_body = [](auto call) {
    trace(
        [&](Array x, Array y) {
          const auto body = [&](Array a, Array b) {
            const auto [g, hoisted] = closure_convert([&](const Array& v) { return v * a; }, a);
            return call(g, hoisted, b);
          };
          return shard_map(body, abstract_mesh({2}, {"x"}, {AxisType::kAuto}), {P("x"), P()},
                           P("x"))(x, y);
        },
        abstract({4}), abstract({2}));
  };
  in_body([](const auto& g, const auto& h, Array b) { return g(lax::pcast(b, "x"), h); });
  EXPECT_THAT(
      ErrorOf([&] {
        in_body([](const auto& g, const auto& h, Array b) { return g(b, h); });
      }).what(),
      HasSubstr("args[0] has type f32[2], but the function was converted for f32[2]{V:x}. Apply "
                "pcast(..., ('x',), to='varying') to it"));
  // A number is a weakly typed array, so the argument that replaces it becomes weakly typed.
  trace(
      [](Array strong) {
        const auto g = closure_convert([](const Array& x) { return x + 1; }, 2.0f).first;
        EXPECT_EQ(g(strong, {}).type().ToString(), "f32[]~");
        return strong;
      },
      abstract({}));
}

}  // namespace
}  // namespace tessera
