// The shards that an executor holds, with their state, by array id and local device.
//
// A buffer is expected (a running launch, transfer or upload will produce it), ready, or failed. A
// failed buffer has the error of its producer, which its readers get. The coordinator assigns ids
// and never reuses them, so a deleted id stays deleted. Thread-safe. Callbacks run without the
// lock, on the thread that made the buffer ready, failed or deleted.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/memory/device_buffer.h"

namespace tessera::worker {

struct BufferId {
  uint64_t array = 0;
  int32_t device = 0;
  auto operator<=>(const BufferId&) const = default;
  template <class H>
  friend H AbslHashValue(H h, const BufferId& id) {
    return H::combine(std::move(h), id.array, id.device);
  }
};
std::string ToString(const BufferId& id);  // "array 7 on device 1"

// The status of enqueued work, which is OK until the work has failed. Thread-safe.
class Outcome {
 public:
  // Keeps the first error. An OK status has no effect.
  void Update(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    status_.Update(status);
  }
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};
using OutcomeRef = std::shared_ptr<Outcome>;

class BufferTable {
 public:
  using Callback = std::function<void(absl::StatusOr<DeviceBufferRef>)>;

  // Adds an expected buffer, whose producer will call SetReady or SetFailed. Returns INTERNAL if
  // the id is in use, and ARRAY_DELETED if it was deleted.
  absl::Status Expect(const BufferId& id);
  // Makes the buffer ready. If the id was deleted meanwhile, drops the buffer and returns
  // ARRAY_DELETED. Returns INTERNAL if the buffer is already ready.
  absl::Status SetReady(const BufferId& id, DeviceBufferRef buffer);
  // Call when the producer has been enqueued on the buffer's device. Until SetReady or SetFailed,
  // only work that is enqueued there later may use the buffer. `outcome` gets the status of the
  // producer.
  void SetEnqueued(const BufferId& id, DeviceBufferRef buffer, OutcomeRef outcome);
  // Call when the producer has failed. Frees the memory, and passes the error to the waiters. If
  // the buffer has been deleted meanwhile, removes it from the table.
  void SetFailed(const BufferId& id, const absl::Status& why);

  // Returns a ready buffer. Otherwise returns the error of the buffer's producer, ARRAY_DELETED or
  // ARRAY_NOT_FOUND if there is no buffer, or INTERNAL if the producer has not ended.
  absl::StatusOr<DeviceBufferRef> Get(const BufferId& id) const;
  // A buffer for work that is enqueued on the buffer's own device after the buffer's producer.
  struct EnqueuedBuffer {
    DeviceBufferRef buffer;
    OutcomeRef outcome;  // outcome of the producer that still runs; null if the buffer is ready
    bool taken = false;  // whether the buffer has left the table
  };
  // Returns a buffer that is ready or whose producer has been enqueued. Fails like Get.
  absl::StatusOr<EnqueuedBuffer> GetEnqueued(const BufferId& id) const;
  // Like GetEnqueued, but for a donation: removes the buffer from the table if it has no readers
  // and no waiters. The id is then deleted, and work that is enqueued on the buffer's device may
  // overwrite the memory. Otherwise the buffer stays.
  absl::StatusOr<EnqueuedBuffer> Take(const BufferId& id);
  // Undoes a Take whose work was not enqueued. Has no effect on a buffer that was not taken.
  void UndoTake(const BufferId& id, EnqueuedBuffer taken);
  // Returns the buffer, or null if it is not ready.
  DeviceBufferRef GetIfReady(const BufferId& id) const;

  // Calls back, possibly at once, when the buffer is ready, has failed or is deleted. The call also
  // waits for an unknown id, because its producer's command may arrive later. Returns an id by
  // which CancelWait ends the wait. CancelWait returns false if the callback has been called or is
  // being called.
  uint64_t WhenReady(const BufferId& id, Callback callback);
  bool CancelWait(const BufferId& id, uint64_t waiter_id);
  // Returns whether the buffer is in the table or has been deleted.
  bool IsKnown(const BufferId& id) const;

  // Deletes a buffer and frees its memory. The waiters of the buffer get ARRAY_DELETED. But if the
  // producer has been enqueued, the memory is freed when the producer ends, and the waiters that
  // came before the delete get the producer's result.
  void Delete(const BufferId& id);

  // Calls all waiters with `why`. The buffers do not change.
  void FailWaiters(const absl::Status& why);

  int64_t num_buffers() const;
  // The ids of the buffers that are not deleted, by state and in ascending order.
  struct Listing {
    std::vector<BufferId> ready, expected, failed;
  };
  Listing List() const;

 private:
  enum class State : uint8_t { kUnknown, kExpected, kReady, kFailed };
  // The number of references to a buffer that are not held by work on the buffer's own device.
  using Readers = std::shared_ptr<std::atomic<int64_t>>;
  struct Entry {
    State state = State::kUnknown;
    DeviceBufferRef buffer;
    Readers readers;              // null if there has been no reader
    OutcomeRef outcome;           // outcome of the producer, until it has ended
    bool delete_pending = false;  // deleted; erased when the producer has ended
    absl::Status error;
    std::map<uint64_t, Callback> waiters;
  };

  absl::StatusOr<DeviceBufferRef> GetLocked(const BufferId& id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a reference that is counted in entry.readers.
  static DeviceBufferRef NewReader(Entry& entry);
  bool IsDeletedLocked(const BufferId& id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records that the id was deleted. A tombstone is such a record.
  void AddTombstone(const BufferId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // At least this many of the last deleted ids are kept, so that late readers of them get an error.
  // Readers of ids that were deleted earlier wait until their own deadline instead.
  static constexpr size_t kTombstonesMin = 1 << 13;

  mutable absl::Mutex mu_;
  mutable absl::flat_hash_map<BufferId, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // The buffers that were taken before their producers had ended.
  absl::flat_hash_set<BufferId> taken_early_ ABSL_GUARDED_BY(mu_);
  // The newest deleted ids, and the ones before them. When deleted_ids_ has kTombstonesMin ids, it
  // becomes older_deleted_ids_.
  absl::flat_hash_set<BufferId> deleted_ids_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<BufferId> older_deleted_ids_ ABSL_GUARDED_BY(mu_);
  uint64_t next_waiter_id_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace tessera::worker
