// Converts between roles and their names. Token files, the RPCs of AdminService and the gate's
// errors use the names.
#include "server/core/tokens.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/roles.h"
#include "base/status.h"

namespace tessera::server::core {

static_assert(std::size(kRoleNames) == static_cast<size_t>(Role::kWorker) + 1,
              "each role has a name");

absl::string_view RoleName(Role role) { return kRoleNames[static_cast<size_t>(role)]; }

absl::StatusOr<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < std::size(kRoleNames); ++i)
    if (name == kRoleNames[i]) return static_cast<Role>(i);
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("role: '", name.substr(0, 64), "' is not a role; expected one of ",
                                absl::StrJoin(kRoleNames, ", ")));
}

}  // namespace tessera::server::core
