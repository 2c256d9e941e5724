// Proves that uploads survive their streams, that only the last stream writes, and that idle
// streams, old uploads and deleted arrays give their memory back. The streams are fakes, and the
// executor has one CPU device.
#include "worker/runtime/upload_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "ir/api/crc32c.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::worker {
namespace {

using ir::Array;
using ir::DType;
using testing::Eventually;

constexpr int64_t kElements = 1000;
constexpr int64_t kBytes = 4 * kElements;

class FakeStream final : public UploadStream {
 public:
  void Cut(const absl::Status& why) override {
    absl::MutexLock lock(&mu_);
    why_ = why;
  }
  absl::Status why() {
    absl::MutexLock lock(&mu_);
    return why_;
  }

 private:
  absl::Mutex mu_;
  absl::Status why_;
};

class UploadTableTest : public ::testing::Test {
 protected:
  UploadTableTest()
      : executor_(
            [] {
              ExecutorOptions options;
              options.worker = "w0";
              return options;
            }(),
            MakeCpuBackend({.num_devices = 2, .memory_bytes = 1 << 20}), [](api::ReportBody) {}) {
    for (int64_t i = 0; i < kElements; ++i) value_.Set(i, static_cast<double>(i));
  }

  UploadTable& MakeTable(UploadTable::Options options = {}) {
    table_ = std::make_unique<UploadTable>(&executor_, options);
    return *table_;
  }
  static api::Ticket TicketFor(uint64_t array) {
    return {.access = api::Ticket::Access::kWrite,
            .incarnation = 1,
            .array = array,
            .device = 1,
            .dtype = DType::kF32,
            .shape = {kElements},
            .expires = absl::InfiniteFuture()};
  }
  absl::Status Append(const UploadTable::UploadWriter& writer, int64_t offset, int64_t size,
                      uint32_t crc_error = 0) {
    // The chunk is passed in two pieces, since gRPC may deliver it like that.
    const absl::string_view data(reinterpret_cast<const char*>(value_.data()) + offset,
                                 static_cast<size_t>(size));
    return table_->Append(writer, offset,
                          {data.substr(0, data.size() / 3), data.substr(data.size() / 3)},
                          api::Crc32c(0, data.data(), data.size()) + crc_error);
  }
  int64_t used() { return executor_.account(1).reserved_bytes(); }

  Array value_{DType::kF32, {kElements}};
  Executor executor_;
  std::unique_ptr<UploadTable> table_;
  std::shared_ptr<FakeStream> stream_ = std::make_shared<FakeStream>();
};

TEST_F(UploadTableTest, AnInterruptedUploadIsResumedAfterItsCommittedBytes) {
  UploadTable& table = MakeTable();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, table.Open(TicketFor(1), 0, stream_));
  ASSERT_THAT(Append(first, 0, 1024), IsOk());
  table.Leave(first);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto progress, table.ProgressOf(TicketFor(1)));
  EXPECT_EQ(progress.committed_bytes, 1024);
  EXPECT_FALSE(progress.complete);
  EXPECT_EQ(used(), kBytes) << "an interrupted upload holds its memory";

  TESSERA_ASSERT_OK_AND_ASSIGN(const auto second, table.Open(TicketFor(1), 1024, stream_));
  ASSERT_THAT(Append(second, 1024, kBytes - 1024), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto committed, table.Commit(second));
  EXPECT_EQ(committed.bytes, kBytes);
  EXPECT_EQ(committed.crc32c, api::Crc32c(0, value_.data(), kBytes));
  table.Leave(second);
  TESSERA_ASSERT_OK_AND_ASSIGN(progress, table.ProgressOf(TicketFor(1)));
  EXPECT_TRUE(progress.complete);
  EXPECT_EQ(table.counts().resumed, 1);
  EXPECT_THAT(table.Open(TicketFor(1), 0, stream_), ReasonIs("VALUE_ERROR", "written already"));
}

TEST_F(UploadTableTest, ALaterStreamTakesOverFromAnEarlierOffset) {
  UploadTable& table = MakeTable();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, table.Open(TicketFor(1), 0, stream_));
  ASSERT_THAT(Append(first, 0, 3000), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto second, table.Open(TicketFor(1), 1000, stream_));
  EXPECT_THAT(Append(first, 3000, 1000), ReasonIs("CANCELLED", "another stream"));
  EXPECT_THAT(table.Commit(first), ReasonIs("CANCELLED"));
  table.Leave(first);
  ASSERT_THAT(Append(second, 1000, 3000), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto committed, table.Commit(second));
  EXPECT_EQ(committed.crc32c, api::Crc32c(0, value_.data(), kBytes));
}

