// The names of the roles. Token files, the RPCs of AdminService and the gate's errors use them.
#include "server/core/tokens.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::server::core {
namespace {

// The names, in the order of Role.
constexpr const char* kRoleNames[] = {"viewer", "user", "operator", "admin", "worker"};

}  // namespace

absl::string_view RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < std::size(kRoleNames); ++i)
    if (name == kRoleNames[i]) return static_cast<Role>(i);
  return MakeError(
      ErrorKind::kValueError,
      absl::StrCat("role: '", name.substr(0, 64),
                   "' is not a role; expected viewer, user, operator, admin or worker"));
}

}  // namespace tessera::server::core
