// Proves that reports are sent in order and again until they are acknowledged, that answers are
// sent once, and which details are lost at the bounds. The tests use the journal without streams.
#include "worker/rpc/report_journal.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::rpc {
namespace {

using ::testing::ElementsAre;

v1::Envelope Report(v1::MessageKind kind, uint64_t launch = 0, std::string body = "") {
  v1::Envelope report;
  report.set_kind(kind);
  report.set_launch(launch);
  report.set_body(std::move(body));
  return report;
}
v1::Envelope Failed(uint64_t launch) { return Report(v1::MESSAGE_KIND_LAUNCH_FAILED, launch); }
v1::Envelope Written() { return Report(v1::MESSAGE_KIND_BUFFER_WRITTEN); }
v1::Envelope Answer() { return Report(v1::MESSAGE_KIND_BUFFER_READ, 0, "a value"); }
// A LaunchDone with a value of `value` bytes.
v1::Envelope Done(uint64_t launch, size_t value) {
  v1::LaunchDone done;
  done.mutable_run_time()->set_seconds(5);
  if (value > 0) done.add_inline_results()->mutable_value()->set_data(std::string(value, 'x'));
  return Report(v1::MESSAGE_KIND_LAUNCH_DONE, launch, done.SerializeAsString());
}
// The numbers of the reports that are sent now.
std::vector<uint64_t> SendAll(ReportJournal& journal) {
  std::vector<uint64_t> numbers;
  while (const auto report = journal.Next()) numbers.push_back(report->report());
  return numbers;
}

TEST(ReportJournalTest, UnacknowledgedReportsAreSentAgainInOrder) {
  ReportJournal journal;
  for (uint64_t launch = 1; launch <= 3; ++launch) journal.Add(Failed(launch));
  EXPECT_THAT(SendAll(journal), ElementsAre(1, 2, 3));
  EXPECT_THAT(SendAll(journal), ElementsAre());
  journal.Acknowledge(1);
  journal.Add(Failed(4));
  EXPECT_THAT(SendAll(journal), ElementsAre(4));
  journal.Rewind();
  journal.Add(Failed(5));
  EXPECT_THAT(journal.EndedOperations(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(SendAll(journal), ElementsAre(2, 3, 4, 5));
  journal.Acknowledge(5);
  journal.Rewind();
  EXPECT_THAT(SendAll(journal), ElementsAre());
  EXPECT_EQ(journal.size(), 0);
  EXPECT_EQ(journal.bytes(), 0);
  journal.Add(Written());
  EXPECT_THAT(SendAll(journal), ElementsAre(6));
}

TEST(ReportJournalTest, UnsentReportsAreNotAcknowledged) {
  ReportJournal journal;
  journal.Add(Failed(1));
  journal.Add(Failed(2));
  ASSERT_TRUE(journal.Next());
  journal.Acknowledge(7);
  journal.Rewind();
  EXPECT_THAT(SendAll(journal), ElementsAre(2));
}

TEST(ReportJournalTest, AnswersAreSentOnceAndInOrder) {
  ReportJournal journal;
  journal.Add(Failed(1));
  journal.Add(Answer());
  journal.Add(Failed(2));
  EXPECT_THAT(SendAll(journal), ElementsAre(1, 0, 2));
  journal.Add(Answer());
  journal.Rewind();
  EXPECT_THAT(SendAll(journal), ElementsAre(1, 2));
  journal.Acknowledge(1);
  journal.Acknowledge(2);
  journal.Add(Answer());
  EXPECT_EQ(journal.Next()->body(), "a value");
  EXPECT_EQ(journal.size(), 0);
}

TEST(ReportJournalTest, InlineResultsAreDroppedAtTheBoundOfBytes) {
  ReportJournal journal({.reports = 100, .bytes = 2'500});
  for (uint64_t launch = 1; launch <= 3; ++launch) journal.Add(Done(launch, 1'000));
  EXPECT_LE(journal.bytes(), 2'500);
  EXPECT_THAT(journal.EndedOperations(), ElementsAre(1, 2, 3));
  for (uint64_t launch = 1; launch <= 3; ++launch) {
    const auto report = journal.Next();
    ASSERT_TRUE(report);
    EXPECT_EQ(report->launch(), launch);
    v1::LaunchDone done;
    ASSERT_TRUE(done.ParseFromString(report->body()));
    EXPECT_EQ(done.run_time().seconds(), 5);
    EXPECT_EQ(done.inline_results_size(), launch == 1 ? 0 : 1) << launch;
  }
}

TEST(ReportJournalTest, ReportsThatAnInventoryRepeatsAreDroppedAtTheBoundOfReports) {
  ReportJournal journal({.reports = 3, .bytes = 1 << 20});
  journal.Add(Written());
  journal.Add(Failed(1));
  journal.Add(Written());
  journal.Add(Written());
  EXPECT_THAT(SendAll(journal), ElementsAre(2, 3, 4));
  // Reports that were sent count among the oldest, too.
  journal.Add(Failed(2));
  journal.Add(Failed(3));
  journal.Rewind();
  EXPECT_THAT(SendAll(journal), ElementsAre(2, 5, 6));
  for (uint64_t launch = 4; launch <= 9; ++launch) journal.Add(Failed(launch));
  EXPECT_EQ(journal.EndedOperations().size(), 9u) << "ends stay";
  journal.Acknowledge(6);
  EXPECT_THAT(journal.EndedOperations(), ElementsAre(4, 5, 6, 7, 8, 9));
}

}  // namespace
}  // namespace tessera::worker::rpc
