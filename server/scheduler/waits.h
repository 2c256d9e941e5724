// Requests that wait, as plain data: a struct for each kind of condition that a request may wait
// for.
//
// The functions WaitersFor and AnswerTimeout of Machine (machine.h) say where a request with such a
// wait is registered, and answer the request at its timeout. They are defined in the file that
// begins such waits. To add a kind, add its struct, an entry in Waiter, and its two functions.
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

using Requests = IdSet;

// ---- In the `waiters` of an array (arrays.cc). ----
// Waits for the array to be ready.
struct ArrayWait {
  uint64_t array = 0;
};
// Waits for the array to be ready, then for a shard's contents.
struct ReadWait : ArrayWait {
  int ordinal = 0;
  std::string executor = {};  // executor that the read was sent to; empty if it was not sent yet
};
// Waits for an executor to have received a shard.
struct WriteWait : ArrayWait {
  int64_t device = -1;
  std::string executor;
};

// ---- In the `waiters` of an operation (operations.cc, run.cc, arrays.cc). ----
// Waits for the end of the operation. The reply is the operation.
struct OperationWait {
  uint64_t operation = 0;
  bool fail_fast = false;  // see WaitOperation
};
// Waits for the state of the operation to change.
struct ChangeWait : OperationWait {};
// Waits for the end of the operation. The reply contains the inline results too.
struct CompletionWait : OperationWait {};
// Waits until an array that was donated to an ended operation is either given back to the client or
// freed.
struct DonationWait : OperationWait {
  uint64_t array = 0;
};

// ---- In the `waiters` of an executable (programs.cc). ----
// Waits for the plan, and until all executors have compiled the program.
struct CompileWait {
  uint64_t executable = 0;
  absl::Time caller_deadline = absl::InfiniteFuture();  // end of the caller's own timeout
  bool explain = false;  // whether the reply contains the plan's explanation
};

// ---- In the `drains` of a worker (inventory.cc). ----
// Waits until nothing runs on the worker any more.
struct DrainWait {
  std::string worker;
};

// ---- Found by a search of all waits. ----
// Waits for the executors of an array that is to be created (arrays.cc).
struct CreateWait {
  uint64_t session = 0;
  CreateArray call;
};
// Waits for an executor to report a file's contents (files.cc).
struct InspectWait {
  std::string executor;
  std::shared_ptr<const LoadArrays> load;  // arrays to load; if null, the reply is the contents
};
// Waits for the end of a session while its client is connected. This wait has no timeout.
struct HoldWait {};

struct Waiter {
  absl::Time until;
  std::variant<ArrayWait, ReadWait, WriteWait, OperationWait, ChangeWait, CompletionWait,
               DonationWait, CompileWait, DrainWait, CreateWait, InspectWait, HoldWait>
      wait;
};

}  // namespace tessera::server::scheduler
