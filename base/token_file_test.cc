// Proves the text forms of tokens, that a token matches only its own record, and how the token file
// is written, parsed and refused.
#include "base/token_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TokenRecord Record(const std::string& name) {
  TokenRecord record;
  record.name = name;
  record.role = "user";
  record.tenant = "default";
  record.created = absl::FromUnixSeconds(1'700'000'000);
  return record;
}

TEST(TokenFile, ATokenMatchesOnlyItsOwnRecord) {
  TokenRecord one = Record("one"), two = Record("two");
  const std::string text = MakeToken(&one), other = MakeToken(&two);
  EXPECT_THAT(text, StartsWith("tsr_"));
  const TokenText token = ParseToken(text).value();
  EXPECT_EQ(token.id, one.id);
  EXPECT_TRUE(TokenMatches(one, token.secret));
  EXPECT_FALSE(TokenMatches(two, token.secret));
  EXPECT_FALSE(TokenMatches(one, ParseToken(other)->secret));
}

TEST(TokenFile, TheSecretIsNotInTheFile) {
  TokenRecord record = Record("one");
  const TokenText token = ParseToken(MakeToken(&record)).value();
  EXPECT_THAT(FormatTokenFile({record}), Not(HasSubstr(token.secret)));
}

TEST(TokenFile, AJoinTokenCarriesTheFingerprint) {
  TokenRecord record = Record("join");
  const TokenText token = ParseToken(MakeToken(&record)).value();
  const std::string fingerprint(64, 'a');
  const TokenText read = ParseToken(FormatJoinToken(token, fingerprint)).value();
  EXPECT_EQ(read.fingerprint, fingerprint);
  EXPECT_EQ(FormatBearerToken(read), FormatBearerToken(token));
}

TEST(TokenFile, OtherTextsAreRefusedAsTokens) {
  TokenRecord record = Record("one");
  const std::string text = MakeToken(&record);
  for (const std::string& bad :
       {std::string(), std::string("tsr_"), std::string("tsr__"), text + "0", text + "_",
        text.substr(0, text.size() - 1), "tsx" + text.substr(3), "tsj" + text.substr(3),
        absl::StrReplaceAll(text, {{"tsr", "TSR"}}), std::string(100'000, '_')}) {
    const auto parsed = ParseToken(bad);
    EXPECT_THAT(parsed, ReasonIs("VALUE_ERROR", "does not have the form")) << bad.substr(0, 100);
  }
}

TEST(TokenFile, RecordsAreParsedAsTheyWereWritten) {
  TokenRecord one = Record("one"), two = Record("w-1_x");
  MakeToken(&one);
  MakeToken(&two);
  one.expires = one.created + absl::Hours(1);
  one.last_used = one.created + absl::Minutes(1);
  two.role = "worker";
  two.tenant = "";
  two.revoked = true;
  const std::vector<TokenRecord> records = {one, two};
  EXPECT_EQ(ParseTokenFile(FormatTokenFile(records)).value(), records);
  EXPECT_TRUE(ParseTokenFile(FormatTokenFile({}))->empty());
}

TEST(TokenFile, ErrorsNameTheLine) {
  TokenRecord record = Record("one");
  MakeToken(&record);
  const std::string good = FormatTokenFile({record});
  const struct {
    std::string text, says;
  } rows[] = {
      {"", "line 1: expected 'tessera-tokens 1'"},
      {"tessera-tokens 2\n", "line 1"},
      {good.substr(0, good.size() - 1), "line 2: the last line is cut short"},
      {good + good.substr(good.find('\n') + 1), "line 3: the name is taken"},
      {absl::StrReplaceAll(good, {{"role=user", "role=root"}}), "line 2: wrong at 'role='"},
      {absl::StrReplaceAll(good, {{"role=user", "role=worker"}}), "wrong at 'tenant='"},
      {absl::StrReplaceAll(good, {{"tenant=default", "tenant="}}), "wrong at 'tenant='"},
      {absl::StrReplaceAll(good, {{"revoked=no", "revoked=maybe"}}), "wrong at 'revoked='"},
      {absl::StrReplaceAll(good, {{"created=2", "created=x"}}), "wrong at 'created='"},
      {absl::StrReplaceAll(good, {{"expires=never", "expires=2023-1-1T00:00:00Z"}}),
       "wrong at 'expires='"},
      {absl::StrReplaceAll(good, {{"name=one", "name=One"}}), "wrong at 'name='"},
      {absl::StrReplaceAll(good, {{" id=", "  id="}}), "expected ten fields"},
      {good + "\n", "line 3"},
  };
  for (const auto& row : rows)
    EXPECT_THAT(ParseTokenFile(row.text), ReasonIs("VALUE_ERROR", row.says)) << row.text;
}

TEST(TokenFile, NamesAreChecked) {
  EXPECT_THAT(CheckTokenName("token", "ci-build_2"), IsOk());
  for (const char* bad : {"", "A", "a b", "a/b", "\n"})
    EXPECT_THAT(CheckTokenName("token", bad), ReasonIs("VALUE_ERROR", "token: expected"));
  EXPECT_THAT(CheckTokenName("token", std::string(64, 'a')), ReasonIs("VALUE_ERROR", "63"));
}

}  // namespace
}  // namespace tessera
