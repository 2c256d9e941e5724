// Implements the flight recorder. Threads of a process record entries. The process prints its
// entries when it crashes, and a worker's daemon reads the entries of its executors through shared
// memory. A process may be killed at any time, and would then never release a lock, so no lock
// guards an entry: its sequence number says whether it is complete.
#include "base/flight_recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace tessera {
namespace {

enum class Ring : uint8_t { kBusy, kRare };
constexpr size_t kNumRings = 2;
constexpr size_t kRareEntries = 4096, kBusyEntries = 12'288;  // together 2 MiB

struct KindRow {
  Ring ring;
  const char* text;
  std::array<const char*, 4> names;
};
constexpr KindRow kKinds[] = {
#define TESSERA_FLIGHT_KIND(name, ring, text, first, second, third, fourth) \
  {Ring::k##ring, text, {first, second, third, fourth}},
#include "base/flight_kinds.def"
#undef TESSERA_FLIGHT_KIND
};

constexpr size_t kTextWords = FlightRecorder::kTextMax / 8;

// An entry in a ring. Several threads and processes read and write its words at the same time, so
// `sequence` says whether the words belong together.
struct Entry {
  std::atomic<uint64_t>
      sequence;  // 0 if the slot is empty, odd while it is being written, even when it is complete
  std::atomic<int64_t> time;   // CLOCK_MONOTONIC, nanoseconds
  std::atomic<uint64_t> head;  // from bit 0: kind; from 16: text size; from 32: thread
  std::atomic<uint64_t> numbers[4];
  std::atomic<uint64_t> text[kTextWords];
};
static_assert(sizeof(Entry) == 128);

// A copy of an entry, which one thread owns.
struct EntryCopy {
  int64_t time = 0;
  uint64_t head = 0;
  uint64_t numbers[4] = {};
  uint64_t text[kTextWords] = {};
};

int64_t Nanos(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

uint64_t ThisThread() {
  thread_local const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
  return id;
}

// Copies an entry. Returns false if the entry is empty, is being written, or was overwritten
// meanwhile.
bool TryCopy(const Entry& entry, EntryCopy* out) {
  const uint64_t before = entry.sequence.load(std::memory_order_acquire);
  if (before == 0 || before % 2 == 1) return false;
  out->time = entry.time.load(std::memory_order_relaxed);
  out->head = entry.head.load(std::memory_order_relaxed);
  for (size_t i = 0; i < 4; ++i) out->numbers[i] = entry.numbers[i].load(std::memory_order_relaxed);
  for (size_t i = 0; i < kTextWords; ++i)
    out->text[i] = entry.text[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  return entry.sequence.load(std::memory_order_relaxed) == before;
}

// A line of text of fixed size. It allocates no memory, so that a signal handler may use it. Text
// that does not fit is left out.
class Line {
 public:
  void Add(std::string_view text) {
    const size_t n = std::min(text.size(), sizeof(bytes_) - 1 - size_);
    std::memcpy(bytes_ + size_, text.data(), n);
    size_ += n;
  }
  void Add(char c) { Add(std::string_view(&c, 1)); }
  void AddNumber(uint64_t value, int digits_min = 1) {
    char digits[20];
    int n = 0;
    for (; value > 0 || n < digits_min; value /= 10)
      digits[n++] = static_cast<char>('0' + value % 10);
    while (n > 0) Add(digits[--n]);
  }
  // Adds the bytes as printable ASCII; every other byte becomes '?'. The text may have been cut
  // within a UTF-8 character.
  void AddPrintable(std::string_view text) {
    for (const char c : text) Add(c >= 0x20 && c < 0x7f ? c : '?');
  }
  // Ends the line with a newline and returns it. Call at most once.
  std::string_view End() {
    bytes_[size_++] = '\n';
    return {bytes_, size_};
  }

 private:
  char bytes_[512];
  size_t size_ = 0;
};

// Adds a time such as "2026-01-31T12:00:00.000000Z". A signal handler must not call gmtime, so the
// date is computed here. Reference: H. Hinnant, "chrono-compatible low-level date algorithms".
void AddTime(Line* line, int64_t nanos) {
  const int64_t seconds = nanos / 1'000'000'000, days = seconds / 86'400 + 719'468;
  const int64_t era = days / 146'097, day_of_era = days % 146'097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t months_since_march = (5 * day_of_year + 2) / 153;
  const int64_t month = months_since_march < 10 ? months_since_march + 3 : months_since_march - 9;
  line->AddNumber(year_of_era + era * 400 + (month <= 2 ? 1 : 0), 4);
  line->Add('-');
  line->AddNumber(month, 2);
  line->Add('-');
  line->AddNumber(day_of_year - (153 * months_since_march + 2) / 5 + 1, 2);
  const int64_t second_of_day = seconds % 86'400;
  line->Add('T');
  line->AddNumber(second_of_day / 3600, 2);
  line->Add(':');
  line->AddNumber(second_of_day / 60 % 60, 2);
  line->Add(':');
  line->AddNumber(second_of_day % 60, 2);
  line->Add('.');
  line->AddNumber(nanos / 1000 % 1'000'000, 6);
  line->Add('Z');
}

void AddEntry(Line* line, const EntryCopy& entry, int64_t wall_ahead) {
  const size_t kind = entry.head & 0xffff;
  const size_t size = std::min<size_t>(entry.head >> 16 & 0xffff, FlightRecorder::kTextMax);
  AddTime(line, entry.time + wall_ahead);
  line->Add(' ');
  line->AddNumber(entry.head >> 32);
  line->Add(' ');
  // The kind may be unknown if the memory is damaged.
  if (kind >= std::size(kKinds)) return line->Add("?");
  const KindRow& row = kKinds[kind];
  line->Add(row.text);
  if (size > 0) {
    line->Add(": ");
    line->AddPrintable({reinterpret_cast<const char*>(entry.text), size});
  }
  for (size_t i = 0; i < 4; ++i) {
    if (row.names[i][0] == 0 || entry.numbers[i] == 0) continue;
    line->Add(' ');
    line->Add(row.names[i]);
    line->Add('=');
    line->AddNumber(entry.numbers[i]);
  }
}

std::atomic<FlightRecorder*> the_recorder{nullptr};

}  // namespace

struct FlightRecorder::Memory {
  std::atomic<uint64_t> layout;
  std::atomic<uint64_t> next[kNumRings];
  char unused[40];
  Entry busy[kBusyEntries];
  Entry rare[kRareEntries];

  // Empties the entries that a process had begun to write when it died.
  void ClearUnfinished() {
    const auto clear = [](Entry& entry) {
      if (entry.sequence % 2 == 1) entry.sequence = 0;
    };
    for (Entry& entry : busy) clear(entry);
    for (Entry& entry : rare) clear(entry);
  }

  static constexpr uint64_t kLayout = 0x74665f31'0000'0000 + std::size(kKinds);
  static size_t size(size_t ring) { return ring == 0 ? kBusyEntries : kRareEntries; }
  Entry& at(size_t ring, uint64_t index) {
    return ring == 0 ? busy[index % kBusyEntries] : rare[index % kRareEntries];
  }
};

absl::Status FlightRecorder::MapFd(int fd) {
  void* const memory = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("flight recorder: cannot map its memory: ", std::strerror(errno)));
  memory_ = static_cast<Memory*>(memory);
  return absl::OkStatus();
}

FlightRecorder::FlightRecorder() {
  fd_ = memfd_create("tessera-flight", MFD_CLOEXEC);
  TESSERA_CHECK(fd_ >= 0) << std::strerror(errno);
  TESSERA_CHECK(ftruncate(fd_, sizeof(Memory)) == 0) << std::strerror(errno);
  TESSERA_CHECK_OK(MapFd(fd_));
  memory_->layout = Memory::kLayout;
}

absl::StatusOr<std::unique_ptr<FlightRecorder>> FlightRecorder::Map(int fd) {
  auto recorder = std::unique_ptr<FlightRecorder>(new FlightRecorder(NoMemory()));
  struct stat file {};
  if (fstat(fd, &file) != 0 || file.st_size != static_cast<off_t>(sizeof(Memory)))
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("flight recorder: descriptor ", fd, " is not a flight recorder"));
  TESSERA_RETURN_IF_ERROR(recorder->MapFd(fd));
  if (recorder->memory_->layout != Memory::kLayout)
    return MakeError(ErrorKind::kValueError,
                     "flight recorder: the daemon and its executors must be the same program");
  recorder->memory_->ClearUnfinished();
  return recorder;
}

FlightRecorder::~FlightRecorder() {
  if (memory_ != nullptr) munmap(memory_, sizeof(Memory));
  if (fd_ >= 0) close(fd_);
}

void FlightRecorder::Record(FlightKind kind, std::string_view text, uint64_t a, uint64_t b,
                            uint64_t c, uint64_t d) noexcept {
  const auto ring = static_cast<size_t>(kKinds[static_cast<size_t>(kind)].ring);
  const uint64_t index = memory_->next[ring].fetch_add(1, std::memory_order_relaxed);
  Entry& entry = memory_->at(ring, index);
  uint64_t old = entry.sequence.load(std::memory_order_relaxed);
  if (old % 2 == 1 ||
      !entry.sequence.compare_exchange_strong(old, 2 * index + 1, std::memory_order_relaxed))
    return;
  std::atomic_thread_fence(std::memory_order_release);
  const size_t size = std::min(text.size(), kTextMax);
  entry.time.store(Nanos(CLOCK_MONOTONIC), std::memory_order_relaxed);
  entry.head.store(static_cast<uint64_t>(kind) | size << 16 | ThisThread() << 32,
                   std::memory_order_relaxed);
  const uint64_t numbers[4] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) entry.numbers[i].store(numbers[i], std::memory_order_relaxed);
  for (size_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<size_t>(8, size - at));
    entry.text[at / 8].store(word, std::memory_order_relaxed);
  }
  entry.sequence.store(2 * index + 2, std::memory_order_release);
}

