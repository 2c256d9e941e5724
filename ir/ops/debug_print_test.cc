// Tests the attributes of debug_print. tests/ops/effects_test.cc tests the output.
#include "ir/debug_print.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

TEST(DebugPrint, ItHasTheAttributesOfTheOp) {
  Builder b{Scope{}};
  const Value x = b.Param(MakeType(DType::kF32, {2}));
  DebugPrint(b, "x is {}", {x});
  const FunctionRef f = b.Build({x});
  ASSERT_EQ(f->ops.size(), 1u);
  EXPECT_EQ(f->ops[0].attrs.Str("format"), "x is {}");
  EXPECT_EQ(f->ops[0].attrs.Int("num_batch_dims"), 0);
  std::vector<std::string> names;
  for (const AttrSpec& attr : f->ops[0].def->attrs) names.emplace_back(attr.name);
  EXPECT_THAT(names, ::testing::ElementsAre("format", "num_batch_dims"));
}

}  // namespace
}  // namespace tessera::ir
