// Proves how a command line is parsed: values of every type, global options on either side, help
// and version, and the errors with their exit code. Parses with a small command table of its own.
#include "client/cli/parse.h"

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Nothing(Context&, const Arguments&) { return absl::OkStatus(); }

// Returns a command table with every type of option, and with commands of one and of two words.
const std::vector<Command>& TestCommands() {
  static const auto* const table = new std::vector<Command>{
      {.name = "copy",
       .group = "Things",
       .summary = "Copies.",
       .options =
           {{.name = "FROM", .help = "Which.", .positional = true, .required = true},
            {.name = "TO", .type = OptionType::kTexts, .help = "Where to.", .positional = true},
            {.name = "tag",
             .short_name = 't',
             .type = OptionType::kTexts,
             .value_name = "TAG",
             .help = "A tag."},
            {.name = "times",
             .type = OptionType::kInt,
             .value_name = "N",
             .help = "How often.",
             .default_value = "1"},
            {.name = "every",
             .type = OptionType::kDuration,
             .value_name = "DURATION",
             .help = "How often."},
            {.name = "kind", .value_name = "KIND", .help = "Of what.", .choices = {"a", "b"}},
            {.name = "force", .short_name = 'f', .type = OptionType::kFlag, .help = "Really."}},
       .run = Nothing},
      {.name = "thing make", .group = "Things", .summary = "Makes one.", .run = Nothing},
      {.name = "thing drop", .group = "Things", .summary = "Drops one.", .run = Nothing},
  };
  return *table;
}

absl::StatusOr<ParsedCommandLine> Parse(const std::vector<std::string>& args) {
  return ParseCommandLine(TestCommands(), args);
}

TEST(ParseCommandLine, ReturnsTheValuesOfEveryOptionType) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine p,
                               Parse({"copy", "x", "y", "z", "-t", "1", "--tag=2", "--times", "7",
                                      "--every", "1500ms", "--kind=b", "-f"}));
  ASSERT_NE(p.command, nullptr);
  EXPECT_EQ(p.command->name, "copy");
  EXPECT_EQ(p.arguments.Text("FROM"), "x");
  EXPECT_THAT(p.arguments.Texts("TO"), ElementsAre("y", "z"));
  EXPECT_THAT(p.arguments.Texts("tag"), ElementsAre("1", "2"));
  EXPECT_EQ(p.arguments.Int("times"), 7);
  EXPECT_EQ(p.arguments.Duration("every"), absl::Milliseconds(1500));
  EXPECT_EQ(p.arguments.Text("kind"), "b");
  EXPECT_TRUE(p.arguments.Flag("force"));
}

TEST(ParseCommandLine, AbsentOptionsHaveTheirDefaultOrAreEmpty) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine p, Parse({"copy", "x"}));
  EXPECT_EQ(p.arguments.Int("times"), 1);
  EXPECT_FALSE(p.arguments.Has("times"));
  EXPECT_FALSE(p.arguments.Flag("force"));
  EXPECT_THAT(p.arguments.Texts("TO"), ElementsAre());
  EXPECT_EQ(p.arguments.Text("kind"), "");
}

TEST(ParseCommandLine, GlobalOptionsMayStandBeforeOrAfterTheCommand) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ParsedCommandLine p,
      Parse({"--address", "a:1", "--json", "thing", "make", "--address", "b:2"}));
  EXPECT_EQ(p.command->name, "thing make");
  EXPECT_EQ(p.globals.Text("address"), "b:2");
  EXPECT_TRUE(p.globals.Flag("json"));
  EXPECT_FALSE(p.globals.Has("timeout"));
}

TEST(ParseCommandLine, NegativeNumbersAndDashesAreValues) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine p, Parse({"copy", "-", "--tag=-3"}));
  EXPECT_EQ(p.arguments.Text("FROM"), "-");
  EXPECT_THAT(p.arguments.Texts("tag"), ElementsAre("-3"));
}

