// The interface of the token store. server/auth implements it; the gate (server/rpc/gate.h), which
// authenticates calls, and AdminService use it. Thread-safe. A token's text is returned only once,
// when the token is created.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/core/caller.h"

namespace tessera::server::core {

// The metadata of a token.
struct TokenInfo {
  std::string name;  // unique name of the token
  Role role = Role::kViewer;
  std::string tenant;  // tenant of the token; empty for workers
  absl::Time created;
  absl::Time expires = absl::InfiniteFuture();
  absl::Time last_used = absl::InfinitePast();  // InfinitePast if it was never used
  bool revoked = false;
};

struct NewToken {
  std::string name;
  Role role = Role::kUser;
  std::string tenant;  // empty for the default tenant and for workers, which have no tenant
  absl::Duration time_to_live = absl::InfiniteDuration();
};

struct MadeToken {
  std::string text;  // the token itself, which is never stored
  TokenInfo info;
};

class TokenStore {
 public:
  virtual ~TokenStore() = default;
  // Returns the caller to whom the token `text` belongs. Errors are TOKEN_UNKNOWN, TOKEN_EXPIRED
  // and TOKEN_REVOKED.
  virtual absl::StatusOr<Caller> Authenticate(absl::string_view text, absl::Time now) = 0;
  // Returns OK if the token with this name is still valid. Called from time to time for each caller
  // with an open stream, whose token may expire or be revoked meanwhile.
  virtual absl::Status Check(const std::string& name, absl::Time now) const = 0;

  // Creates a token, which is durable when the call returns. Errors are VALUE_ERROR for an invalid
  // name, tenant or time to live, ALREADY_EXISTS, and LIMIT_EXCEEDED if there are too many tokens.
  virtual absl::StatusOr<MadeToken> Create(const NewToken& token, absl::Time now) = 0;
  virtual std::vector<TokenInfo> List() const = 0;  // all tokens, ordered by name
  // Revokes the token, durably when the call returns, or fails with TOKEN_NOT_FOUND.
  virtual absl::StatusOr<TokenInfo> Revoke(const std::string& name) = 0;
  // Writes the times of last use that are only in memory so far.
  virtual absl::Status Flush() = 0;
};

// Return the role's name, one of kRoleNames (base/roles.h), and the role with a name. The error for
// an unknown name is VALUE_ERROR and lists the roles.
absl::string_view RoleName(Role role);
absl::StatusOr<Role> ParseRole(absl::string_view name);

}  // namespace tessera::server::core
