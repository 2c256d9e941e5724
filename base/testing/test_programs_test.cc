// Proves the behaviour of the programs that start tests: tessera_timed, and the main() of the
// executables that hold the tests of a folder. The tests run them as commands of the shell.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct CommandResult {
  int status = -1;  // status in the form that wait() gives
  std::string output;
};

// Runs a command of the shell. The output is that of standard output and standard error together.
CommandResult RunInShell(const std::string& command) {
  CommandResult result;
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  result.status = pclose(pipe);
  return result;
}

int ExitCode(const CommandResult& result) {
  return WIFEXITED(result.status) ? WEXITSTATUS(result.status) : -1;
}

class TimedTest : public ::testing::Test {
 protected:
  ~TimedTest() override { std::remove(file_.c_str()); }

  CommandResult RunTimed(const std::string& command) {
    return RunInShell(
        absl::StrCat("TESSERA_TEST_TIMES=", file_, " ", SourcePath(TESSERA_TIMED), " ", command));
  }
  // Returns the lines that were written, each split into its fields.
  std::vector<std::vector<std::string>> Lines() const {
    std::ifstream in(file_);
    std::vector<std::vector<std::string>> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(absl::StrSplit(line, '\t'));
    return lines;
  }

  const std::string file_ = absl::StrCat(::testing::TempDir(), "/test_times_", getpid());
};

TEST_F(TimedTest, EachCommandAddsALineWithItsNameAndResult) {
  EXPECT_EQ(ExitCode(RunTimed("first sh -c 'echo $0 $1' a b")), 0);
  EXPECT_EQ(ExitCode(RunTimed("second sh -c 'exit 7'")), 7);
  EXPECT_EQ(ExitCode(RunTimed("third /no/such/program")), 127);
  const auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(3));
  for (const auto& line : lines) ASSERT_THAT(line, SizeIs(4));
  EXPECT_THAT((std::vector{lines[0][0], lines[1][0], lines[2][0]}),
              ElementsAre("first", "second", "third"));
  EXPECT_THAT((std::vector{lines[0][3], lines[1][3], lines[2][3]}), ElementsAre("0", "7", "127"));
}

TEST_F(TimedTest, ArgumentsAndOutputPassUnchanged) {
  EXPECT_EQ(RunTimed("name sh -c 'echo \"$1|$2\"' x 'a b' c").output, "a b|c\n");
}

TEST_F(TimedTest, ProcessorTimeCountsTheCommandsOfTheCommand) {
  // The inner shell does the work, and the outer one waits for it.
  RunTimed("busy sh -c 'sh -c \"i=0; while [ \\$i -lt 200000 ]; do i=\\$((i+1)); done\"; true'");
  const auto lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  double cpu = 0, elapsed = 0;
  ASSERT_TRUE(absl::SimpleAtod(lines[0][1], &cpu) && absl::SimpleAtod(lines[0][2], &elapsed));
  EXPECT_GT(cpu, 0.01);
  EXPECT_GE(elapsed, 0.8 * cpu);  // The two shells do not run in parallel.
}

TEST_F(TimedTest, ASignalThatEndsTheCommandAlsoEndsTesseraTimed) {
  const CommandResult result =
      RunInShell(absl::StrCat("TESSERA_TEST_TIMES=", file_, " exec ", SourcePath(TESSERA_TIMED),
                              " name sh -c 'kill -TERM $$'"));
  ASSERT_TRUE(WIFSIGNALED(result.status)) << result.status << result.output;
  EXPECT_EQ(WTERMSIG(result.status), SIGTERM);
  EXPECT_EQ(Lines().at(0).at(3), "143");
}

TEST_F(TimedTest, WithoutAFileNothingIsWritten) {
  EXPECT_EQ(ExitCode(RunInShell(
                absl::StrCat("TESSERA_TEST_TIMES= ", SourcePath(TESSERA_TIMED), " name true"))),
            0);
  EXPECT_THAT(Lines(), IsEmpty());
}

CommandResult RunBaseTests(const std::string& options) {
  return RunInShell(absl::StrCat(SourcePath(BASE_TESTS), " ", options));
}

TEST(TestMain, RunsTheTestsOfTheNamedSourcesOnly) {
  const CommandResult one = RunBaseTests("--sources=base/hex_test.cc --gtest_list_tests");
  EXPECT_EQ(ExitCode(one), 0);
  EXPECT_THAT(one.output, HasSubstr("BytesFromHex.\n  TwoDigitsAreAByte\n"));
  EXPECT_THAT(one.output, Not(HasSubstr("Site")));
  const CommandResult two =
      RunBaseTests("--sources=base/hex_test.cc,base/site_test.cc --gtest_list_tests");
  EXPECT_THAT(two.output, HasSubstr("BytesFromHex.\n"));
  EXPECT_THAT(two.output, HasSubstr("Site"));
  EXPECT_EQ(ExitCode(RunBaseTests("--sources=base/hex_test.cc")), 0);
}

TEST(TestMain, AFilterChoosesAmongTheTestsOfTheSources) {
  EXPECT_EQ(
      RunBaseTests("--sources=base/hex_test.cc --gtest_filter=*Byte --gtest_list_tests").output,
      "BytesFromHex.\n  TwoDigitsAreAByte\n");
  EXPECT_EQ(
      RunBaseTests("--sources=base/hex_test.cc --gtest_filter=-*AByt? --gtest_list_tests").output,
      "BytesFromHex.\n  OtherTextsAreRefused\n");
}

// TestMain.SkippedTestsAreNotPassed runs these two in a process of its own.
TEST(TestMainCase, DISABLED_IsSkipped) { GTEST_SKIP() << "this test always skips"; }
TEST(TestMainCase, DISABLED_Passes) {}

TEST(TestMain, SkippedTestsAreNotPassed) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const auto exit_code_of = [&](const std::string& filter) {
    return ExitCode(
        RunInShell(absl::StrCat(self, " --gtest_also_run_disabled_tests --gtest_filter=", filter)));
  };
  EXPECT_EQ(exit_code_of("TestMainCase.DISABLED_IsSkipped"), 77);
  EXPECT_EQ(exit_code_of("TestMainCase.DISABLED_Passes"), 0);
  EXPECT_EQ(exit_code_of("TestMainCase.*"), 0);
}

TEST(TestMain, SourcesWithoutATestAreAnError) {
  const CommandResult result = RunBaseTests("--sources=hex_test.c");
  EXPECT_EQ(ExitCode(result), 1);
  EXPECT_THAT(result.output, HasSubstr("no test of hex_test.c matches"));
  // A source must name a whole file, not only the end of a file's name.
  EXPECT_EQ(ExitCode(RunBaseTests("--sources=ex_test.cc")), 1);
}

}  // namespace
}  // namespace tessera
