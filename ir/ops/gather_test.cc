// The ops gather and scatter: windows that are out of bounds, the order of writes, errors, Explicit
// shardings, and derivatives that are refused. The attributes read and write rows of a matrix.
#include "ir/ops/testing/rule_checks.h"
#include "ir/transform/transform.h"

namespace tessera::ir::ops::testing {
namespace {

using IntList = std::vector<int64_t>;

auto Bad(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); }

// Returns the attributes of a gather that reads rows of a matrix with four columns.
Attrs RowGatherAttrs(std::string mode = "clip") {
  return {{"offset_dims", IntList{1}},          {"collapsed_slice_dims", IntList{0}},
          {"operand_batching_dims", IntList{}}, {"start_indices_batching_dims", IntList{}},
          {"start_index_map", IntList{0}},      {"index_vector_dim", int64_t{1}},
          {"slice_sizes", IntList{1, 4}},       {"mode", std::move(mode)}};
}
Attrs RowScatterAttrs(std::string mode = "clip") {
  return {{"update_window_dims", IntList{1}},
          {"inserted_window_dims", IntList{0}},
          {"input_batching_dims", IntList{}},
          {"scatter_indices_batching_dims", IntList{}},
          {"scatter_dims_to_operand_dims", IntList{0}},
          {"index_vector_dim", int64_t{1}},
          {"mode", std::move(mode)}};
}
Attrs WithAttr(Attrs attrs, const char* name, AttrValue value) {
  attrs.Set(name, std::move(value));
  return attrs;
}
absl::StatusOr<std::string> GatherType(std::vector<std::string> in, Attrs attrs) {
  return TypeOn(ExplicitMesh(), kGather, in, attrs);
}
absl::StatusOr<std::string> ScatterType(std::vector<std::string> in, Attrs attrs,
                                        const OpDef& def = kScatter) {
  return TypeOn(ExplicitMesh(), def, in, attrs);
}
std::string EvalToText(const OpDef& def, std::vector<Array> in, Attrs attrs) {
  return EvalOne({"", &def, std::move(in), std::move(attrs)}).ToString();
}

TEST(Gather, TheModeDecidesAboutWindowsOutOfBounds) {
  const Array m = Iota(DType::kS32, {3, 4}), at = Array::Of(DType::kS32, {3, 1}, {1, -1, 3});
  EXPECT_EQ(EvalToText(kGather, {m, at}, RowGatherAttrs()),
            "[[4, 5, 6, 7], [0, 1, 2, 3], [8, 9, 10, 11]]");
  EXPECT_EQ(EvalToText(kGather, {Iota(DType::kF32, {3, 4}), at}, RowGatherAttrs("fill_or_drop")),
            "[[4, 5, 6, 7], [nan, nan, nan, nan], [nan, nan, nan, nan]]");
  EXPECT_EQ(EvalToText(kGather, {Iota(DType::kU8, {3, 4}), at}, RowGatherAttrs("fill_or_drop")),
            "[[4, 5, 6, 7], [255, 255, 255, 255], [255, 255, 255, 255]]");
  EXPECT_EQ(EvalToText(kGather, {Iota(DType::kS8, {3, 4}), at}, RowGatherAttrs("fill_or_drop")),
            "[[4, 5, 6, 7], [-128, -128, -128, -128], [-128, -128, -128, -128]]");
  EXPECT_EQ(EvalToText(kGather, {m, at},
                       WithAttr(RowGatherAttrs("fill_or_drop"), "fill_value",
                                Array::ScalarInt(DType::kS32, 9))),
            "[[4, 5, 6, 7], [9, 9, 9, 9], [9, 9, 9, 9]]");
  // An index beyond the signed range is large, not negative.
  const Array far(DType::kU64, {1, 1});
  Array most = far;
  most.MutableAs<uint64_t>()[0] = ~uint64_t{0};
  EXPECT_EQ(EvalToText(kGather, {m, most}, RowGatherAttrs()), "[[8, 9, 10, 11]]");
}

TEST(Scatter, TheLastOfSeveralWritesStays) {
  const Array m(DType::kS32, {3, 2});
  const Array at = Array::Of(DType::kS32, {4, 1}, {1, 2, 1, 3});
  const Array u = Array::Of(DType::kS32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(EvalToText(kScatter, {m, at, u}, RowScatterAttrs("fill_or_drop")),
            "[[0, 0], [5, 6], [3, 4]]");
  EXPECT_EQ(EvalToText(kScatter, {m, at, u}, RowScatterAttrs("clip")), "[[0, 0], [5, 6], [7, 8]]");
  EXPECT_EQ(EvalToText(kScatterAdd, {m, at, u}, RowScatterAttrs("clip")),
            "[[0, 0], [6, 8], [10, 12]]");
  EXPECT_EQ(EvalToText(kScatterMax, {m, at, u}, RowScatterAttrs("clip")),
            "[[0, 0], [5, 6], [7, 8]]");
  EXPECT_EQ(EvalToText(kScatterMin, {m, at, u}, RowScatterAttrs("clip")),
            "[[0, 0], [0, 0], [0, 0]]");
}

// Dtypes without kernels are moved too.
TEST(Gather, MovesEveryDType) {
  for (DType d : {DType::kS8, DType::kU16, DType::kF16, DType::kC64, DType::kF8E5M2}) {
    const std::string name(DTypeName(d));
    EXPECT_THAT(GatherType({name + "[3,4]", "s32[2,1]"}, RowGatherAttrs()),
                IsOkAndHolds(name + "[2,4]"));
    EXPECT_THAT(ScatterType({name + "[3,4]", "s32[2,1]", name + "[2,4]"}, RowScatterAttrs()),
                IsOkAndHolds(name + "[3,4]"));
  }
}

// Each fault of the dimension numbers is refused, with a text that names the op and the fault.
TEST(Gather, ErrorsNameOpAndFault) {
  const std::vector<std::string> in = {"f32[3,4]", "s32[2,1]"};
  EXPECT_THAT(GatherType(in, RowGatherAttrs()), IsOkAndHolds("f32[2,4]"));
  EXPECT_THAT(GatherType({"f32[3,4]", "f32[2,1]"}, RowGatherAttrs()),
              Bad("gather: indices are f32[2,1]"));
  EXPECT_THAT(GatherType(in, RowGatherAttrs("wrap")),
              Bad("mode is 'wrap'; expected one of clip, "));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "index_vector_dim", int64_t{3})),
              Bad("index_vector_dim is 3; expected one in [0, 2]"));
  EXPECT_THAT(GatherType({"f32[3,4]", "s32[2,2]"}, RowGatherAttrs()),
              Bad("has 2 entries; expected one"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "offset_dims", IntList{2})),
              Bad("names dim 2; expected dims in [0, 2)"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "offset_dims", IntList{})),
              Bad("0 + 1 + 0 dims"));
  EXPECT_THAT(GatherType({"f32[3,4,5]", "s32[2,1]"},
                         WithAttr(RowGatherAttrs(), "offset_dims", IntList{2, 1})),
              Bad("offset_dims is [2,1]; expected ascending dims"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "start_indices_batching_dims", IntList{0})),
              Bad("operand_batching_dims has 0 dims"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "slice_sizes", IntList{1})),
              Bad("slice_sizes has 1"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "slice_sizes", IntList{2, 4})),
              Bad("the window along dim 0 of f32[3,4] has 2 elements; expected 1 at most"));
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "slice_sizes", IntList{1, 5})),
              Bad("expected 4 at most"));
  // There would be nothing to read for the result.
  EXPECT_THAT(GatherType(in, WithAttr(RowGatherAttrs(), "slice_sizes", IntList{0, 4})),
              Bad("the window along dim 0 of f32[3,4] has 0 elements, but the result f32[2,4] has "
                  "no dim for it; expected 1"));
  EXPECT_THAT(GatherType({"f32[0,4]", "s32[2,1]"},
                         WithAttr(RowGatherAttrs(), "slice_sizes", IntList{0, 4})),
              Bad("expected 1"));
  EXPECT_THAT(GatherType({"f32[0,4]", "s32[0,1]"},
                         WithAttr(RowGatherAttrs(), "slice_sizes", IntList{0, 4})),
              IsOkAndHolds("f32[0,4]"));
  EXPECT_THAT(
      GatherType(in, WithAttr(RowGatherAttrs(), "fill_value", Array::Scalar(DType::kF64, 0))),
      Bad("fill_value is f64[]; expected a scalar of the operand's type f32"));
  Attrs batched = WithAttr(WithAttr(RowGatherAttrs(), "operand_batching_dims", IntList{0}),
                           "start_indices_batching_dims", IntList{0});
  batched.Set("offset_dims", IntList{});
  EXPECT_THAT(GatherType(in, batched), Bad("operand dim 0 is in operand_batching_dims and in"));
  batched.Set("collapsed_slice_dims", IntList{1});
  batched.Set("start_index_map", IntList{1});
  EXPECT_THAT(GatherType(in, batched), Bad("is batched with dim 0 of indices s32[2,1]"));
  batched.Set("start_indices_batching_dims", IntList{1});
  EXPECT_THAT(GatherType(in, batched), Bad("along which the index vectors lie"));
}

