// Collectives of groups that span processes: pairwise exchanges between mailboxes, so that each
// pair of ranks uses memory or TCP as it happens to live.
//
// Bytes: an all-reduce below kDirectBytes gathers everybody's input and reduces it locally; a
// larger one is a reduce-scatter of one chunk per member and an all-gather, about 2 (n-1)/n of its
// size per member each way. All reduce in group order, as the in-process transport does.
//
// Owned by the communicator; Run is called by each rank's thread. Scratch memory is kept for each
// rank between calls, up to kScratchKept.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collectives/call.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/failure.h"
#include "worker/collectives/mailbox.h"
#include "worker/collectives/tcp.h"

namespace tessera::worker {

class Exchange {
 public:
  static constexpr size_t kDirectBytes = 32 << 10;
  static constexpr size_t kScratchKept = 64 << 20;

  // Everything borrowed outlives this. `mailboxes` is by rank, null where not local.
  Exchange(const CommunicatorConfig* config, const FailureLatch* failure,
           std::vector<Mailbox*> mailboxes, TcpLinks* links);

  // The caller latches the error.
  absl::Status Run(const CheckedCall& call, const Deadline& deadline);

 private:
  // What passes between this rank and one other in one exchange.
  struct Transfer;
  using Scratch = std::vector<std::byte>;

  // Every block straight to who gets it.
  absl::Status RunDirect(const CheckedCall& call, const Deadline& deadline);
  absl::Status AllReduceInChunks(const CheckedCall& call, const Deadline& deadline);

  // Moves all transfers to their ends.
  absl::Status Transact(const CheckedCall& call, int phase, std::vector<Transfer> transfers,
                        const Deadline& deadline);
  bool TrySend(const CheckedCall& call, int phase, Transfer& transfer, const Deadline& deadline);
  absl::Status TryReceive(const CheckedCall& call, int phase, Transfer& transfer,
                          const Deadline& deadline, bool* progress);
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

  std::vector<Scratch> scratch_;  // By rank; each used by its rank's thread.
};

}  // namespace tessera::worker
