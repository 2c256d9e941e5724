// Proves that the shards of a placement tile the array in mesh order, which results come inline
// with the end of a run, and that each kind of wrong placement gives its own error.
#include "ir/api/placement.h"

#include "base/testing/status_matchers.h"

namespace tessera::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using ir::Dims;

Placement PlacementOf(ir::DimAxes dims) {
  Placement p;
  p.mesh.axes = {{"x", 2}, {"y", 3}};
  p.spec.dims = std::move(dims);
  p.devices = {5, 4, 3, 2, 1, 0};
  return p;
}

TEST(PlacementTest, BlocksTileTheArray) {
  for (const ir::DimAxes& dims :
       {ir::DimAxes{}, ir::DimAxes{{"x"}}, ir::DimAxes{{}, {"y"}}, ir::DimAxes{{"y"}, {"x"}},
        ir::DimAxes{{"y", "x"}}, ir::DimAxes{{}, {"x", "y"}}}) {
    const Placement p = PlacementOf(dims);
    const Dims shape = {12, 6};
    TESSERA_ASSERT_OK(CheckPlacement(p, shape));
    const Dims local = LocalShape(p, shape);
    std::vector<int> hits(72, 0);
    for (int k : OrdinalsOfDistinctShards(p, shape)) {
      const Dims s = ShardStarts(p, shape, k);
      for (int64_t i = 0; i < local[0]; ++i)
        for (int64_t j = 0; j < local[1]; ++j) ++hits[(s[0] + i) * 6 + s[1] + j];
    }
    EXPECT_EQ(hits, std::vector<int>(72, 1)) << p.spec.ToString();
  }
}

TEST(PlacementTest, MajorAxisComesFirst) {
  EXPECT_EQ(ShardStarts(PlacementOf({{"y", "x"}}), {12}, 1), Dims({4}));  // device 1 has x=0, y=1
  EXPECT_EQ(ShardStarts(PlacementOf({{"x", "y"}}), {12}, 1), Dims({2}));
}

TEST(PlacementTest, ReplicasAreOneBlock) {
  EXPECT_EQ(OrdinalsOfDistinctShards(PlacementOf({{"x"}}), {12}), (std::vector<int>{0, 3}));
  EXPECT_EQ(OrdinalsOfDistinctShards(PlacementOf({}), {12}), (std::vector<int>{0}));
}

TEST(PlacementTest, ReplicasHaveTheSameFirstDevice) {
  EXPECT_THAT(FirstReplicas(PlacementOf({{"x"}}), {12}), ElementsAre(0, 0, 0, 3, 3, 3));
  EXPECT_THAT(FirstReplicas(PlacementOf({{}, {"y"}}), {12, 6}), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(FirstReplicas(PlacementOf({{"y"}, {"x"}}), {12, 6}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(FirstReplicas(PlacementOf({}), {12}), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(FirstReplicas(PlacementOf({{"x"}}), {0}), ElementsAre(0, 0, 0, 3, 3, 3));
}

TEST(PlacementTest, TermsOfASumAreNoReplicasOfEachOther) {
  Placement sum = PlacementOf({});
  sum.spec.unreduced = {"x"};
  EXPECT_THAT(FirstReplicas(sum, {12}), ElementsAre(0, 0, 0, 3, 3, 3));
  sum.spec.unreduced = {"x", "y"};
  EXPECT_THAT(FirstReplicas(sum, {12}), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(PlacementTest, SmallResultsComeWithTheEndOfARun) {
  const auto of = [](int64_t bytes) { return ArraySpec{ir::DType::kU8, {bytes}, PlacementOf({})}; };
  const ArraySpec scalar = of(4), kilo = of(1 << 10), more = of((1 << 10) + 1), big = of(64 << 10);
  EXPECT_THAT(IndicesOfInlineResults({&more, &scalar}, kInlineBytesMax), ElementsAre(0, 1));
  EXPECT_THAT(IndicesOfInlineResults({&big}, kInlineBytesMax), ElementsAre(0));
  EXPECT_THAT(IndicesOfInlineResults({&big, &more, &kilo, &scalar}, kInlineBytesMax),
              ElementsAre(2, 3));
  const std::vector<const ArraySpec*> many(65, &kilo);
  EXPECT_EQ(IndicesOfInlineResults(many, kInlineBytesMax).size(), 64);
  EXPECT_THAT(IndicesOfInlineResults({&scalar}, 3), IsEmpty());
  // A shard of a pending sum is not a block of the array.
  ArraySpec sum = of(4);
  sum.placement.spec.unreduced = {"x"};
  EXPECT_THAT(IndicesOfInlineResults({&sum, &scalar}, kInlineBytesMax), ElementsAre(1));
}

TEST(PlacementTest, EachMistakeHasItsReason) {
  EXPECT_THAT(CheckPlacement(PlacementOf({{"z"}}), {12}), ReasonIs("UNKNOWN_AXIS", "'z'"));
  EXPECT_THAT(CheckPlacement(PlacementOf({{"x"}, {"x"}}), {12, 12}),
              ReasonIs("VALUE_ERROR", "twice"));
  EXPECT_THAT(CheckPlacement(PlacementOf({{"x"}, {}}), {12}),
              ReasonIs("VALUE_ERROR", "rank at least 2"));
  EXPECT_THAT(CheckPlacement(PlacementOf({{"y"}}), {10}),
              ReasonIs("INDIVISIBLE", "should be divisible by 3, but it is equal to 10"));
  Placement p = PlacementOf({});
  p.devices.pop_back();
  EXPECT_THAT(CheckPlacement(p, {12}), ReasonIs("VALUE_ERROR", "5 devices"));
  p.devices.push_back(1);
  EXPECT_THAT(CheckPlacement(p, {12}), ReasonIs("VALUE_ERROR", "twice"));
  p = PlacementOf({{"x"}});
  p.spec.open = {true};
  EXPECT_THAT(CheckPlacement(p, {12}), ReasonIs("VALUE_ERROR", "open"));
  p = PlacementOf({});
  p.spec.unreduced = {"x"};
  EXPECT_THAT(CheckPlacement(p, {12}), ReasonIs("VALUE_ERROR", "unreduced"));
}

}  // namespace
}  // namespace tessera::api
