// Proves plurals, edit distances, suggestions and how numbered names are collapsed into ranges.
#include "base/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;

TEST(Words, OnlyOneIsSingular) {
  EXPECT_EQ(Pluralize(0, "device"), "0 devices");
  EXPECT_EQ(Pluralize(1, "device"), "1 device");
  EXPECT_EQ(Pluralize(2, "device"), "2 devices");
}

TEST(Words, EditDistanceCountsTypos) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("devices", "devices"), 0);
  EXPECT_EQ(EditDistance("devics", "devices"), 1);
  EXPECT_EQ(EditDistance("devcies", "devices"), 1);
  EXPECT_EQ(EditDistance("adress", "address"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
}

TEST(Words, TheNearestNameComesFirst) {
  EXPECT_EQ(DidYouMean("--lisen", {"--name", "--listens", "--listen"}),
            "; did you mean --listen or --listens?");
  EXPECT_EQ(DidYouMean("--mehs", {"--mesh", "--name"}), "; did you mean --mesh?");
  EXPECT_EQ(DidYouMean("ab", {"ps", "up", "top"}), "");
  EXPECT_EQ(DidYouMean("x", {}), "");
  // A name is also found by its beginning, or by one of its components.
  EXPECT_EQ(DidYouMean("expo", {"log", "exponential"}), "; did you mean exponential?");
  EXPECT_EQ(DidYouMean("sum", {"reduce_sum", "summary", "resume"}),
            "; did you mean reduce_sum or summary?");
  EXPECT_EQ(DidYouMean("lo", {"logistic", "a_lo_b"}), "");
}

std::vector<std::string> Collapsed(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  size_t members = 0;
  for (const CollapsedName& name : CollapseNumberedNames(names)) {
    out.push_back(name.text);
    members += name.indices.size();
  }
  EXPECT_EQ(members, names.size());
  return out;
}

TEST(Words, NamesThatDifferInNumbersAreCollapsed) {
  EXPECT_THAT(Collapsed({"a.b[0].w", "a.b[0].c", "a.b[1].w", "a.b[1].c", "a.b[2].w"}),
              ElementsAre("a.b[0..2].w", "a.b[0..1].c"));
  // Names with two numbers: first with all combinations of the numbers, then with one missing.
  EXPECT_THAT(Collapsed({"[0].h[0]", "[0].h[1]", "[1].h[0]", "[1].h[1]"}),
              ElementsAre("[0..1].h[0..1]"));
  EXPECT_THAT(Collapsed({"[0].h[0]", "[0].h[1]", "[1].h[0]"}),
              ElementsAre("[0].h[0..1]", "[1].h[0]"));
  // Numbers with gaps, names that are not in ascending order, and names whose numbers are not
  // collapsed.
  EXPECT_THAT(Collapsed({"argument 7", "argument 0", "argument 1"}),
              ElementsAre("argument 0..1,7"));
  EXPECT_THAT(Collapsed({"%0", "%1", "%x1", "%x2", "['1']", "a 1 b", "a.b[10]", "a.b[9]"}),
              ElementsAre("%0..1", "%x1..2", "['1']", "a 1 b", "a.b[9..10]"));
  // None of these texts is collapsed: a number has too many digits or a leading zero, brackets hold
  // no number, or the name is nothing but a number.
  EXPECT_THAT(Collapsed({"[123456789012345678901]", "x01", "x1", "x[]", "", "[", "7"}),
              ElementsAre("[123456789012345678901]", "x01", "x1", "x[]", "", "[", "7"));
  EXPECT_EQ(CollapseNumberedNames({"b[1]", "c", "b[0]"})[0].indices, (std::vector<size_t>{0, 2}));
}

TEST(Words, NamesWithEqualKeysShareARow) {
  const auto rows = CollapseByKey({"b[0]", "x", "b[1]", "a", "y"}, {"1", "2", "1", "1", "3"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].text, "b[0..1], a");
  EXPECT_THAT(rows[0].indices, ElementsAre(0, 2, 3));
  EXPECT_EQ(rows[1].text, "x");
  EXPECT_EQ(rows[2].text, "y");
  // Long names get rows of their own.
  const std::string a(50, 'a'), b(50, 'b');
  EXPECT_EQ(CollapseByKey({a, b, "c"}, {"1", "1", "1"})[1].text, b + ", c");
}

TEST(Words, AVersionNamesProgramAndRevision) {
  EXPECT_THAT(VersionText("tessera"), MatchesRegex("tessera [0-9.]+ \\(revision [0-9a-z]+\\)\n"));
}

}  // namespace
}  // namespace tessera