// Merges the two rings by time. It first walks backwards from the newest entries to find where the
// newest `entries_max` begin, and then goes forward from there. Other threads may write meanwhile;
// TryCopy skips an entry that changes meanwhile. This function allocates no memory and takes no
// lock, because signal handlers call this function.
template <class LineFn>
void FlightRecorder::ForEachLine(size_t entries_max, const LineFn& f) const noexcept {
  // For each ring: `end` is after its newest entry, `first` is its oldest, and `begin` is where the
  // output starts.
  uint64_t end[kNumRings], begin[kNumRings], first[kNumRings];
  for (size_t r = 0; r < kNumRings; ++r) {
    end[r] = begin[r] = memory_->next[r].load(std::memory_order_acquire);
    first[r] = end[r] - std::min<uint64_t>(end[r], Memory::size(r));
  }
  const auto time = [this](size_t r, uint64_t index) {
    return memory_->at(r, index).time.load(std::memory_order_relaxed);
  };
  for (size_t left = entries_max; left > 0; --left) {
    const bool busy = begin[0] > first[0], rare = begin[1] > first[1];
    if (!busy && !rare) break;
    const bool take_rare = !busy || (rare && time(1, begin[1] - 1) > time(0, begin[0] - 1));
    --begin[take_rare ? 1 : 0];
  }
  const int64_t wall_ahead = Nanos(CLOCK_REALTIME) - Nanos(CLOCK_MONOTONIC);
  while (true) {
    const bool busy = begin[0] < end[0], rare = begin[1] < end[1];
    if (!busy && !rare) return;
    const size_t r = !busy || (rare && time(1, begin[1]) < time(0, begin[0])) ? 1 : 0;
    EntryCopy entry;
    if (TryCopy(memory_->at(r, begin[r]++), &entry)) {
      Line line;
      AddEntry(&line, entry, wall_ahead);
      f(line.End());
    }
  }
}

