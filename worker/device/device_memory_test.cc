// Tests of the memory of an accelerator: what an executor counts in its account is what the arena
// has given, scratch memory is shared and given back, and only the blocks that are read are copied.
// They run an executor with the CUDA plugin on the fake driver (tests/fakes).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "ir/strided.h"
#include "worker/device/testing/test_device.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/testing/reports.h"

namespace tessera::worker::device {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// The test's table of device functions calls this before each copy to the host. The table has no
// place for an object of the test, so the function is global. It is set only while no copy goes on.
std::function<void(int64_t bytes)> on_copy_to_host;

int CopyToHost(tessera_stream* stream, void* to, uint64_t from, int64_t bytes) {
  if (on_copy_to_host) on_copy_to_host(bytes);
  return cuda::FakeDevices().copy_to_host(stream, to, from, bytes);
}

class DeviceMemoryTest : public FakeDevicesTest {
 protected:
  void TearDown() override {
    executor_.reset();
    on_copy_to_host = nullptr;
    EXPECT_EQ(cuda::FakeViolations(), "");
  }

  void Start(int64_t memory_bytes) {
    cuda::SetFake("memory_bytes", memory_bytes + 64 * kMiB);
    api_ = cuda::FakeDevices();
    api_.copy_to_host = CopyToHost;
    DeviceBackendOptions options;
    options.memory_bytes = memory_bytes;
    absl::StatusOr<std::unique_ptr<Backend>> backend = MakeDeviceBackend(&api_, options);
    ASSERT_THAT(backend, IsOk());
    backend_ = backend->get();
    ExecutorOptions executor;
    executor.worker = "w0";
    executor_ =
        std::make_unique<Executor>(executor, *std::move(backend),
                                   [this](api::ReportBody body) { reports_.Add(std::move(body)); });
  }
  void Load(uint64_t id, const std::string& text) {
    executor_->Send(api::LoadProgram{.executable = id,
                                     .name = absl::StrCat("program", id),
                                     .program = Parse(text),
                                     .coordinates = {{0, 0}},
                                     .self = 0});
    TESSERA_ASSERT_OK_AND_ASSIGN(const api::ProgramLoaded loaded,
                                 reports_.Next<api::ProgramLoaded>());
    ASSERT_THAT(loaded.status, IsOk());
    memory_bytes_[id] = loaded.memory_bytes;
  }
  absl::Status Write(uint64_t array, Array value) {
    executor_->Send(api::WriteBuffer{array, 0, std::move(value)});
    TESSERA_ASSIGN_OR_RETURN(const api::BufferWritten written, reports_.Next<api::BufferWritten>());
    return written.status;
  }
  void Launch(uint64_t executable, std::vector<uint64_t> args, std::vector<uint64_t> results,
              std::vector<bool> donate = {}) {
    api::Launch launch;
    launch.launch = launch.sequence = ++launches_;
    launch.executable = executable;
    launch.args = std::move(args);
    launch.results = std::move(results);
    launch.donate = std::move(donate);
    executor_->Send(std::move(launch));
  }
  // Waits for the end of a launch that succeeds.
  void AwaitDone() { EXPECT_THAT(reports_.Next<api::LaunchDone>(), IsOk()); }
  void Delete(std::vector<uint64_t> arrays) {
    executor_->Send(api::DeleteBuffers{std::move(arrays)});
  }
  absl::StatusOr<Array> Read(uint64_t array, std::optional<Executor::Block> block = {}) {
    absl::StatusOr<Array> value = absl::UnknownError("not called");
    absl::Notification read;
    executor_->ReadShard({array, 0}, std::move(block), [&](absl::StatusOr<Array> got) {
      value = std::move(got);
      read.Notify();
    });
    EXPECT_TRUE(read.WaitForNotificationWithTimeout(kPatience));
    return value;
  }
  int64_t reserved() const { return executor_->account(0).reserved_bytes(); }
  int64_t allocated() const { return BytesInUse(*backend_); }

