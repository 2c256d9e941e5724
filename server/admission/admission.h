// Validates the form and the limits of a request before it reaches the scheduler.  The functions
// have no state and are thread-safe.
#pragma once
#include "absl/status/status.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/verify.h"

namespace tessera::server::admission {

// Returns the limits that the options set for programs, meshes and arrays.
ir::Limits LimitsOf(const Options& options);

// Checks that the program verifies, uses a known op set, and is within the limits. Checks too that
// a request for absent devices asks for the plan alone and names no devices.
absl::Status ValidateCompile(const api::CompileRequest& request, const ir::Limits& limits);
// Checks that the placement fits the shape, and that both are within the limits.  The scheduler
// checks that the devices exist.
absl::Status ValidateArray(const api::ArraySpec& spec, const ir::Limits& limits);
// Checks that one call deletes at most 100'000 arrays.
absl::Status ValidateDelete(size_t arrays);
// Checks that there are at most limits.values_per_op arguments, and that the deadline is positive.
absl::Status ValidateExecute(const api::ExecuteRequest& request, const ir::Limits& limits);

}  // namespace tessera::server::admission
