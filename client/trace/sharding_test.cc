// Tests of shardings in types while tracing, without a cluster. tests/acceptance runs the same
// programs.
#include "client/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/evaluated.h"
#include "ir/op_def.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Host;
using testing::Vec;

Array AbstractOf(std::string_view type) { return abstract_of(*ir::ParseType(type)); }

// Returns the types of f's results for arguments of these types. Checks that the traced program is
// well formed and that its text contains everything.
template <class F, class... T>
std::vector<std::string> ResultTypes(const F& f, T... types) {
  const auto traced = trace(f, AbstractOf(types)...);
  EXPECT_TRUE(ir::Verify(traced.program).ok()) << ir::Verify(traced.program);
  const std::string text = ir::PrintProgram(traced.program);
  const auto parsed = ir::ParseProgram(text);
  EXPECT_EQ(parsed.ok() ? ir::PrintProgram(*parsed) : parsed.status().ToString(), text);
  std::vector<std::string> out;
  for (const Type& t : traced.fn()->result_types()) out.push_back(t.ToString());
  return out;
}

class Explicit : public ::testing::Test {
 protected:
  set_mesh context_{abstract_mesh({2, 2}, {"x", "y"})};
};

TEST_F(Explicit, ReshardChangesTheTypeAndTransposes) {
  const auto f = [](Array v) { return reshard(v, P(None, "y")); };
  EXPECT_THAT(ResultTypes(f, "f32[4@x,2]"), ElementsAre("f32[4,2@y]"));
  EXPECT_THAT(ResultTypes(grad([=](Array v) { return sum(square(f(v))); }), "f32[4@x,2]"),
              ElementsAre("f32[4@x,2]"));
  // A reshard that changes nothing emits no op.
  const auto same =
      trace([](Array v) { return reshard(v, P("x", None)); }, AbstractOf("f32[4@x,2]"));
  EXPECT_TRUE(same.fn()->ops.empty());
}

TEST_F(Explicit, ReshardTakesATreeAndAPrefix) {
  using Pair = std::pair<Array, Array>;
  const auto both = [](Array v, Array w) { return reshard(Pair(v, w), P("x")); };
  EXPECT_THAT(ResultTypes(both, "f32[4]", "f32[2@y,2]"), ElementsAre("f32[4@x]", "f32[2@x,2]"));
  const auto each = [](Array v, Array w) { return reshard(Pair(v, w), {P("x"), None}); };
  EXPECT_THAT(ResultTypes(each, "f32[4]", "f32[2@y,2]"), ElementsAre("f32[4@x]", "f32[2@y,2]"));
  const Error e = ErrorOf([&] {
    trace([](Array v) { return reshard(Pair(v, v), {P("x"), P(), P()}); }, AbstractOf("f32[4]"));
  });
  EXPECT_THAT(e.what(), HasSubstr("3 children are given"));
}

