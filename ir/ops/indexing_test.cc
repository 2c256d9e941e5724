// The ops dynamic_slice and dynamic_update_slice: clamped starts, rules against the evaluator
// (rule_checks.h), types and errors.
#include "ir/ops/testing/rule_checks.h"

namespace tessera::ir::ops::testing {
namespace {

Attrs Sizes(Dims sizes) { return {{"slice_sizes", sizes}}; }
Array Ints(std::vector<double> v) {
  return Array::Of(DType::kS32, {static_cast<int64_t>(v.size())}, v);
}
std::string EvalToText(const OpDef& def, std::vector<Array> in, Attrs attrs = {}) {
  return EvalOne({"", &def, std::move(in), std::move(attrs)}).ToString();
}

TEST(Indexing, EvaluatesSmallArrays) {
  const Array m = Iota(DType::kS32, {3, 4}), u = Array::Of(DType::kS32, {1, 2}, {70, 80});
  EXPECT_EQ(EvalToText(kDynamicSlice, {m, Int(1), Int(2)}, Sizes({2, 2})), "[[6, 7], [10, 11]]");
  EXPECT_EQ(EvalToText(kDynamicSlice, {m, Int(9), Int(-9)}, Sizes({1, 4})), "[[8, 9, 10, 11]]");
  EXPECT_EQ(EvalToText(kDynamicUpdateSlice, {m, u, Int(1), Int(1)}),
            "[[0, 1, 2, 3], [4, 70, 80, 7], [8, 9, 10, 11]]");
  EXPECT_EQ(EvalToText(kDynamicUpdateSlice, {m, u, Int(-1), Int(3)}),
            "[[0, 1, 70, 80], [4, 5, 6, 7], [8, 9, 10, 11]]");
  EXPECT_EQ(EvalToText(kDynamicSlice, {Iota(DType::kF32, {})}, Sizes({})), "0");
  // A start beyond the signed range is large, not negative.
  const Array far = Array::ScalarInt(DType::kU64, -1);
  EXPECT_EQ(EvalToText(kDynamicSlice, {Iota(DType::kF32, {4}), far}, Sizes({2})), "[2, 3]");
}

std::vector<Case> Cases() {
  return {
      {"Slice", &kDynamicSlice, {F64({5, 4}, 1), Int(2), Int(1)}, Sizes({2, 3})},
      {"SliceClamped", &kDynamicSlice, {F64({5, 4}, 1), Int(9), Int(-3)}, Sizes({2, 3})},
      {"SliceWhole", &kDynamicSlice, {F64({5, 4}, 1), Int(2), Int(2)}, Sizes({5, 1})},
      {"Update", &kDynamicUpdateSlice, {F64({5, 4}, 1), F64({2, 3}, 2), Int(2), Int(1)}, {}},
      {"UpdateClamped",
       &kDynamicUpdateSlice,
       {F64({5, 4}, 1), F64({2, 3}, 2), Int(8), Int(-1)},
       {}},
      {"UpdateWhole", &kDynamicUpdateSlice, {F64({2, 3}, 1), F64({2, 3}, 2), Int(2), Int(1)}, {}},
  };
}

class LinearIndexing : public ::testing::TestWithParam<Case> {};
TEST_P(LinearIndexing, JvpIsFiniteDifferences) { CheckJvp(GetParam()); }
TEST_P(LinearIndexing, TransposePassesTheDotProductTest) { CheckTranspose(GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, LinearIndexing, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Covers every choice of batched operands, with batch dims anywhere. The starts run past both ends.
TEST(Indexing, BatchedDynamicSliceIsLoop) {
  const Array x = F64({7, 5}, 1), i = Int(3), j = Int(1);
  const Array is = Ints({-2, 0, 3, 5, 4, 99}), js = Ints({1, 0, 2, 7, -1, 3});
  const Attrs sizes = Sizes({2, 3});
  for (int at : {0, 1, 2}) {
    Dims shape = {7, 5};
    shape.insert(shape.begin() + at, 6);
    const Array xs = F64(shape, 2);
    CheckBatch({"", &kDynamicSlice, {xs, i, j}, sizes}, {at, -1, -1});
    CheckBatch({"", &kDynamicSlice, {xs, is, j}, sizes}, {at, 0, -1});
    CheckBatch({"", &kDynamicSlice, {xs, i, js}, sizes}, {at, -1, 0});
    CheckBatch({"", &kDynamicSlice, {xs, is, js}, sizes}, {at, 0, 0});
  }
  CheckBatch({"", &kDynamicSlice, {x, is, j}, sizes}, {-1, 0, -1});
  CheckBatch({"", &kDynamicSlice, {x, is, js}, sizes}, {-1, 0, 0});
  // Covers every start of every size, in another dtype.
  for (int64_t size = 0; size <= 8; ++size) {
    const Array rows = Random(DType::kBF16, {10, 8}, 3);
    CheckBatch({"", &kDynamicSlice, {rows, Ints({0, 1, 2, 3, 4, 5, 6, 7, 8, -1})}, Sizes({size})},
               {0, 0});
  }
}

TEST(Indexing, BatchedDynamicSliceMovesSpecialValuesExactly) {
  const double inf = INFINITY;
  const Array x = Array::Of(DType::kF32, {2, 4}, {inf, -0.0, NAN, 1, -inf, NAN, -0.0, 2});
  CheckBatch({"", &kDynamicSlice, {x, Ints({1, 2})}, Sizes({1})}, {0, 0});
}

TEST(Indexing, BatchedDynamicUpdateSliceIsLoop) {
  const Array x = F64({7, 5}, 1), u = F64({2, 3}, 2), i = Int(3), j = Int(1);
  const Array is = Ints({-2, 0, 3, 5, 4, 99}), js = Ints({1, 0, 2, 7, -1, 3});
  for (int at : {0, 1, 2}) {
    Dims xshape = {7, 5}, ushape = {2, 3};
    xshape.insert(xshape.begin() + at, 6);
    ushape.insert(ushape.begin() + 2 - at, 6);
    const Array xs = F64(xshape, 3), us = F64(ushape, 4);
    for (const auto& [a, da] : {std::pair{x, -1}, std::pair{xs, at}})
      for (const auto& [b, db] : {std::pair{u, -1}, std::pair{us, 2 - at}})
        for (const auto& [s, ds] : {std::pair{i, -1}, std::pair{is, 0}})
          for (const auto& [t, dt] : {std::pair{j, -1}, std::pair{js, 0}})
            if (da >= 0 || db >= 0 || ds >= 0 || dt >= 0)
              CheckBatch({"", &kDynamicUpdateSlice, {a, b, s, t}, {}}, {da, db, ds, dt});
  }
}

TEST(Indexing, PartitionedResultEqualsWhole) {
  const Mesh mesh{{{"x", 2}, {"y", 2}}};
  const std::vector<std::string> yx = {"y", "x"}, none;
  CheckPartition({"", &kDynamicSlice, {F64({8, 5}, 1), Int(3), Int(1)}, Sizes({8, 2})}, mesh,
                 {yx, none, none});
  CheckPartition({"", &kDynamicUpdateSlice, {F64({8, 5}, 1), F64({8, 2}, 2), Int(3), Int(1)}, {}},
                 mesh, {yx, none, none});
}

absl::StatusOr<std::string> TypeOnExplicitMesh(const OpDef& def, std::vector<std::string> in,
                                               Attrs attrs = {}) {
  return TypeOn(ExplicitMesh(), def, in, attrs);
}

TEST(Indexing, ExplicitShardingsFollowJax) {
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[8@x,4]", "s32[]", "s32[]"}, Sizes({8, 3})),
              IsOkAndHolds("f32[8@x,3]"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[8@x,4]", "s32[]", "s32[]"}, Sizes({3, 3})),
              ReasonIs("SHARDING_TYPE_ERROR",
                       "dynamic_slice on sharded dims where out dim (3) is not divisible"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[8@x]", "f32[4]", "s32[]"}),
              ReasonIs("SHARDING_TYPE_ERROR", "update sharding must be equal to operand sharding"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[8@x]", "f32[4@x]", "s32[]"}),
              IsOkAndHolds("f32[8@x]"));
}

TEST(Indexing, TransposeOfDynamicSliceKeepsTheOperandsSharding) {
  Builder b(Scope{ExplicitMesh()});
  const Type x = ValueOrThrow(ParseType("f64[8@x,4@y]"));
  for (const char* out : {"f64[4@x,4@y]", "f64[1,1]"}) {
    const Type t = ValueOrThrow(ParseType(out));
    const Attrs attrs = Sizes(t.shape);
    Value i = b.Param(MakeType(DType::kS32, {}));
    const RuleContext rc{b,  kDynamicSlice,           attrs, {}, {Value(), i, i},
                         {}, {x, i.type(), i.type()}, {t}};
    const auto cts = kDynamicSlice.transpose.fn(rc, {b.Param(t)}, {true, false, false});
    EXPECT_EQ(cts[0].type().ToString(), x.ToString()) << out;
  }
}

TEST(Indexing, ErrorsNameOpAndFault) {
  auto bad = [](const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); };
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4]"}, Sizes({2})),
              bad("dynamic_slice: got 0 start indices"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4]", "s32[1]"}, Sizes({2})),
              bad("expected integer scalars"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4]", "f32[]"}, Sizes({2})),
              bad("expected integer scalars"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4,4]", "s32[]", "u32[]"}, Sizes({2, 2})),
              bad("of one dtype"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4]", "s32[]"}, Sizes({5})),
              bad("slice size of dim 0"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {"f32[4]", "s32[]"}, Sizes({})),
              bad("slice_sizes has 0 entries"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicSlice, {}, Sizes({})), bad("got nothing"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[4]"}),
              bad("takes an operand, an update"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[4]", "f32[5]", "s32[]"}),
              bad("no larger than"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[4]", "s32[2]", "s32[]"}),
              bad("equal dtypes and ranks"));
  EXPECT_THAT(TypeOnExplicitMesh(kDynamicUpdateSlice, {"f32[4]", "f32[]", "s32[]"}),
              bad("equal dtypes and ranks"));
}

TEST(Indexing, DynamicIndexInDimReadsAndWritesRows) {
  Builder b(Scope{});
  Value x = b.Param(MakeType(DType::kS32, {2, 3})), i = b.Param(MakeType(DType::kS32, {}));
  Value row = DynamicIndexInDim(x, i, 1);
  const FunctionRef f = b.Build({DynamicUpdateIndexInDim(x, Add(row, row), i, 1)});
  EXPECT_EQ(RunOne(f, {Iota(DType::kS32, {2, 3}), Int(2)}).ToString(), "[[0, 1, 4], [3, 4, 10]]");
  Builder c(Scope{});
  Value y = c.Param(MakeType(DType::kS32, {2}));
  EXPECT_THAT(CatchStatus([&] { DynamicIndexInDim(y, y, 1); }),
              ReasonIs("VALUE_ERROR", "dim 1 is not a dim"));
}

}  // namespace
}  // namespace tessera::ir::ops::testing
