// The page tokens of all lists. A token is checked by its hash, so that a client cannot use a token
// of one list for another by mistake.
#include "server/rpc/page_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tessera::server::rpc {
namespace {

constexpr size_t kHashSize = 16;
constexpr size_t kTokenBytesMax = 4 << 10;

std::string HashOf(std::string_view scope, std::string_view after) {
  // The length makes the hashes of "a" + "bc" and "ab" + "c" differ.
  return Sha256Hex(absl::StrCat(scope.size(), ":", ToAbsl(scope), ToAbsl(after)))
      .substr(0, kHashSize);
}

}  // namespace

std::string PageToken(std::string_view scope, std::string_view after) {
  return absl::WebSafeBase64Escape(absl::StrCat(HashOf(scope, after), ToAbsl(after)));
}

absl::Status PageTokenError() {
  return MakeError(ErrorKind::kValueError,
                   "page_token: this list has not returned this token; begin with an empty token");
}

absl::StatusOr<std::string> KeyOfPageToken(std::string_view scope, std::string_view token) {
  std::string text;
  if (token.size() > kTokenBytesMax || !absl::WebSafeBase64Unescape(ToAbsl(token), &text) ||
      text.size() < kHashSize || HashOf(scope, text.substr(kHashSize)) != text.substr(0, kHashSize))
    return PageTokenError();
  return text.substr(kHashSize);
}

absl::Status CheckPageSize(int32_t size) {
  if (size >= 0) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("page_size: ", size, " is negative; 0 lets the server choose"));
}

}  // namespace tessera::server::rpc
