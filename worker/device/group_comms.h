// The device library's communicators ("comms") of one device. Each set of ranks of a generation has
// one, which is made when a launch first needs it. Groups that have the same ranks in different
// orders share it: the ranks of a comm are in ascending order, and the collectives say in which
// order they have their blocks. If there are too many comms, the one that was used least recently
// is aborted.
//
// The ranks exchange the id of a comm over the host's Collectives of the same generation, under its
// deadline, so that a missing rank is reported before the device waits for it. A rank that aborts a
// comm tells the others by the same Collectives: a comm of which only some ranks are aborted would
// hang.
//
// The device library pairs the collectives of the ranks by their order alone. A rank that does not
// enqueue a launch, for example because the launch was cancelled in time, or that knows that a
// launch has failed, therefore asks the others before it uses the comms of the launch again: a comm
// goes on only if all its ranks have enqueued equally many collectives on it. Otherwise they make a
// new one.
//
// The enqueueing thread, which calls Backend::Enqueue, calls GetOrCreate, AwaitReady and Skip. Any
// thread may call Close, and a comm may be aborted from any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
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

// The comm of one set of ranks. When a comm is aborted, all of its kernels end early, also those
// that other launches have enqueued. The end event of a collective is then reached although the
// collective has exchanged nothing. So a collective has certainly exchanged its values only if
// `aborted()` was false after the end event was reached.
struct GroupComm {
  CommHandle handle;
  std::vector<int> group;  // the ranks, in ascending order
  int position = 0;        // position of this device in `group`
  // The number of the comm's abort. `host` keeps the abort of a comm and sends it to the other
  // ranks like the failure of a launch with this number. All ranks of the comm have the same
  // number, and no launch has it.
  uint64_t abort_number = 0;
  // Only the enqueueing thread uses these: the number of collectives that were enqueued on the
  // comm, when it was last used (GroupComms::uses_), whether it has to ask the other ranks for
  // their numbers before the next one, and the last launches that used the comm.
  int64_t num_collectives = 0;
  uint64_t last_use = 0;
  bool must_ask = false;
  std::deque<uint64_t> launches;

  // Notes that the comm is aborted now, and tells the other ranks by `host`. Must be called before
  // the library's abort. Returns false if it was noted before. Thread-safe, like the functions here
  // that are const, except HasFailedLaunch.
  bool MarkAborted(Collectives* host);
  bool aborted() const { return aborted_.load(); }
  // Returns whether the comm is aborted here or at another rank. In the second case it must be
  // aborted here as well.
  bool IsAbortedAnywhere(const Collectives* host) const;
  // Notes that the launch uses the comm. Only the enqueueing thread calls this and the next two.
  void AddLaunch(uint64_t launch);
  // Returns whether one of the last launches has failed at any rank.
  bool HasFailedLaunch(const Collectives* host) const;
  // Tells the other ranks that this one asks before it uses the comm in the launch.
  void TellOfAsking(Collectives* host, uint64_t launch);
  // Returns whether another rank asks before it uses the comm in the launch, and this one has not
  // asked. The collectives that this rank has enqueued for the launch then wait for ever.
  bool IsAskedInVain(const Collectives* host, uint64_t launch) const;
  // Returns PEER_ABORTED for the collective `label`. The reason of the abort is not told, since the
  // launch that was aborted may be another tenant's.
  absl::Status AbortedError(const std::string& label) const;

 private:
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> asked_launch_{0};  // the last launch for which this rank asked
};
using GroupCommRef = std::shared_ptr<GroupComm>;

// Returns the time to sleep before the next poll after waiting for `waited`. The library usually
// enqueues a collective within tens of microseconds, which is shorter than any sleep. Slower work,
// such as connecting, is polled less often.
absl::Duration PollInterval(absl::Duration waited);

class GroupComms {
 public:
  // Aborts a communicator, unless it is aborted already. Declares the device lost if that takes too
  // long.
  using AbortFn = std::function<void(GroupComm&, Collectives* host)>;
  struct Options {
    absl::Duration timeout;          // bounds each wait for the library
    absl::Duration opening_timeout;  // bounds the waits that make or agree on a communicator
    int comms_max = 0;               // of a generation; those that are in use may be more
  };
  GroupComms(const Device* device, Options options, AbortFn abort)
      : device_(device), options_(options), abort_(std::move(abort)) {}

  // Returns the communicator of the ranks in `group`, which are in ascending order and contain this
  // device's rank. Returns COLLECTIVE_TIMEOUT, WORKER_LOST or PEER_FAILED, like Collectives, if
  // other ranks do not join.
  absl::StatusOr<GroupCommRef> GetOrCreate(const RunContext& context, const std::vector<int>& group,
                                           const CallKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the last call on the communicator has been enqueued. Until then nothing may be
  // enqueued after that call. If this returns an error, the communicator has been aborted.
  absl::Status AwaitReady(GroupComm& communicator, const RunContext& context,
                          const std::string& label) const;
  // Notes that a launch of this generation was not wholly enqueued here, although other ranks may
  // have enqueued it on the comms of these groups, whose ranks are in ascending order. Without
  // groups, notes it for all comms of the generation.
  void Skip(uint64_t generation, const std::vector<std::vector<int>>& groups)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Drops the communicators of a generation. A launch that uses one holds a reference.
  void Close(uint64_t generation) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using CommKey = std::pair<uint64_t, std::vector<int>>;  // (generation, group)
  // Returns the comm that all ranks go on with, or null if they must make a new one. `known` is the
  // present one, or null.
  absl::StatusOr<GroupCommRef> AgreeOnComm(const RunContext& context, GroupCommRef known,
                                           const std::vector<int>& group, const CallKey& key) const;
  absl::StatusOr<GroupCommRef> Create(const RunContext& context, const std::vector<int>& group,
                                      const CallKey& key) const;
  // Gives all ranks' values of `mine` to each rank, in group order.
  template <class T>
  absl::StatusOr<std::vector<T>> GatherOnHost(const RunContext& context, const T& mine,
                                              const std::vector<int>& group,
                                              const CallKey& key) const;
  absl::Status AwaitReadyWithin(absl::Duration timeout, GroupComm& communicator,
                                const RunContext& context, const std::string& label) const;
  absl::Status PollUntilReady(absl::Duration timeout, const GroupComm& communicator,
                              const RunContext& context, const std::string& label) const;
  // Aborts the communicators of the generation beyond `comms_max`, except those in use.
  void AbortOldest(const RunContext& context) ABSL_LOCKS_EXCLUDED(mu_);

  const Device* const device_;
  const Options options_;
  const AbortFn abort_;
  uint64_t uses_ = 0;  // only the enqueueing thread uses this
  absl::Mutex mu_;
  std::map<CommKey, GroupCommRef> comms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::device