TEST_F(Explicit, ShapeFunctionsAlongOtherDimsKeepTheSharding) {
  const auto f = [](Array v) {
    return std::tuple(repeat(v, 2, 1), pad(v, {{0, 0}, {1, 1}}, "edge"), tril(v),
                      diag(v[{Slice{}, 0}]), flip(v, 1), repeat(v, 2, 0, P("x")));
  };
  EXPECT_THAT(ResultTypes(f, "f32[4@x,4]"), ElementsAre("f32[4@x,8]", "f32[4@x,6]", "f32[4@x,4]",
                                                        "f32[4@x,4]", "f32[4@x,4]", "f32[8@x,4]"));
  const Error e = ErrorOf([] {
    trace([](Array v) { return tile(v, {2, 1}); }, AbstractOf("f32[4@x,4]"));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kShardingTypeError);
  EXPECT_THAT(e.what(), HasSubstr("Operand cannot be sharded on dimension 0"));
}

TEST_F(Explicit, RandomNumbersAreDrawnSharded) {
  const auto f = [](Array k) {
    return std::tuple(random::bits(k, {4, 2}, kU32, P("x")), random::normal(k, {4}, kF32, P("y")),
                      random::randint(k, {4}, 0, 10, kS32, P("x")),
                      random::bernoulli(k, 0.5, Dims{4}, "low", P("x")),
                      random::bernoulli(k, 0.5, Dims{4}, "high", P("x")),
                      random::normal(k, {4}, kC64, P("x")),
                      random::uniform(k, {2, 2}, kF32, zeros({2}), 1.0, P("x", "y")));
  };
  EXPECT_THAT(ResultTypes(f, "u32[2]"),
              ElementsAre("u32[4@x,2]", "f32[4@y]", "s32[4@x]", "bool[4@x]", "bool[4@x]",
                          "c64[4@x]", "f32[2@x,2@y]"));
  // The results of the cipher are sharded already, so each device computes only its own.
  const auto traced =
      trace([](Array k) { return random::bits(k, {4}, kU32, P("x")); }, AbstractOf("u32[2]"));
  for (const ir::Op& op : traced.fn()->ops) {
    if (op.def->name != "threefry2x32") continue;
    EXPECT_EQ(traced.fn()->type(op.results[0]).ToString(), "u32[4@x]");
  }
}

TEST_F(Explicit, ReshardChecksItsSpec) {
  const auto error_of = [](const PartitionSpec& spec) {
    return ErrorOf(
        [&] { trace([&](Array v) { return reshard(v, spec); }, AbstractOf("f32[4,2]")); });
  };
  EXPECT_THAT(error_of(P("q")).what(), HasSubstr("Resource axis: q of"));
  EXPECT_THAT(error_of(P("x", None, "y")).what(), HasSubstr("must be equal to aval's ndim (2)"));
  EXPECT_THAT(error_of(P("x", "x")).what(), HasSubstr("duplicate entries for axis 'x'"));
  EXPECT_THAT(ResultTypes([](Array v) { return reshard(v, P("x", None, None)); }, "f32[4,2]"),
              ElementsAre("f32[4@x,2]"));
  set_mesh automatic(abstract_mesh({2}, {"x"}, {AxisType::kAuto}));
  const Error e = error_of(P("x"));
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("cannot contain axis names that are of type Auto or Manual"),
                    HasSubstr("sharding_test.cc:")));
}

TEST_F(Explicit, FunctionsThatMakeOrChangeArraysTakeOutSharding) {
  EXPECT_THAT(ResultTypes(
                  [](Array v) {
                    return reshape(v, {2, 2, 2}, P("y"));
                  },
                  "f32[4@x,2]"),
              ElementsAre("f32[2@y,2,2]"));
  EXPECT_THAT(ResultTypes([](Array v) { return v.reshape({-1}, P("y")); }, "f32[4@x,2]"),
              ElementsAre("f32[8@y]"));
  EXPECT_THAT(ResultTypes([](Array v, Array w) { return dot(v, w, {}, P("x")); }, "f32[4,2@y]",
                          "f32[2@y,4]"),
              ElementsAre("f32[4@x,4]"));
  EXPECT_THAT(ResultTypes(
                  [](Array v) {
                    return einsum("ij,kj->ki", {v, v}, {}, P("y", "x"));
                  },
                  "f32[4@x,4@y]"),
              ElementsAre("f32[4@y,4@x]"));
  EXPECT_THAT(ResultTypes([](Array v) { return lax::reduce_max(v, {0}, P("x")); }, "f32[4@x,4]"),
              ElementsAre("f32[4@x]"));
  const auto made = [](Array v) {
    return std::make_tuple(zeros({4}, kF32, P("x")), ones({4, 2}, kBF16, P(None, "y")),
                           full({4}, 3, kS32, P({"x", "y"})), arange(4, kS32, P("y")),
                           one_hot(v, 4, kF32, -1, P("x")));
  };
  EXPECT_THAT(ResultTypes(made, "s32[2]"),
              ElementsAre("f32[4@x]", "bf16[4,2@y]", "s32[4@x@y]", "s32[4@y]", "f32[2@x,4]"));
}

