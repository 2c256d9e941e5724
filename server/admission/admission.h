// Validates the form and the limits of a request before it reaches the scheduler.  Stateless;
// thread-safe.
#pragma once
#include "absl/status/status.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/verify.h"

namespace tessera::server::admission {

// The limits that the options set for programs, meshes and arrays.
ir::Limits LimitsOf(const Options& options);

// Checks that the program verifies, is of a known op set, and is within the limits; and that a
// request for hypothetical devices is plan-only and names no devices.
absl::Status ValidateCompile(const api::CompileRequest& request, const ir::Limits& limits);
// Checks that the placement fits the shape and both are within the limits.  The scheduler checks
// that the devices exist.
absl::Status ValidateArray(const api::ArraySpec& spec, const ir::Limits& limits);
// At most 100'000 ids in one call.
absl::Status ValidateDelete(size_t arrays);
// At most limits.values_per_op arguments; a deadline that is positive.
absl::Status ValidateExecute(const api::ExecuteRequest& request, const ir::Limits& limits);

}  // namespace tessera::server::admission