std::string FlightRecorder::Format(size_t entries_max) const {
  std::string text;
  ForEachLine(entries_max, [&](std::string_view line) { text += line; });
  return text;
}

void FlightRecorder::Write(int fd, size_t entries_max) const noexcept {
  char buffer[8192];
  size_t size = 0;
  const auto flush = [&] {
    for (size_t at = 0; at < size;) {
      const ssize_t wrote = write(fd, buffer + at, size - at);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) break;
      at += static_cast<size_t>(wrote);
    }
    size = 0;
  };
  ForEachLine(entries_max, [&](std::string_view line) {
    if (size + line.size() > sizeof(buffer)) flush();
    std::memcpy(buffer + size, line.data(), line.size());
    size += line.size();
  });
  flush();
}

absl::Status FlightRecorder::WriteFile(const std::string& path) const {
  std::rename(path.c_str(), absl::StrCat(path, ".1").c_str());
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  Write(file.get(), kBusyEntries + kRareEntries);
  return absl::OkStatus();
}

void SetFlightRecorder(FlightRecorder* recorder) { the_recorder = recorder; }
FlightRecorder* TheFlightRecorder() { return the_recorder.load(std::memory_order_acquire); }

// ---- Signals. -----------------------------------------------------------------------------------
namespace {

constexpr int kFaults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t kLinesToFile = 100'000;  // more than all entries
constexpr size_t kLinesToStderr = 100;    // few enough for a log

// These variables are written before the handlers are installed.
char file_path[4096], kept_path[4096];
struct sigaction previous_actions[std::size(kFaults)];
std::atomic<bool> writing{false};

void WriteAll(int signal) {
  const FlightRecorder* const recorder = TheFlightRecorder();
  if (recorder == nullptr || writing.exchange(true)) return;
  if (file_path[0] != 0) rename(file_path, kept_path);
  const int fd = file_path[0] == 0
                     ? STDERR_FILENO
                     : open(file_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd >= 0) {
    Line line;
    line.Add("flight recorder of process ");
    line.AddNumber(static_cast<uint64_t>(getpid()));
    line.Add(", which got signal ");
    line.AddNumber(static_cast<uint64_t>(signal));
    const std::string_view text = line.End();
    static_cast<void>(!write(fd, text.data(), text.size()));
    recorder->Write(fd, fd == STDERR_FILENO ? kLinesToStderr : kLinesToFile);
    if (fd != STDERR_FILENO) close(fd);
  }
  writing = false;
}

void OnFault(int signal) {
  const int error = errno;
  WriteAll(signal);
  // Restore the handler that was there before, and let it run: a fault occurs again when this
  // function returns, and `raise` repeats an abort.
  for (size_t i = 0; i < std::size(kFaults); ++i)
    if (kFaults[i] == signal) sigaction(signal, &previous_actions[i], nullptr);
  raise(signal);
  errno = error;
}

void OnDumpRequest(int signal) {
  const int error = errno;
  WriteAll(signal);
  errno = error;
}

}  // namespace

void StartFlightRecorder(const std::string& folder, const std::string& name) {
  SetFlightRecorder(new FlightRecorder);
  WriteFlightOnSignals(folder.empty() ? "" : absl::StrCat(folder, "/flight-", name, ".txt"));
  RecordFlight(FlightKind::kProcess, "begins", static_cast<uint64_t>(getpid()));
}

std::string FlightFolder(const Options& options) {
  if (!options.state_dir.empty()) return options.state_dir;
  if (options.log_file.empty()) return "";
  const size_t slash = options.log_file.rfind('/');
  return slash == std::string::npos ? "." : options.log_file.substr(0, slash + 1);
}

void WriteFlightOnSignals(const std::string& path) {
  if (path.size() + 3 < sizeof(file_path)) {
    std::memcpy(file_path, path.c_str(), path.size() + 1);
    const std::string kept = path + ".1";
    std::memcpy(kept_path, kept.c_str(), kept.size() + 1);
  }
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = OnFault;
  action.sa_flags = SA_ONSTACK;
  for (size_t i = 0; i < std::size(kFaults); ++i)
    sigaction(kFaults[i], &action, &previous_actions[i]);
  action.sa_handler = OnDumpRequest;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

}  // namespace tessera
