// Tests of blocked kernels: a blocked kernel computes the same elements in another order, and
// kernels that do not profit stay unchanged. The interpreter runs both.
#include "worker/cpu/loop_blocking.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"

namespace tessera::worker {
namespace {

using codegen::Kernel;

// Returns a kernel that computes out[b][i][j] = in[b][j][i] + index.
Kernel Transpose(int64_t batch, int64_t rows, int64_t columns) {
  const std::string text = absl::StrCat(
      "kernel [", batch, ",", rows, ",", columns, "] reduced 0\nin s32 ", batch * rows * columns,
      "\nout s32 ", batch * rows * columns, "\n%0 = load p0 [0: ", rows * columns, ",1,", rows,
      "] : s32\n%1 = index [0: 7,3,1] : s32\n%2 = Add %0, %1 : s32\nstore %2 p1 [0: ",
      rows * columns, ",", columns, ",1]\n");
  absl::StatusOr<Kernel> kernel = codegen::ParseKernel(text);
  EXPECT_THAT(kernel, IsOk()) << text;
  return *std::move(kernel);
}

std::vector<int32_t> Outputs(const Kernel& kernel) {
  std::vector<int32_t> in(kernel.params[0].size), out(kernel.params[1].size, -1);
  std::iota(in.begin(), in.end(), 0);
  void* const buffers[] = {in.data(), out.data()};
  codegen::Interpret(kernel, buffers, 0, kernel.num_iterations());
  return out;
}

TEST(LoopBlockingTest, ATransposeIsCutIntoBlocks) {
  for (const auto& [batch, rows, columns] :
       {std::tuple{1, 256, 256}, {3, 160, 96}, {1, 1000, 48}, {2, 100, 300}}) {
    const Kernel kernel = Transpose(batch, rows, columns), blocked = BlockLoops(kernel);
    EXPECT_THAT(Verify(blocked), IsOk());
    EXPECT_EQ(blocked.rank(), kernel.rank() + 2);
    EXPECT_EQ(blocked.num_iterations(), kernel.num_iterations());
    EXPECT_EQ(Outputs(blocked), Outputs(kernel)) << blocked.ToString();
  }
}

TEST(LoopBlockingTest, KernelsThatDoNotProfitAreUnchanged) {
  const Kernel small = Transpose(1, 32, 32), prime = Transpose(1, 257, 257);
  EXPECT_TRUE(BlockLoops(small) == small);
  EXPECT_TRUE(BlockLoops(prime) == prime) << "no block divides it";
  const absl::StatusOr<Kernel> plain = codegen::ParseKernel(
      "kernel [65536] reduced 0\nin f32 65536\nout f32 65536\n%0 = load p0 [0: 1] : f32\n"
      "store %0 p1 [0: 1]\n");
  ASSERT_THAT(plain, IsOk());
  EXPECT_TRUE(BlockLoops(*plain) == *plain);
}

}  // namespace
}  // namespace tessera::worker
