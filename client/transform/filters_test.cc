// Tests of filters.h: parts of trees, gradients with respect to the floats of a struct, and
// arrays without a value under every transform. Traced functions run on the reference evaluator.
#include "client/transform/filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/optim.h"
#include "client/testing/evaluated.h"
#include "ir/op_def.h"
#include "ir/text.h"

namespace tessera {

struct Linear {
  Array weight, bias;
  Array steps;  // integers, which have no derivative
  double scale = 1;
  Array operator()(const Array& x) const { return scale * matmul(x, weight) + bias; }
  Array Twice(const Array& x, int times) const { return times * (*this)((*this)(x)); }
};
TESSERA_TREE(Linear, weight, bias, steps, scale)

struct Network {
  std::vector<Linear> layers;
  std::string name;
  Array operator()(Array x) const {
    for (const Linear& layer : layers) x = layer(x);
    return x;
  }
};
TESSERA_TREE(Network, layers, name)

namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using testing::Values;
using testing::Vec;

Network SomeNetwork(const Array& weight, const Array& bias) {
  return {{{weight, bias, arange(2), 2}, {weight, bias, arange(2), 1}}, "two"};
}

TEST(FilterTest, FilterMakesHolesAndCombineUndoesPartition) {
  const auto f = [](Array w, Array b) {
    const Network net = SomeNetwork(w, b);
    const Network floats = filter(net, is_inexact_array);
    EXPECT_TRUE(floats.layers[1].weight.valid());
    EXPECT_FALSE(floats.layers[1].steps.valid());
    EXPECT_EQ(floats.name, "two");
    EXPECT_TRUE(filter(net, is_inexact_array, /*inverse=*/true).layers[0].steps.valid());
    EXPECT_EQ(filter(net, is_inexact_array, false, b).layers[0].steps.dtype(), kF32);

    const auto [dynamic, rest] = partition(net, is_inexact_array);
    EXPECT_FALSE(dynamic.layers[0].steps.valid());
    EXPECT_FALSE(rest.layers[0].weight.valid());
    EXPECT_TRUE(rest.layers[0].steps.valid());
    const Network combined = combine(dynamic, rest);
    return std::tuple(combined.layers[0].weight, combined.layers[1].bias, combined.layers[1].steps);
  };
  const auto out = Evaluated(f, Host({1, 2, 3, 4}, {2, 2}), Vec({5, 6}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(5, 6));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(0, 1));
}

TEST(FilterTest, ASpecMayBeAPrefixOfTheTree) {
  const std::tuple<std::pair<Array, Array>, Array> tree({abstract({1}), abstract({2})},
                                                        abstract({3}));
  const auto kept = filter(tree, Prefix<bool>{true, false});
  EXPECT_TRUE(std::get<0>(kept).second.valid());
  EXPECT_FALSE(std::get<1>(kept).valid());
  EXPECT_THAT(ErrorOf([&] { filter(tree, Prefix<bool>{true}); }).what(), HasSubstr("filter spec"));
}

TEST(FilterTest, CombineTakesTheFirstArrayAndRefusesOtherStructures) {
  const Array none, one = abstract({1}), two = abstract({2});
  using Arrays = std::vector<Array>;
  const Arrays out = combine(Arrays{none, one, two}, Arrays{two, none, none});
  EXPECT_EQ(out[0].size(), 2);
  EXPECT_EQ(out[1].size(), 1);
  EXPECT_EQ(out[2].size(), 2);
  EXPECT_EQ(ErrorOf([&] {
              combine(Arrays{one}, Arrays{one, two});
            }).kind(),
            ErrorKind::kValueError);
}

TEST(FilterGradTest, DifferentiatesByTheFloatsOfTheFirstArgument) {
  const auto f = [](Array w, Array b, Array x) {
    const auto loss = [](const Network& net, const Array& x, const std::string&) {
      return std::pair(sum(net(x)), net.layers.size());
    };
    const auto [value, gradient] = filter_value_and_grad(loss)(SomeNetwork(w, b), x, "name");
    EXPECT_EQ(value.second, 2);
    EXPECT_EQ(gradient.name, "two");
    EXPECT_EQ(gradient.layers[0].scale, 2);
    EXPECT_FALSE(gradient.layers[0].steps.valid());
    const auto [again, aux] = filter_grad(loss)(SomeNetwork(w, b), x, "name");
    EXPECT_EQ(aux, 2);
    return std::tuple(value.first, gradient.layers[0].weight, gradient.layers[1].bias,
                      again.layers[0].bias);
  };
  const auto out = Evaluated(f, Host({1, 2, 3, 4}, {2, 2}), Vec({5, 6}), Host({1, 1}, {1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(176));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(6, 14, 6, 14));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(1, 1));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(3, 7));
}

