// Proves how tables, progress lines and values look, and how JSON fields are read. All of these are
// functions of texts and a Display, so the tests need no terminal.
#include "client/cli/terminal.h"

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/cli/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PadOrTruncate, CountsCodePointsAndIgnoresEscapes) {
  EXPECT_EQ(WidthOf("\x1b[31m█x\x1b[0m"), 2);
  EXPECT_EQ(PadOrTruncate("ab", 4), "ab  ");
  EXPECT_EQ(PadOrTruncate("ab", 4, /*right=*/true), "  ab");
  EXPECT_EQ(PadOrTruncate("abcdef", 4), "abc~");
  EXPECT_EQ(PadOrTruncate("\x1b[31mabcdef\x1b[0m", 4), "\x1b[31mabc~\x1b[0m");
  EXPECT_EQ(PadOrTruncate("██████", 3), "██~");
}

TEST(Table, ColumnsAreAsWideAsTheirCells) {
  Table table({"NAME", ">BYTES", "WHY"});
  table.AddRow({"a", "1", ""});
  table.AddRow({"longer", "100", "because"});
  EXPECT_EQ(table.ToText({}), "NAME    BYTES  WHY\na           1\nlonger    100  because\n");
}

TEST(Table, LinesFitTheTerminal) {
  Display display;
  display.out_is_terminal = true;
  display.columns = 40;
  Table table({"NAME", "WHY"});
  table.AddRow({"a", std::string(100, 'x')});
  for (absl::string_view line : absl::StrSplit(table.ToText(display), '\n'))
    EXPECT_LE(WidthOf(std::string(line)), 40) << line;
  // A pipe gets the whole line.
  display.out_is_terminal = false;
  EXPECT_THAT(table.ToText(display), HasSubstr(std::string(100, 'x')));
}

TEST(Display, ColorizesOnlyStreamsThatShowColours) {
  Display display;
  EXPECT_EQ(display.Colorize(Style::kRed, "x"), "x");
  display.color_out = true;
  EXPECT_EQ(display.Colorize(Style::kRed, "x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(display.ColorizeError(Style::kRed, "x"), "x");
}

TEST(ProgressLine, ShowsTheShareTheBytesAndTheRate) {
  const std::string line = ProgressLine("put x", 512 << 20, 1 << 30, absl::Seconds(2), 100, false);
  EXPECT_EQ(line,
            "put x  [####################--------------------]   50 %  512.0 MiB of 1.0 GiB"
            "  256.0 MiB/s");
  EXPECT_THAT(ProgressLine("put x", 1, 2, absl::Seconds(1), 100, true), HasSubstr("█"));
  // If there is no room for the bar, the numbers stay.
  EXPECT_THAT(ProgressLine("put x", 1, 2, absl::Seconds(1), 40, true), Not(HasSubstr("█")));
}

TEST(ReplaceControlChars, LeavesNoControlCharacters) {
  EXPECT_EQ(ReplaceControlChars("a\x1b[31mb\x07\nc\td\x7f"), "a?[31mb?\nc\td?");
  EXPECT_EQ(TextOf(Json{{"k", "\x1b"}}, "k"), "?");
}

TEST(Json, ReadsProtobufsMapping) {
  const Json j = Json::parse(
      R"({"a":"12","b":3,"c":"1.5s","d":"2026-01-02T03:04:05.5Z","e":true,"f":["1","2"]})");
  EXPECT_EQ(IntOf(j, "a"), 12);
  EXPECT_EQ(IntOf(j, "b"), 3);
  EXPECT_EQ(IntOf(j, "none"), 0);
  EXPECT_EQ(*DurationOf(j, "c"), absl::Milliseconds(1500));
  EXPECT_EQ(absl::ToUnixMillis(*TimeOf(j, "d")), 1767323045500);
  EXPECT_FALSE(TimeOf(j, "a").has_value());
  EXPECT_TRUE(FlagOf(j, "e"));
  EXPECT_EQ(IntsOf(j, "f"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(IntOf(Json::array(), "a"), 0);
}

TEST(Json, ErrorsSurviveARoundTrip) {
  absl::Status status = absl::NotFoundError("no array 7");
  status.SetPayload("type.tessera.dev/reason", absl::Cord("ARRAY_NOT_FOUND"));
  const absl::Status back = StatusOf(ErrorDocument(status)["error"]);
  EXPECT_EQ(back.code(), status.code());
  EXPECT_EQ(back.message(), status.message());
  EXPECT_EQ(ReasonOf(back), "ARRAY_NOT_FOUND");
  EXPECT_TRUE(StatusOf(Json()).ok());
}

TEST(Texts, FormatBytesDurationsCountsAndIds) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(DurationText(absl::Microseconds(250)), "250 us");
  EXPECT_EQ(DurationText(absl::Milliseconds(12)), "12 ms");
  EXPECT_EQ(DurationText(absl::Seconds(65)), "1 m 05 s");
  EXPECT_EQ(DurationText(absl::Hours(50)), "2 d 2 h");
  EXPECT_EQ(CountText(1234567), "1,234,567");
  EXPECT_EQ(CountText(-1000), "-1,000");
  EXPECT_EQ(IntsText({0, 1, 2, 3, 5, 7, 8}), "0-3,5,7,8");
  EXPECT_EQ(IntsText({}), "");
}

}  // namespace
}  // namespace tessera::cli
