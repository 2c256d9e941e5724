// The flight recorder keeps a record of what a process did in its last minutes, for the person who
// has to explain a failure afterwards.
//
// It writes entries of fixed size into two ring buffers of fixed size: one for frequent kinds of
// entries and one for rare kinds. The rings lie in memory that another process may map: a worker's
// daemon can read the recorders of its executors even when they hang or have died. An entry is a
// time, a kind of base/flight_kinds.def, up to four numbers and a text that is cut at kTextMax
// characters. An entry becomes text only when it is read. Never record a token, a key, the values
// of an array or the text of a program: operators send the entries to other people (`tessera
// debug-bundle`).
//
// Thread-safe and lock-free: recording never waits. While a slow thread still writes an entry,
// other threads may fill the whole ring and reach the same place again. The entry that comes second
// is then left out.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/options.h"

namespace tessera {

enum class FlightKind : uint16_t {
#define TESSERA_FLIGHT_KIND(name, ring, text, first, second, third, fourth) name,
#include "base/flight_kinds.def"
#undef TESSERA_FLIGHT_KIND
};

class FlightRecorder {
 public:
  static constexpr size_t kTextMax = 72;

  // Allocates the memory, 2 MiB. Aborts the process if the allocation fails.
  FlightRecorder();
  // Maps the memory that another process allocated. Recording continues after the entries that are
  // already there. Borrows `fd` for the call. Returns VALUE_ERROR if the other process is another
  // version of this program.
  static absl::StatusOr<std::unique_ptr<FlightRecorder>> Map(int fd);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  // Returns the descriptor to pass to another process; -1 in a process that has mapped the memory.
  int fd() const { return fd_; }

  void Record(FlightKind kind, std::string_view text, uint64_t a = 0, uint64_t b = 0,
              uint64_t c = 0, uint64_t d = 0) noexcept;

  // Returns the newest entries, at most `entries_max`, one per line and the oldest first.
  std::string Format(size_t entries_max) const;
  // Writes all entries to a file. A file that is already there is kept as `path`.1.
  absl::Status WriteFile(const std::string& path) const;
  // Writes the text that Format returns to a descriptor. Async-signal-safe.
  void Write(int fd, size_t entries_max) const noexcept;

 private:
  struct Memory;
  struct NoMemory {};
  explicit FlightRecorder(NoMemory /*map*/) {}
  // Calls `f` with the line of each of the newest entries. Async-signal-safe if `f` is.
  template <class LineFn>
  void ForEachLine(size_t entries_max, const LineFn& f) const noexcept;
  absl::Status MapFd(int fd);

  int fd_ = -1;
  Memory* memory_ = nullptr;
};

// Set and return the recorder of this process. While it is null, nothing is recorded. A recorder
// that was set must never be destroyed.
void SetFlightRecorder(FlightRecorder* recorder);
FlightRecorder* TheFlightRecorder();

// Records an entry in the recorder of this process, if there is one.
inline void RecordFlight(FlightKind kind, std::string_view text, uint64_t a = 0, uint64_t b = 0,
                         uint64_t c = 0, uint64_t d = 0) noexcept {
  if (FlightRecorder* const recorder = TheFlightRecorder())
    recorder->Record(kind, text, a, b, c, d);
}

// Returns the folder for the files of flight recorders: the folder of the state or, if there is
// none, the folder of the log file. Returns an empty string if there is neither.
std::string FlightFolder(const Options& options);
// Makes the recorder of this process and calls WriteFlightOnSignals. The file is
// `folder`/flight-NAME.txt, where NAME is `name`. If `folder` is empty, entries are written to
// stderr.
void StartFlightRecorder(const std::string& folder, const std::string& name);

// Makes this process write its newest entries when it ends by a fault or a failed check, and when
// it gets SIGUSR2. They are written to the file `path`, or to stderr if `path` is empty. A file
// that is already there is kept as `path`.1. After a fault, the handlers that were set before run
// as well. Call once, in main.
void WriteFlightOnSignals(const std::string& path);

}  // namespace tessera
