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
Attrs OneDimAttrs() {
  Builder b({}, "f");
  const Value x = b.Param(MakeType(DType::kF32, {2, 8, 4}));
  const Value kernel = b.Param(MakeType(DType::kF32, {3, 4, 2}));
  const Value out = ConvGeneralDilated(x, kernel, {{0, 2, 1}, {2, 1, 0}, {0, 2, 1}});
  return b.DefiningOp(out)->attrs;
}
Attrs OneDimWith(const char* name, AttrValue value) {
  Attrs attrs = OneDimAttrs();
  attrs.Set(name, std::move(value));
  return attrs;
}
absl::StatusOr<std::string> TypeOfConvolution(std::vector<std::string> in, const Attrs& attrs) {
  return TypeOn(ExplicitMesh(), kConvolution, in, attrs);
}

TEST(Convolution, ErrorsNameWhatIsWrong) {
  const auto status_of = [](const Attrs& attrs) {
    return TypeOfConvolution({"f32[2,8,4]", "f32[3,4,2]"}, attrs).status();
  };
  TESSERA_EXPECT_OK(status_of(OneDimAttrs()));
  EXPECT_THAT(status_of(OneDimWith("feature_group_count", int64_t{0})),
              Bad("must be a positive integer"));
  EXPECT_THAT(status_of(OneDimWith("feature_group_count", int64_t{3})),
              Bad("is not a multiple of 3"));
  EXPECT_THAT(status_of(OneDimWith("feature_group_count", int64_t{2})), Bad("but 4 // 2 != 4"));
  EXPECT_THAT(status_of(OneDimWith("batch_group_count", int64_t{-1})),
              Bad("must be a positive integer"));
  EXPECT_THAT(status_of(OneDimWith("window_strides", IntList{0})),
              Bad("window_strides has the entry 0"));
  EXPECT_THAT(status_of(OneDimWith("window_strides", IntList{1, 1})),
              Bad("has 2 entries; expected 1"));
  EXPECT_THAT(status_of(OneDimWith("padding", IntList{1})),
              Bad("padding has 1 entries; expected 2"));
  EXPECT_THAT(status_of(OneDimWith("padding", IntList{-9, 0})), Bad("gives no valid size"));
  EXPECT_THAT(status_of(OneDimWith("input_batch_dimension", int64_t{1})), Bad("the dims of lhs"));
  EXPECT_THAT(status_of(OneDimWith("precision", std::string("low"))), Bad("precision is \"low\""));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f32[3,4]"}, OneDimAttrs()),
              Bad("must have the same number of dimensions"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f16[3,4,2]"}, OneDimAttrs()),
              Bad("requires arguments of equal dtypes"));
}

TEST(Convolution, CotangentsKeepThePrecision) {
  Attrs attrs = OneDimWith("precision", std::string("highest"));
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

// A program that was read may hold sizes of any value, and computing with them must not overflow.
TEST(Convolution, SizesAreBounded) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto status_of = [](const Attrs& attrs, const char* x = "f32[2,8,4]") {
    return TypeOfConvolution({x, "f32[3,4,2]"}, attrs).status();
  };
  EXPECT_THAT(status_of(OneDimWith("padding", IntList{most, most})), Bad("gives no valid size"));
  EXPECT_THAT(status_of(OneDimWith("padding", IntList{most, -most})), Bad("gives no valid size"));
  EXPECT_THAT(status_of(OneDimWith("padding", IntList{int64_t{1} << 59, 0})), Bad("too many"));
  EXPECT_THAT(status_of(OneDimWith("lhs_dilation", IntList{most})), Bad("are too many"));
  EXPECT_THAT(status_of(OneDimWith("rhs_dilation", IntList{most})), Bad("are too many"));
  TESSERA_EXPECT_OK(status_of(OneDimWith("window_strides", IntList{most})));
  EXPECT_THAT(status_of(OneDimAttrs(), "f32[2,576460752303423488,4]"), Bad("too many"));
  // If there is only one window, its stride is unused, and if a window has only one element, its
  // dilation is unused. Both may then be any number.
  const Array x = Iota(DType::kF32, {2, 8, 4}), kernel = Iota(DType::kF32, {1, 4, 2});
  Attrs unused = OneDimWith("window_strides", IntList{most});
  unused.Set("rhs_dilation", IntList{most});
  EXPECT_EQ(EvalOne({"", &kConvolution, {x, kernel}, unused}).shape(), (Dims{2, 1, 2}));
}

