// What the flight recorder (base/flight_recorder.h) keeps of the scheduler: each event and each
// effect, by name and ids. Heartbeats, ticks and timers are left out. Thread-safe.
#pragma once
#include "server/scheduler/effects.h"
#include "server/scheduler/events.h"

namespace tessera::server::scheduler {

void RecordEvent(const Event& event);
void RecordEffect(const Effect& effect);

}  // namespace tessera::server::scheduler
