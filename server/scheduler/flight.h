// Records the scheduler's events and effects in the flight recorder (base/flight_recorder.h), each
// with its name and ids. Heartbeats, ticks, timers and debug lines are left out. Thread-safe.
#pragma once
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"

namespace tessera::server::scheduler {

void RecordEvent(const Event& event);
void RecordEffect(const Effect& effect);

}  // namespace tessera::server::scheduler