  tessera_device_api api_;
  Reports reports_;
  std::unique_ptr<Executor> executor_;
  const Backend* backend_ = nullptr;
  uint64_t launches_ = 0;
  std::map<uint64_t, int64_t> memory_bytes_;  // by executable
};

// Doubles an array of this many bytes twice in a loop, and returns one of its elements. The array
// is in scratch memory.
std::string ScratchProgram(int64_t bytes) {
  const int64_t n = bytes / 4;
  return absl::StrCat(
      "func main(%x: f32[]) -> (f32[1]) {\n  %big = broadcast_in_dim(%x) "
      "{broadcast_dimensions=[], shape=[",
      n,
      "]}\n  %r = scan(%big) {num_consts=0, num_carry=1, length=2, reverse=false} "
      "with\n    func body(%a: f32[",
      n, "]) -> (f32[", n, "]) {\n      %s = add(%a, %a)\n      return %s\n    }\n",
      "  %one = slice(%r) {limit_indices=[1], start_indices=[0], strides=[1]}\n",
      "  return %one\n}");
}

// Returns an element-wise program with an argument and a result of `n` f32 each, which can use the
// memory of a donated argument.
std::string DoubleProgram(int64_t n) {
  return absl::StrCat("func main(%x: f32[", n, "]) -> (f32[", n,
                      "]) {\n  %y = add(%x, %x)\n  return %y\n}");
}

TEST_F(DeviceMemoryTest, ScratchMemoryGrowsWhereTheOldAndTheNewDoNotFitTogether) {
  Start(72 * kMiB);
  Load(1, ScratchProgram(40 * kMiB));
  Load(2, ScratchProgram(60 * kMiB));
  ASSERT_GT(memory_bytes_[1], 40 * kMiB);
  ASSERT_GT(memory_bytes_[2], 60 * kMiB);
  ASSERT_LT(memory_bytes_[2], 61 * kMiB);
  ASSERT_THAT(Write(10, Array::Of(DType::kF32, {}, {1})), IsOk());
  // The launches are sent at once, so that the larger scratch memory is needed while launches use
  // the smaller one.
  const std::vector<uint64_t> programs = {1, 1, 2, 1, 2};
  for (size_t i = 0; i < programs.size(); ++i) Launch(programs[i], {10}, {20 + i});
  for (size_t i = 0; i < programs.size(); ++i) AwaitDone();
  EXPECT_EQ(reserved(), allocated());
  for (size_t i = 0; i < programs.size(); ++i)
    EXPECT_THAT(Read(20 + i), IsOkAndHolds(Array::Of(DType::kF32, {1}, {4})));
}

TEST_F(DeviceMemoryTest, ScratchMemoryIsCountedOnceForAllLaunches) {
  Start(72 * kMiB);
  Load(1, ScratchProgram(40 * kMiB));
  ASSERT_THAT(Write(10, Array::Of(DType::kF32, {}, {1})), IsOk());
  for (uint64_t i = 0; i < 8; ++i) Launch(1, {10}, {20 + i});
  for (int i = 0; i < 8; ++i) AwaitDone();
  EXPECT_LT(executor_->account(0).peak_bytes(), 41 * kMiB);
  EXPECT_GT(reserved(), 40 * kMiB) << "the next launch needs it";
}

TEST_F(DeviceMemoryTest, UnusedScratchMemoryIsGivenBackWhenMemoryIsShort) {
  Start(72 * kMiB);
  Load(1, ScratchProgram(60 * kMiB));
  Load(2, DoubleProgram(4 * kMiB));
  ASSERT_THAT(Write(10, Array::Of(DType::kF32, {}, {1})), IsOk());
  Launch(1, {10}, {20});
  AwaitDone();
  EXPECT_GT(reserved(), 60 * kMiB);
  ASSERT_THAT(Write(11, Random(DType::kF32, {4 * kMiB}, 1)), IsOk());
  EXPECT_LT(reserved(), 17 * kMiB);
  Launch(1, {10}, {21});  // does not fit beside array 11
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status, ReasonIs("OUT_OF_MEMORY", AllOf(HasSubstr("scratch memory"),
                                                             HasSubstr("array 11 16.0 MiB"))));
  Delete({11});
  Launch(1, {10}, {22});
  AwaitDone();
  ASSERT_THAT(Write(12, Random(DType::kF32, {kMiB}, 1)), IsOk());
  EXPECT_EQ(reserved(), allocated());
}

