// The authenticated caller of a request. The caller's tenant and role decide what the request may
// do.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::server::core {

// Each role may do everything that the roles before it may do, except kWorker: it may only connect
// as a worker and get its certificate signed (enrol).
enum class Role : uint8_t {
  kViewer,    // reads its tenant's resources
  kUser,      // reads and changes its tenant's resources
  kOperator,  // reads the resources of all tenants; cordons and drains workers
  kAdmin,     // does everything, tokens included
  kWorker,
};

// The tenant of callers without tokens, and the coordinator's own tenant.
inline constexpr char kDefaultTenant[] = "default";
inline constexpr char kSystemTenant[] = "system";

struct Caller {
  std::string tenant = kDefaultTenant;
  Role role = Role::kAdmin;
  std::string token_name;  // for logs; empty if the server runs without tokens

  // Return whether this caller may read, and whether it may change, the resources of tenant
  // `owner`.
  bool MayRead(const std::string& owner) const {
    return tenant == owner || role == Role::kOperator || role == Role::kAdmin;
  }
  bool MayChange(const std::string& owner) const { return tenant == owner || role == Role::kAdmin; }
};

}  // namespace tessera::server::core
