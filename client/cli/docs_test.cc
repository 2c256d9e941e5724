// Proves that docs/cli.md, the help and the shell completions agree with the command table, and
// that the rows of the table are well-formed. `--rewrite` writes the page anew.
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "client/cli/commands.h"
#include "client/cli/parse.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CliDocs, PageMatchesTheCommandTable) {
  const std::string page = CommandsMarkdown(Commands());
  ExpectFileHolds("docs/cli.md", page);
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(page, '\n'))) {
    EXPECT_LE(line.size(), 100u) << line;
  }
}

// Checks that no row has a name or a text that would break the parser, the help or a completion
// script.
TEST(CliDocs, RowsAreWellFormed) {
  std::set<std::string> names;
  for (const Command& c : Commands()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_NE(c.run, nullptr) << c.name;
    EXPECT_EQ(c.summary.back(), '.') << c.name;
    EXPECT_GT(c.timeout, absl::ZeroDuration()) << c.name;
    std::set<std::string> options;
    for (const Option& o : GlobalOptions()) options.insert(o.name);
    bool has_list = false;
    for (const Option& o : c.options) {
      EXPECT_TRUE(options.insert(o.name).second) << c.name << " " << o.name;
      EXPECT_EQ(o.help.back(), '.') << c.name << " " << o.name;
      EXPECT_TRUE(o.positional || o.type == OptionType::kFlag || !o.value_name.empty())
          << c.name << " " << o.name << ": what is its value called?";
      EXPECT_EQ(o.positional, absl::ascii_isupper(static_cast<unsigned char>(o.name[0])))
          << c.name << " " << o.name;
      if (o.positional) {
        EXPECT_FALSE(has_list) << c.name << ": nothing may follow " << o.name;
        has_list = o.type == OptionType::kTexts;
      }
    }
  }
}

TEST(CliDocs, CompletionsNameEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto offered = [&](const std::vector<std::string>& words) {
      return FormatCandidates(CandidatesFor(Commands(), words), shell);
    };
    for (const Command& c : Commands()) {
      std::vector<std::string> words;
      for (const std::string& word : std::vector<std::string>(absl::StrSplit(c.name, ' '))) {
        words.push_back(word.substr(0, 1));
        EXPECT_THAT(offered(words), HasSubstr(word)) << shell;
        words.back() = word;
      }
      words.push_back("--");
      for (const Option& o : c.options) {
        if (o.positional) continue;
        EXPECT_THAT(offered(words), HasSubstr("--" + o.name)) << shell << " " << c.name;
      }
      EXPECT_THAT(offered(words), HasSubstr("--address")) << shell << " " << c.name;
    }
  }
}

// The completion scripts make this call. The words behind "--" must arrive unchanged, even if they
// look like options.
TEST(CliDocs, CallsOfCompletionScriptsParse) {
  for (const char* word : {"", "--de", "run"}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(
        const ParsedCommandLine p,
        ParseCommandLine(Commands(), {"completion", "bash", "--", "-a", "x:1", "mesh", word}));
    ASSERT_NE(p.command, nullptr) << p.output;
    EXPECT_EQ(p.arguments.Text("SHELL"), "bash");
    EXPECT_THAT(p.arguments.Texts("WORD"), ElementsAre("-a", "x:1", "mesh", word));
  }
}

}  // namespace
}  // namespace tessera::cli
