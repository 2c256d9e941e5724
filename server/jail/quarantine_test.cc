// Proves when a program is refused, for how long, and that the number of remembered programs is
// bounded. The quarantine is a value with the time passed in, so that no test waits.
#include "server/jail/quarantine.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tessera::server::jail {
namespace {

const absl::Time kStart = absl::UnixEpoch();

bool IsRefused(const Quarantine& q, const std::string& tenant, const std::string& sha256,
               absl::Time now) {
  return now < q.RefusedUntil(tenant, sha256, now);
}

TEST(Quarantine, RefusesAProgramForAnHourAfterItsSecondStrike) {
  Quarantine q;
  EXPECT_TRUE(q.empty());
  EXPECT_FALSE(IsRefused(q, "a", "1", kStart));
  q.Strike("a", "1", kStart);
  EXPECT_FALSE(q.empty());
  EXPECT_FALSE(IsRefused(q, "a", "1", kStart));
  const absl::Time second = kStart + absl::Minutes(10);
  q.Strike("a", "1", second);
  EXPECT_EQ(q.RefusedUntil("a", "1", second), second + Quarantine::kRefusalTime);
  EXPECT_TRUE(IsRefused(q, "a", "1", second + Quarantine::kRefusalTime - absl::Seconds(1)));
  EXPECT_FALSE(IsRefused(q, "a", "1", second + Quarantine::kRefusalTime));
}

TEST(Quarantine, StrikesCountForOneTenantAndOneProgram) {
  Quarantine q;
  for (int i = 0; i < 2; ++i) q.Strike("a", "1", kStart);
  EXPECT_TRUE(IsRefused(q, "a", "1", kStart));
  EXPECT_FALSE(IsRefused(q, "b", "1", kStart));
  EXPECT_FALSE(IsRefused(q, "a", "2", kStart));
}

TEST(Quarantine, OldStrikesNoLongerCount) {
  Quarantine q;
  q.Strike("a", "1", kStart);
  q.Strike("a", "1", kStart + Quarantine::kRefusalTime);
  EXPECT_FALSE(IsRefused(q, "a", "1", kStart + Quarantine::kRefusalTime))
      << "the first strike no longer counts";
  q.Strike("a", "1", kStart + Quarantine::kRefusalTime + absl::Seconds(1));
  EXPECT_TRUE(IsRefused(q, "a", "1", kStart + Quarantine::kRefusalTime + absl::Seconds(1)));
}

TEST(Quarantine, TheNumberOfProgramsIsBounded) {
  Quarantine q;
  for (int i = 0; i < 2; ++i) q.Strike("a", "first", kStart);
  for (size_t i = 1; i < Quarantine::kProgramsMax; ++i) q.Strike("a", absl::StrCat(i), kStart);
  EXPECT_TRUE(IsRefused(q, "a", "first", kStart));
  q.Strike("a", "one more", kStart);
  EXPECT_FALSE(IsRefused(q, "a", "first", kStart)) << "the program with the oldest last strike";
}

}  // namespace
}  // namespace tessera::server::jail
