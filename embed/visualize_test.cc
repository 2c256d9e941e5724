// Proves what visualize draws and what inspect_array_sharding reports, for arrays, functions and
// values inside functions. The tests run on the embedded cluster, or on the cluster that
// TESSERA_SUITE_ADDRESS names.
#include "client/show/visualize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "embed/testing/on_cluster.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Printed;

class VisualizeTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    setenv("LC_ALL", "C", /*overwrite=*/1);  // makes the output use ASCII for lines
    ClusterTest::SetUp();
    mesh_ = make_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kAuto});
  }

  static std::string Line(int line) { return "visualize_test.cc:" + std::to_string(line); }
  Array Rows() const { return put(ones({8, 4}), mesh_, P("x")); }

  Mesh mesh_;
};

TEST_F(VisualizeTest, DrawsAnArray) {
  const Array x = put(ones({8, 4}), mesh_, P("y"));
  EXPECT_EQ(visualize_text(x), R"( f32[8,4] P('y')
   0:4
 ╭─────╮
 │ 0,2 │ 0:4
 ├─────┤
 │ 1,3 │ 4:8
 ╰─────╯
)");
  EXPECT_THAT(Printed([&] { visualize(x); }),
              AllOf(HasSubstr("f32[8,4] P('y')"), HasSubstr(" 1,3 "), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(visualize_svg(x), AllOf(HasSubstr("<svg xmlns"), HasSubstr(">0,2</text>")));
  EXPECT_THAT(visualize_text(ones({3})), HasSubstr("│ 0   │"));
  EXPECT_THAT(visualize_text(abstract({8, 4}, kF32, mesh_, P("x"))), HasSubstr("│ 2,3 │ 4:8"));
  EXPECT_EQ(ErrorOf([] { visualize_text(abstract({3})); }).kind(), ErrorKind::kTypeError);
  EXPECT_EQ(ErrorOf([] { visualize(Array()); }).kind(), ErrorKind::kTypeError);
}

TEST_F(VisualizeTest, DrawsAFunction) {
  const Array x = Rows();
  int line = 0;
  const auto f = [&](Array a) {
    const Array h = a * 2;
    line = __LINE__ + 1;
    visualize(h);
    return sum(h, {1});
  };
  const std::string text = visualize_text(f, x);
  EXPECT_THAT(text, AllOf(HasSubstr("on mesh (x=2, y=2), 4 devices"),
                          HasSubstr(Line(line) + " f32[8,4] P('x', None)"),
                          HasSubstr("args[0] f32[8,4] P('x', None)"), HasSubstr(" memory: ")));
  EXPECT_THAT(visualize_svg(jit(f), x),
              AllOf(HasSubstr(">args[0] f32[8,4]"), HasSubstr(">" + Line(line) + " f32[8,4]"),
                    HasSubstr(">result f32[8]")));
  EXPECT_THAT(Printed([&] {
                visualize(f, abstract({8, 4}, kF32, mesh_, P("x")));
              }),
              HasSubstr("args[0] f32[8,4] P('x', None)"));
}

TEST_F(VisualizeTest, DrawsAValueInsideAFunctionWhenTheFunctionIsCompiled) {
  int line = 0;
  const auto f = jit([&](Array a, Array w) {
    const Array h = matmul(a, w);
    const Array out = sum(h);
    line = __LINE__ + 1;
    visualize(h);  // after the last use of h
    return out;
  });
  const Array x = Rows(), w = put(ones({4, 6}), mesh_, P(None, "y"));
  float value = 0;
  const std::string printed = Printed([&] { value = f(x, w).item<float>(); });
  EXPECT_EQ(printed, " " + Line(line) + R"( f32[8,6] P('x', 'y')
   0:3   3:6
 +-----+-----+
 | 0   | 1   | 0:4
 +-----+-----+
 | 2   | 3   | 4:8
 +-----+-----+
)");
  EXPECT_EQ(value, 8 * 6 * 4);
  EXPECT_EQ(Printed([&] { f(x, w); }), "") << "compiled already";
  EXPECT_NE(Printed([&] { f(put(x, mesh_, P("y")), w); }), "")
      << "not printed for another placement";
}

TEST_F(VisualizeTest, ChangesNeitherPlanNorResult) {
  const auto f = [](bool look) {
    return [look](Array a) {
      Array h = tanh(matmul(a, a.T()));
      if (look) inspect_array_sharding(h, [](const api::Placement&) {});
      return sum(h * h);
    };
  };
  const Array x = put(array<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}), mesh_, P("x", "y"));
  EXPECT_EQ(jit(f(true))(x).item<float>(), jit(f(false))(x).item<float>());
  EXPECT_EQ(jit(grad(f(true)))(x).get<float>(), jit(grad(f(false)))(x).get<float>());
  const auto looking = jit(f(true)).lower(x).compile(),
             not_looking = jit(f(false)).lower(x).compile();
  EXPECT_EQ(looking.cost_analysis().bytes_sent, not_looking.cost_analysis().bytes_sent);
  EXPECT_EQ(looking.output_shardings(), not_looking.output_shardings());
}

