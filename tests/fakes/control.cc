// Holds the knobs and the recorded violations in one process-wide state, which every fake library
// of the process shares. The first use reads the environment variable TESSERA_FAKE. Tests reach it
// through the C functions at the end.
#include "tests/fakes/control.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>

namespace tessera::fakes {
namespace {

struct Row {
  const char* name;
  int64_t initial;
};
constexpr Row kRows[] = {
#define TESSERA_FAKE_KNOB(name, initial, help) {#name, initial},
#include "tests/fakes/knobs.def"
#undef TESSERA_FAKE_KNOB
};
constexpr int kNumKnobs = sizeof kRows / sizeof kRows[0];

// The state is never destroyed, because threads of streams outlive main.
struct State {
  std::array<std::atomic<int64_t>, kNumKnobs> values;
  std::mutex mutex;
  std::condition_variable changed;
  std::string violations;  // one violation per line; guarded by mutex
  std::string reported;    // text that tesseraFakeViolations returned last
  std::string file_text;   // text that ReadKnobsFile read last; guarded by mutex

  State() {
    for (int i = 0; i < kNumKnobs; ++i) values[i] = kRows[i].initial;
    const char* text = getenv("TESSERA_FAKE");
    AssignAll(text != nullptr ? text : "");
  }

  void AssignAll(std::string rest) {
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      Assign(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }

  void Assign(const std::string& assignment) {
    const size_t equals = assignment.find('=');
    const int row = FindKnob(assignment.substr(0, equals).c_str());
    if (row < 0 || equals == std::string::npos) {
      fprintf(stderr, "TESSERA_FAKE: \"%s\" sets no knob; tests/fakes/knobs.def has them all\n",
              assignment.c_str());
      abort();
    }
    values[row] = strtoll(assignment.c_str() + equals + 1, nullptr, 0);
  }

  static int FindKnob(const char* name) {
    for (int i = 0; i < kNumKnobs; ++i) {
      if (strcmp(kRows[i].name, name) == 0) return i;
    }
    return -1;
  }
};

State& TheState() {
  static auto* const state = new State;
  return *state;
}

}  // namespace

int64_t Get(Knob knob) { return TheState().values[static_cast<int>(knob)]; }

void Set(Knob knob, int64_t value) {
  State& state = TheState();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.values[static_cast<int>(knob)] = value;
  }
  state.changed.notify_all();
}

void Increment(Knob knob) {
  ++TheState().values[static_cast<int>(knob)];
  WakeWaiters();
}

bool CountDown(Knob knob) {
  std::atomic<int64_t>& left = TheState().values[static_cast<int>(knob)];
  int64_t value = left;
  while (value > 0 && !left.compare_exchange_weak(value, value - 1)) {
  }
  return value == 1;
}

bool Await(std::chrono::milliseconds timeout, const std::function<bool()>& done) {
  State& state = TheState();
  std::unique_lock<std::mutex> lock(state.mutex);
  return state.changed.wait_until(lock, std::chrono::system_clock::now() + timeout, done);
}

void WakeWaiters() {
  State& state = TheState();
  { const std::lock_guard<std::mutex> lock(state.mutex); }
  state.changed.notify_all();
}

void ReadKnobsFile() {
  static const char* const path = getenv("TESSERA_FAKE_FILE");
  if (path == nullptr) return;
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  State& state = TheState();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (text == state.file_text) return;
    state.file_text = text;
    state.AssignAll(text);
  }
  state.changed.notify_all();
}

void ReportViolation(const char* format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (Get(Knob::violation_abort) != 0) {
    fprintf(stderr, "fake device: %s\n", text);
    abort();
  }
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.violations += std::string(text) + "\n";
}

}  // namespace tessera::fakes

using tessera::fakes::Knob;
using tessera::fakes::State;
using tessera::fakes::TheState;

// These functions are declared in worker/cuda/testing/fakes.h.
extern "C" {

TESSERA_FAKE_EXPORT int tesseraFakeSet(const char* name, int64_t value) {
  const int row = State::FindKnob(name);
  if (row < 0) return 0;
  tessera::fakes::Set(static_cast<Knob>(row), value);
  return 1;
}

TESSERA_FAKE_EXPORT int tesseraFakeAwait(const char* name, int64_t least, int64_t timeout_ms) {
  const int row = State::FindKnob(name);
  if (row < 0) return -1;
  return tessera::fakes::Await(std::chrono::milliseconds(timeout_ms), [&] {
    return tessera::fakes::Get(static_cast<Knob>(row)) >= least;
  });
}

TESSERA_FAKE_EXPORT int64_t tesseraFakeGet(const char* name) {
  const int row = State::FindKnob(name);
  return row < 0 ? -1 : tessera::fakes::Get(static_cast<Knob>(row));
}

TESSERA_FAKE_EXPORT void tesseraFakeReset() {
  State& state = TheState();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    for (int i = 0; i < tessera::fakes::kNumKnobs; ++i) {
      state.values[i] = tessera::fakes::kRows[i].initial;
    }
    state.violations.clear();
  }
  state.changed.notify_all();
}

TESSERA_FAKE_EXPORT const char* tesseraFakeViolations() {
  State& state = TheState();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.reported = std::move(state.violations);
  state.violations.clear();
  return state.reported.c_str();
}

}  // extern "C"
