// Data movement ops: results on small arrays, rules against the evaluator (rule_checks.h), types on
// Explicit and Manual axes, and errors.
#include "ir/ops/testing/rule_checks.h"

namespace tessera::ir::ops::testing {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Attrs BroadcastAttrs(Dims shape, Ints at) {
  return {{"shape", shape}, {"broadcast_dimensions", at}};
}
Attrs SliceAttrs(Ints start, Ints limit, Ints stride) {
  return {{"start_indices", start}, {"limit_indices", limit}, {"strides", stride}};
}
Attrs PadAttrs(Ints low, Ints high, Ints interior) {
  return {{"edge_padding_low", low}, {"edge_padding_high", high}, {"interior_padding", interior}};
}
Attrs ShapeAttrs(Dims shape) { return {{"shape", shape}}; }
Attrs IotaAttrs(DType dtype, Dims shape, int64_t dim) {
  return {{"dtype", dtype}, {"shape", shape}, {"iota_dimension", dim}};
}
Attrs Permutation(Ints p) { return {{"permutation", p}}; }
Attrs Dimension(int64_t d) { return {{"dimension", d}}; }
Attrs Dimensions(Ints d) { return {{"dimensions", d}}; }

std::string EvalToText(const OpDef& def, std::vector<Array> in, Attrs attrs) {
  return EvalOne({"", &def, std::move(in), std::move(attrs)}).ToString();
}

// ---- Values. ----

TEST(DataMovement, EvaluatesSmallArrays) {
  const Array m = Iota(DType::kS32, {2, 3}), v = Iota(DType::kF32, {5}), s = Int(9);
  EXPECT_EQ(EvalToText(kConstant, {}, {{"value", m}}), "[[0, 1, 2], [3, 4, 5]]");
  EXPECT_EQ(EvalToText(kIota, {}, IotaAttrs(DType::kBF16, {2, 3}, 1)), "[[0, 1, 2], [0, 1, 2]]");
  EXPECT_EQ(EvalToText(kBroadcastInDim, {Iota(DType::kF32, {2})}, BroadcastAttrs({3, 2}, {1})),
            "[[0, 1], [0, 1], [0, 1]]");
  EXPECT_EQ(
      EvalToText(kBroadcastInDim, {Iota(DType::kF32, {2, 1})}, BroadcastAttrs({2, 3}, {0, 1})),
      "[[0, 0, 0], [1, 1, 1]]");
  EXPECT_EQ(EvalToText(kBroadcastInDim, {m}, BroadcastAttrs({3, 2}, {1, 0})),
            "[[0, 3], [1, 4], [2, 5]]");
  EXPECT_EQ(EvalToText(kReshape, {m}, ShapeAttrs({3, 2})), "[[0, 1], [2, 3], [4, 5]]");
  EXPECT_EQ(EvalToText(kTranspose, {m}, Permutation({1, 0})), "[[0, 3], [1, 4], [2, 5]]");
  EXPECT_EQ(EvalToText(kSlice, {v}, SliceAttrs({1}, {5}, {2})), "[1, 3]");
  EXPECT_EQ(EvalToText(kSlice, {v}, SliceAttrs({2}, {2}, {1})), "[]");
  EXPECT_EQ(EvalToText(kConcatenate, {m, Iota(DType::kS32, {2, 1})}, Dimension(1)),
            "[[0, 1, 2, 0], [3, 4, 5, 1]]");
  EXPECT_EQ(EvalToText(kReverse, {m}, Dimensions({1})), "[[2, 1, 0], [5, 4, 3]]");
  EXPECT_EQ(EvalToText(kPad, {Iota(DType::kS32, {3}), s}, PadAttrs({1}, {2}, {1})),
            "[9, 0, 9, 1, 9, 2, 9, 9]");
  EXPECT_EQ(EvalToText(kPad, {Iota(DType::kS32, {4}), s}, PadAttrs({-1}, {-2}, {0})), "[1]");
  EXPECT_EQ(EvalToText(kPad, {Iota(DType::kS32, {4}), s}, PadAttrs({-2}, {1}, {2})),
            "[9, 1, 9, 9, 2, 9, 9, 3, 9]");
  EXPECT_EQ(EvalToText(kPad, {Iota(DType::kS32, {2}), s}, PadAttrs({-5}, {7}, {0})),
            "[9, 9, 9, 9]");
  EXPECT_EQ(EvalToText(kPad, {Iota(DType::kS32, {0}), s}, PadAttrs({1}, {1}, {3})), "[9, 9]");
}

TEST(DataMovement, MovesEveryElementWidth) {
  for (DType dtype : {DType::kBool, DType::kBF16, DType::kF32, DType::kS64}) {
    Array a = Iota(dtype, {2, 2});
    const Array t = EvalOne({"", &kTranspose, {a}, Permutation({1, 0})});
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_EQ(t.At(1), a.At(2));
    EXPECT_EQ(t.At(2), a.At(1));
  }
}

// ---- Rules. ----

// Returns one case for each linear op and each kind of its attributes, among them empty arrays.
std::vector<Case> LinearCases() {
  const Array pad = Array::Scalar(DType::kF64, 0.5);
  return {
      {"BroadcastNewDims",
       &kBroadcastInDim,
       {F64({2, 3}, 1)},
       BroadcastAttrs({4, 2, 5, 3}, {1, 3})},
      {"BroadcastOnes", &kBroadcastInDim, {F64({1, 3}, 1)}, BroadcastAttrs({2, 4, 3}, {1, 2})},
      {"BroadcastSwapped",
       &kBroadcastInDim,
       {F64({2, 1, 3}, 1)},
       BroadcastAttrs({3, 4, 2}, {2, 1, 0})},
      {"Reshape", &kReshape, {F64({2, 6}, 1)}, ShapeAttrs({3, 4})},
      {"ReshapeToScalar", &kReshape, {F64({1, 1}, 1)}, ShapeAttrs({})},
      {"Transpose", &kTranspose, {F64({2, 3, 4}, 1)}, Permutation({2, 0, 1})},
      {"Slice", &kSlice, {F64({5, 6}, 1)}, SliceAttrs({1, 0}, {4, 6}, {1, 1})},
      {"SliceStrided", &kSlice, {F64({7, 6}, 1)}, SliceAttrs({1, 2}, {7, 3}, {2, 3})},
      {"SliceEmpty", &kSlice, {F64({3, 2}, 1)}, SliceAttrs({3, 0}, {3, 2}, {2, 1})},
      {"Concatenate",
       &kConcatenate,
       {F64({2, 1}, 1), F64({2, 3}, 2), F64({2, 0}, 3)},
       Dimension(1)},
      {"Pad", &kPad, {F64({2, 3}, 1), pad}, PadAttrs({1, 0}, {2, 3}, {0, 0})},
      {"PadInterior", &kPad, {F64({3, 2}, 1), pad}, PadAttrs({0, 1}, {1, 0}, {2, 1})},
      {"PadNegative", &kPad, {F64({5, 4}, 1), pad}, PadAttrs({-1, 2}, {-2, -1}, {0, 0})},
      {"PadNegativeInterior", &kPad, {F64({5, 4}, 1), pad}, PadAttrs({-3, 1}, {-1, -4}, {1, 2})},
      {"PadEmpty", &kPad, {F64({0, 2}, 1), pad}, PadAttrs({1, 0}, {1, 0}, {3, 0})},
      {"Reverse", &kReverse, {F64({2, 3, 2}, 1)}, Dimensions({0, 2})},
  };
}

class LinearMovement : public ::testing::TestWithParam<Case> {};
TEST_P(LinearMovement, JvpIsFiniteDifferences) { CheckJvp(GetParam()); }
TEST_P(LinearMovement, TransposePassesTheDotProductTest) { CheckTranspose(GetParam()); }
TEST_P(LinearMovement, BatchIsLoopForEveryMappedDim) {
  const Case& c = GetParam();
  for (int at = 0; at <= c.in[0].rank(); ++at) {
    Case batched = c;
    std::vector<int> dims(c.in.size(), -1);
    Dims shape = c.in[0].shape();
    shape.insert(shape.begin() + at, 3);
    batched.in[0] = F64(shape, 11);
    dims[0] = at;
    CheckBatch(batched, dims);
    if (c.in.size() < 2) continue;
    // Then the last operand is batched too, and then alone.
    shape = c.in.back().shape();
    const int last_at = std::min<int>(at, static_cast<int>(shape.size()));
    shape.insert(shape.begin() + last_at, 3);
    batched.in.back() = F64(shape, 12);
    dims.back() = last_at;
    CheckBatch(batched, dims);
    batched.in[0] = c.in[0];
    dims[0] = -1;
    CheckBatch(batched, dims);
  }
}
INSTANTIATE_TEST_SUITE_P(All, LinearMovement, ::testing::ValuesIn(LinearCases()),
                         [](const auto& info) { return info.param.name; });

TEST(DataMovement, BatchedConstantsStayUnbatched) {
  Builder b(Scope{});
  const Attrs attrs = IotaAttrs(DType::kS32, {3}, 0);
  const RuleContext rc{b, kIota, attrs, {}, {}, {}, {}, {MakeType(DType::kS32, {3})}};
  const Batched out = kIota.batch.fn(rc, {}, 4);
  EXPECT_EQ(out.dims, std::vector<int>{-1});
  EXPECT_EQ(out.values[0].type().ToString(), "s32[3]");
}

// ---- Partition. ----

const Mesh kMesh{{{"x", 2}, {"y", 2}}};

TEST(DataMovement, PartitionedResultEqualsWhole) {
  const std::vector<std::string> x = {"x"}, y = {"y"}, yx = {"y", "x"}, none;
  CheckPartition({"", &kConstant, {}, {{"value", Iota(DType::kF32, {4, 4})}}}, kMesh, {y, x});
  CheckPartition({"", &kIota, {}, IotaAttrs(DType::kBF16, {8, 2}, 0)}, kMesh, {yx, none});
  CheckPartition({"", &kIota, {}, IotaAttrs(DType::kS32, {4, 8}, 1)}, kMesh, {x, y});
  CheckPartition({"", &kBroadcastInDim, {F64({4, 1}, 1)}, BroadcastAttrs({6, 4, 2}, {1, 2})}, kMesh,
                 {x, y, none, none});
  CheckPartition({"", &kReshape, {F64({8, 3}, 1)}, ShapeAttrs({2, 4, 3})}, kMesh, {x, y, none});
  CheckPartition({"", &kReshape, {F64({2, 4, 3}, 1)}, ShapeAttrs({8, 3})}, kMesh, {x, y, none});
  CheckPartition({"", &kTranspose, {F64({4, 6}, 1)}, Permutation({1, 0})}, kMesh, {x, y});
  // The factors are dim 0, which passes through, and the two sizes of dim 1, which is sliced and
  // must be whole.
  CheckPartition({"", &kSlice, {F64({8, 5}, 1)}, SliceAttrs({0, 1}, {8, 4}, {1, 2})}, kMesh,
                 {yx, none, none});
  CheckPartition({"", &kConcatenate, {F64({4, 2}, 1), F64({4, 3}, 2)}, Dimension(1)}, kMesh,
                 {yx, none, none, none});
  CheckPartition({"", &kPad, {F64({4, 2}, 1), F64({}, 2)}, PadAttrs({0, 1}, {0, -1}, {0, 1})},
                 kMesh, {yx, none, none});
  CheckPartition({"", &kReverse, {F64({4, 2}, 1)}, Dimensions({1})}, kMesh, {yx, none});
}

// Returns the factors of a reshape as "operand -> result". Factors that pass through are letters,
// and others are '.'.
std::string FactorsOf(Dims from, Dims to) {
  const std::vector<Type> in = {MakeType(DType::kF32, from)}, out = {MakeType(DType::kF32, to)};
  const Attrs attrs = ShapeAttrs(to);
  const Signature s = kReshape.factors({kReshape, {}, in, attrs, {}}, out);
  std::string text;
  std::map<int, char> letters;
  auto print = [&](const TensorFactors& dims) {
    for (const FactorList& dim : dims) {
      text += "(";
      int64_t product = 1;
      for (int f : dim) {
        const bool pass = s.factors[f].kind == FactorKind::kPassThrough;
        if (pass) letters.emplace(f, static_cast<char>('a' + letters.size()));
        text += pass ? letters[f] : '.';
        text += std::to_string(s.factors[f].size);
        product *= s.factors[f].size;
      }
      text += ")";
      EXPECT_EQ(product, (&dims == &s.operands[0] ? from : to)[&dim - dims.data()]);
    }
  };
  print(s.operands[0]);
  text += "->";
  print(s.results[0]);
  return text;
}

TEST(Reshape, SharesTheCommonFactorsOfBothShapes) {
  EXPECT_EQ(FactorsOf({4, 6, 8}, {4, 2, 3, 8}), "(a4)(b2c3)(d8)->(a4)(b2)(c3)(d8)");
  EXPECT_EQ(FactorsOf({2, 4, 30}, {8, 3, 10}), "(a2)(b4)(c3d10)->(a2b4)(c3)(d10)");
  EXPECT_EQ(FactorsOf({4, 6}, {6, 4}), "(a2.2)(.6)->(a2.3)(.4)");
  EXPECT_EQ(FactorsOf({2, 3, 5}, {3, 2, 5}), "(.2)(.3)(a5)->(.3)(.2)(a5)");
  EXPECT_EQ(FactorsOf({1, 4, 1}, {4, 1}), "(.1)(a4)(.1)->(a4)(.1)");
  EXPECT_EQ(FactorsOf({}, {1, 1}), "->(.1)(.1)");
  EXPECT_EQ(FactorsOf({2, 0, 3}, {2, 0}), "(a2)(b0)(.3)->(a2)(b0)");
}

// ---- Types and errors. ----

absl::StatusOr<std::string> TypeOnExplicitMesh(const OpDef& def, std::vector<std::string> in,
                                               Attrs attrs) {
  return TypeOn(ExplicitMesh(), def, in, attrs);
}

// Shardings follow the dims, and a sharding that would need communication is refused unless
// out_sharding gives one.
TEST(DataMovement, ExplicitShardingsFollowJax) {
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[4@x,6@y,8]"}, ShapeAttrs({4, 2, 3, 8})),
              IsOkAndHolds("f32[4@x,2@y,3,8]"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[4@x,6@y,8]"}, ShapeAttrs({4, 3, 2, 8})),
              ReasonIs("SHARDING_TYPE_ERROR", "This reshape is not supported"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[2@x,2@y]"}, ShapeAttrs({4})),
              IsOkAndHolds("f32[4@x@y]"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[2,2@y]"}, ShapeAttrs({4})),
              ReasonIs("SHARDING_TYPE_ERROR", "This reshape is not supported"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[12@x@y]"}, ShapeAttrs({3, 4})),
              ReasonIs("SHARDING_TYPE_ERROR", "This reshape is not supported"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[12@x@y]"},
                                 {{"shape", Dims{3, 4}},
                                  {"out_sharding", PartitionSpec{{{}, {"x"}}, {}, {}, {}}}}),
              IsOkAndHolds("f32[3,4@x]"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[4@x,1,2]"}, ShapeAttrs({1, 4, 2, 1})),
              IsOkAndHolds("f32[1,4@x,2,1]"));
  EXPECT_THAT(TypeOnExplicitMesh(kPad, {"f32[8@x]", "f32[]"}, PadAttrs({2}, {2}, {0})),
              IsOkAndHolds("f32[12@x]"));
  EXPECT_THAT(TypeOnExplicitMesh(kPad, {"f32[8@x]", "f32[]"}, PadAttrs({2}, {3}, {0})),
              ReasonIs("SHARDING_TYPE_ERROR", "padding on sharded dims"));
  EXPECT_THAT(TypeOnExplicitMesh(kSlice, {"f32[4@x,4@y]"}, SliceAttrs({0, 0}, {4, 3}, {1, 1})),
              ReasonIs("SHARDING_TYPE_ERROR",
                       "slicing on sharded dims where out dim (3) is not divisible"));
  EXPECT_THAT(TypeOnExplicitMesh(kSlice, {"f32[4@x,4@y]"}, SliceAttrs({0, 1}, {4, 3}, {1, 1})),
              IsOkAndHolds("f32[4@x,2@y]"));
  EXPECT_THAT(TypeOnExplicitMesh(kSlice, {"f32[4@x]"}, SliceAttrs({1}, {2}, {1})),
              IsOkAndHolds("f32[1]"));
  EXPECT_THAT(TypeOnExplicitMesh(kConcatenate, {"f32[4@x,4@y]", "f32[4@x,4]"}, Dimension(0)),
              ReasonIs("SHARDING_TYPE_ERROR", "All operands should have the same sharding"));
  EXPECT_THAT(TypeOnExplicitMesh(kConcatenate, {"f32[4@x,4@y]", "f32[6@x,4@y]"}, Dimension(0)),
              IsOkAndHolds("f32[10@x,4@y]"));
  EXPECT_THAT(TypeOnExplicitMesh(kTranspose, {"f32[4@x,6]"}, Permutation({1, 0})),
              IsOkAndHolds("f32[6,4@x]"));
  EXPECT_THAT(TypeOnExplicitMesh(kReverse, {"f32[4@x,6]"}, Dimensions({0})),
              IsOkAndHolds("f32[4@x,6]"));
  EXPECT_THAT(TypeOnExplicitMesh(kBroadcastInDim, {"f32[4@x]"}, BroadcastAttrs({2, 4}, {1})),
              IsOkAndHolds("f32[2,4@x]"));
  EXPECT_THAT(TypeOnExplicitMesh(kBroadcastInDim, {"f32[4@x]"},
                                 {{"shape", Dims{2, 4}},
                                  {"broadcast_dimensions", Ints{1}},
                                  {"out_sharding", PartitionSpec{{{"y"}, {"x"}}, {}, {}, {}}}}),
              IsOkAndHolds("f32[2@y,4@x]"));
  EXPECT_THAT(TypeOnExplicitMesh(kBroadcastInDim, {"f32[4]"},
                                 {{"shape", Dims{4}},
                                  {"broadcast_dimensions", Ints{0}},
                                  {"out_sharding", PartitionSpec{{{}}, {"x"}, {}, {}}}}),
              IsOkAndHolds("f32[4]{U:x}"));
  const Attrs whole = {{"shape", Dims{4}},
                       {"broadcast_dimensions", Ints{0}},
                       {"out_sharding", PartitionSpec{{{"x"}}, {}, {"y"}, {}}}};
  EXPECT_THAT(TypeOnExplicitMesh(kBroadcastInDim, {"f32[4]{U:x}"}, whole),
              IsOkAndHolds("f32[4@x]{R:y}"));
  EXPECT_THAT(TypeOnExplicitMesh(kReshape, {"f32[4]{U:x}"},
                                 {{"shape", Dims{2, 2}}, {"out_sharding", PartitionSpec{}}}),
              ReasonIs("VALUE_ERROR", "must be unreduced and reduced over the same mesh axes"));
  EXPECT_THAT(TypeOnExplicitMesh(
                  kReshape, {"f32[4]"},
                  {{"shape", Dims{4}}, {"out_sharding", PartitionSpec{{{}, {"x"}}, {}, {}, {}}}}),
              ReasonIs("VALUE_ERROR", "drop the extra entries"));
}

TEST(DataMovement, StatesFollowTheOperands) {
  const Mesh manual{{{"i", 2, AxisType::kManual}}};
  EXPECT_THAT(TypeOn(manual, kReshape, {"f32[4]{V:i}"}, ShapeAttrs({2, 2})),
              IsOkAndHolds("f32[2,2]{V:i}"));
  EXPECT_THAT(TypeOn(manual, kTranspose, {"f32[4]{U:i}"}, Permutation({0})),
              IsOkAndHolds("f32[4]{U:i}"));
  EXPECT_THAT(TypeOn(manual, kConcatenate, {"f32[4]{U:i}", "f32[2]{U:i}"}, Dimension(0)),
              IsOkAndHolds("f32[6]{U:i}"));
  EXPECT_THAT(
      TypeOn(manual, kConcatenate, {"f32[4]{V:i}", "f32[2]"}, Dimension(0)),
      ReasonIs("VALUE_ERROR", "Primitive concatenate requires varying manual axes to match"));
  EXPECT_THAT(TypeOn(manual, kPad, {"f32[4]{V:i}", "f32[]"}, PadAttrs({1}, {0}, {0})),
              ReasonIs("VALUE_ERROR", "Primitive pad requires varying manual axes to match"));
}

struct ErrorRow {
  const OpDef* def;
  std::vector<std::string> in;
  Attrs attrs;
  std::string text;
};
class MovementError : public ::testing::TestWithParam<ErrorRow> {};
TEST_P(MovementError, NamesOpAndFault) {
  const ErrorRow& p = GetParam();
  const auto got = TypeOnExplicitMesh(*p.def, p.in, p.attrs);
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kInvalidArgument, p.text));
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kInvalidArgument, std::string(p.def->lax_name)));
}
INSTANTIATE_TEST_SUITE_P(
    All, MovementError,
    ::testing::Values(
        ErrorRow{&kIota, {}, IotaAttrs(DType::kBool, {2}, 0), "does not accept dtype bool"},
        ErrorRow{&kIota, {}, IotaAttrs(DType::kS32, {2}, 1), "dimension 1 is not a dim"},
        ErrorRow{&kIota, {}, IotaAttrs(DType::kS32, {-2}, 0), "negative dim"},
        ErrorRow{&kBroadcastInDim, {"f32[2]"}, BroadcastAttrs({2}, {}), "has 0 entries"},
        ErrorRow{&kBroadcastInDim, {"f32[2]"}, BroadcastAttrs({2, 3}, {1}), "operand dim 0 is 2"},
        ErrorRow{&kBroadcastInDim, {"f32[2]"}, BroadcastAttrs({2}, {1}), "names dim 1"},
        ErrorRow{&kBroadcastInDim, {"f32[2,2]"}, BroadcastAttrs({2, 2}, {0, 0}), "twice"},
        ErrorRow{
            &kReshape, {"f32[6]"}, ShapeAttrs({4}), "total size of new array must be unchanged"},
        ErrorRow{&kReshape, {"f32[6]"}, ShapeAttrs({-6}), "negative dim or too many elements"},
        ErrorRow{&kReshape,
                 {"f32[0]"},
                 ShapeAttrs({int64_t{1} << 40, int64_t{1} << 40, 0}),
                 "too many elements"},
        ErrorRow{&kTranspose, {"f32[6,2]"}, Permutation({1, 1}), "twice"},
        ErrorRow{&kTranspose, {"f32[6,2]"}, Permutation({0}), "has 1 entries"},
        ErrorRow{&kSlice, {"f32[4]"}, SliceAttrs({1}, {5}, {1}), "0 <= start <= limit <= 4"},
        ErrorRow{&kSlice, {"f32[4]"}, SliceAttrs({3}, {2}, {1}), "0 <= start <= limit"},
        ErrorRow{&kSlice, {"f32[4]"}, SliceAttrs({0}, {4}, {0}), "expected a positive one"},
        ErrorRow{&kSlice, {"f32[4]"}, SliceAttrs({0}, {4}, {}), "strides has 0 entries"},
        ErrorRow{&kConcatenate, {}, Dimension(0), "at least one operand"},
        ErrorRow{&kConcatenate, {"f32[2]"}, Dimension(1), "dimension 1 is not a dim"},
        ErrorRow{&kConcatenate, {"f32[2]", "s32[2]"}, Dimension(0), "equal dtypes"},
        ErrorRow{&kConcatenate, {"f32[2,3]", "f32[2,4]"}, Dimension(0), "shapes that differ"},
        ErrorRow{&kConcatenate, {"f32[2,3]", "f32[2]"}, Dimension(0), "shapes that differ"},
        ErrorRow{&kPad, {"f32[2]", "f32[1]"}, PadAttrs({0}, {0}, {0}), "expected a scalar f32[]"},
        ErrorRow{&kPad, {"f32[2]", "s32[]"}, PadAttrs({0}, {0}, {0}), "expected a scalar f32[]"},
        ErrorRow{&kPad, {"f32[2]", "f32[]"}, PadAttrs({-2}, {-1}, {0}), "gives no valid size"},
        ErrorRow{&kPad,
                 {"f32[2]", "f32[]"},
                 PadAttrs({int64_t{1} << 62}, {int64_t{1} << 62}, {0}),
                 "gives no valid size"},
        ErrorRow{&kPad, {"f32[2]", "f32[]"}, PadAttrs({0}, {0}, {-1}), "non-negative"},
        ErrorRow{&kReverse, {"f32[2]"}, Dimensions({1}), "names dim 1"}));

// ---- The functions of ops.h. ----

TEST(DataMovement, FunctionsReturnTheOperandIfNothingChanges) {
  Builder b(Scope{});
  Value x = b.Param(MakeType(DType::kF32, {2, 3}));
  EXPECT_EQ(Reshape(x, {2, 3}), x);
  EXPECT_EQ(Transpose(x, {0, 1}), x);
  EXPECT_EQ(Slice(x, {0, 0}, {2, 3}), x);
  EXPECT_EQ(BroadcastInDim(x, {2, 3}, {0, 1}), x);
  EXPECT_EQ(Reverse(x, {}), x);
  EXPECT_EQ(MoveDim(x, 1, 1), x);
  EXPECT_EQ(MoveDim(x, 0, 1).type().ToString(), "f32[3,2]");
  EXPECT_EQ(BroadcastNewDim(x, 2, 4).type().ToString(), "f32[2,3,4]");
  EXPECT_EQ(ExpandDims(x, {0, 3}).type().ToString(), "f32[1,2,3,1]");
  EXPECT_EQ(Squeeze(ExpandDims(x, {1}), {1}).type().ToString(), "f32[2,3]");
  EXPECT_THAT(CatchStatus([&] { Squeeze(x, {0}); }), ReasonIs("VALUE_ERROR", "squeeze: dim 0"));
  EXPECT_THAT(CatchStatus([&] { ExpandDims(x, {3}); }), ReasonIs("VALUE_ERROR", "expand_dims"));
}

TEST(DataMovement, FullLikeHasShardingAndVaryingAxesOfItsModel) {
  const Mesh mesh{{{"x", 2, AxisType::kExplicit}, {"i", 2, AxisType::kManual}}};
  Builder b(Scope{mesh});
  Value x = b.Param(ValueOrThrow(ParseType("bf16[4@x,3]{V:i}")));
  EXPECT_EQ(FullLike(x, 2).type().ToString(), "bf16[4@x,3]{V:i}");
  Value u = b.Param(ValueOrThrow(ParseType("f32[4]{U:i}")));
  EXPECT_THAT(CatchStatus([&] { FullLike(u, 2); }), ReasonIs("NOT_IMPLEMENTED"));
}

}  // namespace
}  // namespace tessera::ir::ops::testing
