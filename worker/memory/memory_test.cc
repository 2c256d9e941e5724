// Proves that memory is accounted for to the byte and errors name the holders, and that a buffer's
// readers, waiters, deletes and donations may come in any order. Buffers are fakes without memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/status_matchers.h"
#include "worker/memory/buffer_table.h"
#include "worker/memory/memory_account.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FakeBuffer : public DeviceBuffer {
 public:
  explicit FakeBuffer(int64_t size) : shape_{size} {}
  ir::DType dtype() const override { return ir::DType::kU8; }
  const ir::Dims& shape() const override { return shape_; }
  int64_t num_bytes() const override { return shape_[0]; }

 private:
  ir::Dims shape_;
};

TEST(MemoryAccountTest, OutOfMemoryNamesTheGreatestHolders) {
  MemoryAccount account("cpu:0 of w0/0", 1000);
  TESSERA_ASSERT_OK_AND_ASSIGN(Reservation a, account.Reserve(600, "array 1"));
  TESSERA_ASSERT_OK_AND_ASSIGN(Reservation b, account.Reserve(300, "launch 7 of train"));
  EXPECT_THAT(account.Reserve(200, "array 9"),
              ReasonIs("OUT_OF_MEMORY",
                       AllOf(HasSubstr("cpu:0 of w0/0: array 9 needs 200 B, but only 100 B of "
                                       "1000 B is free"),
                             HasSubstr("Held: array 1 600 B, launch 7 of train 300 B."))));
  a.Release();
  EXPECT_THAT(account.Reserve(200, "array 9"), IsOk());
  EXPECT_EQ(account.peak_bytes(), 900);
}

TEST(MemoryAccountTest, HoldersAreNamedWithTheirProgram) {
  MemoryAccount account("cpu:0", 100);
  const auto program = std::make_shared<const std::string>("train");
  TESSERA_ASSERT_OK_AND_ASSIGN(Reservation run, account.Reserve(100, {"launch", 7, program}));
  const Reservation result = run.Split(60, {"array", 9, program});
  EXPECT_THAT(account.Reserve(1, {"launch", 8, program}),
              ReasonIs("OUT_OF_MEMORY",
                       AllOf(HasSubstr("launch 8 of train needs 1 B"),
                             HasSubstr("Held: array 9 (train) 60 B, launch 7 of train 40 B."))));
}

TEST(MemoryAccountTest, SplitNeedsNoFreeMemory) {
  MemoryAccount account("cpu:0", 100);
  TESSERA_ASSERT_OK_AND_ASSIGN(Reservation all, account.Reserve(100, "launch 1"));
  {
    Reservation part = all.Split(40, "array 1");
    all.Release();
    EXPECT_EQ(account.reserved_bytes(), 40);
  }
  EXPECT_EQ(account.reserved_bytes(), 0);
  EXPECT_EQ(account.peak_bytes(), 100);
}

TEST(MemoryAccountTest, SplittingOffAllBytesEndsTheReservation) {
  MemoryAccount account("cpu:0", 100);
  TESSERA_ASSERT_OK_AND_ASSIGN(Reservation run, account.Reserve(100, "launch 1"));
  Reservation part = run.Split(100, "array 2");
  EXPECT_EQ(run.bytes(), 0);
  EXPECT_EQ(run.Split(0, "array 3").bytes(), 0);
  run.Release();
  EXPECT_EQ(account.reserved_bytes(), 100);
  EXPECT_THAT(account.Reserve(1, "launch 4"),
              ReasonIs("OUT_OF_MEMORY", HasSubstr("Held: array 2 100 B.")));
  part.Release();
  EXPECT_EQ(account.reserved_bytes(), 0);
  EXPECT_EQ(account.peak_bytes(), 100);
}

class BufferTableTest : public ::testing::Test {
 protected:
  // Returns a buffer whose memory is reserved.
  DeviceBufferRef Buffer(int64_t size) {
    DeviceBufferRef buffer = std::make_shared<FakeBuffer>(size);
    buffer->reservation() = *account_.Reserve(size, "test");
    return buffer;
  }

