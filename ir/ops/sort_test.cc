// The ops sort and top_k, and the types of cumulative ops: stability, errors and Explicit
// shardings. computation_test.cc has the tests of sort_by.
#include "ir/ops/testing/rule_checks.h"

namespace tessera::ir::ops::testing {
namespace {

auto Bad(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); }
Attrs SortAttrs(int64_t dim, int64_t keys = 1) {
  return {{"dimension", dim}, {"is_stable", true}, {"num_keys", keys}};
}
Attrs TopKAttrs(int64_t k, int64_t dim = 0) { return {{"k", k}, {"dimension", dim}}; }
Attrs CumulativeAttrs(int64_t dim, bool reverse = false) {
  return {{"dimension", dim}, {"reverse", reverse}};
}
absl::StatusOr<std::string> TypeOnExplicitMesh(const OpDef& def, std::vector<std::string> in,
                                               Attrs attrs) {
  return TypeOn(ExplicitMesh(), def, in, attrs);
}

TEST(Sort, EqualElementsStayInTheirOrder) {
  const Array keys = Array::Of(DType::kF32, {6}, {1, 0, 1, -0.0, NAN, 0});
  const Array numbers = Iota(DType::kS32, {6});
  const std::vector<Array> got =
      ValueOrThrow(EvaluateOp(kSort, {}, std::vector<Array>{keys, numbers}, SortAttrs(0)));
  EXPECT_EQ(got[0].ToString(), "[0, -0, 0, 1, 1, nan]");
  EXPECT_EQ(got[1].ToString(), "[1, 3, 5, 0, 2, 4]");
  const std::vector<Array> best =
      ValueOrThrow(EvaluateOp(kTopK, {}, std::vector<Array>{keys}, TopKAttrs(3)));
  EXPECT_EQ(best[0].ToString(), "[nan, 1, 1]");
  EXPECT_EQ(best[1].ToString(), "[4, 0, 2]");
}

TEST(Sort, ErrorsNameOpAndFault) {
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {}, SortAttrs(0)), Bad("sort: takes at least one operand"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4]"}, SortAttrs(1)),
              Bad("sort: dimension 1 is not a dim of f32[4]"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4]"}, SortAttrs(0, 2)),
              Bad("num_keys is 2; expected one in [1, 1]"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4]", "f32[5]"}, SortAttrs(0)),
              Bad("operand 1 is f32[5]"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"c64[4]"}, SortAttrs(0)),
              Bad("does not accept dtype c64 as a key"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4]", "c64[4]"}, SortAttrs(0)),
              IsOkAndHolds("f32[4]"));
  EXPECT_THAT(TypeOnExplicitMesh(kTopK, {"f32[4]"}, TopKAttrs(5)),
              Bad("k argument to top_k must be no larger than"));
  EXPECT_THAT(TypeOnExplicitMesh(kTopK, {"f32[4]"}, TopKAttrs(-1)), Bad("got k=-1"));
  EXPECT_THAT(TypeOnExplicitMesh(kTopK, {"f32[4]"}, TopKAttrs(1, -1)),
              Bad("top_k: dimension -1 is not a dim"));
  EXPECT_THAT(TypeOnExplicitMesh(kCumsum, {"f32[4]"}, CumulativeAttrs(1)),
              Bad("cumsum: dimension 1 is not a dim"));
  EXPECT_THAT(TypeOnExplicitMesh(kCumsum, {"bool[4]"}, CumulativeAttrs(0)),
              Bad("does not accept dtype bool"));
  EXPECT_THAT(TypeOnExplicitMesh(kCumlogsumexp, {"s32[4]"}, CumulativeAttrs(0)),
              Bad("expected a float type"));
}

TEST(Sort, ExplicitShardingsFollowJax) {
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4@x,6]"}, SortAttrs(1)), IsOkAndHolds("f32[4@x,6]"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4@x,6]"}, SortAttrs(0)),
              ReasonIs("SHARDING_TYPE_ERROR", "the sorted dim 0 of f32[4@x,6] is sharded"));
  EXPECT_THAT(TypeOnExplicitMesh(kSort, {"f32[4@x,6]", "f32[4,6]"}, SortAttrs(1)),
              ReasonIs("SHARDING_TYPE_ERROR", "operands of different shardings"));
  EXPECT_THAT(TypeOnExplicitMesh(kTopK, {"f32[4@x,6]"}, TopKAttrs(2, 1)),
              IsOkAndHolds("f32[4@x,2]"));
  EXPECT_THAT(TypeOnExplicitMesh(kTopK, {"f32[4@x,6]"}, TopKAttrs(2, 0)),
              ReasonIs("SHARDING_TYPE_ERROR", "is sharded"));
  EXPECT_THAT(TypeOnExplicitMesh(kCumsum, {"f32[4@x,6]"}, CumulativeAttrs(1)),
              IsOkAndHolds("f32[4@x,6]"));
  EXPECT_THAT(TypeOnExplicitMesh(kCumsum, {"f32[4@x,6]"}, CumulativeAttrs(0)),
              ReasonIs("SHARDING_TYPE_ERROR", "dim 0 of f32[4@x,6] is sharded; reshard"));
}

}  // namespace
}  // namespace tessera::ir::ops::testing
