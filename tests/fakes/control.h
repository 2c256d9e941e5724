// The knobs of the fakes, and their reports of wrong use.
//
// Knobs are numbers (knobs.def). They are set by the environment variable TESSERA_FAKE, for example
// to "devices=4,oom_at=3", and by tests through tesseraFakeSet. The fake NVML also reads them from
// the file that TESSERA_FAKE_FILE names, so that a test can change them in another process. A knob
// named *_at counts down: with the value n, the n-th event from now on fails.
//
// A violation is a wrong use that the real library might not notice. It ends the process with a
// line on stderr. With violation_abort=0 it is recorded for tesseraFakeViolations instead, and the
// call fails.
//
// Thread-safe.
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

// Increments a knob that counts events.
TESSERA_FAKE_EXPORT void Increment(Knob knob);

// Counts down a knob named *_at. Returns true for the event that must fail.
TESSERA_FAKE_EXPORT bool CountDown(Knob knob);

// Await waits until `done` returns true. It calls `done` at once, and again after every Set and
// every WakeWaiters. It returns false if `done` has not returned true within `timeout`.
TESSERA_FAKE_EXPORT bool Await(std::chrono::milliseconds timeout,
                               const std::function<bool()>& done);
TESSERA_FAKE_EXPORT void WakeWaiters();

// Sets the knobs that the file named by TESSERA_FAKE_FILE assigns, if the file has changed. The
// file has the form of TESSERA_FAKE.
TESSERA_FAKE_EXPORT void ReadKnobsFile();

// Reports a violation: ends the process, or records the text if violation_abort is 0.
__attribute__((format(printf, 1, 2))) TESSERA_FAKE_EXPORT void ReportViolation(const char* format,
                                                                               ...);

}  // namespace tessera::fakes
