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

std::vector<int64_t> PausesOf(RestartPolicy& policy, std::optional<int> status, absl::Duration ran,
                              int times) {
  std::vector<int64_t> out;
  for (int i = 0; i < times; ++i) {
    const auto pause = policy.NextBackoff(status, ran);
    out.push_back(pause ? absl::ToInt64Seconds(*pause) : -1);
  }
  return out;
}

TEST(RestartPolicyTest, PausesGrowToABound) {
  RestartPolicy policy;
  EXPECT_THAT(PausesOf(policy, std::nullopt, absl::Seconds(5), 8),
              ElementsAre(1, 2, 4, 8, 16, 30, 30, 30));
}

TEST(RestartPolicyTest, OneThatRanForLongBeginsAnew) {
  RestartPolicy policy;
  PausesOf(policy, 1, absl::ZeroDuration(), 4);
  EXPECT_THAT(PausesOf(policy, 1, absl::Minutes(1), 1), ElementsAre(1));
  EXPECT_THAT(PausesOf(policy, 1, absl::Seconds(1), 1), ElementsAre(2));
}

TEST(RestartPolicyTest, WhatNoStartMendsIsBelievedAtTheFirst) {
  RestartPolicy policy;
  EXPECT_EQ(policy.NextBackoff(RestartPolicy::kExitNonRetryable, absl::ZeroDuration()),
            std::nullopt);
}

TEST(RestartPolicyTest, LaterItIsBelievedTheSecondTime) {
  RestartPolicy policy;
  EXPECT_THAT(PausesOf(policy, std::nullopt, absl::Hours(1), 1), ElementsAre(1));
  EXPECT_THAT(PausesOf(policy, RestartPolicy::kExitNonRetryable, absl::ZeroDuration(), 1),
              ElementsAre(2));
  EXPECT_THAT(PausesOf(policy, 1, absl::ZeroDuration(), 1), ElementsAre(4));
  EXPECT_THAT(PausesOf(policy, RestartPolicy::kExitNonRetryable, absl::ZeroDuration(), 2),
              ElementsAre(8, -1));
}

}  // namespace
}  // namespace tessera::cli