TEST(Scatter, ErrorsNameOpAndFault) {
  EXPECT_THAT(ScatterType({"f32[3,4]", "s32[2,1]", "f64[2,4]"}, RowScatterAttrs()),
              Bad("scatter: updates are f64[2,4], the operand is f32[3,4]"));
  EXPECT_THAT(ScatterType({"f32[3,4]", "s32[2,1]", "f32[4]"}, RowScatterAttrs()),
              Bad("expected rank 2"));
  EXPECT_THAT(ScatterType({"f32[3,4]", "s32[2,1]", "f32[3,4]"}, RowScatterAttrs()),
              Bad("dim 0 of the updates f32[3,4] is for dim 0 of the indices s32[2,1]"));
  EXPECT_THAT(ScatterType({"f32[3,4]", "s32[2,1]", "f32[2,5]"}, RowScatterAttrs()),
              Bad("4 at most"));
  EXPECT_THAT(ScatterType({"f32[3,4]", "s32[0,1]", "f32[0,5]"}, RowScatterAttrs()),
              Bad("4 at most"));
  EXPECT_THAT(ScatterType({"bool[3,4]", "s32[2,1]", "bool[2,4]"}, RowScatterAttrs(), kScatterAdd),
              Bad("scatter_add: does not accept dtype bool"));
  EXPECT_THAT(
      ScatterType({"c64[3,4]", "s32[2,1]", "c64[2,4]"}, RowScatterAttrs(), kScatterAdd).status(),
      ReasonIs("NOT_IMPLEMENTED", "c64"));
}

