// Reductions over dims, argmax and argmin: results on small arrays, wide sums, NaNs and ties, rules
// against the evaluator (rule_checks.h), types and errors.
#include "ir/ops/testing/rule_checks.h"

namespace tessera::ir::ops::testing {
namespace {

using IntList = std::vector<int64_t>;

Attrs ReduceAttrs(IntList dims) { return {{"dimensions", dims}}; }
Attrs ArgAttrs(int64_t dim, DType index = DType::kS32) {
  return {{"dimension", dim}, {"index_dtype", index}};
}
std::string EvalToText(const OpDef& def, Array x, Attrs attrs) {
  return EvalOne({"", &def, {std::move(x)}, std::move(attrs)}).ToString();
}

TEST(Reduction, EvaluatesSmallArrays) {
  const Array m = Array::Of(DType::kF32, {2, 3}, {3, 1, 2, 4, 6, 5});
  EXPECT_EQ(EvalToText(kReduceSum, m, ReduceAttrs({0})), "[7, 7, 7]");
  EXPECT_EQ(EvalToText(kReduceSum, m, ReduceAttrs({1})), "[6, 15]");
  EXPECT_EQ(EvalToText(kReduceSum, m, ReduceAttrs({1, 0})), "21");
  EXPECT_EQ(EvalToText(kReduceSum, m, ReduceAttrs({})), "[[3, 1, 2], [4, 6, 5]]");
  EXPECT_EQ(EvalToText(kReduceProd, m, ReduceAttrs({1})), "[6, 120]");
  EXPECT_EQ(EvalToText(kReduceMax, m, ReduceAttrs({0})), "[4, 6, 5]");
  EXPECT_EQ(EvalToText(kReduceMin, m, ReduceAttrs({0, 1})), "1");
  EXPECT_EQ(EvalToText(kArgMax, m, ArgAttrs(1)), "[0, 1]");
  EXPECT_EQ(EvalToText(kArgMin, m, ArgAttrs(0, DType::kU32)), "[0, 0, 0]");
  const Array cube = Iota(DType::kS32, {2, 2, 2});
  EXPECT_EQ(EvalToText(kReduceSum, cube, ReduceAttrs({0, 2})), "[10, 18]");
  const Array bools = Array::Of(DType::kBool, {2, 2}, {1, 1, 0, 1});
  EXPECT_EQ(EvalToText(kReduceAnd, bools, ReduceAttrs({1})), "[true, false]");
  EXPECT_EQ(EvalToText(kReduceOr, bools, ReduceAttrs({0, 1})), "true");
  EXPECT_EQ(EvalToText(kReduceMax, bools, ReduceAttrs({0})), "[true, true]");
  const Array bits = Array::Of(DType::kS32, {2}, {6, 3});
  EXPECT_EQ(EvalToText(kReduceAnd, bits, ReduceAttrs({0})), "2");
  EXPECT_EQ(EvalToText(kReduceOr, bits, ReduceAttrs({0})), "7");
}

TEST(Reduction, EmptyReductionsGiveTheIdentity) {
  const Array none(DType::kF32, {0}), ints(DType::kS32, {0}), bools(DType::kBool, {0});
  EXPECT_EQ(EvalToText(kReduceSum, none, ReduceAttrs({0})), "0");
  EXPECT_EQ(EvalToText(kReduceProd, none, ReduceAttrs({0})), "1");
  EXPECT_EQ(EvalToText(kReduceMax, none, ReduceAttrs({0})), "-inf");
  EXPECT_EQ(EvalToText(kReduceMin, none, ReduceAttrs({0})), "inf");
  EXPECT_EQ(EvalToText(kReduceMax, ints, ReduceAttrs({0})), "-2147483648");
  EXPECT_EQ(EvalToText(kReduceMin, ints, ReduceAttrs({0})), "2147483647");
  EXPECT_EQ(EvalToText(kReduceAnd, ints, ReduceAttrs({0})), "-1");
  EXPECT_EQ(EvalToText(kReduceAnd, bools, ReduceAttrs({0})), "true");
  EXPECT_EQ(EvalToText(kReduceOr, bools, ReduceAttrs({0})), "false");
}

TEST(Reduction, AccumulatesWideAndWrapsIntegers) {
  Array many(DType::kBF16, {1000});
  for (int i = 0; i < 1000; ++i) many.Set(i, 1);
  EXPECT_EQ(EvalToText(kReduceSum, many, ReduceAttrs({0})),
            "1000");  // bf16 alone would stop at 256
  const Array big = Array::Of(DType::kF32, {3}, {1e8, 1, -1e8});
  EXPECT_EQ(EvalToText(kReduceSum, big, ReduceAttrs({0})), "1");
  const Array ints = Array::Of(DType::kS32, {2}, {2147483647, 2});
  EXPECT_EQ(EvalToText(kReduceSum, ints, ReduceAttrs({0})), "-2147483647");
  EXPECT_EQ(EvalToText(kReduceProd, ints, ReduceAttrs({0})), "-2");
}

TEST(Reduction, NanWinsAndTiesTakeTheLowestIndex) {
  const Array x = Array::Of(DType::kF32, {4}, {1, NAN, 5, NAN});
  EXPECT_TRUE(std::isnan(EvalOne({"", &kReduceMax, {x}, ReduceAttrs({0})}).At(0)));
  EXPECT_TRUE(std::isnan(EvalOne({"", &kReduceMin, {x}, ReduceAttrs({0})}).At(0)));
  EXPECT_EQ(EvalToText(kArgMax, x, ArgAttrs(0)), "1");
  EXPECT_EQ(EvalToText(kArgMin, x, ArgAttrs(0)), "1");
  const Array ties = Array::Of(DType::kS32, {5}, {2, 7, 7, 1, 1});
  EXPECT_EQ(EvalToText(kArgMax, ties, ArgAttrs(0)), "1");
  EXPECT_EQ(EvalToText(kArgMin, ties, ArgAttrs(0)), "3");
}

std::vector<Case> Cases() {
  const Array x = F64({3, 5, 2}, 1);
  Array one_zero = x, two_zeros = x;
  one_zero.Set(4, 0);
  two_zeros.Set(4, 0);
  two_zeros.Set(6, 0);
  return {
      {"Sum", &kReduceSum, {x}, ReduceAttrs({0, 2})},
      {"SumAll", &kReduceSum, {x}, ReduceAttrs({0, 1, 2})},
      {"SumNone", &kReduceSum, {x}, ReduceAttrs({})},
      {"Prod", &kReduceProd, {x}, ReduceAttrs({1})},
      {"ProdTwoDims", &kReduceProd, {x}, ReduceAttrs({0, 1})},
      {"ProdOneZero", &kReduceProd, {one_zero}, ReduceAttrs({1})},
      {"ProdTwoZeros", &kReduceProd, {two_zeros}, ReduceAttrs({1})},
      {"ProdEmpty", &kReduceProd, {F64({2, 0}, 1)}, ReduceAttrs({1})},
      {"Max", &kReduceMax, {x}, ReduceAttrs({1, 2})},
      {"Min", &kReduceMin, {x}, ReduceAttrs({0})},
  };
}
class Reductions : public ::testing::TestWithParam<Case> {};
TEST_P(Reductions, JvpIsFiniteDifferences) { CheckJvp(GetParam()); }
INSTANTIATE_TEST_SUITE_P(All, Reductions, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Reduction, TransposeOfSumPassesTheDotProductTest) {
  CheckTranspose({"", &kReduceSum, {F64({3, 5, 2}, 1)}, ReduceAttrs({0, 2})});
  CheckTranspose({"", &kReduceSum, {F64({3}, 1)}, ReduceAttrs({0})});
}

TEST(Reduction, TiesShareTheTangentAndIndicesHaveNone) {
  const Array x = Array::Of(DType::kF64, {3}, {4, 1, 4}),
              t = Array::Of(DType::kF64, {3}, {1, 10, 3});
  EXPECT_EQ(RunOne(JvpFunction({"", &kReduceMax, {x}, ReduceAttrs({0})}, {0}), {x, t}).At(0), 2);
  Builder b(Scope{});
  Value v = b.Param(TypeOf(x));
  const Attrs attrs = ArgAttrs(0);
  Value out = b.Emit1(kArgMax, {v}, attrs);
  const RuleContext rc{b, kArgMax, attrs, {}, {v}, {out}, {v.type()}, {out.type()}};
  EXPECT_FALSE(kArgMax.jvp.fn(rc, {v})[0].valid());
}

TEST(Reduction, BatchIsLoopForEveryMappedDim) {
  const Array x = F64({3, 2, 4}, 1);
  const Array ints =
      EvalOne({"", &kConvert, {Iota(DType::kF32, {3, 2, 4})}, {{"dtype", DType::kS32}}});
  for (int at : {0, 1, 2}) {
    for (const IntList& dims : {IntList{0}, IntList{1}, IntList{0, 1}, IntList{}}) {
      for (const OpDef* def : {&kReduceSum, &kReduceProd, &kReduceMax, &kReduceMin})
        CheckBatch({"", def, {x}, ReduceAttrs(dims)}, {at});
      for (const OpDef* def : {&kReduceAnd, &kReduceOr})
        CheckBatch({"", def, {ints}, ReduceAttrs(dims)}, {at});
    }
    for (int64_t dim : {0, 1}) {
      CheckBatch({"", &kArgMax, {x}, ArgAttrs(dim)}, {at});
      CheckBatch({"", &kArgMin, {x}, ArgAttrs(dim)}, {at});
    }
  }
}

TEST(Reduction, PartitionedResultEqualsWhole) {
  const Mesh mesh{{{"x", 2}, {"y", 2}}};
  const std::vector<std::string> x = {"x"}, y = {"y"}, yx = {"y", "x"}, none;
  const Array a = F64({4, 8}, 1), bools = Array::Of(DType::kBool, {4}, {1, 0, 1, 1});
  for (const OpDef* def : {&kReduceSum, &kReduceProd, &kReduceMax, &kReduceMin}) {
    CheckPartition({"", def, {a}, ReduceAttrs({1})}, mesh, {x, y}, 1e-12);
    CheckPartition({"", def, {a}, ReduceAttrs({0, 1})}, mesh, {y, x}, 1e-12);
  }
  CheckPartition({"", &kReduceAnd, {bools}, ReduceAttrs({0})}, mesh, {yx});
  CheckPartition({"", &kReduceOr, {bools}, ReduceAttrs({0})}, mesh, {yx});
  CheckPartition({"", &kArgMax, {a}, ArgAttrs(1)}, mesh, {yx, none});
}

TEST(Reduction, AndOfIntegersReplicatesTheReducedDim) {
  const std::vector<Type> ints = {MakeType(DType::kS32, {4})},
                          bools = {MakeType(DType::kBool, {4})};
  const std::vector<Type> out = {MakeType(DType::kS32, {})};
  const Attrs attrs = ReduceAttrs({0});
  EXPECT_EQ(kReduceAnd.factors({kReduceAnd, {}, ints, attrs, {}}, out).factors[0].kind,
            FactorKind::kReplicated);
  EXPECT_EQ(kReduceAnd.factors({kReduceAnd, {}, bools, attrs, {}}, out).factors[0].kind,
            FactorKind::kReduction);
}

absl::StatusOr<std::string> TypeOnExplicitMesh(const OpDef& def, std::string in, Attrs attrs) {
  return TypeOn(ExplicitMesh(), def, {in}, attrs);
}

TEST(Reduction, TheResultLacksTheReducedDims) {
  EXPECT_THAT(TypeOnExplicitMesh(kReduceSum, "f32[4@x,6@y]~", ReduceAttrs({0})),
              IsOkAndHolds("f32[6@y]~"));
  EXPECT_THAT(TypeOnExplicitMesh(kReduceMax, "f32[4@x,6@y]", ReduceAttrs({0, 1})),
              IsOkAndHolds("f32[]"));
  EXPECT_THAT(TypeOnExplicitMesh(kArgMax, "f32[4@x,6@y]", ArgAttrs(1)), IsOkAndHolds("s32[4@x]"));
  const Mesh manual{{{"i", 2, AxisType::kManual}}};
  EXPECT_THAT(TypeOn(manual, kReduceSum, {"f32[4]{U:i}"}, ReduceAttrs({0})),
              IsOkAndHolds("f32[]{U:i}"));
  EXPECT_THAT(TypeOn(manual, kReduceMax, {"f32[4]{V:i}"}, ReduceAttrs({0})),
              IsOkAndHolds("f32[]{V:i}"));
  EXPECT_THAT(TypeOn(manual, kReduceMax, {"f32[4]{U:i}"}, ReduceAttrs({0})),
              ReasonIs("NOT_IMPLEMENTED", "unreduced rule for reduce_max is not implemented"));
}

TEST(Reduction, ErrorsNameOpAndFault) {
  auto bad = [](const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); };
  EXPECT_THAT(TypeOnExplicitMesh(kReduceSum, "bool[4]", ReduceAttrs({0})),
              bad("reduce_sum: does not accept dtype bool"));
  EXPECT_THAT(TypeOnExplicitMesh(kReduceAnd, "f32[4]", ReduceAttrs({0})),
              bad("reduce_and: does not accept dtype f32"));
  EXPECT_THAT(TypeOnExplicitMesh(kReduceSum, "f32[4]", ReduceAttrs({1})), bad("names dim 1"));
  EXPECT_THAT(TypeOnExplicitMesh(kReduceSum, "f32[4]", ReduceAttrs({-1})), bad("names dim -1"));
  EXPECT_THAT(TypeOnExplicitMesh(kReduceSum, "f32[4]", ReduceAttrs({0, 0})), bad("twice"));
  EXPECT_THAT(TypeOnExplicitMesh(kArgMax, "f32[4]", ArgAttrs(1)),
              bad("argmax: dimension 1 is not a dim"));
  EXPECT_THAT(TypeOnExplicitMesh(kArgMin, "f32[0]", ArgAttrs(0)), bad("empty sequence"));
  EXPECT_THAT(TypeOnExplicitMesh(kArgMin, "f32[2]", ArgAttrs(0, DType::kF32)),
              bad("expected an integer type"));
}

// The tangent of a product over a sharded dim is computed on the whole dim.
TEST(Reduction, JvpOfProductOverShardedDimHasTheResultsType) {
  Builder b(Scope{ExplicitMesh()});
  Value x = b.Param(ValueOrThrow(ParseType("f64[6@x,4@y]")));
  const Attrs attrs = ReduceAttrs({0});
  Value out = b.Emit1(kReduceProd, {x}, attrs);
  const RuleContext rc{b, kReduceProd, attrs, {}, {x}, {out}, {x.type()}, {out.type()}};
  EXPECT_EQ(kReduceProd.jvp.fn(rc, {x})[0].type().ToString(), "f64[4@y]");
}

}  // namespace
}  // namespace tessera::ir::ops::testing
