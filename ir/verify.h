// Checks that a program is well formed. The client checks before sending, the server after
// receiving. Stateless; thread-safe.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "ir/program.h"

namespace tessera::ir {

struct Limits {
  int64_t ops = 1'000'000;  // ops, with those in regions; each region counts as one more
  int64_t region_depth = 64;
  int64_t values_per_op = 4096;  // operands, results or regions of an op
  int64_t rank = 32;
  int64_t mesh_devices = 65'536;
  int64_t attr_bytes = 16 << 20;  // bytes of one attribute
};

// Checks SSA order, ops, attributes, that every type equals the inferred one, regions in their
// scopes, and that shardings fit the params and results. Errors are MALFORMED_PROGRAM,
// LIMIT_EXCEEDED or the op's own.
absl::Status Verify(const Program& program, const Limits& limits = {});
absl::Status VerifyFunction(const Function& f, const Limits& limits = {});
// Checks only shardings and names. There is one for each param or result, or there are none. No
// sharding is longer than its value's rank, and names are not too long and are printable ASCII.
absl::Status VerifySignature(const Program& program);

}  // namespace tessera::ir