// Half of the memory is free, in two pieces.
TEST_F(DeviceMemoryTest, ALaunchForWhichNoPieceIsLargeEnoughKeepsItsArguments) {
  Start(50 * kMiB);
  Load(1, absl::StrCat("func main(%x: f32[]) -> (f32[", 5 * kMiB,
                       "]) {\n  %y = broadcast_in_dim(%x) {broadcast_dimensions=[], shape=[",
                       5 * kMiB, "]}\n  return %y\n}"));
  for (uint64_t array = 10; array < 14; ++array)
    ASSERT_THAT(Write(array, Array(DType::kF32, {3 * kMiB})), IsOk());
  ASSERT_THAT(Write(20, Array::Of(DType::kF32, {}, {7})), IsOk());
  Delete({10, 12});
  Launch(1, {20}, {21}, {true});
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::LaunchFailed failed, reports_.Next<api::LaunchFailed>());
  EXPECT_THAT(failed.status, ReasonIs("OUT_OF_MEMORY", HasSubstr("the largest piece 12.0 MiB")));
  EXPECT_TRUE(failed.inputs_kept);
  EXPECT_EQ(reserved(), allocated());
  Delete({11});
  Launch(1, {20}, {22}, {true});
  AwaitDone();
  EXPECT_THAT(Read(22, Executor::Block{{5 * kMiB - 1}, {1}}),
              IsOkAndHolds(Array::Of(DType::kF32, {1}, {7})));
  EXPECT_EQ(reserved(), allocated());
}

// Uploads, launches of several kinds, deletions and unloaded programs in random order, several of
// them at a time.
TEST_F(DeviceMemoryTest, TheAccountIsWhatTheArenaHasGiven) {
  constexpr int64_t kN = 1000;  // f32, which are no multiple of the arena's alignment
  Start(32 * kMiB);
  Load(1, DoubleProgram(kN));
  Load(2, ScratchProgram(kMiB));
  Load(3, absl::StrCat("func main(%x: f32[", kN, "]) -> (f32[", kN, "], f32[", kN, "], f32[", kN,
                       "]) {\n  %y = add(%x, %x)\n  return %x, %y, %y\n}"));
  ASSERT_THAT(Write(1, Array::Of(DType::kF32, {}, {1})), IsOk());
  std::mt19937 random(1);
  uint64_t last_array = 100, last_program = 10;
  std::vector<uint64_t> arrays;  // those of kN elements
  for (int round = 0; round < 100; ++round) {
    int launches = 0;
    for (int step = 0; step < 6; ++step) {
      const size_t at = arrays.empty() ? 0 : random() % arrays.size();
      const int kind = arrays.empty() ? 0 : static_cast<int>(random() % 6);
      if (kind == 0) {
        arrays.push_back(++last_array);
        ASSERT_THAT(Write(last_array, Random(DType::kF32, {kN}, last_array)), IsOk());
      } else if (kind == 1) {
        Delete({arrays[at]});
        arrays.erase(arrays.begin() + at);
      } else if (kind == 2) {
        Launch(2, {1}, {++last_array});
        Delete({last_array});
        ++launches;
      } else if (kind == 3) {
        Launch(3, {arrays[at]}, {last_array + 1, last_array + 2, last_array + 3});
        for (int result = 0; result < 3; ++result) arrays.push_back(++last_array);
        ++launches;
      } else {
        const bool donate = kind == 4;
        Launch(1, {arrays[at]}, {last_array + 1}, {donate});
        if (donate) arrays.erase(arrays.begin() + at);
        arrays.push_back(++last_array);
        ++launches;
      }
    }
    // This launch comes after the deletions.
    Launch(2, {1}, {++last_array});
    for (int launch = 0; launch <= launches; ++launch) AwaitDone();
    ASSERT_EQ(reserved(), allocated()) << "round " << round;
    Load(++last_program, absl::StrCat("func main(%x: f32[2]) -> (f32[2]) {\n  %k = constant() "
                                      "{value=dense<f32[2]: 0x0000803f00000040>}\n"
                                      "  %y = add(%x, %k)\n  return %y\n}"));
    ASSERT_EQ(reserved(), allocated()) << "round " << round;
    executor_->Send(api::UnloadPrograms{{last_program}});
    ASSERT_EQ(reserved(), allocated()) << "round " << round;
  }
}