TEST_F(Explicit, AWriteKeepsTheShardingUnlessStrict) {
  const auto write = [](Array v, Array i) { return v.at({Slice{}, i}).set(1); };
  {
    collect_diagnostics diagnostics;
    EXPECT_THAT(ResultTypes(write, "f32[4@x,4]", "s32[2@x]"), ElementsAre("f32[4@x,4]"));
    ASSERT_EQ(diagnostics.list().size(), 1);
    EXPECT_THAT(diagnostics.list()[0].message,
                HasSubstr("at(...).set keeps the sharding of the array"));
    EXPECT_THAT(diagnostics.list()[0].site.ToString(), HasSubstr("sharding_test.cc:"));
  }
  strict_sharding strict;
  collect_diagnostics diagnostics;
  const Error e = ErrorOf([&] { ResultTypes(write, "f32[4@x,4]", "s32[2@x]"); });
  EXPECT_EQ(e.kind(), ErrorKind::kShardingTypeError);
  EXPECT_THAT(e.what(), HasSubstr("Use `.at[...].set(out_sharding=)`"));
  EXPECT_TRUE(diagnostics.list().empty());
}

TEST_F(Explicit, ShardedWritesHaveTheValuesOfUnshardedWrites) {
  const auto f = [](Array v, Array u) {
    v = reshard(v, P("x"));
    const Array rows = v.at(Slice{1, 3}).add(u, P("x"));
    return std::make_pair(rows, rows.at({0, None, Slice{}}).multiply(2, P("x")));
  };
  const auto out = testing::Evaluated(f, Host({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}), Vec({10, 20}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0, 1, 12, 23, 14, 25, 6, 7));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 2, 12, 23, 14, 25, 6, 7));
}

TEST_F(Explicit, AutoAxesNeedNoOutSharding) {
  const auto f = [](Array v, Array w) {
    return auto_axes(
        [w](Array u) {  // closes over w
          EXPECT_EQ(u.type().ToString(), "f32[4,2]");
          return matmul(u, w);
        },
        {}, P(None, "x"))(v);
  };
  EXPECT_THAT(ResultTypes(f, "f32[4@x,2@y]", "f32[2@y,4]"), ElementsAre("f32[4,4@x]"));
  const auto both = grad<0, 1>([=](Array v, Array w) { return sum(square(f(v, w))); });
  EXPECT_THAT(ResultTypes(both, "f32[4@x,2@y]", "f32[2@y,4]"),
              ElementsAre("f32[4@x,2@y]", "f32[2@y,4]"));
  EXPECT_THAT(ResultTypes(vmap(f), "f32[3,4@x,2@y]", "f32[3,2@y,4]"), ElementsAre("f32[3,4,4@x]"));
  // Only one axis becomes Auto: the other one stays in the types.
  const auto one = [](Array v) {
    return auto_axes(
        [](Array u) {
          EXPECT_EQ(u.type().ToString(), "f32[4,2@y]");
          return u + 1;
        },
        {"x"}, P("x", "y"))(v);
  };
  EXPECT_THAT(ResultTypes(one, "f32[4@x,2@y]"), ElementsAre("f32[4@x,2@y]"));
}

TEST_F(Explicit, AutoAxesChangeNoValue) {
  const auto f = [](Array v) {
    return auto_axes([](Array u) { return u * u; }, {}, P("x"))(reshard(v, P("y")));
  };
  EXPECT_THAT(testing::Values(f, Vec({1, 2, 3, 4})), ElementsAre(1, 4, 9, 16));
  EXPECT_THAT(testing::Values(grad([=](Array v) { return sum(f(v)); }), Vec({1, 2, 3, 4})),
              ElementsAre(2, 4, 6, 8));
}

