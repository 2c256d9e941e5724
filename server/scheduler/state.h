// The state of the scheduler, as plain data, which Step (step.h) reads and changes. One thread owns
// a State (driver.h).
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
#include <vector>

#include "absl/time/time.h"
#include "server/core/telemetry.h"
#include "server/scheduler/answers.h"
#include "server/scheduler/catalogue.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/config.h"
#include "server/scheduler/order.h"
#include "server/scheduler/ownership.h"
#include "server/scheduler/timers.h"
#include "server/scheduler/uploads.h"
#include "server/scheduler/waits.h"

namespace tessera::server::scheduler {

struct State {
  Config config;
  // How far the wall clock and the steady clock are ahead of the `now` of a step. The caller of
  // Step sets both. They are added to dates for people, and to the expiry of tickets. `now` stands
  // still while the process is paused, so a pause is seen from how much `steady_ahead` has grown.
  absl::Duration wall_ahead, steady_ahead;
  absl::Duration steady_ahead_before;  // value of `steady_ahead` in the last step
  // How long the step's event has waited. The caller of Step sets it. The commands of the step
  // leave later than its `now` by this much.
  absl::Duration lag;
  // Commits up to this one are durable, and the commands that waited for them have left. The caller
  // of Step sets it.
  uint64_t durable_commit = std::numeric_limits<uint64_t>::max();
  uint64_t durable_commit_before = 0;  // value of `durable_commit` in the last step
  Cluster cluster;
  Ownership ownership;
  Catalogue catalogue;
  Order order;
  Answers answers;
  Uploads uploads;
  std::map<uint64_t, Waiter> waiters;  // request -> its wait
  Timers timers;
  absl::Time set_timer_at = absl::InfiniteFuture();  // time in the last SetTimer
  std::vector<core::Note> notes;                     // notes of the last step
  uint64_t last_commit = 0;                          // number of the last Commit
};

}  // namespace tessera::server::scheduler
