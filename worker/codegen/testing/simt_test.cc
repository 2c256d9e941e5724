// Tests of the emulator itself, on kernels that are written as LLVM IR: thread numbers, barriers,
// shuffles and memory checks work, and whatever a GPU would refuse or leave undefined is an error.
#include "worker/codegen/testing/simt.h"

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::codegen {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::shared_ptr<const SimtModule> Loaded(const std::string& body) {
  const absl::StatusOr<std::string> image = CompileIrForSimt(absl::StrCat(R"(
@tessera_shared = external addrspace(3) global [0 x i8], align 16
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.clock()
declare void @llvm.nvvm.barrier0()
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
)",
                                                                          body));
  EXPECT_THAT(image, IsOk());
  if (!image.ok()) return nullptr;
  auto module = SimtModule::Load(*image);
  EXPECT_THAT(module, IsOk());
  return module.ok() ? *module : nullptr;
}

absl::Status RunK(const SimtModule& module, uint32_t blocks, uint32_t threads, void* out,
                  bool reversed = false) {
  SimtLaunch launch;
  launch.entry = "k";
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.shared_bytes = 8192;
  launch.args = {reinterpret_cast<uint64_t>(out)};
  launch.reversed = reversed;
  return module.Launch(launch);
}

TEST(Simt, ThreadsKnowTheirNumbers) {
  const auto module = Loaded(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %first = mul i32 %b, 40
  %i = add i32 %first, %t
  %at = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %i, ptr addrspace(1) %at
  ret void
})");
  ASSERT_NE(module, nullptr);
  std::vector<int32_t> out(120, -1);
  ASSERT_THAT(RunK(*module, 3, 40, out.data()), IsOk());
  for (int i = 0; i < 120; ++i) EXPECT_EQ(out[i], i);
}

// In this kernel, out[t] is the number that thread 99 - t put into shared memory before the
// barrier. Without the barrier, half of the numbers are rubbish.
std::string Reverses(bool barrier) {
  return absl::StrCat(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %mine = getelementptr i32, ptr addrspace(3) @tessera_shared, i32 %t
  %value = mul i32 %t, 3
  store i32 %value, ptr addrspace(3) %mine
)",
                      barrier ? "call void @llvm.nvvm.barrier0()" : "", R"(
  %u = sub i32 99, %t
  %theirs = getelementptr i32, ptr addrspace(3) @tessera_shared, i32 %u
  %got = load i32, ptr addrspace(3) %theirs
  %at = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %got, ptr addrspace(1) %at
  ret void
})");
}

TEST(Simt, ABarrierMakesSharedMemoryVisible) {
  for (const bool barrier : {true, false}) {
    const auto module = Loaded(Reverses(barrier));
    ASSERT_NE(module, nullptr);
    for (const bool reversed : {true, false}) {
      std::vector<int32_t> out(100, -1);
      ASSERT_THAT(RunK(*module, 1, 100, out.data(), reversed), IsOk());
      int wrong = 0;
      for (int t = 0; t < 100; ++t) wrong += out[t] != 3 * (99 - t);
      // Half of the threads read before the others have written.
      EXPECT_EQ(wrong, barrier ? 0 : 50) << reversed;
    }
  }
}

TEST(Simt, ShufflesSwapWithinTheWarp) {
  const auto module = Loaded(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %a = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 16, i32 31)
  %b = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %a, i32 1, i32 31)
  %at = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %b, ptr addrspace(1) %at
  ret void
})");
  ASSERT_NE(module, nullptr);
  std::vector<int32_t> out(64);
  ASSERT_THAT(RunK(*module, 1, 64, out.data()), IsOk());
  for (int t = 0; t < 64; ++t) EXPECT_EQ(out[t], t ^ 17);
  EXPECT_THAT(RunK(*module, 1, 40, out.data()),
              ReasonIs("INTERNAL", HasSubstr("a shuffle in a warp of 8 threads")));
}

// The code `before` runs in the threads below 5, and `after` in all threads.
std::string Diverges(absl::string_view before, absl::string_view after) {
  return absl::StrCat(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %few = icmp ult i32 %t, 5
  br i1 %few, label %then, label %fi
then:
  )",
                      before, R"(
  br label %fi
fi:
  )",
                      after, R"(
  ret void
})");
}

TEST(Simt, ABarrierOrShuffleThatNotAllThreadsReachIsAnError) {
  constexpr absl::string_view kBarrier = "call void @llvm.nvvm.barrier0()";
  constexpr absl::string_view kShuffle =
      "call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 1, i32 31)";
  const auto error = [](absl::string_view before, absl::string_view after) {
    const auto module = Loaded(Diverges(before, after));
    alignas(16) int32_t out = 0;
    return module == nullptr ? absl::OkStatus() : RunK(*module, 2, 64, &out);
  };
  EXPECT_THAT(error(kBarrier, ""),
              ReasonIs("INTERNAL", AllOf(HasSubstr("k, block (0,0,0)"),
                                         HasSubstr("not all threads reach a barrier: thread 0 "
                                                   "waits at barrier, place 0, thread 5 has "
                                                   "ended"))));
  EXPECT_THAT(error(kBarrier, kBarrier),
              ReasonIs("INTERNAL", HasSubstr("thread 0 waits at barrier, place 0, thread 5 waits "
                                             "at barrier, place 1")));
  EXPECT_THAT(error(kShuffle, ""),
              ReasonIs("INTERNAL", HasSubstr("thread 0 waits at shuffle, place 0, thread 5 has")));
  EXPECT_THAT(error(kShuffle, kBarrier),
              ReasonIs("INTERNAL", HasSubstr("thread 5 waits at barrier, place 1")));
  EXPECT_THAT(error("", kBarrier), IsOk());
}

