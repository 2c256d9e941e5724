// Tests the op threefry2x32 in the reference evaluator: its bits are the published ones, and
// operands of wrong types are refused.
#include <cstdint>

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"

namespace tessera::ir {
namespace {

using ::testing::ElementsAre;

Array U32(Dims shape, std::vector<uint32_t> values) {
  Array a(DType::kU32, std::move(shape));
  std::copy(values.begin(), values.end(), a.MutableAs<uint32_t>().begin());
  return a;
}

// The expected values are those that the cipher's authors publish (Random123, kat_vectors,
// threefry2x32 with 20 rounds).
TEST(Threefry2x32, MatchesTheKnownAnswers) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const std::vector<Array> out,
      EvaluateOp(ops::kThreefry2x32, {},
                 {U32({3}, {0u, ~0u, 0x13198a2eu}), U32({3}, {0u, ~0u, 0x03707344u}),
                  U32({3}, {0u, ~0u, 0x243f6a88u}), U32({3}, {0u, ~0u, 0x85a308d3u})},
                 {}));
  EXPECT_THAT(out[0].As<uint32_t>(), ElementsAre(0x6b200159u, 0x1cb996fcu, 0xc4923a9cu));
  EXPECT_THAT(out[1].As<uint32_t>(), ElementsAre(0x99ba4efeu, 0xbb002be7u, 0x483df7a0u));
}

TEST(Threefry2x32, AScalarKeyServesEveryCounter) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const std::vector<Array> out,
      EvaluateOp(ops::kThreefry2x32, {},
                 {U32({}, {~0u}), U32({}, {~0u}), U32({2}, {~0u, ~0u}), U32({2}, {~0u, ~0u})}, {}));
  EXPECT_THAT(out[0].As<uint32_t>(), ElementsAre(0x1cb996fcu, 0x1cb996fcu));
  EXPECT_THAT(out[1].As<uint32_t>(), ElementsAre(0xbb002be7u, 0xbb002be7u));
}

TEST(Threefry2x32, RefusesOtherDtypesAndShapes) {
  const Array u = U32({2}, {1, 2});
  EXPECT_THAT(EvaluateOp(ops::kThreefry2x32, {}, {u, u, u, Array(DType::kS32, {2})}, {}),
              ReasonIs("TYPE_ERROR", "threefry2x32: requires keys and counters of u32, got s32"));
  EXPECT_THAT(EvaluateOp(ops::kThreefry2x32, {}, {u, u, u, U32({3}, {1, 2, 3})}, {}),
              ReasonIs("TYPE_ERROR", "got incompatible shapes for broadcasting: (2,), (3,)"));
  EXPECT_THAT(EvaluateOp(ops::kThreefry2x32, {}, {U32({3}, {1, 2, 3}), u, u, u}, {}),
              ReasonIs("TYPE_ERROR", "keys must be scalars or have the shape of the counters"));
}

}  // namespace
}  // namespace tessera::ir
