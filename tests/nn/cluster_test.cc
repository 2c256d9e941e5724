// Proves that optimizers work on a cluster: outside of transforms, under jit and vmap, in loops,
// and with parameters that are sharded over devices. The cluster has two devices and runs in this
// process.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/tessera.h"

namespace tessera {
namespace {

struct Params {
  Array w, b;
};
TESSERA_TREE(Params, w, b)

class OptimClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 2})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }
};

Params Some(double scale) {
  const auto numbers = [&](int64_t n) { return sin(scale * arange(0, n, 1)); };
  return {reshape(numbers(8), {4, 2}), numbers(2)};
}
optim::GradientTransformation Optimizer() {
  return optim::chain(optim::clip_by_global_norm(1), optim::lamb(0.1, {.weight_decay = 0.1}));
}
struct Step {
  Params params;
  optim::OptState<Params> state;
};
TESSERA_TREE(Step, params, state)
Step Next(const Step& step, const Params& grads) {
  const auto [updates, state] = Optimizer().update(grads, step.state, step.params);
  return {optim::apply_updates(step.params, updates), state};
}
void ExpectNear(const Array& got, const Array& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> g = got.get<double>(), w = want.get<double>();
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(g[i], w[i], 1e-6);
}

TEST_F(OptimClusterTest, UpdatesOutsideTransformsAreThoseOfJit) {
  const Params params = Some(1), grads = Some(2);
  Step eager{params, Optimizer().init(params)};
  const auto init = jit([](const Params& p) { return Step{p, Optimizer().init(p)}; });
  Step jitted = init(params);
  const auto next = jit(Next);
  for (int i = 0; i < 3; ++i) {
    eager = Next(eager, grads);
    jitted = next(jitted, grads);
  }
  ExpectNear(eager.params.w, jitted.params.w);
  ExpectNear(eager.params.b, jitted.params.b);
  EXPECT_EQ(eager.state[1].count->dtype(), kS32);
  EXPECT_EQ(eager.state[1].count->item<int32_t>(), 3);
  EXPECT_EQ(jitted.state[1].count->item<int32_t>(), 3);
}

// Returns for each dim the axes over which it is sharded.
ir::DimAxes AxesOf(const Array& a) {
  ir::DimAxes dims = a.sharding().dims;
  dims.resize(static_cast<size_t>(a.rank()));
  return dims;
}

void ExpectSharded(AxisType type) {
  const ir::DimAxes rows = {{"x"}, {}}, whole_vector = {{}};
  const Mesh mesh = make_mesh({2}, {"x"}, {type});
  const Params params = Some(1), grads = Some(2);
  const auto place = [&](const Params& p) {
    return Params{put(p.w, mesh, P("x")), put(p.b, mesh, P())};
  };
  const Prefix<PartitionSpec> specs = {P("x"), P()};
  const Params placed = place(params);
  Step cut{placed, Optimizer().init(placed)};
  EXPECT_EQ(AxesOf(cut.state[1].mu->w), rows);
  EXPECT_EQ(AxesOf(cut.state[1].nu->w), rows);
  EXPECT_EQ(AxesOf(cut.state[1].mu->b), whole_vector);
  EXPECT_EQ(cut.state[1].count->devices().size(), 2u);
  Step whole{params, Optimizer().init(params)};
  const auto next = jit(Next, {.out_shardings = {specs, Optimizer().specs(specs)}});
  for (int i = 0; i < 3; ++i) {
    cut = next(cut, place(grads));
    whole = Next(whole, grads);
  }
  EXPECT_EQ(AxesOf(cut.params.w), rows);
  EXPECT_EQ(AxesOf(cut.state[1].nu->w), rows);
  ExpectNear(cut.params.w, whole.params.w);
  ExpectNear(cut.params.b, whole.params.b);
}
TEST_F(OptimClusterTest, StatesAreShardedAsTheirParameters) { ExpectSharded(AxisType::kAuto); }
TEST_F(OptimClusterTest, StatesAreShardedOnExplicitAxesToo) { ExpectSharded(AxisType::kExplicit); }

TEST_F(OptimClusterTest, MappedOverModels) {
  const auto one = [](const Params& params, const Params& grads) {
    const auto next = Next({params, Optimizer().init(params)}, grads);
    return Next(next, grads).params;
  };
  const auto both = [](const Params& a, const Params& b) {
    return tree_map([](const Array& x, const Array& y) { return stack({x, y}); }, a, b);
  };
  const Params p0 = Some(1), p1 = Some(3), g0 = Some(2), g1 = Some(5);
  const Params mapped = jit(vmap(one))(both(p0, p1), both(g0, g1));
  const Params want = both(one(p0, g0), one(p1, g1));
  ExpectNear(mapped.w, want.w);
  ExpectNear(mapped.b, want.b);
}

TEST_F(OptimClusterTest, ALearningRateIsLearnedThroughTheUpdates) {
  const Params params = Some(1), grads = Some(2);
  const auto after = [&](const Array& rate) {
    const auto optimizer = optim::sgd(rate, 0.5);
    Params p = params;
    auto state = optimizer.init(p);
    for (int i = 0; i < 2; ++i) {
      auto [updates, next] = optimizer.update(grads, state, p);
      p = optim::apply_updates(p, updates);
      state = next;
    }
    return sum(p.w);
  };
  // The two steps subtract 1 and 1.5 times the gradient, each multiplied by the learning rate.
  const double slope = grad(after)(scalar(0.1F)).item<double>();
  EXPECT_NEAR(slope, -2.5 * sum(grads.w).item<double>(), 1e-5);
}

TEST_F(OptimClusterTest, StatesAreCarriedByLoops) {
  const Params params = Some(1), grads = Some(2);
  const Step begin{params, Optimizer().init(params)};
  const auto looped = jit([&](const Step& step, const Params& g) {
    return fori_loop(
        0, 3, [&](const Array&, const Step& s) { return Next(s, g); }, step);
  })(begin, grads);
  Step want = begin;
  for (int i = 0; i < 3; ++i) want = Next(want, grads);
  ExpectNear(looped.params.w, want.params.w);
  EXPECT_EQ(looped.state[1].count->item<int32_t>(), 3);
}

}  // namespace
}  // namespace tessera
