// Proves that a repeated call gets the response of the first one, and that the cached responses are
// bounded fairly between tenants. Times are passed in, and the limits are small.
#include "server/rpc/request_log.h"

#include "absl/strings/str_cat.h"
#include "base/testing/status_matchers.h"

namespace tessera::server::rpc {
namespace {

using Key = RequestLog::Key;
using Answer = RequestLog::Answer;

const absl::Time kStart = absl::UnixEpoch();

class RequestLogTest : public ::testing::Test {
 protected:
  // Returns whether the call is new. The answer to a repeated call is appended to `answers_`.
  bool Begin(const Key& key, const std::string& payload, absl::Time now = kStart) {
    return log_.Begin(key, payload, now, [this](const Answer& a) { answers_.push_back(a); });
  }

  RequestLog log_{
      {.answers_max = 3, .age_max = absl::Seconds(10), .bytes_max = 100, .all_bytes_max = 150}};
  std::vector<Answer> answers_;
};

TEST_F(RequestLogTest, ARepeatedCallGetsTheFirstAnswer) {
  ASSERT_TRUE(Begin({"a", 1, "id"}, "p"));
  log_.End({"a", 1, "id"}, {absl::OkStatus(), "answer"}, kStart);
  EXPECT_FALSE(Begin({"a", 1, "id"}, "p"));
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].bytes, "answer");
}

TEST_F(RequestLogTest, CallsRepeatedWhileTheFirstRunsGetItsAnswer) {
  ASSERT_TRUE(Begin({"a", 1, "id"}, "p"));
  EXPECT_FALSE(Begin({"a", 1, "id"}, "p"));
  EXPECT_FALSE(Begin({"a", 1, "id"}, "p"));
  EXPECT_TRUE(answers_.empty());
  log_.End({"a", 1, "id"}, {absl::OkStatus(), "answer"}, kStart);
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[1].bytes, "answer");
}

TEST_F(RequestLogTest, AnotherPayloadIsRefused) {
  ASSERT_TRUE(Begin({"a", 1, "id"}, "p"));
  EXPECT_FALSE(Begin({"a", 1, "id"}, "q")) << "while the first runs";
  log_.End({"a", 1, "id"}, {absl::OkStatus(), "answer"}, kStart);
  EXPECT_FALSE(Begin({"a", 1, "id"}, "q")) << "when it has ended";
  ASSERT_EQ(answers_.size(), 2u);
  for (const Answer& a : answers_) EXPECT_THAT(a.status, ReasonIs("REQUEST_ID_REUSED", "'id'"));
}

TEST_F(RequestLogTest, TenantsAndMethodsHaveIdsOfTheirOwn) {
  EXPECT_TRUE(Begin({"a", 1, "id"}, "p"));
  EXPECT_TRUE(Begin({"b", 1, "id"}, "q"));
  EXPECT_TRUE(Begin({"a", 2, "id"}, "r"));
}

TEST_F(RequestLogTest, WaitingCallsGetAFailureThatIsNotCached) {
  ASSERT_TRUE(Begin({"a", 1, "id"}, "p"));
  EXPECT_FALSE(Begin({"a", 1, "id"}, "p"));
  log_.End({"a", 1, "id"}, {absl::UnavailableError("gone"), ""}, kStart);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0].status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Begin({"a", 1, "id"}, "q")) << "the id is free again";
}

TEST_F(RequestLogTest, AnswersAreBoundedInNumberAgeAndBytes) {
  const auto run = [&](const std::string& id, const std::string& bytes, absl::Time now) {
    ASSERT_TRUE(Begin({"a", 1, id}, "p", now)) << id;
    log_.End({"a", 1, id}, {absl::OkStatus(), bytes}, now);
  };
  for (int i = 0; i < 5; ++i) run(absl::StrCat(i), "x", kStart + absl::Seconds(i));
  EXPECT_EQ(log_.num_answers(), 3);
  EXPECT_TRUE(Begin({"a", 1, "1"}, "p", kStart + absl::Seconds(5))) << "gone: it runs again";
  log_.End({"a", 1, "1"}, {absl::UnknownError(""), ""}, kStart);
  EXPECT_FALSE(Begin({"a", 1, "4"}, "p", kStart + absl::Seconds(13)));
  EXPECT_TRUE(Begin({"a", 1, "4"}, "p", kStart + absl::Seconds(14))) << "ten seconds old";
  EXPECT_EQ(log_.num_answers(), 0);
  run("large", std::string(90, 'x'), kStart + absl::Seconds(20));
  run("more", std::string(20, 'x'), kStart + absl::Seconds(20));
  EXPECT_EQ(log_.num_answers(), 1) << "110 bytes are more than 100";
}

TEST_F(RequestLogTest, ATenantDoesNotEvictAnswersOfOtherTenants) {
  const auto run = [&](const std::string& tenant, const std::string& id, size_t bytes) {
    ASSERT_TRUE(Begin({tenant, 1, id}, "p")) << id;
    log_.End({tenant, 1, id}, {absl::OkStatus(), std::string(bytes, 'x')}, kStart);
  };
  run("quiet", "mine", 1);
  for (int i = 0; i < 20; ++i) run("loud", absl::StrCat(i), 1);
  EXPECT_EQ(log_.num_answers(), 1 + 3) << "each tenant keeps three";
  EXPECT_FALSE(Begin({"quiet", 1, "mine"}, "p")) << "it is still known";
  // All tenants together may keep 150 bytes. The tenant that keeps the most loses its oldest
  // response.
  run("loud", "large", 90);
  run("third", "small", 40);
  run("quiet", "more", 50);
  EXPECT_FALSE(Begin({"quiet", 1, "mine"}, "p"));
  EXPECT_FALSE(Begin({"quiet", 1, "more"}, "p"));
  EXPECT_FALSE(Begin({"third", 1, "small"}, "p"));
  EXPECT_TRUE(Begin({"loud", 1, "large"}, "p")) << "gone";
}

TEST_F(RequestLogTest, ExpiredAnswersOfIdleTenantsAreEvicted) {
  for (const char* tenant : {"a", "b", "c"}) {
    ASSERT_TRUE(Begin({tenant, 1, "id"}, "p"));
    log_.End({tenant, 1, "id"}, {absl::OkStatus(), "x"}, kStart);
  }
  EXPECT_EQ(log_.num_answers(), 3);
  EXPECT_TRUE(Begin({"d", 1, "id"}, "p", kStart + absl::Seconds(11)));
  EXPECT_EQ(log_.num_answers(), 0);
}

}  // namespace
}  // namespace tessera::server::rpc
