// The scheduler's telemetry. Notes are events, for counters. Readings are samples of the current
// state, for gauges and for health checks.
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

// ---- Notes, in the order of the events. ---------------------------------------------------------
struct OperationSubmitted {
  std::string tenant;
  api::OperationKind kind = api::OperationKind::kExecute;
};
struct OperationEnded {
  std::string tenant, name;  // tenant and name of the program
  api::OperationKind kind = api::OperationKind::kExecute;
  std::string device_kind;  // "cpu" or "gpu"
  api::OperationState state = api::OperationState::kDone;
  absl::Status error;
  absl::Time created, started = absl::InfiniteFuture(), ended;
  // The longest of the executors' runs, and the sum of the run times over all devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // true if it was submitted before its program was planned
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
// A plan was rejected because a device would not have enough memory.
struct PlanTooLarge {
  std::string device_kind;
};
// A cancellation has completed: the last executor of a running operation has reported its end.
struct CancelDone {
  enum Result : uint8_t { kNotStarted, kStopped, kCompleted } result = kStopped;
  absl::Duration latency;
};
struct SessionEnded {
  std::string tenant, reason;  // the reason is "deleted" or "lease_expired"
};
// A loss, timeout or rejection, for the operator's log.  `what` is one of few constant texts; the
// fields are the log line's key-value pairs.
struct Incident {
  std::string what;
  std::vector<std::pair<std::string, std::string>> fields;
};
using Note = std::variant<OperationSubmitted, OperationEnded, CacheLookup, ArraysLost, LeaseExpired,
                          PlanTooLarge, CancelDone, SessionEnded, Incident>;

// Returns the value of the metrics' label for an operation's kind.
inline const char* MetricNameOf(api::OperationKind kind) {
  constexpr const char* kNames[] = {"execute", "copy", "checkpoint", "checkpoint"};
  return kNames[static_cast<int>(kind)];
}

// Receives the notes. An implementation is thread-safe and does not block. The scheduler holds no
// lock during a call.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnNote(const Note& note) = 0;
  // One step of the scheduler and its effects took `time`. `execute` says whether the step's event
  // was an Execute.
  virtual void OnStep(absl::Duration time, bool execute) = 0;
  virtual void OnPlan(absl::Duration time, bool ok) = 0;
};

// ---- Readings. ----------------------------------------------------------------------------------
struct Reading {
  Metric metric;
  std::vector<std::string> labels;
  double value = 0;
};

// The state of an executor, for health checks.
struct ExecutorReading {
  std::string name, worker, device_kind;
  int32_t index = 0;
  uint64_t incarnation = 0;
  std::vector<int64_t> devices;  // ids of its devices
  int first_device = 0;          // index of its first device within the worker
  bool alive = false;
  bool cordoned = false;   // true if cordoned or draining, so that it gets no canaries
  int64_t operations = 0;  // operations that were sent to it and have not ended
  // Number of launches that succeeded, and how many of them had collectives.
  int64_t launches_succeeded = 0, collective_launches_succeeded = 0;
  // Time since its launch last made progress, as its worker reported. 0 when it runs nothing.
  absl::Duration progress_age;
  // Time since it last replied to its worker, once that time is too long. Otherwise 0.
  absl::Duration silence = {};
  bool operator==(const ExecutorReading&) const = default;
};

struct ClusterReading {
  std::vector<Reading> readings;
  std::vector<ExecutorReading> executors;  // all executors; empty except in the first part
  uint64_t next_array = 0;                 // first array of the next part; 0 in the last part
};

// ---- Programs. ----------------------------------------------------------------------------------
// The accumulated use of one program's runs (server/telemetry/top_programs.h).
struct ProgramUse {
  std::string tenant, program;        // both "" in the row that adds up all other programs
  int64_t steps = 0;                  // runs that succeeded
  int64_t failures = 0;               // runs that failed or were cancelled
  absl::Duration step_time;           // total time of the steps, from scheduling to end
  absl::Duration step_p50, step_p99;  // quantiles of the time of recent steps
  absl::Duration device_busy;         // busy time, summed over devices
  // Time that its runs waited. Before a run was scheduled, it waited for inputs (idle_input) or for
  // the plan (idle_compile). After that it waited for earlier launches and for peers (idle_peer).
  absl::Duration idle_input, idle_compile, idle_peer;
  int64_t bytes_moved = 0;  // bytes moved by its collectives and by resharding its arguments
  // The exponentially decayed average number of devices that it kept busy; half-life 10 min.
  double recent_devices_busy = 0;
};

}  // namespace tessera::server::core
