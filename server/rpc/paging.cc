#include "server/rpc/paging.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"

namespace tessera::server::rpc {
namespace {

constexpr size_t kCheck = 16;          // characters
constexpr size_t kTokenMax = 4 << 10;  // of a token, in text

std::string CheckOf(std::string_view scope, std::string_view after) {
  // The length keeps "a" + "bc" apart from "ab" + "c".
  return Sha256Hex(absl::StrCat(scope.size(), ":", ToAbsl(scope), ToAbsl(after))).substr(0, kCheck);
}

}  // namespace

std::string PageToken(std::string_view scope, std::string_view after) {
  return absl::WebSafeBase64Escape(absl::StrCat(CheckOf(scope, after), ToAbsl(after)));
}

absl::Status BadPageToken() {
  return MakeError(ErrorKind::kValueError,
                   "page_token: it is not one that this list gave; begin with an empty one");
}

absl::StatusOr<std::string> PageAfter(std::string_view scope, std::string_view token) {
  std::string text;
  if (token.size() > kTokenMax || !absl::WebSafeBase64Unescape(ToAbsl(token), &text) ||
      text.size() < kCheck || CheckOf(scope, text.substr(kCheck)) != text.substr(0, kCheck))
    return BadPageToken();
  return text.substr(kCheck);
}

absl::Status CheckPageSize(int32_t size) {
  if (size >= 0) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("page_size: ", size, " is negative; 0 lets the server choose"));
}

}  // namespace tessera::server::rpc
