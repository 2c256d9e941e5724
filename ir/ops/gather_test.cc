// The ops gather and scatter: windows that are out of bounds, the order of writes, errors, Explicit
// shardings, and derivatives that are refused. The attributes read and write rows of a matrix.
#include "ir/ops/testing/rule_checks.h"
#include "ir/transform/transform.h"

namespace tessera::ir::ops::testing {
namespace {

using IntList = std::vector<int64_t>;

auto Bad(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); }

// Returns the attributes of a gather that reads rows of a matrix with four columns.
Attrs Rows(std::string mode = "clip") {
  return {{"offset_dims", IntList{1}},          {"collapsed_slice_dims", IntList{0}},
          {"operand_batching_dims", IntList{}}, {"start_indices_batching_dims", IntList{}},
          {"start_index_map", IntList{0}},      {"index_vector_dim", int64_t{1}},
          {"slice_sizes", IntList{1, 4}},       {"mode", std::move(mode)}};
}
Attrs IntoRows(std::string mode = "clip") {
  return {{"update_window_dims", IntList{1}},
          {"inserted_window_dims", IntList{0}},
          {"input_batching_dims", IntList{}},
          {"scatter_indices_batching_dims", IntList{}},
          {"scatter_dims_to_operand_dims", IntList{0}},
          {"index_vector_dim", int64_t{1}},
          {"mode", std::move(mode)}};
}
Attrs With(Attrs attrs, const char* name, AttrValue value) {
  attrs.Set(name, std::move(value));
  return attrs;
}
absl::StatusOr<std::string> Gathered(std::vector<std::string> in, Attrs attrs) {
  return TypeOn(ExplicitMesh(), kGather, in, attrs);
}
absl::StatusOr<std::string> Scattered(std::vector<std::string> in, Attrs attrs,
                                      const OpDef& def = kScatter) {
  return TypeOn(ExplicitMesh(), def, in, attrs);
}
std::string Text(const OpDef& def, std::vector<Array> in, Attrs attrs) {
  return EvalOne({"", &def, std::move(in), std::move(attrs)}).ToString();
}

TEST(Gather, OutOfBoundsIsAsTheModeSays) {
  const Array m = Iota(DType::kS32, {3, 4}), at = Array::Of(DType::kS32, {3, 1}, {1, -1, 3});
  EXPECT_EQ(Text(kGather, {m, at}, Rows()), "[[4, 5, 6, 7], [0, 1, 2, 3], [8, 9, 10, 11]]");
  EXPECT_EQ(Text(kGather, {Iota(DType::kF32, {3, 4}), at}, Rows("fill_or_drop")),
            "[[4, 5, 6, 7], [nan, nan, nan, nan], [nan, nan, nan, nan]]");
  EXPECT_EQ(Text(kGather, {Iota(DType::kU8, {3, 4}), at}, Rows("fill_or_drop")),
            "[[4, 5, 6, 7], [255, 255, 255, 255], [255, 255, 255, 255]]");
  EXPECT_EQ(Text(kGather, {Iota(DType::kS8, {3, 4}), at}, Rows("fill_or_drop")),
            "[[4, 5, 6, 7], [-128, -128, -128, -128], [-128, -128, -128, -128]]");
  EXPECT_EQ(Text(kGather, {m, at},
                 With(Rows("fill_or_drop"), "fill_value", Array::ScalarInt(DType::kS32, 9))),
            "[[4, 5, 6, 7], [9, 9, 9, 9], [9, 9, 9, 9]]");
  // An index beyond the signed range is large, not negative.
  const Array far(DType::kU64, {1, 1});
  Array most = far;
  most.MutableAs<uint64_t>()[0] = ~uint64_t{0};
  EXPECT_EQ(Text(kGather, {m, most}, Rows()), "[[8, 9, 10, 11]]");
}

TEST(Scatter, TheLastOfSeveralWritesStays) {
  const Array m(DType::kS32, {3, 2});
  const Array at = Array::Of(DType::kS32, {4, 1}, {1, 2, 1, 3});
  const Array u = Array::Of(DType::kS32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Text(kScatter, {m, at, u}, IntoRows("fill_or_drop")), "[[0, 0], [5, 6], [3, 4]]");
  EXPECT_EQ(Text(kScatter, {m, at, u}, IntoRows("clip")), "[[0, 0], [5, 6], [7, 8]]");
  EXPECT_EQ(Text(kScatterAdd, {m, at, u}, IntoRows("clip")), "[[0, 0], [6, 8], [10, 12]]");
  EXPECT_EQ(Text(kScatterMax, {m, at, u}, IntoRows("clip")), "[[0, 0], [5, 6], [7, 8]]");
  EXPECT_EQ(Text(kScatterMin, {m, at, u}, IntoRows("clip")), "[[0, 0], [0, 0], [0, 0]]");
}

// Dtypes without kernels are moved too.
TEST(Gather, MovesEveryDType) {
  for (DType d : {DType::kS8, DType::kU16, DType::kF16, DType::kC64, DType::kF8E5M2}) {
    const std::string name(DTypeName(d));
    EXPECT_THAT(Gathered({name + "[3,4]", "s32[2,1]"}, Rows()), IsOkAndHolds(name + "[2,4]"));
    EXPECT_THAT(Scattered({name + "[3,4]", "s32[2,1]", name + "[2,4]"}, IntoRows()),
                IsOkAndHolds(name + "[3,4]"));
  }
}

// Each fault of the dimension numbers is refused, with a text that names the op and the fault.
TEST(Gather, ErrorsNameOpAndFault) {
  const std::vector<std::string> in = {"f32[3,4]", "s32[2,1]"};
  EXPECT_THAT(Gathered(in, Rows()), IsOkAndHolds("f32[2,4]"));
  EXPECT_THAT(Gathered({"f32[3,4]", "f32[2,1]"}, Rows()), Bad("gather: indices are f32[2,1]"));
  EXPECT_THAT(Gathered(in, Rows("wrap")), Bad("mode is 'wrap'; expected one of clip, "));
  EXPECT_THAT(Gathered(in, With(Rows(), "index_vector_dim", int64_t{3})),
              Bad("index_vector_dim is 3; expected one in [0, 2]"));
  EXPECT_THAT(Gathered({"f32[3,4]", "s32[2,2]"}, Rows()), Bad("has 2 entries; expected one"));
  EXPECT_THAT(Gathered(in, With(Rows(), "offset_dims", IntList{2})),
              Bad("names dim 2; expected dims in [0, 2)"));
  EXPECT_THAT(Gathered(in, With(Rows(), "offset_dims", IntList{})), Bad("0 + 1 + 0 dims"));
  EXPECT_THAT(Gathered({"f32[3,4,5]", "s32[2,1]"}, With(Rows(), "offset_dims", IntList{2, 1})),
              Bad("offset_dims is [2,1]; expected ascending dims"));
  EXPECT_THAT(Gathered(in, With(Rows(), "start_indices_batching_dims", IntList{0})),
              Bad("operand_batching_dims has 0 dims"));
  EXPECT_THAT(Gathered(in, With(Rows(), "slice_sizes", IntList{1})), Bad("slice_sizes has 1"));
  EXPECT_THAT(Gathered(in, With(Rows(), "slice_sizes", IntList{2, 4})),
              Bad("the window along dim 0 of f32[3,4] has 2 elements; expected 1 at most"));
  EXPECT_THAT(Gathered(in, With(Rows(), "slice_sizes", IntList{1, 5})), Bad("expected 4 at most"));
  // There would be nothing to read for the result.
  EXPECT_THAT(Gathered(in, With(Rows(), "slice_sizes", IntList{0, 4})),
              Bad("the window along dim 0 of f32[3,4] has 0 elements, but the result f32[2,4] has "
                  "no dim for it; expected 1"));
  EXPECT_THAT(Gathered({"f32[0,4]", "s32[2,1]"}, With(Rows(), "slice_sizes", IntList{0, 4})),
              Bad("expected 1"));
  EXPECT_THAT(Gathered({"f32[0,4]", "s32[0,1]"}, With(Rows(), "slice_sizes", IntList{0, 4})),
              IsOkAndHolds("f32[0,4]"));
  EXPECT_THAT(Gathered(in, With(Rows(), "fill_value", Array::Scalar(DType::kF64, 0))),
              Bad("fill_value is f64[]; expected a scalar of the operand's type f32"));
  Attrs batched = With(With(Rows(), "operand_batching_dims", IntList{0}),
                       "start_indices_batching_dims", IntList{0});
  batched.Set("offset_dims", IntList{});
  EXPECT_THAT(Gathered(in, batched), Bad("operand dim 0 is in operand_batching_dims and in"));
  batched.Set("collapsed_slice_dims", IntList{1});
  batched.Set("start_index_map", IntList{1});
  EXPECT_THAT(Gathered(in, batched), Bad("is batched with dim 0 of indices s32[2,1]"));
  batched.Set("start_indices_batching_dims", IntList{1});
  EXPECT_THAT(Gathered(in, batched), Bad("along which the index vectors lie"));
}

TEST(Scatter, ErrorsNameOpAndFault) {
  EXPECT_THAT(Scattered({"f32[3,4]", "s32[2,1]", "f64[2,4]"}, IntoRows()),
              Bad("scatter: updates are f64[2,4], the operand is f32[3,4]"));
  EXPECT_THAT(Scattered({"f32[3,4]", "s32[2,1]", "f32[4]"}, IntoRows()), Bad("expected rank 2"));
  EXPECT_THAT(Scattered({"f32[3,4]", "s32[2,1]", "f32[3,4]"}, IntoRows()),
              Bad("dim 0 of the updates f32[3,4] is for dim 0 of the indices s32[2,1]"));
  EXPECT_THAT(Scattered({"f32[3,4]", "s32[2,1]", "f32[2,5]"}, IntoRows()), Bad("4 at most"));
  EXPECT_THAT(Scattered({"f32[3,4]", "s32[0,1]", "f32[0,5]"}, IntoRows()), Bad("4 at most"));
  EXPECT_THAT(Scattered({"bool[3,4]", "s32[2,1]", "bool[2,4]"}, IntoRows(), kScatterAdd),
              Bad("scatter_add: does not accept dtype bool"));
  EXPECT_THAT(Scattered({"c64[3,4]", "s32[2,1]", "c64[2,4]"}, IntoRows(), kScatterAdd).status(),
              ReasonIs("NOT_IMPLEMENTED", "c64"));
}

// The rules are those of JAX's gather and scatter.
TEST(Gather, ExplicitShardingsFollowJax) {
  EXPECT_THAT(Gathered({"f32[3,4@x]", "s32[2,1]"}, Rows()), IsOkAndHolds("f32[2,4@x]"));
  const char* ask = "Use `.at[...].get(out_sharding=)`";
  EXPECT_THAT(Gathered({"f32[4@x,4]", "s32[2,1]"}, Rows()), ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(Gathered({"f32[4,4]", "s32[2@x,1]"}, Rows()), ReasonIs("SHARDING_TYPE_ERROR", ask));
  PartitionSpec given;
  given.dims = {{"x"}, {}};
  EXPECT_THAT(Gathered({"f32[4@x,4]", "s32[2@x,1]"}, With(Rows(), "out_sharding", given)),
              IsOkAndHolds("f32[2@x,4]"));
  Attrs batched = Rows();
  batched.Set("offset_dims", IntList{});
  batched.Set("collapsed_slice_dims", IntList{1});
  batched.Set("operand_batching_dims", IntList{0});
  batched.Set("start_indices_batching_dims", IntList{0});
  batched.Set("start_index_map", IntList{1});
  batched.Set("slice_sizes", IntList{1, 1});
  EXPECT_THAT(Gathered({"f32[4@x,4]", "s32[4,1]"}, batched), IsOkAndHolds("f32[4@x]"));
  EXPECT_THAT(Gathered({"f32[4@x,4]", "s32[4@x,1]"}, batched), IsOkAndHolds("f32[4@x]"));
  EXPECT_THAT(Gathered({"f32[4@x,4]", "s32[4@y,1]"}, batched),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
}

TEST(Scatter, ExplicitShardingsFollowJax) {
  EXPECT_THAT(Scattered({"f32[3,4@x]", "s32[2,1]", "f32[2,4@x]"}, IntoRows()),
              IsOkAndHolds("f32[3,4@x]"));
  const char* ask = "Use `.at[...].add(out_sharding=)`";
  EXPECT_THAT(Scattered({"f32[4@x,4]", "s32[2,1]", "f32[2,4]"}, IntoRows(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(Scattered({"f32[4,4]", "s32[2@x,1]", "f32[2@x,4]"}, IntoRows(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  EXPECT_THAT(Scattered({"f32[4,4@x]", "s32[2,1]", "f32[2,4]"}, IntoRows(), kScatterAdd),
              ReasonIs("SHARDING_TYPE_ERROR", ask));
  PartitionSpec given;
  given.dims = {{"x"}, {}};
  EXPECT_THAT(Scattered({"f32[4,4]", "s32[2@x,1]", "f32[2@x,4]"},
                        With(IntoRows(), "out_sharding", given), kScatterAdd),
              IsOkAndHolds("f32[4@x,4]"));
}

// A derivative that depends on which write came last, or that would divide, is refused, as in JAX.
TEST(Scatter, DerivativesThatNeedUniqueIndicesSaySo) {
  for (const OpDef* def : {&kScatter, &kScatterMul}) {
    Builder b(Scope{});
    const Value x = b.Param(MakeType(DType::kF32, {3, 4}));
    const Value at = b.Param(MakeType(DType::kS32, {2, 1}));
    const Value u = b.Param(MakeType(DType::kF32, {2, 4}));
    const FunctionRef f = b.Build(b.Emit(*def, {x, at, u}, IntoRows()));
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
