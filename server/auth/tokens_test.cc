// Proves what a token lets its holder do over its life: it authenticates, expires, is revoked, and
// is still known after a restart. Each test opens a token file in a folder of its own.
#include "server/auth/tokens.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::server::auth {
namespace {

using core::NewToken;
using core::Role;
using core::TokenInfo;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

class TokensTest : public ::testing::Test {
 protected:
  TokensTest() : folder_(::testing::TempDir() + "tokens-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    EXPECT_THAT(ReplaceFile(path(), FormatTokenFile({}), true), IsOk());
    tokens_ = Tokens::Open(path()).value();
  }
  ~TokensTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/tokens"; }
  NewToken NewTokenNamed(const std::string& name, Role role = Role::kUser,
                         const std::string& tenant = "") const {
    NewToken token;
    token.name = name;
    token.role = role;
    token.tenant = tenant;
    return token;
  }
  std::string Make(const NewToken& token) { return tokens_->Create(token, kNow).value().text; }

  std::string folder_;
  std::unique_ptr<Tokens> tokens_;
};

TEST_F(TokensTest, ATokenIdentifiesItsCaller) {
  const std::string text = Make(NewTokenNamed("ci", Role::kOperator, "team-a"));
  const core::Caller caller = tokens_->Authenticate(text, kNow).value();
  EXPECT_EQ(caller.tenant, "team-a");
  EXPECT_EQ(caller.role, Role::kOperator);
  EXPECT_EQ(caller.token_name, "ci");
  const std::string worker = Make(NewTokenNamed("join", Role::kWorker));
  EXPECT_EQ(tokens_->Authenticate(worker, kNow)->tenant, core::kSystemTenant);
}

TEST_F(TokensTest, WrongTokensAreUnknown) {
  std::string text = Make(NewTokenNamed("ci"));
  text.back() = text.back() == '0' ? '1' : '0';
  for (const std::string& bad : {text, std::string("x"), std::string()})
    EXPECT_THAT(tokens_->Authenticate(bad, kNow),
                ReasonIs("TOKEN_UNKNOWN", "does not know the token"));
}

TEST_F(TokensTest, ATokenExpires) {
  NewToken token = NewTokenNamed("short");
  token.time_to_live = absl::Minutes(1);
  const std::string text = Make(token);
  EXPECT_THAT(tokens_->Authenticate(text, kNow + absl::Seconds(59)), IsOk());
  EXPECT_THAT(tokens_->Authenticate(text, kNow + absl::Seconds(60)),
              ReasonIs("TOKEN_EXPIRED", "2023-11-14"));
  EXPECT_THAT(tokens_->Check("short", kNow + absl::Seconds(60)), ReasonIs("TOKEN_EXPIRED", ""));
}

TEST_F(TokensTest, ARevokedTokenIsRefusedAtOnceAndAfterARestart) {
  const std::string text = Make(NewTokenNamed("ci"));
  EXPECT_TRUE(tokens_->Revoke("ci")->revoked);
  EXPECT_TRUE(tokens_->Revoke("ci")->revoked);
  EXPECT_THAT(tokens_->Authenticate(text, kNow), ReasonIs("TOKEN_REVOKED", "'ci'"));
  EXPECT_THAT(tokens_->Check("ci", kNow), ReasonIs("TOKEN_REVOKED", ""));
  const auto again = Tokens::Open(path()).value();
  EXPECT_THAT(again->Authenticate(text, kNow), ReasonIs("TOKEN_REVOKED", ""));
}

TEST_F(TokensTest, ATokenSurvivesARestartAndItsSecretIsNotInTheFile) {
  const std::string text = Make(NewTokenNamed("ci", Role::kAdmin));
  EXPECT_THAT(Tokens::Open(path()).value()->Authenticate(text, kNow), IsOk());
  const std::string secret = ParseToken(text)->secret;
  EXPECT_THAT(ReadWholeFile(path()).value(), Not(HasSubstr(secret)));
}

TEST_F(TokensTest, TheListIsSortedByNameAndHasTheTimesOfLastUse) {
  const std::string b = Make(NewTokenNamed("b")), a = Make(NewTokenNamed("a"));
  EXPECT_THAT(tokens_->Authenticate(b, kNow + absl::Seconds(90)), IsOk());
  // A second use within the same minute does not change the time of last use.
  EXPECT_THAT(tokens_->Authenticate(b, kNow + absl::Seconds(100)), IsOk());
  EXPECT_THAT(tokens_->List(),
              ElementsAre(AllOf(Field(&TokenInfo::name, "a"),
                                Field(&TokenInfo::last_used, absl::InfinitePast())),
                          AllOf(Field(&TokenInfo::name, "b"),
                                Field(&TokenInfo::last_used, kNow + absl::Seconds(90)))));
  EXPECT_EQ(Tokens::Open(path()).value()->List()[1].last_used, absl::InfinitePast());
  EXPECT_THAT(tokens_->Flush(), IsOk());
  EXPECT_EQ(Tokens::Open(path()).value()->List()[1].last_used, kNow + absl::Seconds(90));
}

TEST_F(TokensTest, CreateRefusesInvalidTokens) {
  Make(NewTokenNamed("ci"));
  EXPECT_THAT(tokens_->Create(NewTokenNamed("ci"), kNow), ReasonIs("ALREADY_EXISTS", "'ci'"));
  EXPECT_THAT(tokens_->Create(NewTokenNamed("No!"), kNow),
              ReasonIs("VALUE_ERROR", "name: expected"));
  EXPECT_THAT(tokens_->Create(NewTokenNamed("x", Role::kUser, "A B"), kNow),
              ReasonIs("VALUE_ERROR", "tenant: expected"));
  EXPECT_THAT(tokens_->Create(NewTokenNamed("x", Role::kUser, core::kSystemTenant), kNow),
              ReasonIs("VALUE_ERROR", "coordinator's own"));
  EXPECT_THAT(tokens_->Create(NewTokenNamed("x", Role::kWorker, "a"), kNow),
              ReasonIs("VALUE_ERROR", "has no tenant"));
  NewToken brief = NewTokenNamed("x");
  brief.time_to_live = absl::Milliseconds(1);
  EXPECT_THAT(tokens_->Create(brief, kNow), ReasonIs("VALUE_ERROR", "time_to_live"));
  EXPECT_THAT(tokens_->Revoke("y"), ReasonIs("TOKEN_NOT_FOUND", "'y'"));
}

TEST_F(TokensTest, WithoutADiskCreateFailsAndRevokeStillTakesEffect) {
  const std::string text = Make(NewTokenNamed("ci"));
  std::filesystem::remove_all(folder_);
  EXPECT_THAT(tokens_->Create(NewTokenNamed("other"), kNow),
              ReasonIs("INTERNAL", "cannot be stored"));
  EXPECT_EQ(tokens_->List().size(), 1u);
  EXPECT_THAT(tokens_->Revoke("ci"), ReasonIs("INTERNAL", "cannot be stored"));
  EXPECT_THAT(tokens_->Authenticate(text, kNow), ReasonIs("TOKEN_REVOKED", ""));
}

TEST_F(TokensTest, APublicOrUnreadableFileIsRefused) {
  ASSERT_EQ(chmod(path().c_str(), 0640), 0);
  EXPECT_THAT(Tokens::Open(path()), ReasonIs("VALUE_ERROR", "chmod 600"));
  ASSERT_THAT(ReplaceFile(path(), "x", true), IsOk());
  EXPECT_THAT(Tokens::Open(path()), ReasonIs("VALUE_ERROR", "line 1"));
  EXPECT_THAT(Tokens::Open(folder_ + "/none"), ReasonIs("VALUE_ERROR", "none"));
}

}  // namespace
}  // namespace tessera::server::auth
