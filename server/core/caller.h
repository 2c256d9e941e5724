// The authenticated caller of a request, by which the coordinator decides what is allowed.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

// Each role may do what the ones before it may, except kWorker, which may only connect and enrol.
enum class Role : uint8_t {
  kViewer,    // reads in its tenant
  kUser,      // everything in its tenant
  kOperator,  // reads everywhere; cordons and drains
  kAdmin,     // everything, tokens included
  kWorker,
};

// The tenant of callers without tokens, and the coordinator's own tenant.
inline constexpr char kDefaultTenant[] = "default";
inline constexpr char kSystemTenant[] = "system";

struct Caller {
  std::string tenant = kDefaultTenant;
  Role role = Role::kAdmin;
  std::string token_name;  // for logs; empty without tokens

  // Whether this caller may read, and may change, the resources of tenant `owner`.
  bool Sees(const std::string& owner) const {
    return tenant == owner || role == Role::kOperator || role == Role::kAdmin;
  }
  bool Changes(const std::string& owner) const { return tenant == owner || role == Role::kAdmin; }
};

}  // namespace tessera::server::core
