// Tickets: short-lived capabilities to write or read one shard directly at its executor.
//
// The coordinator signs tickets and executors check them; to a client a ticket is an opaque text.
// Every executor incarnation has a key of its own, which is derived from its worker's key. The
// worker's key is derived from the coordinator's key. A worker gets only its own key, so it cannot
// make tickets for the executors of another worker. Stateless; thread-safe.
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
  uint64_t incarnation = 0;  // incarnation of the executor
  uint64_t array = 0;
  int32_t device = 0;  // local index at the executor
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;      // shape of the shard
  absl::Time expires;  // on the coordinator's clock (Welcome), in milliseconds
  bool operator==(const Ticket&) const = default;
};

// Derive keys: a worker's key from the coordinator's, and the key of an executor incarnation from
// its worker's.
std::string WorkerTicketKey(std::string_view coordinator_key, std::string_view worker);
std::string ExecutorTicketKey(std::string_view worker_key, int32_t index, uint64_t incarnation);
// Does both derivations, for the executor `executor`, in the form "worker/index".
std::string TicketKeyFor(std::string_view coordinator_key, std::string_view executor,
                         uint64_t incarnation);

// Returns the ticket as printable text, ending in an HMAC-SHA256 of the text before it.
std::string SignTicket(const Ticket& ticket, std::string_view key);
// Returns the ticket if it is valid. TICKET_STALE: it is for another incarnation or has expired,
// and the client gets a new one. TICKET_REFUSED: it was not signed with the key.
absl::StatusOr<Ticket> CheckTicket(std::string_view text, std::string_view key, absl::Time now,
                                   uint64_t incarnation);

}  // namespace tessera::api
