// The coordinator as a pure state machine: Step(state, event, now) -> effects.
//
// There is no I/O, no thread, no clock and no randomness in it: the same events at the same times
// give the same effects, in the driver, in tests and in the simulator.
//
// Gang order: a launch gets its place in the one global order, and is sent to all of its executors
// in the same step. This happens once its program is compiled there and each argument is ready or
// is produced earlier in that order. An operation that waits for an upload, a plan, a compilation
// or an executor's return has no place yet, and delays no other operation.
//
// Thread-compatible: one thread owns a State (driver.h).
#pragma once
#include <vector>

#include "absl/time/time.h"
#include "server/scheduler/config.h"
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

// Returns the state before the first step.
State InitialState(const Config& config);
// Handles one event and returns its effects. The result uses the memory of `memory`, whose elements
// are dropped.
std::vector<Effect> Step(State& state, const Event& event, absl::Time now,
                         std::vector<Effect> memory = {});

}  // namespace tessera::server::scheduler
