// What is checked before a request reaches the scheduler: form and limits, with reasons.  Pure
// functions; any thread.
#pragma once
#include "absl/status/status.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/verify.h"

namespace tessera::server::admission {

// The limits that the options set for programs, meshes and arrays.
ir::Limits LimitsOf(const Options& options);

// The program verifies, is of an op set that is known, and is within the limits; what is planned
// for absent devices is not to run and names no devices.
absl::Status AdmitCompile(const api::CompileRequest& request, const ir::Limits& limits);
// The placement fits the shape and both are within the limits.  Whether devices exist is asked
// later.
absl::Status AdmitArray(const api::ArraySpec& spec, const ir::Limits& limits);
// At most 100'000 ids in one call.
absl::Status AdmitDelete(size_t arrays);
// At most limits.values_per_op arguments; a deadline that is positive.
absl::Status AdmitExecute(const api::ExecuteRequest& request, const ir::Limits& limits);

}  // namespace tessera::server::admission
