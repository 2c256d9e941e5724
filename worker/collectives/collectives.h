// Collectives between the devices of one communicator: the interface of every transport.
//
// A communicator connects the devices of several executors, at one generation. Each device has a
// rank, which is its index in CommunicatorConfig::ranks. Each executor process makes and owns one
// Collectives for the ranks of its own devices, which are called local. Ranks of other processes
// are reached over TCP, by one connection for each pair of executors.
//
// Threads: each local rank has one thread, which makes that rank's calls in the plan's order; ranks
// call concurrently. Abort and AbortLaunch may be called from any thread. No call may be running
// when the Collectives is destroyed.
//
// Memory: every call blocks and borrows its buffers until it returns. They may then be reused at
// once, even if the call failed; the contents of `out` are unspecified in that case. `in` and `out`
// must not overlap, except that an all_reduce may use the same memory for both.
//
// A launch fails alone: the error of a missed deadline or of an AbortLaunch is stored and sent to
// the other executors, and every waiting and every later call of that launch returns it at once.
// The data that is still received for the launch is dropped, and calls of other launches go on. A
// failure of the communicator (a lost peer, calls that do not match, Abort) ends every waiting and
// every later call of all launches. The way to recover is a new communicator of a higher
// generation.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// The device that has a rank, and the executor of the device.
struct RankInfo {
  int device = 0;  // the number of the device in its executor, for messages only
  std::string executor;
  uint64_t incarnation = 0;
  std::string endpoint;  // host:port of the executor's peer socket
  std::string host;      // for messages only
};

struct CommunicatorConfig {
  uint64_t generation = 0;
  std::vector<RankInfo> ranks;   // ranks of one executor differ in `device` only
  std::vector<int> local_ranks;  // the ranks of all devices of this executor
  // The secret that all executors share. A peer that connects with another secret is turned away.
  std::string secret;
  // The TLS identity of this executor, or null if connections between executors are plaintext.
  // Either all executors have a TLS identity or none has.
  std::shared_ptr<const TlsContext> tls;
  absl::Duration timeout;  // bounds each call, and each attempt to open a connection
  // Returns whether this executor has received a launch. Executors whose calls wait for this one
  // ask. Thread-safe; null if this executor need not say.
  std::function<bool(uint64_t launch)> has_launch;
  // How long after `timeout` a call may go on while an executor says that it has not received the
  // call's launch. The coordinator or its link may stand still, which is no fault of a member.
  absl::Duration launch_patience;
};

// Returns the failure of a launch as the other executors are told it: PEER_FAILED, because they are
// not its cause. But a lost executor and a missed deadline are told as such, because they are the
// same for all members.
absl::Status StatusForPeers(const absl::Status& why);

// Identifies a call. The members of a group agree on `launch` and `op_sequence`. The id of a launch
// is never used again.
struct CallKey {
  uint64_t launch = 0;
  uint32_t op_sequence = 0;  // the number of this call among those of its group in the launch
  std::string op;            // the op and its call site, for error messages: "psum at model.cc:41"
  std::string program;
};

// Numbers the calls of one rank in one launch. Each group has its own numbers, because devices that
// take different branches, or leave a loop earlier, make different numbers of calls in their other
// groups.
class CallNumbers {
 public:
  uint32_t Next(const std::vector<int>& group) { return ++last_[group]; }

 private:
  std::map<std::vector<int>, uint32_t> last_;
};

// A source and a target, as indices in the group.
struct PermutePair {
  int source = 0;
  int target = 0;
};

// One call of one rank. All memory that it points to is borrowed until Run returns.
struct Call {
  ir::CollectiveKind kind = ir::CollectiveKind::kBarrier;
  int rank = 0;
  // The ranks of the group. Every member passes them in the same order; `rank` is one of them.
  absl::Span<const int> group = {};
  const CallKey& key;
  // Blocks of equal size, as base/collective_kinds.def says for the kind. A barrier has none.
  absl::Span<const std::byte> in = {};
  absl::Span<std::byte> out = {};
  // The reduction, used only by the kinds that combine.
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  ir::DType dtype = ir::DType::kU8;
  // The pairs, used only by the kinds that have them. Each index in the group is the source of at
  // most one pair and the target of at most one.
  absl::Span<const PermutePair> pairs = {};
  // The rest of the call's bound, if the call has waited elsewhere before.
  absl::Duration timeout = absl::InfiniteDuration();
  // The bound of this call, if it is more than CommunicatorConfig::timeout.
  absl::Duration long_timeout = absl::ZeroDuration();
  // Whether CommunicatorConfig::launch_patience applies.
  bool awaits_launch = true;
  // Whether the time of the call says how fast the links between the devices are. It does not if
  // the devices have links of their own, and the host only agrees with other hosts.
  bool measures_links = true;
};

// An exchange of one rank, as the metrics count it.
struct MeasuredExchange {
  ir::CollectiveKind kind = ir::CollectiveKind::kBarrier;
  int rank = 0;
  absl::Span<const int> group = {};
  int64_t in_bytes = 0;  // the size of this rank's input
  absl::Duration time;   // with the wait for the other ranks; zero if it is unknown
};

// Returns the time within which all members must come to a call.
inline absl::Duration BoundOf(absl::Duration timeout, const Call& call) {
  return std::max(timeout, call.long_timeout);
}

class Collectives {
 public:
  virtual ~Collectives() = default;

  // Runs the call and blocks until it has ended. Reductions combine in group order: the result has
  // the same bits at every member, in every run, and over every transport. bf16 and f16 accumulate
  // in f32 and are rounded once, at the end. A bool sum is an "or". Max and min give NaN if any
  // operand is NaN.
  //
  // Errors: COLLECTIVE_TIMEOUT (names the missing members and the phase of each), WORKER_LOST (a
  // connection dropped), PEER_FAILED (another executor aborted, or this generation is stale),
  // INTERNAL (the calls of the members differ, or the arguments of one call are inconsistent; both
  // are our bug), TYPE_ERROR or NOT_IMPLEMENTED (the reduction is not defined for the dtype), or
  // the status of the Abort or AbortLaunch. An undefined reduction fails only this call, since
  // every member gets the same error. A COLLECTIVE_TIMEOUT fails the launch or, if a frame to a
  // peer was written only in part, the communicator. An error of AbortLaunch here or at a peer
  // fails the launch. All other errors fail the communicator.
  virtual absl::Status Run(const Call& call) = 0;

  // Ends the calls of one launch with `status`, unless the launch has failed before. Local calls
  // return `status` itself; other executors report PEER_FAILED with its message. Does not block.
  virtual void AbortLaunch(uint64_t launch, absl::Status status) = 0;
  // Returns the failure of the launch, which is the status of an AbortLaunch here, the PEER_FAILED
  // of one at a peer, or a missed deadline. Returns OK if the launch has not failed. A failure of
  // the communicator does not count. Does not block; thread-safe.
  virtual absl::Status LaunchFailure(uint64_t launch) const = 0;
  // Ends all calls, now and later, with `status`. The communicator cannot be used any more.
  virtual void Abort(absl::Status status) = 0;

  // For metrics: record an exchange of the devices, and how long the opening of a communicator of
  // the devices' library took. Do nothing if nothing is measured. Do not block; thread-safe.
  virtual void RecordDeviceExchange(const MeasuredExchange&) {}
  virtual void RecordDeviceOpening(int num_ranks, absl::Duration time) {
    static_cast<void>(num_ranks), static_cast<void>(time);
  }
};

}  // namespace tessera::worker