TEST_F(Explicit, AutoAxesRefuseManualAndUnknownAxes) {
  const auto id = [](Array u) { return u; };
  const auto inner = [=](Array v) { return auto_axes(id, {"x"}, P())(v); };
  const Error manual = ErrorOf(
      [&] { trace(shard_map(inner, context_mesh(), {P("x")}, P("x")), AbstractOf("f32[4@x]")); });
  EXPECT_EQ(manual.kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(manual.what(), HasSubstr("Going from Manual AxisType to Auto or Explicit"));
  EXPECT_THAT(ErrorOf([&] { trace(auto_axes(id, {"q"}, P()), AbstractOf("f32[4]")); }).what(),
              HasSubstr("has no 'q'"));
}

TEST(AutoMesh, ExplicitAxesHaveShardingsInTypes) {
  set_mesh context(abstract_mesh({2}, {"x"}, {AxisType::kAuto}));
  const auto f = [](Array v) {
    return explicit_axes(
        [](Array u) {
          EXPECT_EQ(u.type().ToString(), "f32[4@x,2]");
          return reshard(u, P(None, "x")) * 2;
        },
        {}, P("x"))(v);
  };
  EXPECT_THAT(ResultTypes(f, "f32[4,2]"), ElementsAre("f32[4,2]"));
  EXPECT_THAT(ResultTypes(grad([=](Array v) { return sum(square(f(v))); }), "f32[4,2]"),
              ElementsAre("f32[4,2]"));
  EXPECT_THAT(testing::Values(f, Host({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2})),
              ElementsAre(2, 4, 6, 8, 10, 12, 14, 16));
  const Error e = ErrorOf([] {
    trace(explicit_axes([](Array u) { return matmul(u, u.T()); }, {}, P("x")),
          AbstractOf("f32[4,2]"));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kShardingTypeError);
  EXPECT_THAT(e.what(), HasSubstr("illegally sharded result"));
}

TEST(NoMesh, ReshardAndAutoAxesNeedAMesh) {
  const Error e = ErrorOf([] { trace([](Array v) { return reshard(v, P("x")); }, abstract({4})); });
  EXPECT_THAT(e.what(), HasSubstr("when you are not under a mesh context"));
  EXPECT_THAT(
      ErrorOf([] { trace(auto_axes([](Array v) { return v; }, {}, P()), abstract({4})); }).what(),
      HasSubstr("the context mesh cannot be empty"));
}

TEST(AutoPcast, FalseRequiresExplicitCasts) {
  // Traces f(x, y) in a shard_map where x varies over the axis x, and y varies over no axis.
  const auto in_body = [](auto f) {
    return trace(
        [&](Array x, Array y) {
          return shard_map(f, abstract_mesh({2}, {"x"}, {AxisType::kAuto}), {P("x"), P()}, P("x"))(
              x, y);
        },
        abstract({4}), abstract({2}));
  };
  const auto refused = [&](auto f) { return std::string(ErrorOf([&] { in_body(f); }).what()); };
  const auto product = [](Array x, Array y) { return x * y; };
  in_body(product);
  {
    const auto_pcast off(false);
    EXPECT_FALSE(is_auto_pcast());
    EXPECT_THAT(
        refused(product),
        AllOf(HasSubstr("requires varying manual axes to match, but got [f32[2]{V:x}, f32[2]]"),
              HasSubstr("pcast(..., to='varying')"), HasSubstr("sharding_test.cc:")));
    in_body([](Array x, Array y) { return x * lax::pcast(y, "x"); });
    in_body([](Array x, Array) { return 2 * x + mean(x); });
    in_body([](Array x, Array y) { return x + y.dim(0); });
    const char* const kMismatch = "requires varying manual axes to match";
    EXPECT_THAT(refused([](Array x, Array y) { return where(x > 0, x, y); }), HasSubstr(kMismatch));
    EXPECT_THAT(refused([](Array x, Array y) { return lax::select(x > 0, y, y); }),
                HasSubstr(kMismatch));
    EXPECT_THAT(refused([](Array x, Array y) {
                  return x * einsum("i,i->", {x, y});
                }),
                HasSubstr(kMismatch));
    EXPECT_THAT(refused([](Array x, Array y) { return x.at(0).set(y[0]); }), HasSubstr(kMismatch));
    EXPECT_THAT(refused([](Array x, Array y) {
                  return lax::sort({x, y}, 0)[0];
                }),
                HasSubstr(kMismatch));
    for (const auto& sum : {&lax::psum, &lax::pmax, &lax::pmin, &lax::pmean})
      EXPECT_THAT(refused([&](Array x, Array y) { return x * sum(y, "x", {}); }),
                  HasSubstr("is a variant->invariant collective: it must be applied to a "
                            "device-varying type, but got f32[2] over axes (x)"));
    EXPECT_THAT(refused([](Array, Array y) {
                  return lax::ppermute(y, "x", {{0, 1}});
                }),
                HasSubstr("Collective ppermute must be applied to a device-varying type"));
    in_body([](Array x, Array y) { return x * lax::pcast(lax::psum(x, "x") + y, "x"); });
    const auto_pcast on(true);
    in_body(product);
  }
  EXPECT_TRUE(is_auto_pcast());
  in_body(product);
}

}  // namespace
}  // namespace tessera