TEST_F(UploadTableTest, InvalidChunksAreRefusedAndCommittedBytesStay) {
  UploadTable& table = MakeTable();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto writer, table.Open(TicketFor(1), 0, stream_));
  ASSERT_THAT(Append(writer, 0, 1000), IsOk());
  EXPECT_THAT(Append(writer, 1000, 1000, /*crc_error=*/1),
              ReasonIs("CHECKSUM_MISMATCH", "from 1000"));
  EXPECT_THAT(Append(writer, 1500, 100), ReasonIs("VALUE_ERROR", "expected offset 1000 of 4000"));
  const std::string large(kBytes, 'x');
  EXPECT_THAT(table.Append(writer, 1000, {large}, api::Crc32c(0, large.data(), large.size())),
              ReasonIs("VALUE_ERROR", "4000 bytes at offset 1000"));
  EXPECT_THAT(table.Commit(writer), ReasonIs("VALUE_ERROR", "ended after 1000 bytes of 4000"));
  EXPECT_THAT(Append(writer, 1000, 3000), IsOk());
  EXPECT_EQ(table.counts().corrupt, 1);
  EXPECT_THAT(table.Open(TicketFor(2), 8, stream_),
              ReasonIs("VALUE_ERROR", "cannot go on at byte 8"));
}

TEST_F(UploadTableTest, DeletingTheArrayEndsItsUpload) {
  UploadTable& table = MakeTable();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto writer, table.Open(TicketFor(1), 0, stream_));
  ASSERT_THAT(Append(writer, 0, 1000), IsOk());
  executor_.Send(api::DeleteBuffers{{1}});
  EXPECT_TRUE(Eventually([&] { return used() == 0; }));
  EXPECT_THAT(Append(writer, 1000, 3000), ReasonIs("ARRAY_DELETED"));
  table.Leave(writer);
  EXPECT_THAT(table.Open(TicketFor(1), 0, stream_), ReasonIs("ARRAY_DELETED"));
  EXPECT_THAT(table.ProgressOf(TicketFor(1)), ReasonIs("ARRAY_DELETED"));
}

constexpr absl::Duration kNever = absl::Hours(1);

TEST_F(UploadTableTest, AnIdleStreamIsCut) {
  UploadTable& table =
      MakeTable({.idle_timeout = absl::Milliseconds(50), .resume_timeout = kNever});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto writer, table.Open(TicketFor(1), 0, stream_));
  ASSERT_TRUE(Eventually([&] { return !stream_->why().ok(); }));
  EXPECT_THAT(stream_->why(), ReasonIs("DEADLINE_EXCEEDED", "no bytes for 50ms"));
  EXPECT_THAT(Append(writer, 0, 1000), ReasonIs("CANCELLED"));
  EXPECT_EQ(used(), kBytes) << "another stream may resume the upload";
  EXPECT_EQ(table.counts().idle_cut, 1);
  EXPECT_EQ(table.counts().dropped, 0);
  table.Leave(writer);
  // The stream that resumes is cut, too, although the sweep had nothing else due for an hour.
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto next, table.Open(TicketFor(1), 0, stream_));
  EXPECT_TRUE(Eventually([&] { return table.counts().idle_cut == 2; }));
  table.Leave(next);
}

TEST_F(UploadTableTest, AnUploadThatIsNotResumedIsDropped) {
  UploadTable& table =
      MakeTable({.idle_timeout = kNever, .resume_timeout = absl::Milliseconds(50)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto writer, table.Open(TicketFor(1), 0, stream_));
  ASSERT_THAT(Append(writer, 0, 1000), IsOk());
  table.Leave(writer);
  EXPECT_TRUE(Eventually([&] { return table.counts().dropped == 1; }));
  EXPECT_EQ(table.counts().idle_cut, 0);
  EXPECT_EQ(used(), 0);
  // The upload starts again from the first byte.
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto progress, table.ProgressOf(TicketFor(1)));
  EXPECT_EQ(progress.committed_bytes, 0);
  EXPECT_TRUE(Eventually([&] { return table.Open(TicketFor(1), 0, stream_).ok(); }));
}

TEST_F(UploadTableTest, TheUploadOfAnIdleStreamIsDropped) {
  UploadTable& table =
      MakeTable({.idle_timeout = absl::Milliseconds(50), .resume_timeout = absl::Milliseconds(50)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto writer, table.Open(TicketFor(1), 0, stream_));
  EXPECT_TRUE(Eventually([&] { return table.counts().dropped == 1; }));
  EXPECT_EQ(table.counts().idle_cut, 1);
  EXPECT_EQ(used(), 0);
  table.Leave(writer);
}

TEST_F(UploadTableTest, AFullDeviceRefusesAnUpload) {
  UploadTable& table = MakeTable();
  api::Ticket large = TicketFor(1);
  large.shape = {1 << 20};
  EXPECT_THAT(table.Open(large, 0, stream_), ReasonIs("OUT_OF_MEMORY", "array 1 needs 4.0 MiB"));
}

}  // namespace
}  // namespace tessera::worker
