// The op in flight on each device, in shared memory that is readable after this process has died.
//
// A page is a fixed layout of one slot per device. The executor writes it; the daemon, which mapped
// the same memory, reads it when the executor is lost, so that the loss names the op in flight.
//
// A slot has one writer, the InFlightQueue of its device; any thread or process may read. Readers
// never block the writer: a read that the next op overtakes is retried a few times, then returns
// "unknown". A writer that dies in a write leaves the op before.
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/telemetry/executor_metrics.h"

namespace tessera::worker {

struct InFlightOp {
  uint64_t launch = 0;   // 0: idle
  std::string op;        // "psum (model.cc:41)"; "" before the first op
  bool waiting = false;  // in a collective, for other devices
};

// In shared memory: only lock-free atomics, no pointers.
class InFlightSlot {
 public:
  static constexpr size_t kTextBytes = 184;

  void Write(uint64_t launch, std::string_view op, bool waiting);
  InFlightOp Read() const;

 private:
  static constexpr size_t kWords = kTextBytes / sizeof(uint64_t);

  struct Copy {
    std::atomic<uint64_t> launch{0};
    std::atomic<uint64_t> size_and_waiting{0};
    std::atomic<uint64_t> text[kWords] = {};
  };
  std::atomic<uint64_t> version_{
      0};  // of the op in copies_[version % 2]; the next goes to the other
  Copy copies_[2];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The launches in flight on one device, oldest first. The slot shows the oldest, which is the one
// that runs. Thread-safe; outlives the launches, and the slot outlives it.
class InFlightQueue {
 public:
  class Launch {
   public:
    // `op` stays valid until the next one, or End.
    void SetOp(std::string_view op, bool waiting);

   private:
    friend class InFlightQueue;
    Launch(InFlightQueue* queue, uint64_t id) : queue_(queue), id_(id) {}
    // For the flight recorder: the op before has ended, and another begins.
    void RecordWait(std::string_view next, bool waiting);
    InFlightQueue* queue_;
    uint64_t id_;
    // Guarded by the queue's lock.
    std::string_view op_;
    bool waiting_ = false;
    int64_t waits_since_ = 0;  // while it waits
  };

  // `metrics` outlives it; null: metrics are disabled.
  explicit InFlightQueue(InFlightSlot* slot, const DeviceMetrics* metrics = nullptr)
      : slot_(slot), metrics_(metrics), since_(AgeGauge::Now()) {}

  // Valid until End.
  Launch* Begin(uint64_t launch) ABSL_LOCKS_EXCLUDED(mu_);
  void End(Launch* launch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Writes the oldest to the slot, and adds the time since the last change to the counter of the
  // previous state.
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  InFlightSlot* const slot_;
  const DeviceMetrics* const metrics_;
  absl::Mutex mu_;
  std::list<Launch> launches_ ABSL_GUARDED_BY(mu_);
  std::list<Launch> ended_ ABSL_GUARDED_BY(mu_);  // whose memory later ones get
  enum class State : uint8_t { kIdle, kBusy, kWaiting } state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  int64_t since_ ABSL_GUARDED_BY(mu_);
};

// A mapped page of slots. Move-only; owns the mapping and, when it made it, the descriptor.
class InFlightPage {
 public:
  static constexpr int kMaxDevices = 256;

  // A new page of idle slots. Aborts the process when out of memory.
  explicit InFlightPage(int num_devices);
  // Maps a page that another process made; `fd` is borrowed for the call.
  InFlightPage(int fd, int num_devices);
  InFlightPage(const InFlightPage&) = delete;
  InFlightPage& operator=(const InFlightPage&) = delete;
  ~InFlightPage();

  // To hand to another process; -1 when this page was mapped from a descriptor.
  int fd() const { return fd_; }
  int num_devices() const { return num_devices_; }
  InFlightSlot& slot(int device) { return slots_[device]; }
  const InFlightSlot& slot(int device) const { return slots_[device]; }

  // The op that most likely ended the process: one that is not waiting for others, if there is one.
  InFlightOp LikelyCulprit() const;

 private:
  void Map(int fd);

  int fd_ = -1;
  int num_devices_ = 0;
  InFlightSlot* slots_ = nullptr;
};

}  // namespace tessera::worker
