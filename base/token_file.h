// Bearer tokens: their text form, and the coordinator's file of token records.
//
//   tsr_<id>_<secret>                  a bearer token, sent as "authorization: Bearer tsr_..."
//   tsj_<id>_<secret>_<fingerprint>    a join token: also the fingerprint of the cluster's CA
//
// The file holds salted hashes, no secrets. Stateless; thread-safe. Errors are VALUE_ERROR and
// never contain a secret.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

inline constexpr size_t kTokensMax = 10'000;

// The stored record of one token. Times are whole seconds.
struct TokenRecord {
  std::string name;                             // unique; see CheckTokenName
  std::string id;                               // 16 hex digits, unique; the key of the record
  std::string role;                             // one of server/core/tokens.h
  std::string tenant;                           // empty for workers
  std::string salt;                             // 32 hex digits
  std::string hash;                             // SHA-256 of salt and secret, hex
  absl::Time created;                           //
  absl::Time expires = absl::InfiniteFuture();  // never
  absl::Time last_used = absl::InfinitePast();  // not yet
  bool revoked = false;
  bool operator==(const TokenRecord&) const = default;
};

// Lower-case letters, digits, '-' and '_', at most 63 characters; also for names of tenants. The
// error message starts with `what`.
absl::Status CheckTokenName(std::string_view what, std::string_view name);

// Sets id, salt and hash of the record, and returns the token's text, the only copy of the secret.
std::string MakeToken(TokenRecord* record);

struct TokenText {
  std::string id, secret;
  std::string fingerprint;  // empty in a bearer token
};
absl::StatusOr<TokenText> ParseToken(std::string_view text);
// The text of the token with the fingerprint, and without one.
std::string FormatJoinToken(const TokenText& token, std::string_view fingerprint);
std::string FormatBearerToken(const TokenText& token);
// In constant time.
bool TokenMatches(const TokenRecord& record, std::string_view secret);

// One line per token, in order. Parsing accepts exactly what FormatTokenFile writes.
std::string FormatTokenFile(const std::vector<TokenRecord>& records);
absl::StatusOr<std::vector<TokenRecord>> ParseTokenFile(std::string_view text);

}  // namespace tessera
