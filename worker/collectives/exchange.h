// Collectives of groups that span processes.
//
// Small blocks that go to everybody (all-reduce, all-gather, barrier) pass between executors once:
// each rank sends its block to the first member of the group on each other executor, its lead, and
// the members of one executor meet over the blocks that their lead has brought. So the messages
// grow with the ranks, not with their pairs.
//
// Other calls are pairwise exchanges between mailboxes, so that each pair of ranks uses memory or
// TCP as it happens to live. A large all-reduce is a reduce-scatter of one chunk per member and an
// all-gather, about 2 (n-1)/n of its size per member each way. All reduce in group order.
//
// Owned by the communicator; Run is called by each rank's thread. Scratch memory is kept for each
// rank between calls, up to kScratchKept.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collectives/call.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/inproc.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/tcp.h"

namespace tessera::worker {

class Exchange {
 public:
  static constexpr size_t kSmallBytes = 32 << 10;
  static constexpr size_t kScratchKept = 64 << 20;

  // Everything borrowed outlives this. `mailboxes` is by rank, null where not local.
  Exchange(const CommunicatorConfig* config, const FailureLatch* failure,
           std::vector<Mailbox*> mailboxes, TcpLinks* links, LocalRendezvous* rendezvous);

  // The caller latches the error.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

 private:
  // What passes between this rank and one other in one exchange.
  struct Transfer;
  using Scratch = std::vector<std::byte>;

  // Blocks that go to everybody, once for each executor.
  struct Share;
  absl::Status RunTogether(const CheckedCall& call, const Deadline& deadline);
  Share ShareOf(const CheckedCall& call) const;
  absl::Status AwaitBlocks(const CheckedCall& call, LocalRendezvous::Meeting& meeting,
                           const Deadline& deadline);
  absl::Status DoShare(const CheckedCall& call, LocalRendezvous::Meeting& meeting,
                       const Deadline& deadline, Share* share, bool* progress);
  bool AnyIsDown(absl::Span<const int> ranks) const;
  // Why the members whose blocks are not there will bring them no more, or have not in time.
  absl::Status WhyNot(const CheckedCall& call, const LocalRendezvous::Meeting& meeting,
                      const Share& share, bool passed) const;
  // Every block straight to who gets it.
  absl::Status RunDirect(const CheckedCall& call, const Deadline& deadline);
  absl::Status AllReduceInChunks(const CheckedCall& call, const Deadline& deadline);

  // Moves all transfers to their ends.
  absl::Status Transact(const CheckedCall& call, int phase, std::vector<Transfer> transfers,
                        const Deadline& deadline);
  bool TrySend(const CheckedCall& call, int phase, Transfer& transfer, const Deadline& deadline);
  absl::Status TryReceive(const CheckedCall& call, int phase, Transfer& transfer,
                          const Deadline& deadline, bool* progress);
  // The next frame of `from` that is of this call's launch, if there is one.
  std::optional<Frame> Next(const CheckedCall& call, int from, const Deadline& deadline,
                            bool* progress);
  static bool IsOf(const CheckedCall& call, int phase, const FrameHeader& header);
  absl::Status Mismatch(const Call& call, int rank, const Frame& frame) const;
  absl::Status Accept(const CheckedCall& call, int phase, Transfer& transfer,
                      const Frame& frame) const;
  void GiveCredit(const Call& call, int to, int64_t credit, const Deadline& deadline);
  absl::Status Timeout(const Call& call, absl::Span<const Transfer> transfers) const;

  bool IsLocal(int rank) const { return mailboxes_[rank] != nullptr; }
  absl::Span<std::byte> ScratchOf(const Call& call, size_t bytes);

  // Immutable.
  const CommunicatorConfig* const config_;
  const FailureLatch* const failure_;
  const std::vector<Mailbox*> mailboxes_;
  TcpLinks* const links_;
  LocalRendezvous* const rendezvous_;
  std::vector<int> executor_of_;  // By rank: executors are numbered.

  std::vector<Scratch> scratch_;  // By rank; each used by its rank's thread.
};

}  // namespace tessera::worker
