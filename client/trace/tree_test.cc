// Tests of trees: paths, flattening and unflattening, static leaves, structs and prefixes. They
// need no cluster.
#include "client/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/evaluated.h"

namespace tessera {

struct Layer {
  Array w, b;
  int units = 0;
};
TESSERA_TREE(Layer, w, b, units)
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Array> extra;
  std::string name;
};
TESSERA_TREE(Model, layers, extra, name)

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Model SomeModel() {
  const Array a = abstract({2}), b = abstract({3});
  return {{{a, b, 4}, {b, a, 5}}, {{"x", a}}, "m"};
}

TEST(TreeTest, LeavesComeInOrderWithTheirKeyPaths) {
  const Flat flat = flatten(SomeModel());
  ASSERT_EQ(flat.leaves.size(), 5u);
  EXPECT_EQ(flat.leaves[1].dim(0), 3);
  EXPECT_THAT(LeafPaths(flat.tree, "params"),
              ElementsAre("params.layers[0].w", "params.layers[0].b", "params.layers[1].w",
                          "params.layers[1].b", "params.extra['x']"));
}

TEST(TreeTest, UnflattenPutsOtherArraysAndKeepsStatics) {
  const Model m = SomeModel();
  std::vector<Array> leaves = flatten(m).leaves;
  leaves[4] = abstract({7});
  const Model other = unflatten(m, leaves);
  EXPECT_EQ(other.extra.at("x").dim(0), 7);
  EXPECT_EQ(other.layers[1].units, 5);
  EXPECT_EQ(other.name, "m");
}

TEST(TreeTest, StaticValuesAreStructure) {
  Model a = SomeModel(), b = SomeModel();
  EXPECT_EQ(StructureDifference(flatten(a).tree, flatten(b).tree, "p"), "");
  EXPECT_TRUE(flatten(a).tree == flatten(b).tree);
  b.layers[1].units = 6;
  EXPECT_FALSE(flatten(a).tree == flatten(b).tree);
  EXPECT_THAT(StructureDifference(flatten(a).tree, flatten(b).tree, "p"),
              HasSubstr("p.layers[1].units: expected the static value 5, got the static value 6"));
}

TEST(TreeTest, StaticStringsCannotImitateStructure) {
  const auto one = std::make_tuple(std::string("a\",[1]=3:\"b"), std::string("c"));
  const auto two = std::make_tuple(std::string("a"), std::string("b\",[1]=3:\"c"));
  EXPECT_FALSE(flatten(one).tree == flatten(two).tree);
}

TEST(TreeTest, AnOptionalHasTheTreeOfItsValue) {
  const auto t = std::make_pair(std::optional<Array>(abstract({1})), std::optional<Array>());
  EXPECT_EQ(flatten(t).leaves.size(), 1u);
  // An optional with a value has the tree of the value; an empty optional has a tree of its own.
  EXPECT_EQ(LeafPaths(flatten(t).tree, "t"), std::vector<std::string>{"t[0]"});
  EXPECT_TRUE(flatten(std::optional(SomeModel())).tree == flatten(SomeModel()).tree);
  EXPECT_FALSE(flatten(std::optional<Array>()).tree == flatten(std::vector<Array>()).tree);
}

TEST(TreeTest, TreeMapAppliesToTheArraysOfAStruct) {
  const Layer doubled = tree_map([](const Array& a) { return abstract({2 * a.dim(0)}); },
                                 Layer{abstract({2}), abstract({3}), 1});
  EXPECT_EQ(doubled.w.dim(0), 4);
  EXPECT_EQ(doubled.b.dim(0), 6);
}

template <class T>
struct Annotated {
  T value;
  Array note;
  TESSERA_TREE_MEMBERS(Annotated, value, note)
};
TEST(TreeTest, ClassTemplatesAreTrees) {
  Annotated<std::vector<Array>> p{{abstract({1}), abstract({2})}, abstract({3})};
  const Flat flat = flatten(p);
  EXPECT_EQ(flat.tree.text, "Annotated");
  EXPECT_EQ(LeafPaths(flat.tree, "p"),
            (std::vector<std::string>{"p.value[0]", "p.value[1]", "p.note"}));
  p = tree_map([](const Array& a) { return abstract({2 * a.dim(0)}); }, p);
  EXPECT_EQ(p.value[1].dim(0), 4);
  EXPECT_EQ(p.note.dim(0), 6);
}

TEST(TreeTest, TreeMapRefusesTreesOfDifferentStructure) {
  const std::vector<Array> two = {abstract({1}), abstract({1})}, one = {abstract({1})};
  const Error e =
      testing::ErrorOf([&] { tree_map([](const Array& a, const Array&) { return a; }, two, one); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("expected a vector of 2, got a vector of 1"));
}

TEST(PrefixTest, OneLeafStandsForTheSubtree) {
  const auto args = std::make_tuple(SomeModel(), abstract({2}), 3);
  const Prefix<int> prefix = {0, None, None};
  const auto got =
      internal::BroadcastPrefix(prefix, flatten(args).tree, "vmap in_axes", Site::Here());
  EXPECT_THAT(got, ElementsAre(0, 0, 0, 0, 0, std::nullopt));
}

TEST(PrefixTest, NamedFields) {
  const Layer layer{abstract({2}), abstract({3}), 1};
  const auto p = Prefix<int>::Named({{"w", 1}, {"b", None}, {"units", None}});
  EXPECT_THAT(internal::BroadcastPrefix(p, flatten(layer).tree, "vmap in_axes", Site::Here()),
              ElementsAre(1, std::nullopt));
}

TEST(PrefixTest, ErrorsNameTheKeyPath) {
  const auto args = std::make_tuple(std::make_tuple(abstract({1}), abstract({1})), abstract({1}));
  const Error e = testing::ErrorOf([&] {
    internal::BroadcastPrefix(Prefix<int>{{0, 0, 0}, 0}, flatten(args).tree, "vmap in_axes",
                              Site::Here());
  });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(),
              HasSubstr("at in_axes[0], 3 children are given, but the tuple has 2 children"));
  EXPECT_THAT(e.what(), HasSubstr("tree_test.cc:"));
  const Error list_error = testing::ErrorOf([&] {
    internal::BroadcastPrefix(Prefix<int>{{0, {0, 0}}, 0}, flatten(args).tree, "vmap in_axes",
                              Site::Here());
  });
  EXPECT_THAT(list_error.what(),
              HasSubstr("in_axes[0][1], a list of 2 is given, but the value is an array"));
}

}  // namespace
}  // namespace tessera
