// The device library's communicators ("comms") of one device: one for each group of ranks of a
// generation, made when a launch first needs it.
//
// Their ids travel over the host's Collectives of the same generation, under its deadline, so that
// a rank that is missing is named before the device is asked to wait for it. Get is called by the
// thread that enqueues; Close and Abort by any.
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

struct GroupComm {
  CommHandle handle;
  std::vector<int> group;  // ranks, in group order
  int position = 0;        // of this device
  std::atomic<bool> aborted{false};
};
using GroupCommRef = std::shared_ptr<GroupComm>;

// How long to look away after so long a wait for the library. It takes an exchange within tens of
// microseconds, which no sleep is as short as; what takes longer, such as to connect, may be found
// a little late.
absl::Duration LookPause(absl::Duration waited);

class GroupComms {
 public:
  // `timeout` bounds each wait for the library. `abort` takes a communicator off the device, and is
  // itself bounded.
  GroupComms(const Device* device, absl::Duration timeout, std::function<void(GroupComm&)> abort)
      : device_(device), timeout_(timeout), abort_(std::move(abort)) {}

  // Of the ranks in `group`, which lists this device's. COLLECTIVE_TIMEOUT, WORKER_LOST or
  // PEER_FAILED if the others do not come, as Collectives says it.
  absl::StatusOr<GroupCommRef> Get(const RunContext& context, const std::vector<int>& group,
                                   const CallKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the last call on it has been taken. If it is not, the communicator is aborted
  // before the error is returned: until then nothing may be enqueued behind the call.
  absl::Status AwaitReady(GroupComm& communicator, const RunContext& context,
                          const std::string& label) const;
  // Forgets those of a generation; launches that use one keep it.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<uint64_t, std::vector<int>>;
  absl::Status Await(const GroupComm& communicator, const RunContext& context,
                     const std::string& label) const;

  const Device* const device_;
  const absl::Duration timeout_;
  const std::function<void(GroupComm&)> abort_;
  absl::Mutex mu_;
  std::map<Key, GroupCommRef> comms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::device
