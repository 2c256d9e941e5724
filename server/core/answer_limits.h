// Bounds of the answers that the coordinator remembers for calls with a request_id, so that a
// repeated call gets the first call's answer and does not run again.
#pragma once
#include <cstdint>

#include "absl/time/time.h"

namespace tessera::server::core {

// A tenant's answers are bounded in number, age and bytes. At a bound the tenant's oldest answer is
// dropped, and a call whose answer was dropped runs again when it is repeated. The bytes of all
// tenants together are bounded too. At that bound the tenant with the most bytes loses its oldest
// answer, so that no tenant can evict the answers of smaller ones.
struct AnswerLimits {
  int64_t answers_max = 10'000;  // number of answers of a tenant
  absl::Duration age_max = absl::Minutes(10);
  int64_t bytes_max = 16 << 20;       // size of a tenant's answers
  int64_t all_bytes_max = 256 << 20;  // size of all tenants' answers
};

}  // namespace tessera::server::core
