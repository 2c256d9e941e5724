// The op in flight on each device, in shared memory that stays readable after this process has
// died.
//
// A page has a fixed layout of one slot per device. The executor writes the page. The daemon has
// mapped the same memory and reads it when the executor is lost, so that the report of the loss
// names the op in flight.
//
// A slot has one writer, the InFlightQueue of its device; any thread or process may read it.
// Readers never block the writer. If the next op is written during a read, the read is retried a
// number of times, and then returns an idle InFlightOp. A writer that dies during a write leaves
// the previous op.
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
  uint64_t launch = 0;   // 0 if idle
  std::string op;        // "psum (model.cc:41)"; "" before the first op
  bool waiting = false;  // whether the op is a collective that waits for other devices
};

// Lives in shared memory, so it has only lock-free atomics and no pointers.
class InFlightSlot {
 public:
  static constexpr size_t kTextBytes = 184;

  void Write(uint64_t launch, std::string_view op, bool waiting);
  InFlightOp Read() const;

 private:
  friend class InFlightPage;
  static constexpr size_t kWords = kTextBytes / sizeof(uint64_t);

  struct Copy {
    std::atomic<uint64_t> launch{0};
    std::atomic<uint64_t> size_and_waiting{0};
    std::atomic<uint64_t> text[kWords] = {};
  };
  // The number of the current op, which is in copies_[version_ % 2]. The next op is written to the
  // other copy.
  std::atomic<uint64_t> version_{0};
  Copy copies_[2];
  std::atomic<int64_t> told_ns_{0};  // used in the first slot only; see InFlightPage::told_ns
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The launches in flight on one device, oldest first. The slot shows the oldest launch, which is
// the one that runs. Thread-safe. The queue outlives the launches, and the slot outlives the queue.
class InFlightQueue {
 public:
  class Launch {
   public:
    // `op` must stay valid until the next SetOp or End.
    void SetOp(std::string_view op, bool waiting);

   private:
    friend class InFlightQueue;
    Launch(InFlightQueue* queue, uint64_t id) : queue_(queue), id_(id) {}
    // Records in the flight recorder the end of the previous op's wait, if it waited, and the
    // beginning of a wait for `next`, if `waiting`.
    void RecordWait(std::string_view next, bool waiting);
    InFlightQueue* queue_;
    uint64_t id_;
    // The members below are guarded by the queue's lock.
    std::string_view op_;
    bool waiting_ = false;
    int64_t waiting_since_ns_ = 0;  // by AgeGauge::Now; valid while the launch waits
  };

  // `metrics` outlives the queue. It is null if metrics are disabled.
  explicit InFlightQueue(InFlightSlot* slot, const DeviceMetrics* metrics = nullptr)
      : slot_(slot), metrics_(metrics), state_since_ns_(AgeGauge::Now()) {}

  // Adds a launch. The result is valid until End.
  Launch* Begin(uint64_t launch) ABSL_LOCKS_EXCLUDED(mu_);
  void End(Launch* launch) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Writes the oldest launch to the slot, and adds the time since the last change to the counter of
  // the previous state.
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  InFlightSlot* const slot_;
  const DeviceMetrics* const metrics_;
  absl::Mutex mu_;
  std::list<Launch> launches_ ABSL_GUARDED_BY(mu_);
  std::list<Launch> spare_nodes_ ABSL_GUARDED_BY(mu_);  // list nodes that later launches will reuse
  enum class State : uint8_t { kIdle, kBusy, kWaiting } state_ ABSL_GUARDED_BY(mu_) = State::kIdle;
  int64_t state_since_ns_ ABSL_GUARDED_BY(mu_);  // by AgeGauge::Now
};

// A mapped page of slots. Move-only. Owns the mapping and, if it has created the memory, the
// descriptor.
class InFlightPage {
 public:
  static constexpr int kMaxDevices = 256;

  // Makes a new page of idle slots. Aborts the process if it is out of memory.
  explicit InFlightPage(int num_devices);
  // Maps a page that another process has made. `fd` is borrowed for the call.
  InFlightPage(int fd, int num_devices);
  InFlightPage(const InFlightPage&) = delete;
  InFlightPage& operator=(const InFlightPage&) = delete;
  ~InFlightPage();

  // The descriptor to hand to another process, or -1 if this page was mapped from a descriptor.
  int fd() const { return fd_; }
  int num_devices() const { return num_devices_; }
  InFlightSlot& slot(int device) { return slots_[device]; }
  const InFlightSlot& slot(int device) const { return slots_[device]; }

  // The time, by AgeGauge::Now, at which the process was first told to end a launch that it still
  // has; 0 if there is none.
  int64_t told_ns() const { return slots_[0].told_ns_.load(std::memory_order_relaxed); }
  void SetTold(int64_t ns) { slots_[0].told_ns_.store(ns, std::memory_order_relaxed); }

  // Returns the op that most likely ended the process: an op that does not wait for others, if
  // there is one.
  InFlightOp LikelyCulprit() const;

 private:
  void Map(int fd);

  int fd_ = -1;
  int num_devices_ = 0;
  InFlightSlot* slots_ = nullptr;
};

}  // namespace tessera::worker