TEST_F(VisualizeTest, CheckpointPoliciesDoNotSaveInspectedValues) {
  const auto sines = [&](bool look) {
    const auto body = [look](Array a) {
      const Array s = sin(a);
      if (look) inspect_array_sharding(s, [](const api::Placement&) {});
      return sum(sin(s * s));
    };
    CheckpointOptions options;
    options.policy = checkpoint_policies::save_any_names_but_these({"other"});
    const auto f = checkpoint(body, options);
    const std::string text = jit(grad(f)).lower(Rows()).as_text();
    int count = 0;
    for (size_t at = text.find("= sin"); at != std::string::npos; at = text.find("= sin", at + 1))
      ++count;
    return count;
  };
  EXPECT_GE(sines(false), 1);
  EXPECT_EQ(sines(true), sines(false)) << "it is computed again";
}

TEST_F(VisualizeTest, InspectsInsideEveryTransform) {
  std::vector<std::string> seen;
  const auto look = [&](const Array& a) {
    inspect_array_sharding(a, [&](const api::Placement& p) { seen.push_back(p.spec.ToString()); });
    return a;
  };
  const auto take = [&] { return std::exchange(seen, {}); };
  const Array x = Rows();
  look(x);
  EXPECT_THAT(take(), ElementsAre("P('x')")) << "at once";
  EXPECT_EQ(x.devices().size(), 4);
  jit([&](Array a) { return look(a) + 1; })(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)")) << "an argument";
  jit(grad([&](Array a) { return sum(square(look(a * 2))); }))(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)"));
  grad([&](Array a) { return sum(square(look(a * 2))); })(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)")) << "without jit";
  jit(vmap([&](Array a) { return look(a * 2); }))(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)")) << "not the sharding of the batch";
  jit([&](Array a) {
    return scan([&](Array c, Array row) { return std::pair(c, look(row + c)); }, sum(a), a).second;
  })(x);
  EXPECT_THAT(take(), ElementsAre("P(None)"));
  jit([&](Array a) {
    return checkpoint([&](Array b) { return look(sin(b)); })(a) +
           jit([&](Array b) { return look(b - 1); })(a);
  })(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)", "P('x', None)"));
  jit([&](Array n) { return look(n * 2); })(3);
  EXPECT_THAT(take(), ElementsAre("P()")) << "a weak type";
  const Array whole = put(ones({4}), mesh_, P());
  jit([&](Array a) { return look(a), look(a), sum(a) + look(whole); })(whole);
  EXPECT_THAT(take(), ElementsAre("P()", "P(None)", "P(None)"));
  jit([&](Array a) { return look(a * 2), a; })(x);
  EXPECT_THAT(take(), IsEmpty()) << "is not computed";
  eval_shape([&](Array a) { return look(a * 2); }, x);
  EXPECT_THAT(take(), IsEmpty());
  jit([&](Array a) { return look(a * 3); }).lower(x).compile();
  EXPECT_THAT(take(), ElementsAre("P('x', None)"));
  const debug_nans on;
  jit([&](Array a) { return look(a * 3); })(x);
  EXPECT_THAT(take(), ElementsAre("P('x', None)"));
}

