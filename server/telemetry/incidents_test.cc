// Proves that many incidents of one kind use up only the budget of log lines of that kind, and that
// the lines left out are counted. The test logs to a file and reads it back.
#include "server/telemetry/incidents.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/testing/status_matchers.h"

namespace tessera::server::telemetry {
namespace {

TEST(Incidents, IncidentsBeyondTheRateAreCountedButNotLogged) {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-log-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  LogOptions options;
  options.file = folder + "/log";
  TESSERA_ASSERT_OK(StartLogging(options));
  Incidents incidents;
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 1000; ++i)
    incidents.Log({"operation failed", {{"operation", absl::StrCat(i)}}}, now);
  incidents.Log({"worker lost", {{"worker", "w0"}, {"why", "it was silent"}}}, now);
  incidents.Log({"operation failed", {{"operation", "1000"}}}, now + absl::Seconds(2));
  StopLogging();
  std::ifstream in(options.file);
  std::stringstream text;
  text << in.rdbuf();
  const std::vector<std::string> lines = absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  std::filesystem::remove_all(folder);
  ASSERT_EQ(lines.size(), size_t{Incidents::kLinesPerSecond} + 2);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("operation=0"));
  EXPECT_THAT(
      lines[Incidents::kLinesPerSecond],
      ::testing::AllOf(::testing::HasSubstr("worker lost"), ::testing::HasSubstr("worker=w0"),
                       ::testing::HasSubstr("it was silent")));
  EXPECT_THAT(lines.back(), ::testing::AllOf(::testing::HasSubstr("operation=1000"),
                                             ::testing::HasSubstr("not_logged_before=980")));
}

}  // namespace
}  // namespace tessera::server::telemetry
