// The device library's communicators ("comms") of one device. Each group of ranks of a generation
// has one, which is made when a launch first needs it.
//
// The ranks exchange the id of a comm over the host's Collectives of the same generation, under its
// deadline, so that a missing rank is reported before the device waits for it. The enqueueing
// thread, which calls Backend::Enqueue, calls GetOrCreate and AwaitReady. Any thread may call
// Close, and a comm may be aborted from any thread.
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
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/device/device.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

// The comm of one group of ranks. When a comm is aborted, all of its kernels end early, also those
// that other launches have enqueued. The end event of a collective is then reached although the
// collective has exchanged nothing. So a collective has certainly exchanged its values only if
// `aborted()` was false after the end event was reached.
struct GroupComm {
  CommHandle handle;
  std::vector<int> group;  // the ranks in group order
  int position = 0;        // position of this device in `group`

  // Notes that the comm is aborted now. Must be called before the library's abort. Returns false if
  // it was noted before. Thread-safe, like aborted().
  bool MarkAborted() { return !aborted_.exchange(true); }
  bool aborted() const { return aborted_.load(); }
  // Returns PEER_ABORTED for the collective `label`. The reason of the abort is not told, since the
  // launch that was aborted may be another tenant's.
  absl::Status AbortedError(const std::string& label) const;

 private:
  std::atomic<bool> aborted_{false};
};
using GroupCommRef = std::shared_ptr<GroupComm>;

// Returns the time to sleep before the next poll after waiting for `waited`. The library usually
// enqueues a collective within tens of microseconds, which is shorter than any sleep. Slower work,
// such as connecting, is polled less often.
absl::Duration PollInterval(absl::Duration waited);

class GroupComms {
 public:
  // `timeout` bounds each wait for the library. `abort` aborts a communicator, and declares the
  // device lost if the abort takes too long.
  GroupComms(const Device* device, absl::Duration timeout, std::function<void(GroupComm&)> abort)
      : device_(device), timeout_(timeout), abort_(std::move(abort)) {}

  // Returns the communicator of the ranks in `group`, which must contain this device's rank.
  // Returns COLLECTIVE_TIMEOUT, WORKER_LOST or PEER_FAILED, like Collectives, if other ranks do not
  // join.
  absl::StatusOr<GroupCommRef> GetOrCreate(const RunContext& context, const std::vector<int>& group,
                                           const CallKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the last call on the communicator has been enqueued. Until then nothing may be
  // enqueued after that call. If this returns an error, the communicator has been aborted.
  absl::Status AwaitReady(GroupComm& communicator, const RunContext& context,
                          const std::string& label) const;
  // Drops the communicators of a generation. A launch that uses one holds a reference.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using CommKey = std::pair<uint64_t, std::vector<int>>;  // (generation, group)
  absl::Status PollUntilReady(const GroupComm& communicator, const RunContext& context,
                              const std::string& label) const;

  const Device* const device_;
  const absl::Duration timeout_;
  const std::function<void(GroupComm&)> abort_;
  absl::Mutex mu_;
  std::map<CommKey, GroupCommRef> comms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::device
