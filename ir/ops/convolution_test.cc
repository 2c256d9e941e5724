// The op convolution: errors, bounds of sizes, precision and shardings; and the composites
// ReduceWindow and SelectAndScatter. The numbers themselves are compared with JAX's in tests/ops.
#include <limits>

#include "gmock/gmock.h"
#include "ir/ops/testing/rule_checks.h"
#include "ir/transform/transform.h"

namespace tessera::ir::ops::testing {
namespace {

using ::testing::HasSubstr;
using IntList = std::vector<int64_t>;

auto Bad(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)); }

// Returns the attributes of a convolution with one spatial dim, with dims "NHC" of the input and
// "HIO" of the kernel.
Attrs OneDim() {
  Builder b({}, "f");
  const Value x = b.Param(MakeType(DType::kF32, {2, 8, 4}));
  const Value kernel = b.Param(MakeType(DType::kF32, {3, 4, 2}));
  const Value out = ConvGeneralDilated(x, kernel, {{0, 2, 1}, {2, 1, 0}, {0, 2, 1}});
  return b.DefiningOp(out)->attrs;
}
Attrs With(const char* name, AttrValue value) {
  Attrs attrs = OneDim();
  attrs.Set(name, std::move(value));
  return attrs;
}
absl::StatusOr<std::string> TypeOfConvolution(std::vector<std::string> in, const Attrs& attrs) {
  return TypeOn(ExplicitMesh(), kConvolution, in, attrs);
}

TEST(Convolution, ErrorsNameWhatIsWrong) {
  const auto error = [](const Attrs& attrs) {
    return TypeOfConvolution({"f32[2,8,4]", "f32[3,4,2]"}, attrs).status();
  };
  TESSERA_EXPECT_OK(error(OneDim()));
  EXPECT_THAT(error(With("feature_group_count", int64_t{0})), Bad("must be a positive integer"));
  EXPECT_THAT(error(With("feature_group_count", int64_t{3})), Bad("is not a multiple of 3"));
  EXPECT_THAT(error(With("feature_group_count", int64_t{2})), Bad("but 4 // 2 != 4"));
  EXPECT_THAT(error(With("batch_group_count", int64_t{-1})), Bad("must be a positive integer"));
  EXPECT_THAT(error(With("window_strides", IntList{0})), Bad("window_strides has the entry 0"));
  EXPECT_THAT(error(With("window_strides", IntList{1, 1})), Bad("has 2 entries; expected 1"));
  EXPECT_THAT(error(With("padding", IntList{1})), Bad("padding has 1 entries; expected 2"));
  EXPECT_THAT(error(With("padding", IntList{-9, 0})), Bad("gives no valid size"));
  EXPECT_THAT(error(With("input_batch_dimension", int64_t{1})), Bad("the dims of lhs"));
  EXPECT_THAT(error(With("precision", std::string("low"))), Bad("precision is \"low\""));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f32[3,4]"}, OneDim()),
              Bad("must have the same number of dimensions"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f16[3,4,2]"}, OneDim()),
              Bad("requires arguments of equal dtypes"));
}

TEST(Convolution, CotangentsHaveItsPrecision) {
  Attrs attrs = With("precision", std::string("highest"));
  Builder b({}, "f");
  const Type x = MakeType(DType::kF32, {2, 8, 4}), kernel = MakeType(DType::kF32, {3, 4, 2}),
             out = MakeType(DType::kF32, {2, 6, 2});
  const Value vx = b.Param(x), vk = b.Param(kernel), ct = b.Param(out);
  const RuleContext of_x{b, kConvolution, attrs, {}, {Value(), vk}, {}, {x, kernel}, {out}};
  const Value dx = kConvolution.transpose.fn(of_x, {ct}, {true, false})[0];
  EXPECT_EQ(PrecisionOf(b.DefiningOp(dx)->attrs), Precision::kHighest);
  const RuleContext of_k{b, kConvolution, attrs, {}, {vx, Value()}, {}, {x, kernel}, {out}};
  const Value dk = kConvolution.transpose.fn(of_k, {ct}, {false, true})[1];
  EXPECT_EQ(PrecisionOf(b.DefiningOp(dk)->attrs), Precision::kHighest);
}

