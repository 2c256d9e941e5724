// Tickets: short-lived capabilities to write or read one shard, straight at its executor.
//
// The coordinator signs, the executor checks; both know the key of the coordinator's epoch, the
// client sees only the opaque text.  Pure functions; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/array.h"

namespace tessera::api {

struct Ticket {
  enum class Access : uint8_t { kRead = 1, kWrite = 2 };
  Access access = Access::kRead;
  uint64_t incarnation = 0;  // of the executor
  uint64_t array = 0;
  int32_t device = 0;  // local to the executor
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;      // of the shard
  absl::Time expires;  // by the coordinator's clock; millisecond grain
  bool operator==(const Ticket&) const = default;
};

// The ticket as printable text that ends in an HMAC-SHA256 over what precedes it.
std::string SignTicket(const Ticket& ticket, std::string_view key);
// Checks the mark, then the expiry, then that it is for `incarnation`.
absl::StatusOr<Ticket> CheckTicket(std::string_view text, std::string_view key, absl::Time now,
                                   uint64_t incarnation);

}  // namespace tessera::api