TEST_F(VisualizeTest, VisualizeInsideVmapDrawsTheWholeBatch) {
  const std::string printed = Printed([&] {
    jit(vmap([&](Array a) {
      visualize(a);
      return a * 2;
    }))(Rows());
  });
  EXPECT_THAT(printed, AllOf(HasSubstr("f32[8,4] P('x', None)"), HasSubstr("| 0,1 | 0:4")));
}

TEST_F(VisualizeTest, VisualizeInsideShardMapDrawsEachShard) {
  const Array x = put(ones({8, 4}), mesh_, P("x", "y"));
  int line = 0;
  const auto body = [&](Array a) {
    line = __LINE__ + 1;
    visualize(a);
    const Array total = lax::psum(a, "x");
    visualize(total);
    return total;
  };
  ShardMapOptions options;
  options.axis_names = {"x"};
  const auto f = shard_map(body, mesh_, P("x"), P(), options);
  const std::string printed = Printed([&] { jit(f)(x); });
  EXPECT_EQ(printed, " " + Line(line) + R"(, the shards along x: f32[2,4,4] P('x', None, 'y')
   0:2   2:4
 +-----+-----+
 | 0   | 1   | 0:1
 +-----+-----+
 | 2   | 3   | 1:2
 +-----+-----+
 )" + Line(line + 2) + R"( in shard_map over x f32[4,4] P(None, 'y')
   0:2   2:4
 +-----+-----+
 | 0,2 | 1,3 | 0:4
 +-----+-----+
)");
}

TEST_F(VisualizeTest, ExplainAsExplicitPrintsThePlannersShardings) {
  const Array x = put(ones({8, 4}), mesh_, P("x", "y")), w = put(ones({4, 6}), mesh_, P("y"));
  int line = 0;
  const auto f = [&](Array a, Array b) {
    line = __LINE__ + 1;
    const Array h = tanh(matmul(a, b));
    return sum(h, {1});
  };
  const std::string text = explain_as_explicit(f, x, w);
  EXPECT_THAT(text, AllOf(HasSubstr("args[0]  f32[8,4]  P(\"x\", \"y\")"),
                          HasSubstr(Line(line) + "  tanh        f32[8,6]  "
                                                 "with_sharding_constraint(_, P(\"x\", None))")));
  EXPECT_THAT(text, HasSubstr(Line(line) + "  dot_general  f32[8,6]  out_sharding = "
                                           "P(\"x\", None)"));
  // The program with these shardings written down, on Explicit axes, gets the same plan.
  const Mesh types = mesh_.With(AxisType::kExplicit);
  const Array ex = put(x, types, P("x", "y")), ew = put(w, types, P("y"));
  EXPECT_EQ(ErrorOf([&] { jit(f)(ex, ew); }).kind(), ErrorKind::kShardingTypeError);
  const auto g = jit([&](Array a, Array b) {
    const PartitionSpec spec = P("x", None);
    lax::DotOptions options;
    options.out_sharding = &spec;
    return sum(tanh(matmul(a, b, options)), {1});
  });
  const auto planned = jit(f).lower(x, w).compile();
  const auto written = g.lower(ex, ew).compile();
  EXPECT_EQ(written.output_shardings(), planned.output_shardings());
  EXPECT_EQ(written.cost_analysis().bytes_sent, planned.cost_analysis().bytes_sent);
  EXPECT_EQ(g(ex, ew).get<float>(), jit(f)(x, w).get<float>());
}

TEST_F(VisualizeTest, ATracedArrayThatHasEscapedIsRefused) {
  Array kept;
  jit([&](Array a) {
    kept = a;
    return a;
  })(ones({2}));
  EXPECT_EQ(ErrorOf([&] { visualize(kept); }).kind(), ErrorKind::kTypeError);
  EXPECT_EQ(ErrorOf([&] { jit([&](Array a) { return visualize(kept), a; })(ones({2})); }).kind(),
            ErrorKind::kTypeError);
}

}  // namespace
}  // namespace tessera
