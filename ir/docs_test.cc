// Proves that docs/programs.md lists every op of the table with its operands, that the programs
// shown on the page parse, and that an unknown op name yields suggestions. `--rewrite` regenerates
// the list.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/op_def.h"
#include "ir/op_usage.h"
#include "ir/registry.h"
#include "ir/text.h"

namespace tessera::ir {
namespace {

using ::testing::HasSubstr;

constexpr char kPage[] = "docs/programs.md";
constexpr absl::string_view kList = "## Every op\n\n";

std::string Page() {
  std::ifstream file(SourcePath(kPage));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Docs, EveryOpIsDescribed) {
  ASSERT_EQ(OpUsages().size(), AllOps().size());
  for (size_t i = 0; i < AllOps().size(); ++i) {
    const OpDef& op = *AllOps()[i];
    const OpUsage& usage = OpUsages()[i];
    ASSERT_EQ(usage.name, op.name) << "ir/op_usage.def has the order of ir/ops.def";
    EXPECT_FALSE(usage.summary.empty()) << op.name;
    if (op.num_operands == kAnyNumber) {
      EXPECT_THAT(std::string(usage.operands), HasSubstr("...")) << op.name;
    } else {
      const std::vector<std::string> operands =
          absl::StrSplit(ToAbsl(usage.operands), ", ", absl::SkipEmpty());
      EXPECT_EQ(static_cast<int>(operands.size()), op.num_operands) << op.name;
    }
  }
}

TEST(Docs, ProgramsPageListsTheTable) {
  const std::string page = Page();
  const size_t list = page.find(kList.data());
  ASSERT_NE(list, std::string::npos) << kPage << " has no list of ops";
  ExpectFileHolds(kPage, page.substr(0, list + kList.size()) + OpsMarkdown());
}

TEST(Docs, ProgramsOnThePageAreRead) {
  const std::vector<std::string> parts = absl::StrSplit(Page(), "```tessera\n");
  ASSERT_GT(parts.size(), 5u);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string text = parts[i].substr(0, parts[i].find("```"));
    EXPECT_TRUE(ParseProgram(text).ok()) << ParseProgram(text).status() << "\n" << text;
  }
}

TEST(Docs, AnUnknownOpYieldsSuggestions) {
  EXPECT_EQ(SuggestOps("exp"), "; did you mean exponential? docs/programs.md lists the ops");
  EXPECT_EQ(SuggestOps("mul"), "; did you mean multiply? docs/programs.md lists the ops");
  EXPECT_EQ(SuggestOps("ad"), "; did you mean add or and or pad? docs/programs.md lists the ops");
  EXPECT_EQ(SuggestOps("expon"),
            "; did you mean exponential or exponential_minus_one? docs/programs.md lists the ops");
  EXPECT_THAT(SuggestOps("sum"), HasSubstr("reduce_sum"));
  EXPECT_EQ(SuggestOps("fourier"), "; docs/programs.md lists the ops");
}

}  // namespace
}  // namespace tessera::ir
