#include "ir/stablehlo/import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "ir/eval/eval.h"
#include "ir/verify.h"

namespace tessera::ir::stablehlo {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An export of JAX 0.10.2, of tests/fuzz/stablehlo.
std::string Exported(const std::string& name) {
  std::ifstream in(TESSERA_SOURCE_DIR "/tests/fuzz/stablehlo/" + name + ".mlirbc",
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
absl::StatusOr<Program> Import(const std::string& bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return ImportProgram(artifact);
}
std::vector<Array> RunExported(const std::string& name, std::vector<Array> args) {
  const absl::StatusOr<Program> program = Import(Exported(name));
  if (!program.ok()) {
    ADD_FAILURE() << program.status();
    return {};
  }
  EXPECT_THAT(Verify(*program), IsOk());
  absl::StatusOr<std::vector<Array>> out = Evaluator().Run(*program->entry, std::move(args));
  if (out.ok()) return *out;
  ADD_FAILURE() << out.status();
  return {};
}

// tanh(x @ w + b)
TEST(ImportTest, ALayerGivesWhatItSaysAndKnowsItsLines) {
  const std::vector<Array> out =
      RunExported("affine", {Array::Of(DType::kF32, {4, 3}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}),
                             Array::Of(DType::kF32, {3, 2}, {0, 1, 2, 3, 4, 5}),
                             Array::Of(DType::kF32, {2}, {0, -1})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].shape(), Dims({4, 2}));
  EXPECT_EQ(out[0].At(0), 0);
  EXPECT_FLOAT_EQ(out[0].At(3), std::tanh(2.0F));
  EXPECT_FLOAT_EQ(out[0].At(7), std::tanh(8.0F));
  TESSERA_ASSERT_OK_AND_ASSIGN(const Program program, Import(Exported("affine")));
  bool known = false;
  for (size_t i = 0; i < program.entry->ops.size(); ++i)
    known |= program.entry->sites[i].valid() &&
             std::string_view(program.entry->sites[i].file) == "model.py";
  EXPECT_TRUE(known);
}

// fori_loop, scan, cond, sort and top_k, with values that the loops use of outside.
TEST(ImportTest, LoopsAndBranchesTakeWhatTheyUseOfOutside) {
  const std::vector<Array> out = RunExported(
      "control", {Array::Of(DType::kF32, {4}, {4, 3, 8, 1}), Array::Scalar(DType::kS32, 2)});
  ASSERT_EQ(out.size(), 5);
  // y = x / 4 + 1 = 2, 1.75, 3, 1.25; z = y[0] + their sum.
  EXPECT_EQ(out[0].At(0), 2 * 10.0);
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 4, 5.75, 8.75));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(1, 3, 4, 8));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(8, 4));
  EXPECT_THAT(out[4].ToDoubles(), ElementsAre(2, 0));
}

TEST(ImportTest, GathersAndScattersDoAsInJax) {
  const std::vector<Array> out = RunExported(
      "indexing", {Array::Of(DType::kF32, {5}, {10, 11, 12, 13, 14}),
                   Array::Of(DType::kS32, {2}, {-1, 1}), Array::Of(DType::kF32, {2}, {1, 2})});
  ASSERT_EQ(out.size(), 4);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(14, 11));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(10, 13, 12, 13, 15));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(13, 14));
  EXPECT_EQ(out[3].IntAt(0), 4);
}

TEST(ImportTest, RandomNumbersAreJaxsBits) {
  const std::vector<Array> out = RunExported("randoms", {Array::Of(DType::kU32, {2}, {1, 2})});
  ASSERT_EQ(out.size(), 2);
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0x1.5d9d38p-1, 0x1.affe78p-2, 0x1.f71fcp-2));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(629071667, 2343584484, 629003988, 1317161160));
}

TEST(ImportTest, WhatIsNotReadYetIsRefusedByItsName) {
  EXPECT_THAT(Import(Exported("sharded")),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("is an op that Tessera lacks"), HasSubstr("model.py:"))));
}

TEST(ImportTest, BatchingDimsFollowTheIndexVectors) {
  std::vector<double> rows(10);
  std::iota(rows.begin(), rows.end(), 0);
  const Array x = Array::Of(DType::kF32, {2, 5}, rows);
  const std::vector<Array> read =
      RunExported("gather_batched", {x, Array::Of(DType::kS32, {1, 2, 3}, {0, 1, 2, 3, 4, 0})});
  ASSERT_EQ(read.size(), 1);
  EXPECT_THAT(read[0].ToDoubles(), ElementsAre(0, 1, 2, 8, 9, 5));
  const std::vector<Array> written =
      RunExported("scatter_batched", {x, Array::Of(DType::kS32, {1, 2, 2}, {0, 1, 3, 4}),
                                      Array::Of(DType::kF32, {2, 2}, {100, 200, 300, 400})});
  ASSERT_EQ(written.size(), 1);
  EXPECT_THAT(written[0].ToDoubles(), ElementsAre(100, 200, 2, 3, 4, 5, 6, 7, 300, 400));
}

TEST(ImportTest, AProductIsRoundedToItsResultOnce) {
  const std::vector<Array> out =
      RunExported("dot_narrow", {Array::Of(DType::kF32, {2}, {1.5, 2.5}),
                                 Array::Of(DType::kF32, {2}, {1.5, 2.5 + 1.0 / 1024})});
  ASSERT_EQ(out.size(), 2);
  EXPECT_EQ(out[0].At(0), 8.5);
  EXPECT_EQ(out[1].IntAt(0), 8);
}

TEST(ImportTest, ASortInTheTotalOrderTellsZerosApart) {
  const std::vector<Array> out =
      RunExported("sort_total", {Array::Of(DType::kF32, {6}, {0, -0.0, 1, NAN, -1, -0.0})});
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out[0].At(0), -1);
  EXPECT_TRUE(std::signbit(out[0].At(1)) && std::signbit(out[0].At(2)));
  EXPECT_FALSE(std::signbit(out[0].At(3)));
  EXPECT_EQ(out[0].At(4), 1);
  EXPECT_TRUE(std::isnan(out[0].At(5)));
}

TEST(ImportTest, WhatHasNoBoundOrNoSenseIsRefused) {
  EXPECT_THAT(Import(Exported("no_main")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has no function 'main'")));
  EXPECT_THAT(Import(Exported("calls_itself")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'f0' calls itself")));
  EXPECT_THAT(
      Import(Exported("calls_deep")),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 64 within each other")));
  for (const char* name : {"calls_doubling", "map_doubling"})
    EXPECT_THAT(Import(Exported(name)),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 1000000 ops")));
  EXPECT_THAT(Import(Exported("window_twice")),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("reduce_window is of windows that Tessera does not know")));
}

// Each changed byte ends in a status or a program that verifies.
TEST(ImportTest, AChangedByteEndsInAStatusOrInAValidProgram) {
  for (const char* name : {"affine", "control", "indexing"}) {
    const std::string bytes = Exported(name);
    for (size_t i = 0; i < bytes.size(); ++i) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 4);
      const absl::StatusOr<Program> program = Import(changed);
      if (!program.ok()) continue;
      EXPECT_THAT(Verify(*program), IsOk()) << name << ", byte " << i;
    }
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo
