// The knobs of the fakes, and their reports of wrong use.
//
// Knobs are numbers (knobs.def), set from the environment, TESSERA_FAKE="devices=4,oom_at=3", and
// by tests through tesseraFakeSet. A knob named *_at counts down: it is the number of the event,
// from now on, that fails.
//
// A violation is a wrong use that the real library might not notice. It ends the process with a
// line on stderr; with violation_abort=0 it is recorded for tesseraFakeViolations instead, and the
// call fails.
//
// Any thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>

#define TESSERA_FAKE_EXPORT __attribute__((visibility("default")))

namespace tessera::fakes {

enum class Knob {
#define TESSERA_FAKE_KNOB(name, initial, help) name,
#include "tests/fakes/knobs.def"
#undef TESSERA_FAKE_KNOB
};

TESSERA_FAKE_EXPORT int64_t Get(Knob knob);
TESSERA_FAKE_EXPORT void Set(Knob knob, int64_t value);

// Increments a knob that counts.
TESSERA_FAKE_EXPORT void Count(Knob knob);

// For a knob that counts down: true for the event that it names.
TESSERA_FAKE_EXPORT bool Strikes(Knob knob);

// Waits until `done()`, which is asked again after every Set and every Wake; false after `timeout`.
TESSERA_FAKE_EXPORT bool Await(std::chrono::milliseconds timeout,
                               const std::function<bool()>& done);
TESSERA_FAKE_EXPORT void Wake();

__attribute__((format(printf, 1, 2))) TESSERA_FAKE_EXPORT void Violation(const char* format, ...);

}  // namespace tessera::fakes