TEST(Simt, ForbiddenAccessesFailWithoutEffect) {
  const auto module = Loaded(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %x = load i32, ptr addrspace(1) %from
  %next = add i32 %t, 1
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %next
  store i32 %x, ptr addrspace(1) %to
  ret void
})");
  ASSERT_NE(module, nullptr);
  alignas(16) int32_t out[4] = {7, 8, 9, 10};
  SimtLaunch launch;
  launch.entry = "k";
  launch.block[0] = 3;
  const auto base = reinterpret_cast<uint64_t>(out);
  launch.args = {base};
  uint64_t readable = 12, writable = 16;
  launch.may_access = [&](uint64_t address, uint64_t bytes, bool write, uint64_t /*thread*/) {
    return base <= address && address + bytes <= base + (write ? writable : readable);
  };
  EXPECT_THAT(module->Launch(launch), IsOk());
  EXPECT_THAT(out, Each(7));
  out[3] = 10;
  writable = 12;
  EXPECT_THAT(module->Launch(launch),
              ReasonIs("INTERNAL", HasSubstr("k, block (0,0,0): thread (2,0,0) writes 4 bytes")));
  EXPECT_EQ(out[3], 10);
  writable = 16, readable = 4;
  EXPECT_THAT(module->Launch(launch),
              ReasonIs("INTERNAL", HasSubstr("thread (1,0,0) reads 4 bytes")));
  // The address lies half an element further.
  const auto skewed = Loaded(R"(
define ptx_kernel void @k(ptr addrspace(1) %out) {
  %at = getelementptr i8, ptr addrspace(1) %out, i32 2
  store i32 1, ptr addrspace(1) %at, align 4
  ret void
})");
  ASSERT_NE(skewed, nullptr);
  EXPECT_THAT(skewed->Launch(launch), ReasonIs("INTERNAL", HasSubstr("which is not aligned")));
}

TEST(Simt, UnknownIntrinsicsAreErrors) {
  EXPECT_THAT(CompileIrForSimt(R"(
declare i32 @llvm.nvvm.read.ptx.sreg.clock()
define ptx_kernel void @k() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.clock()
  ret void
})"),
              ReasonIs("INTERNAL", HasSubstr("does not know llvm.nvvm.read.ptx.sreg.clock")));
  EXPECT_THAT(CompileIrForSimt("define nothing"), ReasonIs("VALUE_ERROR", HasSubstr("line 1")));
}

TEST(Simt, LaunchesThatAGpuRefusesAreRefused) {
  const auto module = Loaded("define ptx_kernel void @k(ptr addrspace(1) %out) { ret void }");
  ASSERT_NE(module, nullptr);
  const auto error = [&](auto change) {
    SimtLaunch launch;
    launch.entry = "k";
    launch.args = {0};
    change(&launch);
    return module->Launch(launch);
  };
  EXPECT_THAT(error([](SimtLaunch*) {}), IsOk());
  EXPECT_THAT(error([](SimtLaunch* l) { l->entry = "other"; }),
              ReasonIs("VALUE_ERROR", HasSubstr("no such entry")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->args = {}; }),
              ReasonIs("VALUE_ERROR", HasSubstr("0 arguments; expected 1")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->args = {8}; }),
              ReasonIs("VALUE_ERROR", HasSubstr("argument 0 is not aligned to 16 bytes")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->block[0] = 1025; }),
              ReasonIs("VALUE_ERROR", HasSubstr("1025 threads a block")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->block[1] = 0; }),
              ReasonIs("VALUE_ERROR", HasSubstr("0 threads a block")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->grid[0] = 0; }),
              ReasonIs("VALUE_ERROR", HasSubstr("0 blocks")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->grid[1] = 65536; }),
              ReasonIs("VALUE_ERROR", HasSubstr("grid[1] is 65536")));
  EXPECT_THAT(error([](SimtLaunch* l) { l->shared_bytes = 49153; }),
              ReasonIs("VALUE_ERROR", HasSubstr("49153 bytes of shared memory")));
}

TEST(Simt, InvalidImagesAreRefused) {
  for (const char* image :
       {"", "garbage", "tessera-simt 2 baseline", "tessera-simt x baseline 1\nk 1\n",
        "tessera-simt 99 baseline 1\nk 1\n", "tessera-simt 2 vax 1\nk 1\n",
        "tessera-simt 2 baseline 2\nk 1\n", "tessera-simt 2 baseline 1\nk one\n"})
    EXPECT_THAT(SimtModule::Load(image), ReasonIs("VALUE_ERROR")) << image;
  EXPECT_THAT(SimtModule::Load("tessera-simt 2 baseline 1\nk 1\nno object"), ReasonIs("INTERNAL"));
}

}  // namespace
}  // namespace tessera::worker::codegen
