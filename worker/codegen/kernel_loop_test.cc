// Tests of loops of kernels: their text, their rules, and the code for them on every target that
// this CPU runs. The reference is the same work done step by step: the test adds the numbers
// itself, or runs the code of the same kernels by themselves.
#include "worker/codegen/kernel_loop.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/codegen/host_code.h"
#include "worker/codegen/host_target.h"
#include "worker/codegen/testing/kernel_cases.h"

namespace tessera::worker::codegen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a kernel that computes p0[i] = p0[i] + p1[i], on `n` numbers.
std::string AdderText(int64_t n) {
  return absl::StrCat("kernel [", n, "] reduced 0\nout s32 ", n, "\nin s32 ", n,
                      "\n%0 = load p0 [0: 1] : s32\n%1 = load p1 [0: 1] : s32\n"
                      "%2 = Add %0, %1 : s32\nstore %2 p0 [0: 1]\n");
}
// Computes p0[0] = p1[0] < 100.
constexpr char kBelow100[] =
    "kernel [] reduced 0\nout bool 1\nin s32 1\n%0 = load p1 [0: ] : s32\n"
    "%1 = Constant 100 : s32\n%2 = Lt %0, %1 : bool\nstore %2 p0 [0: ]\n";

const char kEveryOp[] =
    "loop 6 bases 3 loops\naddress 0\naddress 1 0 12\naddress 2 0 36 1 12\naddress 3\naddress 4\n"
    "address 5 0 4\nfor 0 2\ncopy 0 1 12\nfor 1 3\nrun 0 0 2\nend\ncall 7\n"
    "branch 5\ncase\nrun 0 0 0\ncase\ncase\ncall 8\nend\nwhile 2 3\nrun 1 3 4\nend\nend\n";
std::string TextOfEveryOp() { return absl::StrCat(kEveryOp, AdderText(3), kBelow100); }

TEST(KernelLoop, PrintsAsItParses) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const KernelLoop loop, ParseKernelLoop(TextOfEveryOp()));
  EXPECT_EQ(loop.ToString(), TextOfEveryOp());
  TESSERA_ASSERT_OK_AND_ASSIGN(const KernelLoop again, ParseKernelLoop(loop.ToString()));
  EXPECT_TRUE(again == loop);
}

struct RefusedEdit {
  const char *from, *to, *why;
};
const RefusedEdit kRefused[] = {
    {"loop 6", "loops 6", "line 1"},
    {"loop 6", "loop -6", "line 1"},
    {"6 bases", "5 bases", "no base 5"},
    {"3 loops", "4 loops", "has 3 loops"},
    {"3 loops", "2 loops", "there are 2 loops"},
    {"for 1 3", "for 0 3", "twice"},
    {"for 0 2", "for 0 -2", "of -2 iterations"},
    {"copy 0 1 12", "copy 0 1", "line 9"},
    {"copy 0 1 12", "copy 0 1 -12", "copy of -12"},
    {"copy 0 1 12", "copy 0 2 12", "moves with loop 1"},
    {"copy 0 1 12", "copy 0 9 12", "no address 9"},
    {"run 0 0 2", "run 2 0 2", "no kernel 2"},
    {"run 0 0 2", "run 0 0", "on 1 addresses"},
    {"case\nrun 0 0 0\n", "run 0 0 0\n", "line 15"},
    {"call 7", "call 7 7", "line 13"},
    {"while 2 3", "while 2", "line 21"},
    {"end\nend\n", "end\n", "ends too early"},
    {"end\nend\n", "end\nend\nend\n", "line 25"},
    {"Add", "Ad", "scalar primitive"},
};

TEST(KernelLoop, LoopsThatBreakARuleAreRefused) {
  for (const RefusedEdit& row : kRefused) {
    std::string text = TextOfEveryOp();
    ASSERT_NE(text.find(row.from), std::string::npos) << row.from;
    text.replace(text.find(row.from), std::strlen(row.from), row.to);
    EXPECT_THAT(ParseKernelLoop(text), ReasonIs("VALUE_ERROR", HasSubstr(row.why)))
        << row.from << " -> " << row.to;
  }
  std::string deep = "loop 0 bases 100 loops\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&deep, "for ", i, " 1\n");
  EXPECT_THAT(ParseKernelLoop(deep), ReasonIs("VALUE_ERROR", HasSubstr("line 34")));
}

// ---- The code. ---------------------------------------------------------------------------------

class LoopCode : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    TESSERA_ASSERT_OK_AND_ASSIGN(const HostTarget target, FindHostTarget(GetParam()));
    if (!CpuRuns(target)) GTEST_SKIP() << "this CPU does not run " << GetParam();
    HostCompilerOptions options;
    options.target = GetParam();
    compiler_ = std::make_unique<HostCompiler>(options);
  }

  void Compile(const std::string& text) {
    absl::StatusOr<KernelLoop> loop = ParseKernelLoop(text);
    ASSERT_THAT(loop, IsOk());
    absl::StatusOr<std::shared_ptr<const HostCode>> code =
        compiler_->Compile({}, {}, std::vector<KernelLoop>{*loop});
    ASSERT_THAT(code, IsOk());
    code_ = *std::move(code);
    iterations_.assign(loop->num_loops, -1);
  }

  // Calls the function. Records each callback as "number: iterations".
  int32_t Run(std::vector<void*> bases) {
    const LoopFrame frame{
        bases.data(), &cancel_,
        [](void* self, int32_t number) { return static_cast<LoopCode*>(self)->RecordCall(number); },
        this, iterations_.data()};
    return code_->loop(0)(&frame);
  }
  int32_t RecordCall(int32_t number) {
    calls_.push_back(absl::StrCat(number, ":", absl::StrJoin(iterations_, ",")));
    const auto num_calls = static_cast<int>(calls_.size());
    if (num_calls == cancel_after_) cancel_.store(1);
    return num_calls == fail_after_ ? 7 : 0;
  }

  std::unique_ptr<HostCompiler> compiler_;
  std::shared_ptr<const HostCode> code_;
  std::vector<int64_t> iterations_;
  std::vector<std::string> calls_;
  std::atomic<uint32_t> cancel_{0};
  int cancel_after_ = -1, fail_after_ = -1;
};