  MemoryAccount account_{"cpu:0", 1 << 20};
  BufferTable table_;
  const BufferId id_{7, 0};
};

TEST_F(BufferTableTest, AReaderWaitsForTheProducer) {
  absl::StatusOr<DeviceBufferRef> got = absl::UnknownError("not called");
  ASSERT_THAT(table_.Expect(id_), IsOk());
  table_.WhenReady(id_, [&](absl::StatusOr<DeviceBufferRef> b) { got = std::move(b); });
  EXPECT_THAT(got, StatusIs(absl::StatusCode::kUnknown));
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  ASSERT_THAT(got, IsOk());
  EXPECT_EQ((*got)->num_bytes(), 8);
}

TEST_F(BufferTableTest, GetIfReadyReturnsOnlyAReadyBuffer) {
  EXPECT_EQ(table_.GetIfReady(id_), nullptr);
  ASSERT_THAT(table_.Expect(id_), IsOk());
  EXPECT_EQ(table_.GetIfReady(id_), nullptr);
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  ASSERT_NE(table_.GetIfReady(id_), nullptr);
  EXPECT_EQ(table_.GetIfReady(id_)->num_bytes(), 8);
  table_.SetFailed(id_, MakeError(ErrorKind::kWorkerLost, "lost"));
  EXPECT_EQ(table_.GetIfReady(id_), nullptr);
}

TEST_F(BufferTableTest, ReadersOfAFailedBufferGetTheFirstFailure) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  table_.SetFailed(id_, MakeError(ErrorKind::kWorkerLost, "first"));
  table_.SetFailed(id_, MakeError(ErrorKind::kPeerFailed, "second"));
  EXPECT_THAT(table_.Get(id_), ReasonIs("WORKER_LOST", "first"));
  EXPECT_EQ(account_.reserved_bytes(), 0) << "the failed buffer still holds memory";
}

TEST_F(BufferTableTest, ADeletedIdStaysDeleted) {
  absl::StatusOr<DeviceBufferRef> got = absl::UnknownError("not called");
  table_.WhenReady(id_, [&](absl::StatusOr<DeviceBufferRef> b) { got = std::move(b); });
  table_.Delete(id_);
  EXPECT_THAT(got, ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(table_.SetReady(id_, Buffer(8)), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(table_.Expect(id_), ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(account_.reserved_bytes(), 0);
}

TEST_F(BufferTableTest, TakeFreesTheEntryAndKeepsTheMemoryUntilDropped) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const BufferTable::EnqueuedBuffer taken, table_.Take(id_));
    EXPECT_TRUE(taken.taken);
    EXPECT_EQ(taken.outcome, nullptr);
    EXPECT_EQ(account_.reserved_bytes(), 8);
    EXPECT_THAT(table_.Get(id_), ReasonIs("ARRAY_DELETED"));
    EXPECT_THAT(table_.Take(id_), ReasonIs("ARRAY_DELETED"));
  }
  EXPECT_EQ(account_.reserved_bytes(), 0);
}

TEST_F(BufferTableTest, ABufferWithReadersIsNotTaken) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(DeviceBufferRef got, table_.Get(id_));
  DeviceBufferRef ready = table_.GetIfReady(id_), waited;
  table_.WhenReady(id_, [&](absl::StatusOr<DeviceBufferRef> b) { waited = *std::move(b); });
  for (DeviceBufferRef* reader : {&got, &ready, &waited}) {
    EXPECT_FALSE(table_.Take(id_)->taken);
    EXPECT_THAT(table_.Get(id_), IsOk()) << "the buffer stays in the table";
    reader->reset();
  }
  EXPECT_TRUE(table_.Take(id_)->taken);
}

TEST_F(BufferTableTest, EnqueuedWorkDoesNotCountAsAReader) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const BufferTable::EnqueuedBuffer earlier, table_.GetEnqueued(id_));
  EXPECT_TRUE(table_.Take(id_)->taken);
}

TEST_F(BufferTableTest, TheMemoryOfADeletedBufferStaysReservedWhileWorkUsesIt) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const BufferTable::EnqueuedBuffer used, table_.GetEnqueued(id_));
    table_.Delete(id_);
    EXPECT_EQ(account_.reserved_bytes(), 8);
  }
  EXPECT_EQ(account_.reserved_bytes(), 0);
}

