// The names of the roles, in the order of server::core::Role. Token files, the calls that make
// tokens and the command line read this table.
#pragma once

namespace tessera {

inline constexpr const char* kRoleNames[] = {"viewer", "user", "operator", "admin", "worker"};

}  // namespace tessera
