// Requests that wait: a struct for each kind of condition that a request may wait for.
//
// Listed returns the set in which the request is registered, so that the event that ends the wait
// finds it. If Listed returns null, that event searches all waits. OnTimeout answers the request at
// its timeout, after the wait has been removed. Each OnTimeout is defined in the file that begins
// such waits. To add a kind, add its struct, its OnTimeout and an entry in Waiter.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/scheduler/events.h"
#include "server/scheduler/id_set.h"

namespace tessera::server::scheduler {

class Machine;
struct State;
using Requests = IdSet;

// ---- Listed at an array (arrays.cc). ----
// Waits for the array to be ready.
struct ArrayWait {
  uint64_t array = 0;
  Requests* Listed(State& state) const;
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits for the array to be ready, then for a shard's contents.
struct ReadWait : ArrayWait {
  int ordinal = 0;
  std::string executor = {};  // executor that the read was sent to; empty if it was not sent yet
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits for an executor to have received a shard.
struct WriteWait : ArrayWait {
  int64_t device = -1;
  std::string executor;
  void OnTimeout(Machine& m, uint64_t request) const;
};

// ---- Listed at an operation (operations.cc, run.cc, arrays.cc). ----
// Waits for the end of the operation. The reply is the operation.
struct OperationWait {
  uint64_t operation = 0;
  Requests* Listed(State& state) const;
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits for the state of the operation to change.
struct ChangeWait : OperationWait {};
// Waits for the end of the operation. The reply contains the inline results too.
struct CompletionWait : OperationWait {
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits until an array that was donated to an ended operation is either given back to the client or
// freed.
struct DonationWait : OperationWait {
  uint64_t array = 0;
  void OnTimeout(Machine& m, uint64_t request) const;
};

// ---- Listed at an executable (programs.cc). ----
// Waits for the plan, and until all executors have compiled the program.
struct CompileWait {
  uint64_t executable = 0;
  absl::Time latest = absl::InfiniteFuture();  // end of the caller's own timeout
  bool explain = false;                        // whether the reply contains the plan's explanation
  Requests* Listed(State& state) const;
  void OnTimeout(Machine& m, uint64_t request) const;
};

// ---- Listed at a worker (inventory.cc). ----
// Waits until nothing runs on the worker any more.
struct DrainWait {
  std::string worker;
  Requests* Listed(State& state) const;
  void OnTimeout(Machine& m, uint64_t request) const;
};

// ---- Not listed. ----
// Waits for the executors of an array that is to be created (arrays.cc).
struct CreateWait {
  uint64_t session = 0;
  CreateArray call;
  Requests* Listed(State&) const { return nullptr; }
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits for an executor to report a file's contents (files.cc).
struct InspectWait {
  std::string executor;
  std::shared_ptr<const LoadArrays> load;  // arrays to load; if null, the reply is the contents
  Requests* Listed(State&) const { return nullptr; }
  void OnTimeout(Machine& m, uint64_t request) const;
};
// Waits for the end of a session while its client is connected. This wait has no timeout.
struct HoldWait {
  Requests* Listed(State&) const { return nullptr; }
  void OnTimeout(Machine&, uint64_t) const {}
};

struct Waiter {
  absl::Time until;
  std::variant<ArrayWait, ReadWait, WriteWait, OperationWait, ChangeWait, CompletionWait,
               DonationWait, CompileWait, DrainWait, CreateWait, InspectWait, HoldWait>
      on;
};

}  // namespace tessera::server::scheduler
