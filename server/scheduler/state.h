// The coordinator as a pure state machine: Step(state, event, now) -> effects.
//
// No I/O, no threads, no clock, no randomness: the same events at the same times give the same
// effects, in the driver, in tests and in the simulator.  One thread owns a State (driver.h).
//
// Gang order: a launch gets its place in the one global order, and goes to all of its executors in
// the same step, once its program is compiled there and each argument is ready or produced earlier
// in that order.  What waits for an upload, for a plan, for a compiler or for an executor that is
// coming back has no place yet and stalls nobody.
//
// Every table is bounded by Config; what happens at a bound is an error that says so.
//
// The state has four parts: what machines there are (cluster.h), what belongs to whom
// (ownership.h), what can be named (catalogue.h) and what runs when (order.h).  Each keeps its own
// tables; the calls between them are Machine's (machine.h).
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/core/telemetry.h"
#include "server/scheduler/catalogue.h"
#include "server/scheduler/cluster.h"
#include "server/scheduler/config.h"
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/order.h"
#include "server/scheduler/ownership.h"
#include "server/scheduler/waits.h"

namespace tessera::server::scheduler {

struct State {
  Config config;
  // By how much other clocks are ahead of the `now` of a step. Whoever calls Step says so; nothing
  // is decided by them, they go into what leaves us: dates for people, and the ends of tickets,
  // which executors check by a clock that does not stand still when we do.
  absl::Duration wall_ahead, steady_ahead;
  Cluster cluster;
  Ownership ownership;
  Catalogue catalogue;
  Order order;
  std::map<uint64_t, Waiter> waiters;                                // by request
  std::set<std::pair<absl::Time, std::pair<int, uint64_t>>> timers;  // (TimerKind, id), machine.h
  absl::Time armed = absl::InfiniteFuture();  // the Tick that was asked for last
  std::vector<core::Note> notes;              // of the last step
};

// Before the first step.
State Begin(const Config& config);
std::vector<Effect> Step(State& state, const Event& event, absl::Time now);

}  // namespace tessera::server::scheduler
