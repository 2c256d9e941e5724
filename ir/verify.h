// Checks that a program is well formed. The client checks before sending, the server after
// receiving. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "ir/program.h"

namespace tessera::ir {

struct Limits {
  int64_t ops = 1'000'000;  // number of ops, also in regions; a region counts as one op more
  int64_t region_depth = 64;
  int64_t values_per_op = 4096;  // operands, results or regions of an op
  int64_t rank = 32;
  int64_t mesh_devices = 65'536;
  int64_t attr_bytes = 16 << 20;  // bytes of one attribute
};

// Checks SSA order, ops, attributes, regions in their scopes, that every type equals the inferred
// one, and that shardings fit the params and results. Errors are MALFORMED_PROGRAM, LIMIT_EXCEEDED
// or the error of the op that is wrong.
absl::Status Verify(const Program& program, const Limits& limits = {});
absl::Status VerifyFunction(const Function& f, const Limits& limits = {});
// Checks only the shardings and names of params and results. Each list must be empty or have one
// entry for each of them. No sharding may have more dims than its value, and names must be
// printable ASCII and not too long.
absl::Status VerifySignature(const Program& program);

}  // namespace tessera::ir
