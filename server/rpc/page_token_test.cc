// Proves that a page token is good for its own list only, and that random or changed tokens are
// refused.
#include "server/rpc/page_token.h"

#include <random>

#include "base/testing/status_matchers.h"

namespace tessera::server::rpc {
namespace {

TEST(PageTokenTest, ATokenHoldsTheKeyAfterWhichThePageBegins) {
  for (const std::string& after :
       {std::string("7"), std::string("w0"), std::string("a\0b", 3), std::string()})
    EXPECT_THAT(KeyOfPageToken("ListX|a", PageToken("ListX|a", after)), IsOkAndHolds(after));
}

TEST(PageTokenTest, ATokenIsValidForItsListOnly) {
  const std::string token = PageToken("ListX|a", "7");
  for (const char* other : {"ListX|b", "ListY|a", "ListX|a|7", ""})
    EXPECT_THAT(KeyOfPageToken(other, token),
                ReasonIs("VALUE_ERROR", "this list has not returned this token"));
  EXPECT_THAT(KeyOfPageToken("ab", PageToken("a", "bc")), ReasonIs("VALUE_ERROR"));
}

TEST(PageTokenTest, InvalidTokensAreRefused) {
  std::mt19937 random(7);
  for (int i = 0; i < 10'000; ++i) {
    std::string token(random() % 64, '\0');
    for (char& c : token) c = static_cast<char>(random());
    EXPECT_THAT(KeyOfPageToken("ListX|a", token), ReasonIs("VALUE_ERROR"));
    // A valid token that was changed in one place.
    std::string changed = PageToken("ListX|a", "123456");
    char& c = changed[random() % changed.size()];
    c = c == 'A' ? 'B' : 'A';
    EXPECT_THAT(KeyOfPageToken("ListX|a", changed), ReasonIs("VALUE_ERROR")) << changed;
  }
  EXPECT_THAT(KeyOfPageToken("ListX|a", std::string(1 << 20, 'A')), ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(CheckPageSize(-1), ReasonIs("VALUE_ERROR", "-1 is negative"));
}

}  // namespace
}  // namespace tessera::server::rpc
