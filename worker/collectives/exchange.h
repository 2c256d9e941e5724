// Collectives of groups that span processes.
//
// A block that goes to all members (all-reduce, all-gather, barrier) is sent once per executor if
// it is smaller than kSmallBytes. Each rank sends its block to the leader of every other executor,
// which is that executor's first member in the group. The members of one executor share the blocks
// that their leader has received. So each rank sends one message per other executor, and not one
// per other member.
//
// In all other calls each pair of members exchanges its blocks directly: through memory if both are
// on this executor, over TCP otherwise. Received frames wait in the mailbox of the receiving rank.
// A large all-reduce is a reduce-scatter of one chunk per member and an all-gather of the chunks;
// each of the n members sends, and receives, about 2 (n-1)/n times the size of its input. All
// reductions combine in group order.
//
// Owned by the communicator; Run is called by each rank's thread. Each rank keeps its scratch
// memory for its next call. Scratch memory of more than kScratchKeptBytes is freed by the
// rank's next call that needs no more than that.
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

class InterProcExchange {
 public:
  static constexpr size_t kSmallBytes = 32 << 10;
  static constexpr size_t kScratchKeptBytes = 64 << 20;

  // Borrows all arguments, which outlive this. `mailboxes` is by rank, and null for ranks that are
  // not local.
  InterProcExchange(const CommunicatorConfig* config, const FailureLatch* failure,
                    std::vector<Mailbox*> mailboxes, TcpLinks* links, LocalRendezvous* rendezvous);

  // Runs one call. If it fails, the caller must store the error in the latch.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

 private:
  // Bounds the wait of one call.
  class Wait;
  // The data that this rank and one other exchange in one phase.
  struct Transfer;
  using Scratch = std::vector<std::byte>;

  // The functions below run the calls whose blocks are sent once per executor.
  struct PendingBlocks;
  absl::Status RunThroughLeaders(const CheckedCall& call, Wait* wait);
  PendingBlocks PendingOf(const CheckedCall& call) const;
  absl::Status AwaitBlocks(const CheckedCall& call, LocalRendezvous::Meeting& meeting, Wait* wait);
  absl::Status SendAndReceiveBlocks(const CheckedCall& call, LocalRendezvous::Meeting& meeting,
                                    const Deadline& deadline, PendingBlocks* pending,
                                    bool* progress);
  bool AnyIsDown(absl::Span<const int> ranks) const;
  // Waits until the mailbox of the call's rank has changed since `seen`, or the call's wait is
  // over. Before it is over, asks the executors of the remote ranks in `missing` whether they have
  // received the launch, and lets the call wait longer while one of them has not.
  void AwaitChange(const CheckedCall& call, absl::Span<const int> missing, uint64_t seen,
                   Wait* wait);
  // Returns the error of a call that waits for blocks: at the deadline, which members are missing,
  // and before it, which peer is lost. Returns OK if there is no reason to end the call yet.
  absl::Status MissingError(const CheckedCall& call, const LocalRendezvous::Meeting& meeting,
                            const PendingBlocks& pending, const Wait& wait) const;
  // Sends every block directly to its receiver.
  absl::Status RunDirect(const CheckedCall& call, Wait* wait);
  absl::Status AllReduceInChunks(const CheckedCall& call, Wait* wait);

  // Runs all transfers until they have ended.
  absl::Status RunTransfers(const CheckedCall& call, int phase, std::vector<Transfer> transfers,
                            Wait* wait);
  bool TrySend(const CheckedCall& call, int phase, Transfer& transfer, const Deadline& deadline);
  absl::Status TryReceive(const CheckedCall& call, int phase, Transfer& transfer,
                          const Deadline& deadline, bool* progress);
  // Returns the next frame of this call's launch from rank `from`, or nullopt if there is none yet.
  // Sets `*progress` if it took any frame from the mailbox, even one that it dropped.
  std::optional<Frame> TakeFrame(const CheckedCall& call, int from, const Deadline& deadline,
                                 bool* progress);
  static bool BelongsTo(const CheckedCall& call, int phase, const FrameHeader& header);
  absl::Status Mismatch(const Call& call, int rank, const Frame& frame) const;
  absl::Status AppendFrame(const CheckedCall& call, int phase, Transfer& transfer,
                           const Frame& frame) const;
  // Returns the credit that is due to rank `to`. If that fails, the credit stays due.
  void ReturnCredit(const Call& call, int to, const Deadline& deadline);
  // Returns the error of a call whose transfers have not ended at the deadline: a mismatch, or a
  // timeout that names the missing members.
  absl::Status ErrorAtDeadline(const Call& call, absl::Span<const Transfer> transfers,
                               const Wait& wait) const;

  bool IsLocal(int rank) const { return mailboxes_[rank] != nullptr; }
  absl::Span<std::byte> ScratchOf(const Call& call, size_t bytes);

  // Immutable.
  const CommunicatorConfig* const config_;
  const FailureLatch* const failure_;
  const std::vector<Mailbox*> mailboxes_;
  TcpLinks* const links_;
  LocalRendezvous* const rendezvous_;
  std::vector<int> executor_of_;  // by rank; the number of its executor

  std::vector<Scratch> scratch_;  // by rank; each is used by its rank's thread only
};

}  // namespace tessera::worker
