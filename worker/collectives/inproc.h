// Collectives between the ranks of one process, through its memory, with the work shared by them.
//
// A meeting is one call for which the members of a group wait; its key is (launch, op sequence,
// group). No member's memory is accessed before all have arrived. From then on the work is bounded,
// and no member returns before it is done, so a deadline or an abort never frees a buffer in use.
// Every member that is awake takes pieces of the work.
//
// Members of other processes do not arrive: InterProc (exchange.h) delivers their blocks, and the
// local members signal when they no longer send from their own memory. Owned by the communicator.
// Wake and End may be called by any thread, the rest by the rank's.
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
#include "base/spinner.h"
#include "worker/collectives/call.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/failure.h"

namespace tessera::worker {

class LocalRendezvous {
 public:
  LocalRendezvous(const CommunicatorConfig* config, const FailureLatch* failure);
  ~LocalRendezvous();

  // Requires: every rank of the call's group is local. The caller stores the error in the latch.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

  // The functions below are the steps of a call, for groups with remote members.
  struct Meeting;
  using MeetingRef = std::shared_ptr<Meeting>;
  absl::Status Arrive(const CheckedCall& call, MeetingRef* meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // The block of the remote member at `position` has arrived.
  void DeliverRemoteBlock(Meeting& meeting, int position, std::unique_ptr<std::byte[]> block)
      ABSL_LOCKS_EXCLUDED(mu_);
  // A local member has sent and received all its blocks. Returns true if the meeting is now ready.
  bool Finish(Meeting& meeting, int position) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether all blocks have arrived and been sent. Every local member then calls Work, which writes
  // the results and returns when all are written.
  static bool IsReady(const Meeting& meeting);
  void Work(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // A local member leaves, so that the meeting never becomes ready. Returns false if it already is.
  bool Leave(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // The members whose blocks are missing, in group order; if none is, those that have not finished.
  std::vector<MissingRank> Missing(const Meeting& meeting) const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes waiting members check the failure latch.
  void Wake();
  // Ends the incomplete meetings of a failed launch.
  void End(uint64_t launch);

 private:
  using MeetingKey = std::tuple<uint64_t, uint32_t, std::vector<int>>;

  std::vector<MissingRank> FindMissing(const Meeting& meeting) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FindConflict(const Call& call, const Meeting* mine) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitMembers(const Call& call, const Deadline& deadline, Meeting& meeting);

  // Immutable.
  const CommunicatorConfig* const config_;
  const FailureLatch* const failure_;
  std::vector<bool> local_;  // By rank.

  std::vector<Spinner> spinners_;  // by rank, each used by its rank's thread

  mutable absl::Mutex mu_;
  // The meetings that are not ready.
  std::map<MeetingKey, MeetingRef> open_ ABSL_GUARDED_BY(mu_);
  // By rank: the last meeting it entered.
  std::vector<MeetingRef> entered_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
