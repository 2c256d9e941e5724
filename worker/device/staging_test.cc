// Tests that copies share the staging channels fairly. The devices' table is that of the fakes, but
// a copy ends only when the test lets it.
#include "worker/device/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "ir/strided.h"
#include "worker/device/testing/test_device.h"

namespace tessera::worker::device {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The table has no place for an object of the test, so the state of the slow copies is global.
struct SlowCopies {
  absl::Mutex mu;
  int64_t allowed ABSL_GUARDED_BY(mu) = 0;         // the number of copies that may still end
  std::vector<int64_t> begun ABSL_GUARDED_BY(mu);  // the bytes of the copies that have begun

  void Allow(int64_t copies) {
    absl::MutexLock lock(&mu);
    allowed += copies;
  }
  std::vector<int64_t> AwaitBegun(size_t copies) {
    absl::MutexLock lock(&mu);
    const auto are_begun = [&]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return begun.size() >= copies; };
    EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&are_begun), kPatience));
    return begun;
  }
};
SlowCopies* slow_copies = nullptr;

int SlowCopyToHost(tessera_stream* stream, void* to, uint64_t from, int64_t bytes) {
  {
    absl::MutexLock lock(&slow_copies->mu);
    slow_copies->begun.push_back(bytes);
  }
  return cuda::FakeDevices().copy_to_host(stream, to, from, bytes);
}

int SlowEventQuery(tessera_event* event) {
  const int code = cuda::FakeDevices().event_query(event);
  if (code != TESSERA_OK) return code;
  absl::MutexLock lock(&slow_copies->mu);
  if (slow_copies->allowed == 0) return TESSERA_NOT_READY;
  --slow_copies->allowed;
  return TESSERA_OK;
}

class StagingTest : public FakeDevicesTest {
 protected:
  static constexpr int64_t kChunk = 1 << 10, kLarge = 64 * kChunk, kSmall = 16;

  void SetUp() override {
    FakeDevicesTest::SetUp();
    slow_copies = &copies_;
    api_ = cuda::FakeDevices();
    api_.copy_to_host = SlowCopyToHost;
    api_.event_query = SlowEventQuery;
    device_ = *Device::Open(&api_, 0);
    ASSERT_EQ(api_.allocate(device_->context(), kLarge, &memory_), TESSERA_OK);
  }
  void TearDown() override {
    staging_.reset();
    poller_.reset();
    EXPECT_EQ(api_.free(device_->context(), memory_), TESSERA_OK);
  }
  void Make(absl::Duration chunk_timeout, absl::Duration channel_timeout) {
    const StagingOptions options = {.num_channels = 1,
                                    .channel_bytes = kChunk,
                                    .chunk_timeout = chunk_timeout,
                                    .channel_timeout = channel_timeout};
    poller_ = std::make_unique<CompletionPoller>(options.num_channels);
    staging_ = *Staging::Make(device_.get(), poller_.get(), options);
  }
  absl::Status Read(int64_t bytes) {
    std::vector<std::byte> to(bytes);
    return staging_->ToHost(to.data(), memory_, BlockRows(bytes));
  }

  SlowCopies copies_;
  tessera_device_api api_;
  std::unique_ptr<Device> device_;
  uint64_t memory_ = 0;
  std::unique_ptr<CompletionPoller> poller_;
  std::unique_ptr<Staging> staging_;
};

TEST_F(StagingTest, ASmallCopyGoesBetweenTheChunksOfALargeOne) {
  Make(kPatience, kPatience);
  std::thread large([&] { EXPECT_THAT(Read(kLarge), IsOk()); });
  copies_.AwaitBegun(1);
  absl::Notification small_begins;
  std::thread small([&] {
    small_begins.Notify();
    EXPECT_THAT(Read(kSmall), IsOk());
  });
  // The small copy waits for the channel soon, and the large one has many chunks.
  small_begins.WaitForNotification();
  std::vector<int64_t> begun;
  for (size_t copies = 1;
       copies <= kLarge / kChunk && std::count(begun.begin(), begun.end(), kSmall) == 0; ++copies) {
    copies_.Allow(1);
    begun = copies_.AwaitBegun(copies + 1);
  }
  EXPECT_LT(begun.size(), kLarge / kChunk);
  copies_.Allow(kLarge / kChunk);
  large.join();
  small.join();
}

TEST_F(StagingTest, AWaitForAChannelDoesNotLoseTheDevice) {
  Make(/*chunk_timeout=*/kPatience, /*channel_timeout=*/absl::Milliseconds(20));
  std::thread first([&] { EXPECT_THAT(Read(kChunk), IsOk()); });
  copies_.AwaitBegun(1);
  EXPECT_THAT(Read(kSmall), ReasonIs("QUEUE_FULL", HasSubstr("wait for one of 1 channels")));
  copies_.Allow(1);
  first.join();
  copies_.Allow(1);
  EXPECT_THAT(Read(kSmall), IsOk());
}

// Blocks of random arrays, by way of a buffer that is smaller than most of them.
TEST_F(StagingTest, ABlockIsWhatSliceBlockGives) {
  Make(kPatience, kPatience);
  copies_.Allow(1 << 20);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    ir::Dims array_shape, starts, shape;
    const size_t rank = random() % 5;
    for (size_t d = 0; d < rank; ++d) {
      array_shape.push_back(1 + static_cast<int64_t>(random() % 10));
      shape.push_back(static_cast<int64_t>(random() % (array_shape[d] + 1)));
      if (random() % 2 == 0) shape[d] = array_shape[d];
      starts.push_back(static_cast<int64_t>(random() % (array_shape[d] - shape[d] + 1)));
    }
    const Array array = Random(DType::kS32, array_shape, i + 1);
    ASSERT_LE(array.num_bytes(), kLarge);
    ASSERT_THAT(staging_->ToDevice(memory_, array.data(), array.num_bytes()), IsOk());
    Array block(DType::kS32, shape);
    const BlockRows rows(4, array_shape, starts, shape);
    EXPECT_EQ(rows.num_bytes(), block.num_bytes());
    ASSERT_THAT(staging_->ToHost(block.MutableData(), memory_, rows), IsOk());
    ASSERT_EQ(block, ir::SliceBlock(array, starts, shape))
        << "block [" << ir::DimsToString(shape) << "] at [" << ir::DimsToString(starts) << "] of ["
        << ir::DimsToString(array_shape) << "]";
  }
}

TEST_F(StagingTest, RowsFarFromEachOtherAreCopiedWithoutWhatLiesBetween) {
  Make(kPatience, kPatience);
  copies_.Allow(1 << 20);
  std::vector<std::byte> to(30);
  const BlockRows far(1, {3, BlockRows::kGapBytesMax + 11}, {0, 0}, {3, 10});
  ASSERT_THAT(staging_->ToHost(to.data(), memory_, far), IsOk());
  EXPECT_THAT(copies_.AwaitBegun(3), ElementsAre(10, 10, 10));
  const BlockRows near(1, {3, 100}, {0, 0}, {3, 10});
  ASSERT_THAT(staging_->ToHost(to.data(), memory_, near), IsOk());
  EXPECT_THAT(copies_.AwaitBegun(4), ElementsAre(10, 10, 10, 210));
}

TEST_F(StagingTest, AChunkThatDoesNotEndLosesTheDevice) {
  Make(/*chunk_timeout=*/absl::Milliseconds(20), kPatience);
  EXPECT_THAT(Read(kChunk), ReasonIs("WORKER_LOST", HasSubstr("did not end within 20ms")));
  copies_.Allow(1);
}

}  // namespace
}  // namespace tessera::worker::device
