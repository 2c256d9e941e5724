// Proves on the machine's OpenBLAS that several threads may call a routine at once, and that the
// library runs the kernels for the instructions that the processor has.
#include "ir/lapack/lapack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/status_matchers.h"

namespace tessera::ir::lapack {
namespace {

// Returns a matrix with n + 1 on the diagonal and numbers below 1 beside it, which is positive
// definite.
std::vector<float> Matrix(int n, int seed) {
  std::vector<float> a(size_t{1} * n * n);
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < n; ++i)
      a[j * n + i] =
          i == j ? static_cast<float>(n) + 1 : static_cast<float>((i * j + i + j + seed) % 7) / 7;
  return a;
}

// A library that shares scratch among callers gets a few in a hundred of these calls wrong.
TEST(Lapack, ConcurrentCallsGiveTheResultsOfSingleCalls) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const Routines<float>* const lapack, Load<float>());
  constexpr int kSide = 64, kMatrices = 16, kThreads = 8, kCalls = 2000;
  std::vector<std::vector<float>> in, want;
  for (int i = 0; i < kMatrices; ++i) {
    in.push_back(Matrix(kSide, i));
    want.push_back(in.back());
    ASSERT_EQ(lapack->Potrf('L', kSide, want.back().data(), kSide), 0);
  }
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int call = 0; call < kCalls; ++call) {
        const int i = (call + t) % kMatrices;
        std::vector<float> a = in[i];
        if (lapack->Potrf('L', kSide, a.data(), kSide) != 0 || a != want[i]) ++different;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0) << "of " << kThreads * kCalls;
}

#if defined(__x86_64__)
// The kernels must also be right if OpenBLAS does not know the processor's model.
TEST(Lapack, TheKernelsMatchTheProcessor) {
  if (getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "the environment names the kernels";
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::string kernels, KernelName());
  EXPECT_EQ(getenv("OPENBLAS_CORETYPE"), nullptr) << "left in the program's environment";
  const std::vector<std::string> with_avx512 = {"SkylakeX", "Cooperlake", "SapphireRapids"};
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    EXPECT_THAT(with_avx512, ::testing::Contains(kernels));
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    EXPECT_EQ(kernels, "Haswell");
  else
    GTEST_SKIP() << "the processor has nothing that must be named";
}
#endif

}  // namespace
}  // namespace tessera::ir::lapack
