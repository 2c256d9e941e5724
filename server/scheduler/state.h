// The coordinator as a pure state machine: Step(state, event, now) -> effects.
//
// There is no I/O, no thread, no clock and no randomness in it: the same events at the same times
// give the same effects, in the driver, in tests and in the simulator. One thread owns a State
// (driver.h).
//
// Gang order: a launch gets its place in the one global order, and is sent to all of its executors
// in the same step. This happens once its program is compiled there and each argument is ready or
// is produced earlier in that order. An operation that waits for an upload, a plan, a compilation
// or an executor's return has no place yet, and delays no other operation.
//
// Config bounds every table, and says for each bound which error a request beyond it gets, or what
// is dropped.
//
// The state has six parts: the machines (cluster.h), the owners of everything (ownership.h), what
// requests can name (catalogue.h), what runs when (order.h), what repeatable calls have made
// (answers.h), and uploaded programs (uploads.h). Each part keeps its own tables. The functions of
// Machine (machine.h) use the parts together.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/core/telemetry.h"
#include "server/scheduler/answers.h"
#include "server/scheduler/catalogue.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/config.h"
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/order.h"
#include "server/scheduler/ownership.h"
#include "server/scheduler/timers.h"
#include "server/scheduler/uploads.h"
#include "server/scheduler/waits.h"

namespace tessera::server::scheduler {

struct State {
  Config config;
  // How far the wall clock and the steady clock are ahead of the `now` of a step. The caller of
  // Step sets both. They decide nothing: they are added to dates for people, and to the expiry of
  // tickets.
  absl::Duration wall_ahead, steady_ahead;
  // How long the step's event has waited. The caller of Step sets it. The commands of the step
  // leave later than its `now` by this much.
  absl::Duration lag;
  // Commits up to this one are durable, and the commands that waited for them have left. The caller
  // of Step sets it.
  uint64_t durable = std::numeric_limits<uint64_t>::max();
  uint64_t was_durable = 0;  // value of `durable` in the last step
  Cluster cluster;
  Ownership ownership;
  Catalogue catalogue;
  Order order;
  Answers answers;
  Uploads uploads;
  std::map<uint64_t, Waiter> waiters;  // request -> its wait
  Timers timers;
  absl::Time armed = absl::InfiniteFuture();  // time of the last SetTimer
  std::vector<core::Note> notes;              // notes of the last step
  uint64_t commits = 0;                       // number of the last Commit
};

// Returns the state before the first step.
State Begin(const Config& config);
// Handles one event and returns its effects. The result uses the memory of `memory`, whose elements
// are dropped.
std::vector<Effect> Step(State& state, const Event& event, absl::Time now,
                         std::vector<Effect> memory = {});

}  // namespace tessera::server::scheduler
