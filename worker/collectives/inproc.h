// Collectives between the ranks of one process, through its memory. The ranks share the work.
//
// A meeting is one call that the members of a group make together; its key is (launch, op sequence,
// group). No member's memory is accessed before all members have arrived. From then on only the
// work of copying and combining the blocks is left, which takes bounded time. No member returns
// before that work is done, so a deadline or an abort never frees a buffer that is in use. Every
// member that is awake takes pieces of the work.
//
// Members of other processes do not arrive: InterProcExchange (exchange.h) delivers their blocks,
// and sends them the blocks of the local members. A local member calls Finish once it has done its
// part of these transfers. Owned by the communicator. Wake and EndMeetings may be called by any
// thread, and the other functions by the thread of the rank.
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

  // Runs a call. Requires: every rank of the call's group is local. The caller stores the error in
  // the latch.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

  // The functions below are the steps of a call, in their order. InterProcExchange calls them for
  // groups with remote members.
  struct Meeting;
  using MeetingRef = std::shared_ptr<Meeting>;
  // Joins the meeting of the call, or makes it if this rank is the first to arrive.
  absl::Status Arrive(const CheckedCall& call, MeetingRef* meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // Stores the block of the remote member at `position`. Call when the block has been received.
  void DeliverRemoteBlock(Meeting& meeting, int position, std::unique_ptr<std::byte[]> block)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Says that a local member has sent and received all its blocks. Returns true if the meeting is
  // now ready.
  bool Finish(Meeting& meeting, int position) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether all blocks have arrived and have been sent. Every local member then calls Work,
  // which writes results and returns when all results are written.
  static bool IsReady(const Meeting& meeting);
  void Work(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes a local member out, so that the meeting never becomes ready. Does nothing and returns
  // false if the meeting is ready already.
  bool Leave(Meeting& meeting) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the members whose blocks are missing, in group order. If no block is missing, returns
  // the members that have not finished.
  std::vector<MissingRank> Missing(const Meeting& meeting) const ABSL_LOCKS_EXCLUDED(mu_);

  // Makes waiting members check the failure latch.
  void Wake();
  // Ends the incomplete meetings of a failed launch.
  void EndMeetings(uint64_t launch);

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
  std::vector<bool> is_local_;  // by rank

  std::vector<Spinner> spinners_;  // by rank; each is used by its rank's thread only

  mutable absl::Mutex mu_;
  // The meetings that are not ready.
  std::map<MeetingKey, MeetingRef> open_meetings_ ABSL_GUARDED_BY(mu_);
  // The last meeting that each rank has entered, by rank.
  std::vector<MeetingRef> last_meeting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
