// Requests that wait: a struct for each thing that a request may wait for.
//
// Each struct says where it is listed (Listed), so that what ends the wait finds it; null: it is
// found by a look at all waits.  Late answers the request when its time is over, after the wait has
// ended; it is defined in the file that begins such waits.  A new kind is its struct, its Late and
// a line in Waiter.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/scheduler/events.h"

namespace tessera::server::scheduler {

class Machine;
struct State;
using Requests = std::set<uint64_t>;

// ---- Listed at an array (arrays.cc). ----
// For the array to be ready.
struct ArrayWait {
  uint64_t array = 0;
  Requests* Listed(State& state) const;
  void Late(Machine& m, uint64_t request) const;
};
// For a shard's contents; of an array that is not ready for that first.
struct ReadWait : ArrayWait {
  int ordinal = 0;
  std::string executor = {};  // that was asked for it; empty: none yet
  void Late(Machine& m, uint64_t request) const;
};
// For an executor to have taken a shard.
struct WriteWait : ArrayWait {
  int64_t device = -1;
  std::string executor;
  void Late(Machine& m, uint64_t request) const;
};

// ---- Listed at an operation (operations.cc, run.cc). ----
// For its end, answered with the operation.
struct OperationWait {
  uint64_t operation = 0;
  Requests* Listed(State& state) const;
  void Late(Machine& m, uint64_t request) const;
};
// For its state to change.
struct ChangeWait : OperationWait {};
// For its end, answered with the results that are small enough, too.
struct CompletionWait : OperationWait {
  void Late(Machine& m, uint64_t request) const;
};
// For what becomes of an array that was donated to an operation that has ended.
struct DonationWait : OperationWait {
  uint64_t array = 0;
  void Late(Machine& m, uint64_t request) const;
};

// ---- Listed at an executable (programs.cc). ----
struct CompileWait {
  uint64_t executable = 0;
  absl::Time latest = absl::InfiniteFuture();  // when the caller's own timeout is over
  bool explain = false;                        // the answer contains the plan's explanation
  Requests* Listed(State& state) const;
  void Late(Machine& m, uint64_t request) const;
};

// ---- Listed at a worker (cluster.cc). ----
// For nothing to run on it any more.
struct DrainWait {
  std::string worker;
  Requests* Listed(State& state) const;
  void Late(Machine& m, uint64_t request) const;
};

// ---- Not listed. ----
// For the executors of an array that is to be created (arrays.cc).
struct CreateWait {
  uint64_t session = 0;
  api::ArraySpec spec;
  Requests* Listed(State&) const { return nullptr; }
  void Late(Machine& m, uint64_t request) const;
};
// For an executor to say what a file holds (files.cc).
struct InspectWait {
  std::string executor;
  std::shared_ptr<const LoadArrays> load;  // what to load of it; null: the contents are the answer
  Requests* Listed(State&) const { return nullptr; }
  void Late(Machine& m, uint64_t request) const;
};
// For the end of a session, as long as its client is connected: such a wait is never late.
struct HoldWait {
  Requests* Listed(State&) const { return nullptr; }
  void Late(Machine&, uint64_t) const {}
};

struct Waiter {
  absl::Time until;
  std::variant<ArrayWait, ReadWait, WriteWait, OperationWait, ChangeWait, CompletionWait,
               DonationWait, CompileWait, DrainWait, CreateWait, InspectWait, HoldWait>
      on;
};

}  // namespace tessera::server::scheduler
