// What the scheduler tells about itself: notes of what has happened, for counters, and readings of
// what is, for gauges and for health. Values; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "base/status.h"
#include "ir/api/service.h"

namespace tessera::server::core {

// ---- Notes, in the order of what happened. ------------------------------------------------------
struct OperationSubmitted {
  std::string tenant;
  api::OperationKind kind = api::OperationKind::kExecute;
};
struct OperationEnded {
  std::string tenant, name;  // the program's
  api::OperationKind kind = api::OperationKind::kExecute;
  std::string device_kind;  // "cpu", "gpu"
  api::OperationState state = api::OperationState::kDone;
  absl::Status error;
  absl::Time created, started = absl::InfiniteFuture(), ended;
  // Of the executors' runs: the longest, and the sum over devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // its plan came after it
  int64_t bytes_moved = 0;
};
struct CacheLookup {
  enum Result : uint8_t { kHit, kMiss, kCoalesced } result = kMiss;
};
struct ArraysLost {
  int64_t count = 0;
};
struct LeaseExpired {
  std::string worker;
};
// A plan was refused, since a device would not have the memory.
struct PlanTooLarge {
  std::string device_kind;
};
// A cancel has had its effect: for what was running, its last executor has spoken.
struct CancelDone {
  enum Result : uint8_t { kNotStarted, kStopped, kCompleted } result = kStopped;
  absl::Duration latency;
};
struct SessionEnded {
  std::string tenant, reason;  // "deleted", "lease_expired"
};
// A loss, timeout or refusal that an operator would look for, for the log.  `what` is one of few
// texts; the fields say to what and why.
struct Incident {
  std::string what;
  std::vector<std::pair<std::string, std::string>> fields;
};
using Note = std::variant<OperationSubmitted, OperationEnded, CacheLookup, ArraysLost, LeaseExpired,
                          PlanTooLarge, CancelDone, SessionEnded, Incident>;

// An operation's kind as metrics call it: "execute", "copy", "checkpoint".
const char* MetricNameOf(api::OperationKind kind);

// Is told. Thread-safe; calls must not block, and come without a lock.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnNote(const Note& note) = 0;
  // One step of the scheduler with the carrying out of its effects; `execute`: it took an Execute.
  virtual void OnStep(absl::Duration time, bool execute) = 0;
  virtual void OnPlan(absl::Duration time, bool ok) = 0;
};

// ---- Readings. ----------------------------------------------------------------------------------
struct Reading {
  Metric metric;
  std::vector<std::string> labels;
  double value = 0;
};

// An executor, as health wants to know it.
struct ExecutorReading {
  std::string name, worker, device_kind;
  int32_t index = 0;
  uint64_t incarnation = 0;
  std::vector<int64_t> devices;  // ids
  int first_device = 0;          // the number of the first within its worker
  bool alive = false;
  bool cordoned = false;   // or draining: canaries leave it alone
  int64_t operations = 0;  // that were sent to it and have not ended
  // Launches that it has ended well, and those of them with collectives.
  int64_t ended = 0, ended_collectives = 0;
  // Since what it runs last went on, as its worker said; 0 when it runs nothing.
  absl::Duration progress_age;
  // Since it last answered its worker, once that is too long; else 0.
  absl::Duration silence = {};
  bool operator==(const ExecutorReading&) const = default;
};

struct ClusterReading {
  std::vector<Reading> readings;
  std::vector<ExecutorReading> executors;  // of the first part alone
  uint64_t next_array = 0;                 // the arrays that come next; 0: that was all
};

// ---- Programs. ----------------------------------------------------------------------------------
// What the runs of one program have come to (server/telemetry/top_programs.h).
struct ProgramUse {
  std::string tenant, program;        // both "" for the others
  int64_t steps = 0;                  // runs that ended well
  int64_t failures = 0;               // and otherwise
  absl::Duration step_time;           // of the steps, from a place in the order to the end
  absl::Duration step_p50, step_p99;  // of the last ones
  absl::Duration device_busy;         // summed over devices
  // Before its devices took it: for its inputs, and for its plan; and after it had its place, for
  // what stood before it and for peers.
  absl::Duration idle_input, idle_compile, idle_peer;
  int64_t bytes_moved = 0;  // by its collectives, and to bring its arguments into place
  // Devices that it has lately kept busy, on average.
  double devices_lately = 0;
};

}  // namespace tessera::server::core
