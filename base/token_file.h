// Makes and parses the text of tokens, and formats and parses the coordinator's file of token
// records.
//
//   tsr_<id>_<secret>                  a bearer token, sent as "authorization: Bearer tsr_..."
//   tsj_<id>_<secret>_<fingerprint>    a join token, which also has the fingerprint of the
//                                      cluster's CA
//
// The file holds salted hashes and no secrets. Stateless; thread-safe. Errors are VALUE_ERROR and
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

// The stored record of a token. Times are whole seconds.
struct TokenRecord {
  std::string name;                             // unique name; see CheckTokenName
  std::string id;                               // 16 hex digits, unique; the key of the record
  std::string role;                             // one of kRoleNames
  std::string tenant;                           // empty for workers
  std::string salt;                             // 32 hex digits
  std::string hash;                             // SHA-256 of the salt and the secret, hex
  absl::Time created;                           // time at which the token was made
  absl::Time expires = absl::InfiniteFuture();  // infinite if it never expires
  absl::Time last_used = absl::InfinitePast();  // infinite past if it was never used
  bool revoked = false;
  bool operator==(const TokenRecord&) const = default;
};

// Checks the name of a token or of a tenant: 1 to 63 lower-case letters, digits, '-' and '_'. The
// message of an error starts with `what`.
absl::Status CheckTokenName(std::string_view what, std::string_view name);

// Makes a token. Sets the id, salt and hash of the record, and returns the text of the token. This
// text is the only copy of the secret.
std::string MakeToken(TokenRecord* record);

struct TokenText {
  std::string id, secret;
  std::string fingerprint;  // empty in a bearer token
};
absl::StatusOr<TokenText> ParseToken(std::string_view text);
// FormatJoinToken returns the text of the token with the fingerprint; FormatBearerToken returns it
// without one.
std::string FormatJoinToken(const TokenText& token, std::string_view fingerprint);
std::string FormatBearerToken(const TokenText& token);
// Returns whether the secret belongs to the record. Compares in constant time.
bool TokenMatches(const TokenRecord& record, std::string_view secret);

// FormatTokenFile writes one line for each record, in order. ParseTokenFile accepts only texts that
// FormatTokenFile can write.
std::string FormatTokenFile(const std::vector<TokenRecord>& records);
absl::StatusOr<std::vector<TokenRecord>> ParseTokenFile(std::string_view text);

}  // namespace tessera
