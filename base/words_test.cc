#include "base/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::MatchesRegex;

TEST(Words, OneIsOne) {
  EXPECT_EQ(Counted(0, "device"), "0 devices");
  EXPECT_EQ(Counted(1, "device"), "1 device");
  EXPECT_EQ(Counted(2, "device"), "2 devices");
}

TEST(Words, DistanceCountsSlips) {
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
}

TEST(Words, AVersionNamesProgramAndRevision) {
  EXPECT_THAT(VersionText("tessera"), MatchesRegex("tessera [0-9.]+ \\(revision [0-9a-z]+\\)\n"));
}

}  // namespace
}  // namespace tessera