TEST(ParseCommandLine, ValuesMayEqualNamesOfCommands) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine p,
                               Parse({"copy", "thing", "copy", "--tag", "thing"}));
  EXPECT_EQ(p.arguments.Text("FROM"), "thing");
  EXPECT_THAT(p.arguments.Texts("TO"), ElementsAre("copy"));
  EXPECT_THAT(p.arguments.Texts("tag"), ElementsAre("thing"));
}

// Each row is a wrong command line and a part of the error that it must produce.
TEST(ParseCommandLine, ErrorsSayWhatWasExpectedAndExitWithUsage) {
  const struct {
    std::vector<std::string> args;
    const char* said;
  } rows[] = {
      {{"copy"}, "FROM is required"},
      {{"copy", "x", "--times", "-1"}, "-1 is not a number"},
      {{"copy", "x", "--every", "soon"}, "soon is not a duration; 500ms"},
      {{"copy", "x", "--kind", "c"}, "c is not one of a, b"},
      {{"copy", "--nothing"}, "there is no option --nothing. tessera copy --help"},
      {{"copy", "--times", "2"}, "FROM is required"},
      {{"help", "cpy"}, "there is no command cpy; did you mean copy? tessera --help"},
      {{"help", "thing"}, "thing: which? thing make, thing drop"},
      {{"copy", "x", "--nothing"}, "there is no option --nothing. tessera copy --help"},
      {{"copy", "x", "--tmies", "2"}, "there is no option --tmies; did you mean --times? tessera"},
      {{"copy", "--adress=a:1", "x"}, "there is no option --adress; did you mean --address?"},
      {{"thing", "make", "x", "y"}, "'x' is one argument too many"},
      {{"cpy"}, "there is no command cpy; did you mean copy?"},
      {{"elephant"}, "there is no command elephant. tessera --help"},
      {{"thing"}, "which? thing make, thing drop"},
      {{"thing", "break"}, "break"},
      {{"--json"}, "no command was given"},
  };
  for (const auto& row : rows) {
    const absl::StatusOr<ParsedCommandLine> p = Parse(row.args);
    EXPECT_THAT(p, StatusIs(absl::StatusCode::kInvalidArgument, row.said));
    EXPECT_EQ(ExitCodeOf(p.status()), kExitUsage);
  }
}

TEST(ParseCommandLine, HelpIsPrintedEvenIfArgumentsAreMissing) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine all, Parse({"--help"}));
  EXPECT_EQ(all.command, nullptr);
  EXPECT_THAT(all.output, HasSubstr("make, drop"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine one, Parse({"copy", "--help"}));
  EXPECT_EQ(one.command, nullptr);
  EXPECT_THAT(one.output, HasSubstr("Usage: tessera copy [OPTIONS] FROM [TO...]"));
  EXPECT_THAT(one.output, HasSubstr("--times N=1"));
  EXPECT_THAT(one.output, HasSubstr("--kind {a,b}"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine none, Parse({}));
  EXPECT_EQ(none.output, all.output);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine help, Parse({"help"}));
  EXPECT_EQ(help.output, all.output);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine on_copy, Parse({"help", "copy"}));
  EXPECT_EQ(on_copy.output, one.output);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine on_two, Parse({"help", "thing", "make"}));
  EXPECT_THAT(on_two.output, HasSubstr("Usage: tessera thing make"));
}

TEST(ParseCommandLine, TheVersionNeedsNoCommand) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--version"}, {"copy", "--version"}, {"thing", "--version"}}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedCommandLine p, Parse(args));
    EXPECT_EQ(p.command, nullptr);
    EXPECT_THAT(p.output, HasSubstr("tessera "));
  }
}

TEST(ExitCodes, FollowTheStatus) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCodeOf(UsageError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitCodeOf(WithExitCode(absl::UnavailableError(""), 1)), 1);
}

}  // namespace
}  // namespace tessera::cli
