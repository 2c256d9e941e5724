// Proves that a check that holds does nothing, and that one that fails aborts with a message.
#include "base/check.h"

#include "absl/status/status.h"
#include "base/log_format.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

enum class Color { kRed = 3 };
struct Opaque {
  bool operator==(const Opaque&) const { return false; }
};

TEST(Check, PassesInSilence) {
  TESSERA_CHECK(true) << "never";
  TESSERA_CHECK_EQ(1, 1);
  TESSERA_CHECK_OK(absl::OkStatus());
  if (true)
    TESSERA_CHECK_LT(1, 2) << "binds to no outer else";
  else
    ADD_FAILURE();
}

TEST(CheckDeathTest, AbortsWithPlaceConditionAndMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(TESSERA_CHECK(1 > 2) << "n=" << 5, "check_test.cc:[0-9]+ CHECK failed: 1 > 2 n=5");
  EXPECT_DEATH(TESSERA_CHECK_EQ(1 + 1, 3) << "sum", "CHECK failed: 1 . 1 == 3 .2 vs. 3. sum");
  EXPECT_DEATH(TESSERA_CHECK_NE(Color::kRed, Color::kRed), "3 vs. 3");
  EXPECT_DEATH(TESSERA_CHECK_EQ(Opaque(), Opaque()), "[?] vs. [?]");
  EXPECT_DEATH(TESSERA_CHECK_OK(absl::AbortedError("why")), "ABORTED: why");
}

TEST(CheckDeathTest, PrintsJsonIfTheLogIsJson) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        SetProcessLogFormat(LogFormat::kJson);
        TESSERA_CHECK(1 > 2) << "\"n\"=5";
      },
      "\"level\":\"fatal\",\"msg\":\"CHECK failed: 1 > 2 "
      ".\"n.\"=5\",\"site\":\"check_test.cc:[0-9]+\"");
}

}  // namespace
}  // namespace tessera
