// Proves the form of log lines as text and as JSON, and the levels and their time limits. Each test
// logs to a temporary file and reads it back.
#include "base/log.h"

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs `f` while logging to a file and returns what was written.
template <typename F>
std::string Logged(LogLevel level, F f, LogFormat format = LogFormat::kText) {
  const std::string path = ::testing::TempDir() + "/tessera_log_test.txt";
  std::remove(path.c_str());
  EXPECT_TRUE(StartLogging({.level = level, .format = format, .file = path}).ok());
  f();
  StopLogging();
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Log, LinesCarryPlaceAndFields) {
  const std::string text = Logged(LogLevel::kInfo, [] {
    TESSERA_LOG(INFO) << "worker joined" << Field("worker", 7) << Field("host", "a b=\"c\"\n");
    TESSERA_VLOG << "not written";
  });
  EXPECT_THAT(text, HasSubstr(" I log_test.cc:"));
  EXPECT_THAT(text, HasSubstr(" worker joined worker=7 host=\"a b=\\\"c\\\"\\n\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("not written")));
}

TEST(Log, JsonLinesAreObjectsWithTheirFields) {
  const std::string text = Logged(
      LogLevel::kVlog,
      [] {
        TESSERA_LOG(INFO) << "worker \"w0\"\n\tjoined" << Field("session", uint64_t{1} << 40)
                          << Field("tenant", "a\\b") << Field("ok", true) << Field("msg", "mine")
                          << " late";
        TESSERA_VLOG << "bytes \xff\xc3\x28 and \xe2\x82\xac" << Field("empty", "");
      },
      LogFormat::kJson);
  EXPECT_THAT(
      text,
      ::testing::MatchesRegex(
          "\\{\"ts\":\"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z\","
          "\"level\":\"info\",\"msg\":\"worker \\\\\"w0\\\\\"\\\\n\\\\u0009joined late\","
          "\"site\":\"log_test.cc:[0-9]+\",\"session\":1099511627776,\"tenant\":\"a\\\\\\\\b\","
          "\"ok\":true,\"field_msg\":\"mine\"\\}\n"
          "\\{\"ts\":\"[^\"]*\",\"level\":\"vlog\",\"msg\":\"bytes \\\\ufffd\\\\ufffd\\( and "
          "\xe2\x82\xac\",\"site\":\"[^\"]*\",\"empty\":\"\"\\}\n"))
      << text;
}

TEST(Log, JsonStringsHoldNoBytesThatAreNotUtf8) {
  EXPECT_EQ(JsonString("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");  // a surrogate
  EXPECT_EQ(JsonString("\xc0\xaf"), "\"\\ufffd\\ufffd\"");             // overlong
  EXPECT_EQ(JsonString("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\"");
  EXPECT_EQ(JsonString(std::string_view("\0\x7f", 2)), "\"\\u0000\\u007f\"");
  EXPECT_EQ(JsonString("\xe2\x82"), "\"\\ufffd\\ufffd\"");  // cut off
}

TEST(Log, ALevelCanBeSetForATime) {
  const std::string text = Logged(LogLevel::kInfo, [] {
    SetLogLevel(LogLevel::kVlog);
    TESSERA_VLOG << "shown";
    EXPECT_EQ(CurrentLogLevel().reverts_in, absl::InfiniteDuration());
    SetLogLevel(LogLevel::kError, absl::Hours(1));
    TESSERA_LOG(WARNING) << "hidden";
    EXPECT_EQ(CurrentLogLevel().level, LogLevel::kError);
    EXPECT_LE(CurrentLogLevel().reverts_in, absl::Hours(1));
    EXPECT_GT(CurrentLogLevel().reverts_in, absl::Minutes(59));
    SetLogLevel(LogLevel::kError, absl::ZeroDuration());
    TESSERA_VLOG << "shown again";  // The level set without a time applies again.
    EXPECT_EQ(CurrentLogLevel().level, LogLevel::kVlog);
    SetLogLevel(LogLevel::kOff, absl::Nanoseconds(1));
    EXPECT_EQ(CurrentLogLevel().level, LogLevel::kVlog);
  });
  EXPECT_THAT(text,
              ::testing::ContainsRegex("shown\n.*log level is back level=vlog\n.*shown again\n"
                                       ".*log level is back level=vlog\n$"));
  EXPECT_THAT(text, Not(HasSubstr("hidden")));
}

TEST(Log, OperandsOfDisabledLinesAreNotEvaluated) {
  int evaluated = 0;
  TESSERA_LOG(ERROR) << ++evaluated;  // Logging has not been started.
  EXPECT_EQ(evaluated, 0);
  Logged(LogLevel::kWarning, [&] { TESSERA_LOG(INFO) << ++evaluated; });
  EXPECT_EQ(evaluated, 0);
  Logged(LogLevel::kWarning, [&] { TESSERA_LOG(ERROR) << ++evaluated; });
  EXPECT_EQ(evaluated, 1);
}

TEST(Log, AFullQueueDropsTheOldestLineAndNeverBlocks) {
  const std::string path = ::testing::TempDir() + "/tessera_log_drop_test.txt";
  std::remove(path.c_str());
  ASSERT_TRUE(StartLogging({.level = LogLevel::kInfo, .file = path, .queue_lines_max = 1}).ok());
  for (int i = 0; i < 2000; ++i) TESSERA_LOG(INFO) << "line " << i << ".";
  EXPECT_GE(LogLinesDropped(), 0);
  StopLogging();
  EXPECT_EQ(LogLinesDropped(), 0);
}

TEST(Log, ABadFileIsAnError) {
  const absl::Status status = StartLogging({.file = "/proc/no/such/file"});
  EXPECT_EQ(ReasonOf(status), "VALUE_ERROR");
}

TEST(Log, LevelsParse) {
  EXPECT_EQ(*ParseLogLevel("warning"), LogLevel::kWarning);
  EXPECT_THAT(std::string(ParseLogLevel("loud").status().message()), HasSubstr("got \"loud\""));
}

TEST(Log, FormatsParse) {
  EXPECT_EQ(*ParseLogFormat("json"), LogFormat::kJson);
  EXPECT_THAT(std::string(ParseLogFormat("xml").status().message()), HasSubstr("got \"xml\""));
}

}  // namespace
}  // namespace tessera
