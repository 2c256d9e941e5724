// Proves that the flight recorder keeps the newest entries, that threads and processes read whole
// entries, and that a process that dies writes its entries out. The death tests run in child
// processes.
#include "base/flight_recorder.h"

#include <signal.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(FlightRecorder, FormatsWhatWasRecorded) {
  FlightRecorder recorder;
  EXPECT_EQ(recorder.Format(10), "");
  recorder.Record(FlightKind::kEvent, "Execute", 7, 0, 12);
  recorder.Record(FlightKind::kLog, "two\nlines \xe2\x82\xac");
  recorder.Record(FlightKind::kEffect, std::string(1000, 'x'), 1, 2, 3, ~uint64_t{0});
  const std::vector<std::string> lines = Lines(recorder.Format(10));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0],
              ContainsRegex("^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-9]{2}:[0-9]{2}:[0-9]{2}\\."
                            "[0-9]{6}Z [0-9]+ event: Execute request=7 operation=12$"));
  EXPECT_THAT(lines[1], ContainsRegex(" log: two.lines ...$"));
  EXPECT_THAT(lines[2], ContainsRegex(absl::StrCat(
                            " effect: x{", FlightRecorder::kTextMax,
                            "} request=1 session=2 operation=3 executor=18446744073709551615$")));
}

TEST(FlightRecorder, KeepsTheNewestEntriesAndRareKindsMuchLonger) {
  FlightRecorder recorder;
  recorder.Record(FlightKind::kWorkerStream, "w0 has registered", 5);
  for (uint64_t i = 1; i <= 100'000; ++i) recorder.Record(FlightKind::kCommit, "", i);
  const std::vector<std::string> lines = Lines(recorder.Format(1'000'000));
  EXPECT_EQ(lines.size(), 12'288u + 1);
  EXPECT_THAT(lines.front(), HasSubstr("w0 has registered session=5"));
  EXPECT_THAT(lines[1], HasSubstr(absl::StrCat("commit commit=", 100'000 - 12'287)));
  EXPECT_THAT(lines.back(), HasSubstr("commit commit=100000"));
  const std::vector<std::string> newest = Lines(recorder.Format(2));
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_THAT(newest[0], HasSubstr("commit=99999"));
}

TEST(FlightRecorder, CanBeMappedThroughItsDescriptor) {
  FlightRecorder recorder;
  auto mapped = FlightRecorder::Map(recorder.fd());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  (*mapped)->Record(FlightKind::kRunBegin, "", 3);
  EXPECT_THAT(recorder.Format(10), HasSubstr("run operation=3"));
  EXPECT_FALSE(FlightRecorder::Map(0).ok());
}

// Four threads write entries that are all different. Each line that is read must be one whole
// entry.
TEST(FlightRecorder, ThreadsDoNotTearEntries) {
  FlightRecorder recorder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder, t] {
      const std::string text(40, static_cast<char>('a' + t));
      for (int i = 0; i < 50'000; ++i) recorder.Record(FlightKind::kCommit, text, 1 + t);
    });
  }
  int read = 0;
  for (int round = 0; round < 20; ++round) {
    for (const std::string& line : Lines(recorder.Format(1000))) {
      ++read;
      EXPECT_THAT(line, ContainsRegex("commit: (a{40} commit=1|b{40} commit=2|c{40} commit=3|"
                                      "d{40} commit=4)$"));
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(Lines(recorder.Format(1000)).size(), 900u) << read;
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(FlightRecorderDeathTest, IsWrittenWhenACheckFails) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string path = ::testing::TempDir() + "/flight_of_a_check.txt";
  std::remove(path.c_str());
  const auto die = [&path] {
    SetFlightRecorder(new FlightRecorder);
    WriteFlightOnSignals(path);
    RecordFlight(FlightKind::kCommit, "the last one", 41);
    raise(SIGUSR2);  // does not end the process
    TESSERA_CHECK(false) << "on purpose";
  };
  EXPECT_EXIT(die(), ::testing::KilledBySignal(SIGABRT), "on purpose");
  EXPECT_THAT(ReadAll(path),
              ContainsRegex("^flight recorder of process [0-9]+, which got signal 6\n"
                            ".* commit: the last one commit=41\n"));
  const auto die_without_a_file = [] {
    SetFlightRecorder(new FlightRecorder);
    WriteFlightOnSignals("");
    RecordFlight(FlightKind::kCommit, "the last one", 42);
    std::abort();
  };
  EXPECT_EXIT(die_without_a_file(), ::testing::KilledBySignal(SIGABRT),
              "got signal 6\n.*the last one commit=42");
}

}  // namespace
}  // namespace tessera
