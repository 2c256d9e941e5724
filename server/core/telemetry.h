// The messages from the scheduler to its observers. A note reports an event when it happens, for
// counters. A reading is a sample of the current state, which is requested when it is needed, for
// gauges and health checks.
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
  std::string tenant, name;  // the program's tenant and name
  api::OperationKind kind = api::OperationKind::kExecute;
  std::string device_kind;  // "cpu" or "gpu"
  api::OperationState state = api::OperationState::kDone;
  absl::Status error;
  absl::Time created, started = absl::InfiniteFuture(), ended;
  // The run time of the executor that took longest, and the sum of the run times of all devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // whether its program had no plan yet when it was accepted
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
// A worker came with executors whose arrays are not known, so that they are replaced.
struct ExecutorsNotAdopted {
  std::string worker;
  int64_t count = 0;
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
// A loss, timeout or rejection that an operator should find in the log. `what` is the message, one
// of few constant texts; `fields` are the key-value pairs of the log line.
struct Incident {
  std::string what;
  std::vector<std::pair<std::string, std::string>> fields;
};
using Note = std::variant<OperationSubmitted, OperationEnded, CacheLookup, ArraysLost, LeaseExpired,
                          ExecutorsNotAdopted, PlanTooLarge, CancelDone, SessionEnded, Incident>;

// Returns the value of the metrics' label for an operation's kind.
inline const char* MetricLabelOf(api::OperationKind kind) {
  constexpr const char* kNames[] = {"execute", "copy", "checkpoint", "checkpoint"};
  return kNames[static_cast<int>(kind)];
}

// Receives the notes. An implementation is thread-safe and does not block. The scheduler holds no
// lock during a call.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnNote(const Note& note) = 0;
  // Called after each step of the scheduler (the handling of one event, with its effects). The step
  // took `time`. `is_execute` says whether the step's event was an Execute.
  virtual void OnStep(absl::Duration time, bool is_execute) = 0;
  // Called after each plan that was made (`ok`) or failed. Planning took `time`.
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
  int64_t operations = 0;  // operations sent to it that have not ended
  // Number of launches that succeeded, and how many of them had collectives.
  int64_t launches_succeeded = 0, collective_launches_succeeded = 0;
  // Time since its launch last made progress, as its worker reported; 0 while it runs nothing.
  absl::Duration progress_age;
  // Time since it last replied to its worker's daemon if that time exceeds the option
  // unresponsive_ms; otherwise 0.
  absl::Duration silence = {};
  // Whether it had answered its worker's last question when the worker last said so. An executor
  // that is busy for a moment does not, without being unresponsive.
  bool answers = true;
  bool operator==(const ExecutorReading&) const = default;
};

struct ClusterReading {
  std::vector<Reading> readings;
  std::vector<ExecutorReading> executors;  // filled in the first part of a reading only
  uint64_t next_array = 0;                 // where the next part begins; 0 in the last one
};

// ---- Programs. ----------------------------------------------------------------------------------
// The accumulated use of one program's runs (server/telemetry/top_programs.h).
struct ProgramUse {
  std::string tenant, program;  // both "" for the sum over all other programs
  int64_t runs_succeeded = 0;
  int64_t failures = 0;             // runs that failed or were cancelled
  absl::Duration run_time;          // total time of the runs that succeeded, from scheduling to end
  absl::Duration run_p50, run_p99;  // median and 99 % quantile of the recent run times
  absl::Duration device_busy;       // time in which a device ran it, summed over devices
  // Time that its runs waited. Before a run was scheduled, it waited for inputs (idle_input) or for
  // the plan (idle_compile). After that it waited for earlier launches and for peers (idle_peer).
  absl::Duration idle_input, idle_compile, idle_peer;
  int64_t bytes_moved = 0;  // bytes moved by its collectives and by resharding its arguments
  // The number of devices that it kept busy on average. Older use counts less, with a half-life of
  // 10 min.
  double recent_devices_busy = 0;
};

}  // namespace tessera::server::core
