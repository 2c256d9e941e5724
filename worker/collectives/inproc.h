// Collectives between ranks of one process: the members meet in shared memory, then share the work.
//
// A meeting is keyed by (launch, op sequence, group). No memory of a member is touched before all
// have arrived; once they have, the work is bounded, and nobody leaves before it is done, so a
// deadline or an abort never frees a buffer in use. The last to arrive starts at once, and pieces
// of the work are taken by whichever members are awake.
//
// Owned by the communicator. Run is called by each rank's thread, Wake by any.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/collectives/call.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/failure.h"

namespace tessera::worker {

class LocalRendezvous {
 public:
  LocalRendezvous(const CommunicatorConfig* config, const FailureLatch* failure);
  ~LocalRendezvous();

  // Every rank of the call's group is local. The caller latches the error.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

  // Makes waiting members look at the failure latch.
  void Wake();
  // Ends the meetings of a launch that still lack a member: the launch has failed.
  void End(uint64_t launch);

 private:
  struct Meeting;
  using MeetingKey = std::tuple<uint64_t, uint32_t, std::vector<int>>;

  absl::Status Arrive(const CheckedCall& call, std::shared_ptr<Meeting>* meeting);
  absl::Status FindConflict(const Call& call, const Meeting* mine) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitMembers(const Call& call, const Deadline& deadline, Meeting& meeting);
  absl::Status Timeout(const Call& call, const Meeting& meeting) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work(Meeting& meeting);

  // Immutable.
  const CommunicatorConfig* const config_;
  const FailureLatch* const failure_;

  absl::Mutex mu_;
  // The meetings that still lack a member.
  std::map<MeetingKey, std::shared_ptr<Meeting>> open_ ABSL_GUARDED_BY(mu_);
  // By rank: the last meeting it entered.
  std::vector<std::shared_ptr<Meeting>> entered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
