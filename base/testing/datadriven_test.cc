// Proves how data files are parsed, compared and rewritten. The handler echoes the input or the
// arguments of a case; most texts are given in the test itself.
#include "base/testing/datadriven.h"

#include <string>

#include "base/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using internal::RunDataText;

std::string Echo(const DataCase& c) {
  if (c.command == "args") {
    std::string text;
    for (const std::string& name : c.arg_names) text += name + " is [" + c.Arg(name) + "]\n";
    return text;
  }
  return c.input;
}

TEST(DataDriven, GoldenFile) { RunDataFile("tests/golden/datadriven/echo.txt", Echo); }
TEST(DataDriven, GoldenFolder) { RunDataFolder("tests/golden/datadriven", Echo); }

TEST(DataDriven, ADifferenceNamesTheCaseAndTheRewriteMendsIt) {
  const std::string text = "# c\necho\na\n----\nb\n\necho\nx\n----\nx\n";
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto run, RunDataText("f.txt", text, Echo));
  ASSERT_EQ(run.differences.size(), 1u);
  EXPECT_EQ(run.differences[0].data_case.line, 2);
  EXPECT_EQ(run.differences[0].expected, "b\n");
  EXPECT_EQ(run.differences[0].actual, "a\n");
  EXPECT_EQ(run.rewritten, "# c\necho\na\n----\na\n\necho\nx\n----\nx\n");
}

TEST(DataDriven, OutputWithBlankLinesIsPutBetweenRules) {
  const std::string text = "echo\na\n\nb\n----\nold\n\nargs k=(1, 2)\n----\n";
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto run, RunDataText("f.txt", text, Echo));
  const std::string rewritten =
      "echo\na\n\nb\n----\n----\na\n\nb\n----\n----\n\nargs k=(1, 2)\n----\nk is [1, 2]\n";
  EXPECT_EQ(run.rewritten, rewritten);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto again, RunDataText("f.txt", rewritten, Echo));
  EXPECT_TRUE(again.differences.empty());
  EXPECT_EQ(again.rewritten, rewritten);
}

TEST(DataDriven, AnUnfinishedCaseIsAnError) {
  EXPECT_THAT(RunDataText("f.txt", "\necho\na\n", Echo),
              ReasonIs("VALUE_ERROR", "f.txt:2: no ----"));
  EXPECT_THAT(RunDataText("f.txt", "echo\n----\n----\na\n", Echo),
              ReasonIs("VALUE_ERROR", "closing pair"));
}

}  // namespace
}  // namespace tessera
