// Proves when RestartPolicy restarts a process, and after which backoff. The policy is a function
// of exit statuses and times, so no process is started.
#include "client/cli/supervise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;

// Returns the backoffs, in seconds, before `num_restarts` restarts of a process that each time runs
// for `uptime` and exits with `status`. A backoff of -1 means that there is no restart.
std::vector<int64_t> BackoffsOf(RestartPolicy& policy, std::optional<int> status,
                                absl::Duration uptime, int num_restarts) {
  std::vector<int64_t> out;
  for (int i = 0; i < num_restarts; ++i) {
    const auto backoff = policy.NextBackoff(status, uptime);
    out.push_back(backoff ? absl::ToInt64Seconds(*backoff) : -1);
  }
  return out;
}

TEST(RestartPolicyTest, BackoffsDoubleUpToABound) {
  RestartPolicy policy;
  EXPECT_THAT(BackoffsOf(policy, std::nullopt, absl::Seconds(5), 8),
              ElementsAre(1, 2, 4, 8, 16, 30, 30, 30));
}

TEST(RestartPolicyTest, AMinuteOfUptimeResetsTheBackoff) {
  RestartPolicy policy;
  BackoffsOf(policy, 1, absl::ZeroDuration(), 4);
  EXPECT_THAT(BackoffsOf(policy, 1, absl::Minutes(1), 1), ElementsAre(1));
  EXPECT_THAT(BackoffsOf(policy, 1, absl::Seconds(1), 1), ElementsAre(2));
}

TEST(RestartPolicyTest, ANonRetryableFirstExitIsFinal) {
  RestartPolicy policy;
  EXPECT_EQ(policy.NextBackoff(RestartPolicy::kExitNonRetryable, absl::ZeroDuration()),
            std::nullopt);
}

TEST(RestartPolicyTest, LaterTwoNonRetryableExitsInARowAreFinal) {
  RestartPolicy policy;
  EXPECT_THAT(BackoffsOf(policy, std::nullopt, absl::Hours(1), 1), ElementsAre(1));
  EXPECT_THAT(BackoffsOf(policy, RestartPolicy::kExitNonRetryable, absl::ZeroDuration(), 1),
              ElementsAre(2));
  EXPECT_THAT(BackoffsOf(policy, 1, absl::ZeroDuration(), 1), ElementsAre(4));
  EXPECT_THAT(BackoffsOf(policy, RestartPolicy::kExitNonRetryable, absl::ZeroDuration(), 2),
              ElementsAre(8, -1));
}

}  // namespace
}  // namespace tessera::cli