// A program that was read may hold any sizes, and none of them overflows.
TEST(Convolution, SizesAreBounded) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto error = [](const Attrs& attrs, const char* x = "f32[2,8,4]") {
    return TypeOfConvolution({x, "f32[3,4,2]"}, attrs).status();
  };
  EXPECT_THAT(error(With("padding", IntList{most, most})), Bad("gives no valid size"));
  EXPECT_THAT(error(With("padding", IntList{most, -most})), Bad("gives no valid size"));
  EXPECT_THAT(error(With("padding", IntList{int64_t{1} << 59, 0})), Bad("too many"));
  EXPECT_THAT(error(With("lhs_dilation", IntList{most})), Bad("are too many"));
  EXPECT_THAT(error(With("rhs_dilation", IntList{most})), Bad("are too many"));
  TESSERA_EXPECT_OK(error(With("window_strides", IntList{most})));
  EXPECT_THAT(error(OneDim(), "f32[2,576460752303423488,4]"), Bad("too many"));
  // A stride of the only window, and a dilation of the only element, may be any number.
  const Array x = Iota(DType::kF32, {2, 8, 4}), kernel = Iota(DType::kF32, {1, 4, 2});
  Attrs far = With("window_strides", IntList{most});
  far.Set("rhs_dilation", IntList{most});
  EXPECT_EQ(EvalOne({"", &kConvolution, {x, kernel}, far}).shape(), (Dims{2, 1, 2}));
}

TEST(Convolution, ShardingIsOfWhatIsNotSummed) {
  EXPECT_THAT(TypeOfConvolution({"f32[2@x,8,4]", "f32[3,4,2]"}, OneDim()),
              IsOkAndHolds("f32[2@x,6,2]"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4@x]", "f32[3,4,2]"}, OneDim()),
              Bad("specify the output sharding via `out_sharding`"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f32[3,4,2@x]"}, OneDim()),
              Bad("specify the output sharding via `out_sharding`"));
}

// ---- ReduceWindow and SelectAndScatter. ----

FunctionRef Pair(DType dtype, Value (*combine)(Value, Value)) {
  Builder b({}, "f");
  const Value x = b.Param(MakeType(dtype, {})), y = b.Param(MakeType(dtype, {}));
  return b.Build({combine(x, y)});
}
Value Second(Value, Value y) { return y; }
Value NotLess(Value x, Value y) { return Compare(x, y, "GE"); }

TEST(ReduceWindow, InTurnWhereTheOrderMatters) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {5}));
  const Value zero = Constant(b, DType::kF32, 0);
  const WindowDimensions window = {{3}, {1}, {1}, {1}, {{0, 0}}};
  EXPECT_EQ(window.places(), 3);
  const FunctionRef f = b.Build(ReduceWindow({x}, {zero}, Pair(DType::kF32, Second), window));
  EXPECT_EQ(RunOne(f, {Array::Of(DType::kF32, {5}, {1, 2, 3, 4, 5})}).ToString(), "[3, 4, 5]");
}

TEST(SelectAndScatter, AddsWhereTheChosenIs) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {2, 4})),
              source = b.Param(MakeType(DType::kF32, {2, 2}));
  const WindowDimensions window = {{1, 3}, {1, 2}, {1, 1}, {1, 1}, {{0, 0}, {1, 0}}};
  const Value init = Constant(b, DType::kF32, 10);
  const FunctionRef f = b.Build({SelectAndScatter(x, source, init, Pair(DType::kF32, NotLess),
                                                  Pair(DType::kF32, Add), window)});
  const Array values = Array::Of(DType::kF32, {2, 4}, {-5, -7, -5, -6, 1, 2, 2, 0});
  const Array add = Array::Of(DType::kF32, {2, 2}, {1, 2, 3, 4});
  // The windows hold the elements {-, 0, 1} and {1, 2, 3}. An element beyond the end is never
  // chosen.
  EXPECT_EQ(RunOne(f, {values, add}).ToString(), "[[11, 10, 12, 10], [10, 17, 10, 10]]");
}

TEST(SelectAndScatter, ASelectWithoutAResultIsRefused) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {4})), source = b.Param(MakeType(DType::kF32, {2}));
  const Value init = Constant(b, DType::kF32, 0);
  Builder nothing({}, "f");
  nothing.Param(MakeType(DType::kF32, {}));
  nothing.Param(MakeType(DType::kF32, {}));
  const FunctionRef none = nothing.Build({});
  const WindowDimensions window = {{2}, {2}, {1}, {1}, {{0, 0}}};
  EXPECT_THAT(
      CatchStatus([&] { SelectAndScatter(x, source, init, none, Pair(DType::kF32, Add), window); }),
      StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace tessera::ir::ops::testing