TEST_F(DeviceMemoryTest, OnlyABlockThatIsReadIsCopied) {
  constexpr int64_t kSide = 16 << 10;  // 1 GiB of f32
  Start((int64_t{1} << 30) + 16 * kMiB);
  Array square(DType::kF32, {kSide, kSide});
  const absl::Span<float> elements = square.MutableAs<float>();
  for (int64_t row = 100; row < 116; ++row)
    for (int64_t column = 200; column < 216; ++column)
      elements[row * kSide + column] = static_cast<float>(row * 1000 + column);
  for (int64_t column = 0; column < 256; ++column)
    elements[7 * kSide + column] = static_cast<float>(column);
  ASSERT_THAT(Write(10, square), IsOk());
  std::atomic<int64_t> bytes_copied{0};
  on_copy_to_host = [&](int64_t bytes) { bytes_copied += bytes; };
  for (const Executor::Block& block :
       {Executor::Block{{7, 0}, {1, 256}}, Executor::Block{{100, 200}, {16, 16}}}) {
    bytes_copied = 0;
    EXPECT_THAT(Read(10, block), IsOkAndHolds(ir::SliceBlock(square, block.starts, block.shape)));
    EXPECT_EQ(bytes_copied, 1024);
  }
  EXPECT_THAT(Read(10, Executor::Block{{0, kSide - 1}, {1, 2}}),
              ReasonIs("VALUE_ERROR", HasSubstr("the block [1,2] at [0,16383] does not lie inside "
                                                "the shard [16384,16384]")));
}

TEST_F(DeviceMemoryTest, ACopyToTheHostDelaysNeitherLaunchesNorSmallReads) {
  constexpr int64_t kN = kMiB;
  Start(64 * kMiB);
  Load(1, DoubleProgram(kN));
  const Array x = Random(DType::kF32, {kN}, 1);
  ASSERT_THAT(Write(10, x), IsOk());
  absl::Notification begun, go;
  on_copy_to_host = [&](int64_t bytes) {
    if (bytes < kMiB) return;
    begun.Notify();
    EXPECT_TRUE(go.WaitForNotificationWithTimeout(kPatience));
  };
  absl::Notification read;
  executor_->ReadShard({20, 0}, std::nullopt, [&](const absl::StatusOr<Array>& value) {
    EXPECT_THAT(value, IsOk());
    read.Notify();
  });
  Launch(1, {10}, {20});
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(kPatience));
  EXPECT_FALSE(read.HasBeenNotified());
  Launch(1, {10}, {21});
  AwaitDone();
  AwaitDone();
  EXPECT_THAT(Read(10, Executor::Block{{5}, {3}}), IsOkAndHolds(ir::SliceBlock(x, {5}, {3})));
  go.Notify();
  EXPECT_TRUE(read.WaitForNotificationWithTimeout(kPatience));
}

// A reader that waits for its turn when the executor ends is told so.
TEST_F(DeviceMemoryTest, ReadersThatWaitAreToldThatTheExecutorStops) {
  constexpr int64_t kN = kMiB;
  Start(64 * kMiB);
  ASSERT_THAT(Write(10, Array(DType::kF32, {kN})), IsOk());
  absl::Notification begun, go;
  std::atomic<bool> is_first{true};
  on_copy_to_host = [&](int64_t) {
    if (is_first.exchange(false)) begun.Notify();
    EXPECT_TRUE(go.WaitForNotificationWithTimeout(kPatience));
  };
  std::vector<absl::Status> ends(2, absl::UnknownError("not called"));
  for (absl::Status& end : ends) {
    executor_->ReadShard({10, 0}, std::nullopt,
                         [&end](const absl::StatusOr<Array>& value) { end = value.status(); });
  }
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(kPatience));
  std::thread stops([&] { executor_.reset(); });
  go.Notify();
  stops.join();
  EXPECT_THAT(ends[0], IsOk());
  EXPECT_THAT(ends[1], AnyOf(IsOk(), ReasonIs("SERVER_STOPPING", "the executor is stopping")));
}

}  // namespace
}  // namespace tessera::worker::device
