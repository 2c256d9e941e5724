// Where the ranks of one process meet for a collective: in shared memory, to share the work.
//
// A meeting is keyed by (launch, op sequence, group). No memory of a member is touched before all
// have arrived; once they have, the work is bounded, and nobody leaves before it is done, so a
// deadline or an abort never frees a buffer in use. The last to arrive starts at once, and pieces
// of the work are taken by whichever members are awake.
//
// Members of other processes do not come: who runs the exchange with them (exchange.h) brings their
// blocks, and the local members say when they need their own memory no more to send from.
//
// Owned by the communicator. Wake and End are called by any thread, the rest by the rank's.
#pragma once
#include <cstddef>
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

  // What follows is for groups with members elsewhere, whose calls are made in steps.
  struct Meeting;
  using MeetingRef = std::shared_ptr<Meeting>;
  absl::Status Arrive(const CheckedCall& call, MeetingRef* meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // The block of the member at `position`, which is elsewhere, has come.
  void Bring(Meeting& meeting, int position, std::unique_ptr<std::byte[]> block)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A local member has sent and brought what it had to. True if that was the last thing lacking.
  bool Finish(Meeting& meeting, int position) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether nothing is lacking: then every local member calls Work, which ends the call.
  static bool IsReady(const Meeting& meeting);
  void Work(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // A local member leaves before that, so that it will never be. False if it is.
  bool Leave(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // The members whose blocks are not there, in group order; if they all are, those that have not
  // finished. Local ones with what they do instead.
  std::vector<MissingRank> Missing(const Meeting& meeting) const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes waiting members look at the failure latch.
  void Wake();
  // Ends the meetings of a launch that still lack a member: the launch has failed.
  void End(uint64_t launch);

 private:
  using MeetingKey = std::tuple<uint64_t, uint32_t, std::vector<int>>;

  std::vector<MissingRank> MissingLocked(const Meeting& meeting) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FindConflict(const Call& call, const Meeting* mine) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitMembers(const Call& call, const Deadline& deadline, Meeting& meeting);

  // Immutable.
  const CommunicatorConfig* const config_;
  const FailureLatch* const failure_;
  std::vector<bool> local_;  // By rank.

  mutable absl::Mutex mu_;
  // The meetings that still lack something.
  std::map<MeetingKey, MeetingRef> open_ ABSL_GUARDED_BY(mu_);
  // By rank: the last meeting it entered.
  std::vector<MeetingRef> entered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
