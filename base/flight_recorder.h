// The flight recorder: the last minutes of a process, for whoever has to explain them afterwards.
//
// Entries of fixed size in two rings of fixed size, in memory that another process may map: a
// worker's daemon reads its executors' recorders also when they hang or have died. An entry is a
// time, a kind of base/flight_kinds.def, up to four numbers and a text that is cut at kTextMax;
// text is made of it only when it is read. Never a token, a key, an array's values or a program's
// text: entries go into the bundles that operators pass on.
//
// Thread-safe, and lock-free: recording never waits. Of two threads that come to the same entry at
// once, a whole ring apart, the later one's is left out.
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

  // Allocates the memory, 2 MiB. Aborts the process if there is none.
  FlightRecorder();
  // Maps the memory that another process allocated, to go on where the last one that mapped it has
  // ended; borrows `fd` for the call. VALUE_ERROR: that process is another version of this program.
  static absl::StatusOr<std::unique_ptr<FlightRecorder>> Map(int fd);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  ~FlightRecorder();

  // The descriptor to pass to another process; -1 in a process that has mapped it.
  int fd() const { return fd_; }

  void Record(FlightKind kind, std::string_view text, uint64_t a = 0, uint64_t b = 0,
              uint64_t c = 0, uint64_t d = 0) noexcept;

  // The newest entries, at most so many, the oldest first, a line each.
  std::string Format(size_t entries_max) const;
  // Writes all to a file, and keeps the one that was there as `path`.1.
  absl::Status WriteFile(const std::string& path) const;
  // Writes what Format returns to a descriptor. Async-signal-safe.
  void Write(int fd, size_t entries_max) const noexcept;

 private:
  struct Memory;
  struct NoMemory {};
  explicit FlightRecorder(NoMemory /*map*/) {}
  // Calls `line` for each of the newest entries. Async-signal-safe if `line` is.
  template <class Line>
  void ForEachLine(size_t entries_max, const Line& line) const noexcept;
  absl::Status MapFd(int fd);

  int fd_ = -1;
  Memory* memory_ = nullptr;
};

// The recorder of this process; null: nothing is recorded. It is never destroyed.
void SetFlightRecorder(FlightRecorder* recorder);
FlightRecorder* TheFlightRecorder();

// Records in the recorder of this process.
inline void RecordFlight(FlightKind kind, std::string_view text, uint64_t a = 0, uint64_t b = 0,
                         uint64_t c = 0, uint64_t d = 0) noexcept {
  if (FlightRecorder* const recorder = TheFlightRecorder())
    recorder->Record(kind, text, a, b, c, d);
}

// The folder for the files of flight recorders: that of the state, or else of the log; empty: there
// is neither.
std::string FolderForFlights(const Options& options);
// Makes the recorder of this process, whose files are flight-NAME.txt in the folder;
// WriteFlightOnSignals.
void BeginFlight(const std::string& folder, const std::string& name);

// From now on the newest entries are written when this process ends by a fault or a failed check,
// and when it gets SIGUSR2: to `path`, where the file that
// was there is kept as `path`.1, or else to stderr. What handled those signals before does so
// afterwards. Call once, in main.
void WriteFlightOnSignals(const std::string& path);

}  // namespace tessera
