// Bearer tokens: their texts, and the file in which a coordinator keeps what it must know of them.
//
//   tsr_<id>_<secret>                  a token: goes behind "authorization: Bearer "
//   tsj_<id>_<secret>_<fingerprint>    a token to join with: the same, and whom to trust
//
// The file holds salted hashes only: whoever reads it cannot call. Pure; any thread. Errors are
// VALUE_ERROR and never repeat a secret.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

inline constexpr size_t kTokensMax = 10'000;

// What is kept of one token. Times are whole seconds.
struct TokenRecord {
  std::string name;                             // unique; see CheckTokenName
  std::string id;                               // 16 hex digits, unique; finds the record
  std::string role;                             // "admin"
  std::string tenant;                           // empty for workers
  std::string salt;                             // 32 hex digits
  std::string hash;                             // SHA-256 of salt and secret, hex
  absl::Time created;                           //
  absl::Time expires = absl::InfiniteFuture();  // never
  absl::Time last_used = absl::InfinitePast();  // not yet
  bool revoked = false;
  bool operator==(const TokenRecord&) const = default;
};

// Lower-case letters, digits, '-' and '_', at most 63. Names of tenants too.
absl::Status CheckTokenName(std::string_view what, std::string_view name);

// Fills in id, salt and hash; the text is the only place of the secret.
std::string MakeToken(TokenRecord* record);

struct TokenText {
  std::string id, secret;
  std::string fingerprint;  // of a token to join with; else empty
};
absl::StatusOr<TokenText> ParseToken(std::string_view text);
// The texts of a token to join with, and of the bearer token in it.
std::string JoinToken(const TokenText& token, std::string_view fingerprint);
std::string BearerToken(const TokenText& token);
// Takes the same time for every secret.
bool TokenMatches(const TokenRecord& record, std::string_view secret);

// One line per token, in order; reads what it wrote, and nothing else.
std::string FormatTokenFile(const std::vector<TokenRecord>& records);
absl::StatusOr<std::vector<TokenRecord>> ParseTokenFile(std::string_view text);

}  // namespace tessera