TEST_F(BufferTableTest, ABufferTakenBeforeItIsReadyIsNotStoredLater) {
  ASSERT_THAT(table_.Expect(id_), IsOk());
  const DeviceBufferRef buffer = Buffer(8);
  table_.SetEnqueued(id_, buffer, std::make_shared<Outcome>());
  TESSERA_ASSERT_OK_AND_ASSIGN(const BufferTable::EnqueuedBuffer taken, table_.Take(id_));
  EXPECT_TRUE(taken.taken);
  EXPECT_NE(taken.outcome, nullptr);
  EXPECT_THAT(table_.Get(id_), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(table_.SetReady(id_, buffer), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(table_.Get(id_), ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(account_.reserved_bytes(), 8);
}

TEST_F(BufferTableTest, ATakeIsUndoneBeforeAndAfterTheProducerHasEnded) {
  for (const bool ended : {false, true}) {
    const BufferId id{ended ? 8u : 9u, 0};
    const DeviceBufferRef buffer = Buffer(8);
    ASSERT_THAT(table_.Expect(id), IsOk());
    table_.SetEnqueued(id, buffer, std::make_shared<Outcome>());
    TESSERA_ASSERT_OK_AND_ASSIGN(BufferTable::EnqueuedBuffer taken, table_.Take(id));
    if (ended) {
      EXPECT_THAT(table_.SetReady(id, buffer), ReasonIs("ARRAY_DELETED"));
    }
    table_.UndoTake(id, std::move(taken));
    if (!ended) {
      EXPECT_THAT(table_.SetReady(id, buffer), IsOk());
    }
    EXPECT_THAT(table_.Get(id), IsOk());
  }
}

TEST_F(BufferTableTest, ABufferWithWaitersIsNotTaken) {
  ASSERT_THAT(table_.Expect(id_), IsOk());
  DeviceBufferRef waited;
  table_.WhenReady(id_, [&](absl::StatusOr<DeviceBufferRef> b) { waited = *std::move(b); });
  table_.SetEnqueued(id_, Buffer(8), std::make_shared<Outcome>());
  EXPECT_FALSE(table_.Take(id_)->taken);
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  EXPECT_NE(waited, nullptr);
}

TEST_F(BufferTableTest, ATakenBufferWhoseProducerFailsHoldsNoMemoryOnceItIsDropped) {
  ASSERT_THAT(table_.Expect(id_), IsOk());
  table_.SetEnqueued(id_, Buffer(8), std::make_shared<Outcome>());
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const BufferTable::EnqueuedBuffer taken, table_.Take(id_));
    table_.SetFailed(id_, MakeError(ErrorKind::kPeerFailed, "lost"));
    EXPECT_EQ(account_.reserved_bytes(), 8);
  }
  EXPECT_THAT(table_.SetReady(id_, Buffer(8)), ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(account_.reserved_bytes(), 0);
}

TEST_F(BufferTableTest, ACancelledWaitLeavesNoEntry) {
  const uint64_t waiter_id =
      table_.WhenReady(id_, [](const absl::StatusOr<DeviceBufferRef>&) { FAIL(); });
  EXPECT_TRUE(table_.CancelWait(id_, waiter_id));
  EXPECT_FALSE(table_.CancelWait(id_, waiter_id));
  EXPECT_EQ(table_.num_buffers(), 0);
  EXPECT_THAT(table_.Get(id_), ReasonIs("ARRAY_NOT_FOUND"));
}

TEST_F(BufferTableTest, ASecondSetReadyIsRefused) {
  ASSERT_THAT(table_.SetReady(id_, Buffer(8)), IsOk());
  EXPECT_THAT(table_.SetReady(id_, Buffer(8)), ReasonIs("INTERNAL", "written twice"));
  EXPECT_THAT(table_.Expect(id_), ReasonIs("INTERNAL", "made twice"));
  EXPECT_EQ(account_.reserved_bytes(), 8);
}

}  // namespace
}  // namespace tessera::worker
