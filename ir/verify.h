// Checks that a program is well formed: the client does before sending, the server after receiving.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "ir/program.h"

namespace tessera::ir {

struct Limits {
  int64_t ops = 1'000'000;  // those of regions, and the regions, included
  int64_t region_depth = 64;
  int64_t values_per_op = 4096;  // operands, results or regions
  int64_t rank = 32;
  int64_t mesh_devices = 65'536;
  int64_t attr_bytes = 16 << 20;  // of one attribute
};

// Checks SSA order, ops, attributes, that every type is the inferred one, regions in their scopes,
// shardings that fit the params and results.  MALFORMED_PROGRAM, LIMIT_EXCEEDED or the op's error.
absl::Status Verify(const Program& program, const Limits& limits = {});
absl::Status VerifyFunction(const Function& f, const Limits& limits = {});
// Checks only shardings and names: one per param or result, or none; no sharding longer than its
// rank, no name that is too long or not printable ASCII.
absl::Status VerifySignature(const Program& program);

}  // namespace tessera::ir
