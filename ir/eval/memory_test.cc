// Proves on small functions of known size that the predicted peak counts the values that live at
// one time and the copies that a computation of scalars makes.
#include "ir/eval/memory.h"

#include "gtest/gtest.h"
#include "ir/builder.h"
#include "ir/ops.h"

namespace tessera::ir {
namespace {

FunctionRef Chain(int ops) {
  Builder b({}, "chain");
  Value x = b.Param(MakeType(DType::kF32, {256}));
  for (int i = 0; i < ops; ++i) x = Neg(x);
  return b.Build({x});
}

TEST(EvaluatorMemory, CountsValuesThatAreLiveAtOnce) {
  // Two of the three values of the chain live at a time, in addition to the argument.
  EXPECT_EQ(PeakBytes(*Chain(1)), 2 * 1024);
  EXPECT_EQ(PeakBytes(*Chain(3)), 3 * 1024);
}

// The memory holds the operand, the result, the operand's elements twice more, and their positions.
TEST(EvaluatorMemory, CountsTheElementsThatAComputationCopies) {
  const Type scalar = MakeType(DType::kF32, {});
  Builder comparator({}, "comparator");
  const Value left = comparator.Param(scalar), right = comparator.Param(scalar);
  const FunctionRef less = comparator.Build({Compare(left, right, "LE")});
  Builder b({}, "sorted");
  const Value x = b.Param(MakeType(DType::kF32, {256}));
  const FunctionRef f = b.Build(SortBy({x}, less, 0));
  constexpr int64_t kScalars = 4 + 4 + 1;  // the values of the comparator
  EXPECT_EQ(ScratchBytes(*f, f->ops[0]), 2 * 1024 + 8 * 256 + kScalars);
  EXPECT_EQ(PeakBytes(*f), 2 * 1024 + ScratchBytes(*f, f->ops[0]));
}

}  // namespace
}  // namespace tessera::ir