// The rules are those of JAX's gather and scatter.
TEST(Gather, ExplicitShardingsFollowJax) {
  EXPECT_THAT(GatherType({"f32[3,4@x]", "s32[2,1]"}, RowGatherAttrs()), IsOkAndHolds("f32[2,4@x]"));
  const char* ask = "Use `.at[...].get(out_sharding=)`";
  EXPECT_THAT(GatherType({"f32[4@x,4]", "s32[2,1]"}, RowGatherAttrs()),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(GatherType({"f32[4,4]", "s32[2@x,1]"}, RowGatherAttrs()),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  PartitionSpec given;
  given.dims = {{"x"}, {}};
  EXPECT_THAT(
      GatherType({"f32[4@x,4]", "s32[2@x,1]"}, WithAttr(RowGatherAttrs(), "out_sharding", given)),
      IsOkAndHolds("f32[2@x,4]"));
  Attrs batched = RowGatherAttrs();
  batched.Set("offset_dims", IntList{});
  batched.Set("collapsed_slice_dims", IntList{1});
  batched.Set("operand_batching_dims", IntList{0});
  batched.Set("start_indices_batching_dims", IntList{0});
  batched.Set("start_index_map", IntList{1});
  batched.Set("slice_sizes", IntList{1, 1});
  EXPECT_THAT(GatherType({"f32[4@x,4]", "s32[4,1]"}, batched), IsOkAndHolds("f32[4@x]"));
  EXPECT_THAT(GatherType({"f32[4@x,4]", "s32[4@x,1]"}, batched), IsOkAndHolds("f32[4@x]"));
  EXPECT_THAT(GatherType({"f32[4@x,4]", "s32[4@y,1]"}, batched),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
}

TEST(Scatter, ExplicitShardingsFollowJax) {
  EXPECT_THAT(ScatterType({"f32[3,4@x]", "s32[2,1]", "f32[2,4@x]"}, RowScatterAttrs()),
              IsOkAndHolds("f32[3,4@x]"));
  const char* ask = "Use `.at[...].add(out_sharding=)`";
  EXPECT_THAT(ScatterType({"f32[4@x,4]", "s32[2,1]", "f32[2,4]"}, RowScatterAttrs(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(ScatterType({"f32[4,4]", "s32[2@x,1]", "f32[2@x,4]"}, RowScatterAttrs(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(ScatterType({"f32[4,4@x]", "s32[2,1]", "f32[2,4]"}, RowScatterAttrs(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  PartitionSpec given;
  given.dims = {{"x"}, {}};
  EXPECT_THAT(ScatterType({"f32[4,4]", "s32[2@x,1]", "f32[2@x,4]"},
                          WithAttr(RowScatterAttrs(), "out_sharding", given), kScatterAdd),
              IsOkAndHolds("f32[4@x,4]"));
}

// A derivative that depends on which write came last, or that would divide, is refused, as in JAX.
TEST(Scatter, DerivativesThatNeedUniqueIndicesAreRefused) {
  for (const OpDef* def : {&kScatter, &kScatterMul}) {
    Builder b(Scope{});
    const Value x = b.Param(MakeType(DType::kF32, {3, 4}));
    const Value at = b.Param(MakeType(DType::kS32, {2, 1}));
    const Value u = b.Param(MakeType(DType::kF32, {2, 4}));
    const FunctionRef f = b.Build(b.Emit(*def, {x, at, u}, RowScatterAttrs()));
    if (def == &kScatter) {
      EXPECT_THAT(TransposeFunction(*f, {false, false, true}),
                  ReasonIs("NOT_IMPLEMENTED",
                           "scatter transpose is only implemented where unique_indices=True"));
    } else {
      EXPECT_THAT(Jvp(*f, {false, false, true}),
                  ReasonIs("NOT_IMPLEMENTED", "only implemented if `unique_indices=True`"));
    }
  }
}

}  // namespace
}  // namespace tessera::ir::ops::testing