// An Array without a value, which the JAX library Equinox writes as None, passes through every
// transform and optimizer unchanged.
TEST(HoleTest, TransformsAndOptimizersSkipHoles) {
  const auto f = [](Array w, Array x) {
    const Linear linear{w, Array(), Array(), 2};
    const auto apply = [](const Linear& l, const Array& x) {
      EXPECT_FALSE(l.bias.valid());
      EXPECT_EQ(l.scale, 2);
      return l.scale * matmul(x, l.weight);
    };
    const auto same = [](const Linear& l) { return l; };
    const auto step = [&](const Linear& l, const Array& x) { return std::pair(l, apply(l, x)); };
    const auto loss = [&](const Linear& l) { return sum(apply(l, x)); };
    const auto gradient = grad(loss)(linear);
    EXPECT_FALSE(gradient.bias.valid());
    EXPECT_FALSE(jit(same)(linear).steps.valid());
    EXPECT_FALSE(vmap(same)(linear).bias.valid());
    EXPECT_FALSE(checkpoint(same)(linear).bias.valid());
    EXPECT_FALSE(cond(true, same, same, linear).bias.valid());
    EXPECT_FALSE(eval_shape(same, linear).bias.valid());
    const auto [value, push] = linearize(same, linear);
    EXPECT_FALSE(push(linear).bias.valid());
    const auto [last, ys] = scan(step, linear, expand_dims(x, 0));
    EXPECT_FALSE(last.bias.valid());

    const auto optimizer = optim::adamw(0.5);
    const auto [updates, state] = optimizer.update(gradient, optimizer.init(linear), linear);
    EXPECT_FALSE(state[0].mu->bias.valid());
    Linear all = linear;
    all.bias = x;
    const Linear next = optim::apply_updates(all, updates);
    return std::tuple(gradient.weight, ys, value.weight, next.bias, optim::global_norm(linear));
  };
  const auto out = Evaluated(f, Host({3, 0, 0, 4}, {2, 2}), Host({1, 1}, {1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(6, 8));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(3, 0, 0, 4));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(1, 1));
  EXPECT_THAT(out[4].ToDoubles(), ElementsAre(5));
}

TEST(FilterVmapTest, MapsArraysAndKeepsNumbersStatic) {
  const auto add = [](Array xs) {
    return filter_vmap([](Array x, int y) { return std::pair(x + y, y); })(xs, 3).first;
  };
  EXPECT_THAT(Values(add, Vec({1, 2})), ElementsAre(4, 5));
  // The second argument is mapped along its columns; the first is the same for all elements.
  const auto columns = [](Array x, Array m) {
    return filter_vmap([](Array x, Array y) { return x + y; }, {None, 1})(x, m);
  };
  EXPECT_THAT(Values(columns, Vec({1}), Host({2, 3}, {1, 2})), ElementsAre(3, 4));
  // Matrices are mapped, vectors are not.
  const auto matrices = [](Array x, Array m) {
    const AxisOf axis_of = [](const Array& leaf) {
      return leaf.rank() == 2 ? std::optional(0) : std::nullopt;
    };
    return filter_vmap([](Array x, Array row) { return dot(x, row); }, axis_of)(x, m);
  };
  EXPECT_THAT(Values(matrices, Vec({1, 2}), Host({1, 1, 3, 4}, {2, 2})), ElementsAre(3, 11));
}

TEST(FilterVmapTest, MapsAnEnsembleOfModels) {
  const auto f = [](Array w, Array b, Array x) {
    return filter_vmap([](const Linear& l, Array x) { return l(x); }, {0, None})(
        Linear{w, b, zeros({2, 1}, kS32), 1}, x);
  };
  const auto out = Evaluated(f, Host({1, 2, 3, 4}, {2, 2, 1}), Host({0, 10}, {2, 1}), Vec({1, 1}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(3, 17));
}

TEST(FilterVmapTest, CallsTheFunctionUnmappedIfNoArrayIsMapped) {
  const auto f = [](Array x) {
    const auto plus = [](Array a, int n) { return a + n; };
    return std::pair(
        filter_vmap(plus, FilteredAxes(Prefix<int>(None)))(x, 2),
        filter_vmap(plus, FilteredAxes(Prefix<int>(None)), if_array(0), {.axis_size = 2})(x, 2));
  };
  const auto out = Evaluated(f, Vec({1}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(3));
  EXPECT_EQ(out[1].shape(), (Dims{2, 1}));
}

TEST(FilterVmapTest, CollectivesNameItsAxis) {
  const auto f = [](Array x) {
    return filter_vmap([](Array a) { return a / lax::psum(a, "i"); }, if_array(0), if_array(0),
                       {.axis_name = "i"})(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2, 1})), ElementsAre(0.25, 0.5, 0.25));
}

TEST(FilterVmapTest, ConstraintsCutItsAxis) {
  const set_mesh context(abstract_mesh({2, 2}, {"x", "y"}, {AxisType::kAuto, AxisType::kAuto}));
  const auto f = filter_vmap([](Array a) { return lax::with_sharding_constraint(a, P("y")); },
                             if_array(0), if_array(0), {.spmd_axis_name = {"x"}});
  EXPECT_THAT(ir::PrintProgram(trace(f, abstract({4, 4})).program),
              HasSubstr("sharding=P('x', 'y')"));
}

TEST(FilterShardTest, ConstrainsWhileTracing) {
  const Mesh mesh = abstract_mesh({2}, {"x"}, {AxisType::kAuto});
  const set_mesh in(mesh);
  const auto traced = trace(
      [&](Array w, Array b) {
        const Linear l{w, b, Array(), 3};
        const Linear placed = filter_shard(
            l, mesh,
            Prefix<PartitionSpec>::Named(
                {{"weight", P("x")}, {"bias", None}, {"steps", None}, {"scale", None}}));
        EXPECT_EQ(placed.scale, 3);
        return std::pair(placed.weight, placed.bias);
      },
      abstract({4, 2}), abstract({2}));
  int constraints = 0;
  for (const ir::Op& op : traced.fn()->ops) constraints += op.def->name == "sharding_constraint";
  EXPECT_EQ(constraints, 1);
}

// A method takes its object first, under every transform.
TEST(MethodTest, AMethodTakesItsObjectFirst) {
  const auto f = [](Array w, Array b, Array x) {
    const Linear l{w, b, arange(2), 1};
    const auto mapped = vmap(&Linear::Twice, {None, 0, None})(l, x, 3);
    return std::pair(jit(&Linear::operator())(l, x), mapped);
  };
  const auto out = Evaluated(f, Host({0, 1, 1, 0}, {2, 2}), Vec({1, 2}), Host({3, 4}, {1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(5, 5));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(18, 21));
}

}  // namespace
}  // namespace tessera