TEST(Convolution, TheKernelAndTheInputFeaturesMustBeUnsharded) {
  EXPECT_THAT(TypeOfConvolution({"f32[2@x,8,4]", "f32[3,4,2]"}, OneDimAttrs()),
              IsOkAndHolds("f32[2@x,6,2]"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4@x]", "f32[3,4,2]"}, OneDimAttrs()),
              Bad("specify the output sharding via `out_sharding`"));
  EXPECT_THAT(TypeOfConvolution({"f32[2,8,4]", "f32[3,4,2@x]"}, OneDimAttrs()),
              Bad("specify the output sharding via `out_sharding`"));
}

// ---- ReduceWindow and SelectAndScatter. ----

FunctionRef BinaryFunction(DType dtype, Value (*combine)(Value, Value)) {
  Builder b({}, "f");
  const Value x = b.Param(MakeType(dtype, {})), y = b.Param(MakeType(dtype, {}));
  return b.Build({combine(x, y)});
}
Value Second(Value, Value y) { return y; }
Value NotLess(Value x, Value y) { return Compare(x, y, "GE"); }

TEST(ReduceWindow, CombinesTheElementsOfAWindowInOrder) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {5}));
  const Value zero = Constant(b, DType::kF32, 0);
  const WindowDimensions window = {{3}, {1}, {1}, {1}, {{0, 0}}};
  EXPECT_EQ(window.elements_per_window(), 3);
  const FunctionRef f =
      b.Build(ReduceWindow({x}, {zero}, BinaryFunction(DType::kF32, Second), window));
  EXPECT_EQ(RunOne(f, {Array::Of(DType::kF32, {5}, {1, 2, 3, 4, 5})}).ToString(), "[3, 4, 5]");
}

TEST(SelectAndScatter, AddsEachSourceElementToTheSelectedElement) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {2, 4})),
              source = b.Param(MakeType(DType::kF32, {2, 2}));
  const WindowDimensions window = {{1, 3}, {1, 2}, {1, 1}, {1, 1}, {{0, 0}, {1, 0}}};
  const Value init = Constant(b, DType::kF32, 10);
  const FunctionRef f =
      b.Build({SelectAndScatter(x, source, init, BinaryFunction(DType::kF32, NotLess),
                                BinaryFunction(DType::kF32, Add), window)});
  const Array values = Array::Of(DType::kF32, {2, 4}, {-5, -7, -5, -6, 1, 2, 2, 0});
  const Array add = Array::Of(DType::kF32, {2, 2}, {1, 2, 3, 4});
  // Along dim 1, the first window covers one position of the padding and the elements 0 and 1, and
  // the second window the elements 1, 2 and 3. A position of the padding is never selected.
  EXPECT_EQ(RunOne(f, {values, add}).ToString(), "[[11, 10, 12, 10], [10, 17, 10, 10]]");
}

TEST(SelectAndScatter, ASelectWithoutAResultIsRefused) {
  Builder b({}, "main");
  const Value x = b.Param(MakeType(DType::kF32, {4})), source = b.Param(MakeType(DType::kF32, {2}));
  const Value init = Constant(b, DType::kF32, 0);
  Builder nothing({}, "f");
  nothing.Param(MakeType(DType::kF32, {}));
  nothing.Param(MakeType(DType::kF32, {}));
  const FunctionRef no_result = nothing.Build({});
  const WindowDimensions window = {{2}, {2}, {1}, {1}, {{0, 0}}};
  EXPECT_THAT(CatchStatus([&] {
                SelectAndScatter(x, source, init, no_result, BinaryFunction(DType::kF32, Add),
                                 window);
              }),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace tessera::ir::ops::testing
