// Collectives between the devices of one communicator: the interface of every transport.
//
// A communicator is a list of members (index = rank), one per device, at one generation. Each
// executor process makes one Collectives for the ranks it serves, and owns it; ranks of other
// processes are reached over TCP, one connection per pair of executors.
//
// Threads: one thread per local rank, which makes that rank's calls in the plan's order; ranks call
// concurrently. Abort may be called from any thread. No call may be running when it is destroyed.
//
// Memory: every call blocks; buffers are borrowed until it returns and may be reused at once, also
// when it fails (the contents of `out` are then unspecified). `in` and `out` must not overlap, but
// an all_reduce may be in place.
//
// A launch fails alone: a missed deadline or AbortLaunch is stored, sent to the other executors,
// and returned at once by every waiting and every later call of that launch; its frames are
// dropped, and calls of other launches go on. A failure of the communicator (a lost peer, calls
// that do not match, Abort) ends every waiting and every later call; recovery is a new communicator
// of a higher generation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ir/collective.h"
#include "ir/dtype.h"

namespace tessera::worker {

class TlsContext;

struct Member {
  int device = 0;  // Of the executor; for messages only.
  std::string executor;
  uint64_t incarnation = 0;
  std::string endpoint;  // host:port of the executor's peer socket.
  std::string host;      // For messages only.
};

struct CommunicatorConfig {
  uint64_t generation = 0;
  std::vector<Member> members;   // Index = rank. Only `device` differs within an executor.
  std::vector<int> local_ranks;  // Every member of this executor.
  // The same at all members; an executor that connects with another one is turned away.
  std::string secret;
  // Null: connections between executors are plaintext. All members have one, or none.
  std::shared_ptr<const TlsContext> tls;
  absl::Duration timeout;  // Bounds each call, and each attempt to open a connection.
};

// Which call this is. Members of a group agree on `launch` and `op_sequence`. A launch's id is
// never used again.
struct CallKey {
  uint64_t launch = 0;
  uint32_t op_sequence = 0;  // the number of this call among those of its group in the launch
  std::string op;            // For error messages: "psum at model.cc:41".
  std::string program;
};

// Numbers the calls of one rank in one launch. Each group has numbers of its own: devices that take
// different branches, or leave a loop earlier, differ in their calls with others.
class CallNumbers {
 public:
  uint32_t Next(const std::vector<int>& group) { return ++last_[group]; }

 private:
  std::map<std::vector<int>, uint32_t> last_;
};

// Indices in the group.
struct PermutePair {
  int source = 0;
  int target = 0;
};

// One call of one rank. Everything it points to is borrowed until Run returns.
struct Call {
  ir::CollectiveKind kind = ir::CollectiveKind::kBarrier;
  int rank = 0;
  // Ranks in group order, `rank` among them; the same list at all of them.
  absl::Span<const int> group = {};
  const CallKey& key;
  // Blocks of equal size, as base/collective_kinds.def says for the kind; none for a barrier.
  absl::Span<const std::byte> in = {};
  absl::Span<std::byte> out = {};
  // The kinds that combine only.
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  ir::DType dtype = ir::DType::kU8;
  // The kinds with pairs only. A position is source of at most one and target of at most one.
  absl::Span<const PermutePair> pairs = {};
};

class Collectives {
 public:
  virtual ~Collectives() = default;

  // Reductions combine in group order: the result has the same bits at every member, from run to
  // run, and whatever the transport. bf16 and f16 accumulate in f32 and are rounded once, at the
  // end. A bool sum is an "or". Max and min give NaN if any operand is NaN.
  //
  // Errors: COLLECTIVE_TIMEOUT (who was missing, in which phase), WORKER_LOST (a connection
  // dropped), PEER_FAILED (another executor aborted, or this generation is stale), INTERNAL (the
  // members' calls differ, or the arguments of one are inconsistent; both are our bug),
  // TYPE_ERROR or NOT_IMPLEMENTED (the reduction is not defined for the dtype; this alone leaves
  // the communicator usable, since every member gets the same error), or the Abort's status.
  virtual absl::Status Run(const Call& call) = 0;

  // Ends the calls of one launch with `status`, unless it has failed before. Local calls return
  // `status` itself; other executors report PEER_FAILED with its message. Does not block.
  virtual void AbortLaunch(uint64_t launch, absl::Status status) = 0;
  // Ends all calls, and thereby the communicator, with `status`.
  virtual void Abort(absl::Status status) = 0;
};

// `listen_fd` is a bound, listening TCP socket that outlives the result, or -1 if every member is
// local; it is borrowed, made non-blocking, and must serve only one Collectives at a time;
// or the descriptor from PeerPort::Open, which shares one socket among generations.
// Connections are made in the background: a call waits for those it needs. An invalid configuration
// is reported by every call.
std::unique_ptr<Collectives> MakeCollectives(CommunicatorConfig config, int listen_fd);

}  // namespace tessera::worker
