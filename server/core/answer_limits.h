// The bounds of what is remembered of calls with a request_id.
#pragma once
#include <cstdint>

#include "absl/time/time.h"

namespace tessera::server::core {

// A tenant's answers are bounded in number, age and bytes; its own oldest goes first, and a call
// whose answer is gone runs again. Beyond the bound of bytes over all tenants, the tenant with the
// most bytes loses its oldest, so that no tenant evicts those of smaller ones.
struct AnswerLimits {
  int64_t answers_max = 10'000;  // of a tenant
  absl::Duration age_max = absl::Minutes(10);
  int64_t bytes_max = 16 << 20;       // of a tenant
  int64_t all_bytes_max = 256 << 20;  // of all tenants
};

}  // namespace tessera::server::core
