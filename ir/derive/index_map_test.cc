// Proves on the index maps of several ops which piece is the whole of its source, when the
// evaluation shares bytes, and where a piece reads its run-time offsets.
#include <gtest/gtest.h>

#include "base/status_exception.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::ir {
namespace {

IndexMap MapOf(const OpDef& def, const std::vector<Type>& in, const Attrs& attrs) {
  const Scope scope;
  const std::vector<Type> out = ValueOrThrow(InferTypes(def, scope, in, attrs, {}));
  return def.index_map({def, scope, in, attrs, {}}, out);
}

bool MovesNothing(const OpDef& def, const Type& in, const Attrs& attrs) {
  const IndexMap map = MapOf(def, {in}, attrs);
  return IsWhole(map.pieces.at(0), ValueOrThrow(InferTypes(def, Scope(), {in}, attrs, {}))[0]);
}

using List = std::vector<int64_t>;

TEST(IndexMapTest, ReshapeIsTheWholeOfItsOperand) {
  EXPECT_TRUE(MovesNothing(ops::kReshape, MakeType(DType::kF32, {2, 6}), {{"shape", Dims{3, 4}}}));
}

TEST(IndexMapTest, OnlyATransposeOfUnitDimsMovesNothing) {
  EXPECT_TRUE(
      MovesNothing(ops::kTranspose, MakeType(DType::kF32, {1, 6}), {{"permutation", List{1, 0}}}));
  EXPECT_FALSE(
      MovesNothing(ops::kTranspose, MakeType(DType::kF32, {2, 6}), {{"permutation", List{1, 0}}}));
}

TEST(IndexMapTest, OnlyALeadingSliceMovesNothing) {
  const Type x = MakeType(DType::kF32, {4, 6});
  const auto slice = [](List start, List limit, List strides) {
    return Attrs{{"start_indices", start}, {"limit_indices", limit}, {"strides", strides}};
  };
  EXPECT_TRUE(MovesNothing(ops::kSlice, x, slice({0, 0}, {4, 6}, {1, 1})));
  EXPECT_TRUE(MovesNothing(ops::kSlice, x, slice({0, 0}, {2, 6}, {1, 1})));
  EXPECT_FALSE(MovesNothing(ops::kSlice, x, slice({1, 0}, {4, 6}, {1, 1})));
  EXPECT_FALSE(MovesNothing(ops::kSlice, x, slice({0, 0}, {4, 3}, {1, 1})));
  EXPECT_FALSE(MovesNothing(ops::kSlice, x, slice({0, 0}, {4, 6}, {2, 1})));
}

TEST(IndexMapTest, AWholePieceSharesItsBytes) {
  const Array x = Array::Of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto reshaped = ValueOrThrow(EvaluateOp(ops::kReshape, {}, {x}, {{"shape", Dims{3, 2}}}));
  EXPECT_EQ(reshaped[0].data(), x.data());
  const auto literal = ValueOrThrow(EvaluateOp(ops::kConstant, {}, {}, {{"value", x}}));
  EXPECT_EQ(literal[0].data(), x.data());
}

TEST(IndexMapTest, AnUpdateReadsEachStartThatCanDiffer) {
  const Type x = MakeType(DType::kF32, {4, 6}), update = MakeType(DType::kF32, {2, 6});
  const Type start = MakeType(DType::kS32, {});
  const IndexMap map = MapOf(ops::kDynamicUpdateSlice, {x, update, start, start}, {});
  ASSERT_EQ(map.pieces.size(), 2);
  EXPECT_EQ(map.pieces[0].source, 0);
  EXPECT_TRUE(map.pieces[1].read.empty());
  ASSERT_EQ(map.pieces[1].write.size(), 1);
  EXPECT_EQ(map.pieces[1].write[0].operand, 2);
  EXPECT_EQ(map.pieces[1].write[0].max, 2);
  EXPECT_EQ(map.pieces[1].write[0].stride, 6);
}

// The offsets of a gather lie in its index vectors, one for each entry that can differ.
TEST(IndexMapTest, AGatherReadsEachIndexVectorWhereItLies) {
  const Type x = MakeType(DType::kF32, {4, 6, 1}), indices = MakeType(DType::kS32, {5, 3});
  Attrs attrs = {{"offset_dims", List{1, 2}},        {"collapsed_slice_dims", List{0}},
                 {"operand_batching_dims", List{}},  {"start_indices_batching_dims", List{}},
                 {"start_index_map", List{1, 2, 0}}, {"index_vector_dim", int64_t{1}},
                 {"slice_sizes", Dims{1, 2, 1}},     {"mode", std::string("clip")}};
  const IndexMap map = MapOf(ops::kGather, {x, indices}, attrs);
  ASSERT_EQ(map.pieces.size(), 1);
  const IndexPiece& piece = map.pieces[0];
  EXPECT_EQ(piece.shape, (Dims{5, 2, 1}));
  EXPECT_EQ(piece.strides, (Dims{0, 1, 1}));
  EXPECT_FALSE(piece.fills);
  // A dim of size 1 needs no offset.
  ASSERT_EQ(piece.read.size(), 2);
  EXPECT_EQ(piece.read[0].max, 3);
  EXPECT_EQ(piece.read[0].stride, 6);
  EXPECT_EQ(piece.read[0].offset, 2);
  EXPECT_EQ(piece.read[0].strides, (Dims{3, 0, 0}));
  EXPECT_EQ(piece.read[1].max, 4);
  EXPECT_EQ(piece.read[1].offset, 0);

  attrs.Set("mode", std::string("fill_or_drop"));
  const IndexMap fills = MapOf(ops::kGather, {x, indices}, attrs);
  EXPECT_TRUE(fills.pieces[0].fills);
  EXPECT_EQ(fills.pieces[0].read.size(), 3);
}

}  // namespace
}  // namespace tessera::ir
