// Who calls: what the gate has found out and the roles of the coordinator go by.  Values; any
// thread.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

// Each may do what those before it may; kWorker stands apart and may only link and enrol.
enum class Role : uint8_t {
  kViewer,    // reads in its tenant
  kUser,      // everything in its tenant
  kOperator,  // reads everywhere; cordons and drains
  kAdmin,     // everything, tokens included
  kWorker,
};

// The tenant of callers that no token tells apart, and the coordinator's own.
inline constexpr char kDefaultTenant[] = "default";
inline constexpr char kSystemTenant[] = "system";

struct Caller {
  std::string tenant = kDefaultTenant;
  Role role = Role::kAdmin;
  std::string token_name;  // for logs; empty without tokens

  // Whether what belongs to `owner` exists for this caller's reads, and for its changes.
  bool Sees(const std::string& owner) const {
    return tenant == owner || role == Role::kOperator || role == Role::kAdmin;
  }
  bool Changes(const std::string& owner) const { return tenant == owner || role == Role::kAdmin; }
};

}  // namespace tessera::server::core
