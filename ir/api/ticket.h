// Tickets: short-lived capabilities to write or read one shard, straight at its executor.
//
// The coordinator signs, the executor checks; the client sees only the opaque text.  Every executor
// incarnation has a key of its own, which is derived from its worker's key, which is derived from
// the coordinator's key of this epoch.  A worker gets its own key only, so it cannot make tickets
// for the executors of another.  Stateless; thread-safe.
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
  absl::Time expires;  // by the coordinator's clock (Welcome); millisecond resolution
  bool operator==(const Ticket&) const = default;
};

// The keys derived from the coordinator's: a worker's, and from that an executor incarnation's.
std::string WorkerTicketKey(std::string_view coordinator_key, std::string_view worker);
std::string ExecutorTicketKey(std::string_view worker_key, int32_t index, uint64_t incarnation);
// Both derivations at once, for the executor called "worker/index".
std::string TicketKeyFor(std::string_view coordinator_key, std::string_view executor,
                         uint64_t incarnation);

// The ticket as printable text that ends in an HMAC-SHA256 over what precedes it.
std::string SignTicket(const Ticket& ticket, std::string_view key);
// TICKET_STALE: it is for another incarnation, or has expired; the client gets a new one.
// TICKET_REFUSED: it was not signed with the key.
absl::StatusOr<Ticket> CheckTicket(std::string_view text, std::string_view key, absl::Time now,
                                   uint64_t incarnation);

}  // namespace tessera::api
