// Proves when a program is refused, for how long, and that the number of remembered programs is
// bounded. The quarantine is a value with the time passed in, so that no test waits.
#include "server/jail/quarantine.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tessera::server::jail {
namespace {

const absl::Time kStart = absl::UnixEpoch();

bool Refused(const Quarantine& q, const std::string& tenant, const std::string& sha256,
             absl::Time now) {
  return now < q.Until(tenant, sha256, now);
}

TEST(Quarantine, RefusesAfterTheSecondStrikeForItsTime) {
  Quarantine q;
  EXPECT_TRUE(q.empty());
  EXPECT_FALSE(Refused(q, "a", "1", kStart));
  q.Strike("a", "1", kStart);
  EXPECT_FALSE(q.empty());
  EXPECT_FALSE(Refused(q, "a", "1", kStart));
  const absl::Time second = kStart + absl::Minutes(10);
  q.Strike("a", "1", second);
  EXPECT_EQ(q.Until("a", "1", second), second + Quarantine::kTime);
  EXPECT_TRUE(Refused(q, "a", "1", second + Quarantine::kTime - absl::Seconds(1)));
  EXPECT_FALSE(Refused(q, "a", "1", second + Quarantine::kTime));
}

TEST(Quarantine, IsOfOneTenantAndOneProgram) {
  Quarantine q;
  for (int i = 0; i < 2; ++i) q.Strike("a", "1", kStart);
  EXPECT_TRUE(Refused(q, "a", "1", kStart));
  EXPECT_FALSE(Refused(q, "b", "1", kStart));
  EXPECT_FALSE(Refused(q, "a", "2", kStart));
}

TEST(Quarantine, ForgetsWhatIsLongPast) {
  Quarantine q;
  q.Strike("a", "1", kStart);
  q.Strike("a", "1", kStart + Quarantine::kTime);
  EXPECT_FALSE(Refused(q, "a", "1", kStart + Quarantine::kTime)) << "the first counts no more";
  q.Strike("a", "1", kStart + Quarantine::kTime + absl::Seconds(1));
  EXPECT_TRUE(Refused(q, "a", "1", kStart + Quarantine::kTime + absl::Seconds(1)));
}

TEST(Quarantine, IsBounded) {
  Quarantine q;
  for (int i = 0; i < 2; ++i) q.Strike("a", "first", kStart);
  for (size_t i = 1; i < Quarantine::kProgramsMax; ++i) q.Strike("a", absl::StrCat(i), kStart);
  EXPECT_TRUE(Refused(q, "a", "first", kStart));
  q.Strike("a", "one more", kStart);
  EXPECT_FALSE(Refused(q, "a", "first", kStart)) << "the one that struck least lately";
}

}  // namespace
}  // namespace tessera::server::jail
