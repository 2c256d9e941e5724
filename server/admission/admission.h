// Checks that a request is well-formed and within the limits before it reaches the scheduler.
// Stateless; thread-safe. Errors are VALUE_ERROR, LIMIT_EXCEEDED and others that say what is wrong
// with the request.
#pragma once
#include "absl/status/status.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/verify.h"

namespace tessera::server::admission {

// Returns the limits that the options set for programs, meshes and arrays.
ir::Limits LimitsOf(const Options& options);

// Checks that the program passes ir::Verify, uses an op set (version of the table of ops) that this
// server knows, and is within the limits. A request for absent devices must ask for the plan alone
// and must name no existing devices.
absl::Status ValidateCompile(const api::CompileRequest& request, const ir::Limits& limits);
// Checks that the array's placement (its sharding and devices) fits its shape, and that both are
// within the limits. The scheduler checks that the devices exist.
absl::Status ValidateArray(const api::ArraySpec& spec, const ir::Limits& limits);
// Checks that one call deletes at most 100'000 arrays.
absl::Status ValidateDelete(size_t arrays);
// Checks that there are at most limits.values_per_op arguments, and that the time limit is
// positive.
absl::Status ValidateExecute(const api::ExecuteRequest& request, const ir::Limits& limits);

}  // namespace tessera::server::admission
