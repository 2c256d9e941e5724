// The interface of the token store. server/auth implements it; the gate and AdminService use it.
// Thread-safe. A token's text is returned once, when it is created.
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
  std::string name;  // unique
  Role role = Role::kViewer;
  std::string tenant;  // empty for workers
  absl::Time created;
  absl::Time expires = absl::InfiniteFuture();
  absl::Time last_used = absl::InfinitePast();  // never
  bool revoked = false;
};

struct NewToken {
  std::string name;
  Role role = Role::kUser;
  std::string tenant;  // empty: the default; workers have none
  absl::Duration time_to_live = absl::InfiniteDuration();
};

struct MadeToken {
  std::string text;  // never stored
  TokenInfo info;
};

class TokenStore {
 public:
  virtual ~TokenStore() = default;
  // TOKEN_UNKNOWN, TOKEN_EXPIRED, TOKEN_REVOKED.
  virtual absl::StatusOr<Caller> Authenticate(absl::string_view text, absl::Time now) = 0;
  // OK if the token of that name is still valid: called again for callers with open streams.
  virtual absl::Status Check(const std::string& name, absl::Time now) const = 0;

  // VALUE_ERROR: an invalid name, tenant or time to live; ALREADY_EXISTS.  Durable when it returns.
  virtual absl::StatusOr<MadeToken> Create(const NewToken& token, absl::Time now) = 0;
  virtual std::vector<TokenInfo> List() const = 0;  // by name
  // TOKEN_NOT_FOUND.  Durable when it returns.
  virtual absl::StatusOr<TokenInfo> Revoke(const std::string& name) = 0;
  // Persists the times of last use, which are otherwise only in memory.
  virtual absl::Status Flush() = 0;
};

// "viewer", "user", "operator", "admin", "worker", and the inverse: VALUE_ERROR lists the roles.
absl::string_view RoleName(Role role);
absl::StatusOr<Role> ParseRole(absl::string_view name);

}  // namespace tessera::server::core