TEST_P(LoopCode, EveryKindOfOpRuns) {
  ASSERT_NO_FATAL_FAILURE(Compile(TextOfEveryOp()));
  int32_t sum[3] = {9, 9, 9};
  int32_t starts[6] = {1, 2, 3, 10, 20, 30};
  int32_t rows[18];
  for (int i = 0; i < 18; ++i) rows[i] = i * i;
  bool below = true;
  int32_t number = 100;
  int32_t branches[2] = {5, -1};  // clamped: to the last branch, then to the first
  EXPECT_EQ(Run({sum, starts, rows, &below, &number, branches}), 0);
  // The second iteration begins with a row of `starts`, adds three rows, and doubles the sum.
  for (int i = 0; i < 3; ++i) {
    const int32_t rows_added = rows[9 + i] + rows[12 + i] + rows[15 + i];
    EXPECT_EQ(sum[i], 2 * (starts[3 + i] + rows_added)) << i;
  }
  EXPECT_FALSE(below);
  EXPECT_THAT(calls_, ElementsAre("7:0,-1,-1", "8:0,-1,-1", "7:1,-1,-1"));
}

TEST_P(LoopCode, ACancelledLoopEndsWithTheIteration) {
  ASSERT_NO_FATAL_FAILURE(Compile("loop 1 bases 1 loops\naddress 0\nwhile 0 0\ncall 0\nend\n"));
  bool forever = true;
  cancel_after_ = 5;
  EXPECT_EQ(Run({&forever}), 1);
  EXPECT_EQ(calls_.size(), 5U);
}

TEST_P(LoopCode, AnEndlessLoopEndsWhenAnotherThreadCancels) {
  ASSERT_NO_FATAL_FAILURE(Compile(
      "loop 2 bases 2 loops\naddress 0\naddress 1\nwhile 0 0\nfor 1 9\nrun 0 1 1\nend\nend\n" +
      AdderText(5)));
  bool forever = true;
  int32_t numbers[5] = {1, 2, 3, 4, 5};
  int32_t result = -1;
  std::thread running([&] { result = Run({&forever, numbers}); });
  cancel_.store(1);
  running.join();
  EXPECT_EQ(result, 1);
}

TEST_P(LoopCode, AFailingCallEndsTheLoopWithItsResult) {
  ASSERT_NO_FATAL_FAILURE(Compile("loop 0 bases 2 loops\nfor 0 9\nfor 1 9\ncall 3\nend\nend\n"));
  fail_after_ = 11;
  EXPECT_EQ(Run({}), 7);
  EXPECT_EQ(calls_.size(), 11U);
  EXPECT_EQ(calls_.back(), "3:1,1");
}

TEST_P(LoopCode, ALoopWithoutIterationsDoesNothing) {
  ASSERT_NO_FATAL_FAILURE(Compile("loop 0 bases 1 loops\nfor 0 0\ncall 3\nend\n"));
  EXPECT_EQ(Run({}), 0);
  EXPECT_TRUE(calls_.empty());
}

// Kernels in a loop give the bits of the same kernels by themselves, whether they are inlined or
// not.
TEST_P(LoopCode, KernelsHaveTheSameBitsInALoop) {
  constexpr int kKernels = 40;
  std::vector<Kernel> kernels;
  std::vector<KernelLoop> loops;
  for (uint32_t seed = 0; seed < kKernels; ++seed) {
    // Repeats the kernel so many times that it is not inlined.
    const bool repeated = seed % 8 == 0;
    kernels.push_back(RandomKernel(seed, {.reduce = seed % 2 == 0,
                                          .functions = true,
                                          .size_max = repeated        ? 6
                                                      : seed % 3 == 0 ? 90
                                                                      : 20}));
    KernelLoop& loop = loops.emplace_back();
    loop.kernels = {Canonical(kernels.back())};
    LoopOp run;
    for (size_t p = 0; p < kernels.back().params.size(); ++p) {
      loop.addresses.push_back({static_cast<int>(p), {}});
      run.addresses.push_back(static_cast<int>(p));
    }
    loop.num_bases = static_cast<int>(loop.addresses.size());
    loop.ops.assign(repeated ? 200 : 1, run);
    ASSERT_THAT(Verify(loop), IsOk());
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto code, compiler_->Compile(kernels, {}, loops));
  for (int k = 0; k < kKernels; ++k) {
    TestBuffers want(kernels[k], k), got(kernels[k], k);
    for (size_t i = 0; i < loops[k].ops.size(); ++i)
      code->function(k)(want.pointers().data(), 0, kernels[k].num_iterations());
    const std::vector<void*> bases = got.pointers();
    const LoopFrame frame{bases.data(), &cancel_};
    ASSERT_EQ(code->loop(k)(&frame), 0);
    EXPECT_TRUE(got.GuardsHold());
    EXPECT_EQ(Difference(kernels[k], got, want, {}), "") << kernels[k].ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LoopCode, ::testing::Values("baseline", "avx2", "avx512"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::worker::codegen
