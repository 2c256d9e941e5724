// A call after validation, and the error messages about calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collectives/collectives.h"
#include "worker/collectives/reduce.h"

namespace tessera::worker {

// Which blocks the members of a group send to each other, and where the blocks lie in the buffers.
// A member is named by its position, the index of its rank in the group.
struct Layout {
  // Returns whether position `from` sends a block to position `to`. The block lies at InOffset(to)
  // in the sender's `in`. It is written to OutOffset(from) in the receiver's `out`, or combined
  // there with the blocks of the others.
  bool Sends(int from, int to) const { return sources.empty() || sources[to] == from; }
  bool ReceivesNothing(int to) const { return !sources.empty() && sources[to] < 0; }
  size_t InOffset(int to) const { return in_each ? to * block_bytes : 0; }
  size_t OutOffset(int from) const { return out_each ? from * block_bytes : 0; }

  size_t block_bytes = 0;  // size of one block
  // Whether `in`, and whether `out`, holds one block for each position rather than a single block.
  bool in_each = false, out_each = false;
  // Per position, the position that sends to it, or -1 if none does. Empty unless the kind of call
  // has pairs.
  std::vector<int> sources;
};

// A call with the values that are derived from it. It lives on the stack of the calling thread.
struct CheckedCall : Call {
  explicit CheckedCall(const Call& call) : Call(call) {}

  Reducer reducer = nullptr;  // null for the kinds that do not combine
  int position = 0;           // the index of `rank` in `group`
  // hash of the arguments, other than the key, that all members must pass alike
  uint64_t fingerprint = 0;
  Layout layout;
};

// Checks the group, the sizes and the pairs, and that the buffers do not overlap. Sets all fields
// of `call` except the reducer, which the caller sets.
absl::Status Validate(const CommunicatorConfig& config, CheckedCall& call);

// The description of a call that is sent with each frame of it (wire.h).
struct CallSummary {
  uint8_t kind = 0;
  uint8_t reduce = 0;
  uint8_t dtype = 0;
  uint32_t group_size = 0;
  uint64_t bytes = 0;
  uint64_t launch = 0;
  uint32_t op_sequence = 0;
  std::string op;
};
CallSummary Summarize(const Call& call);

// Describes a call, as "psum at model.cc:41 (all_reduce sum f32, 64 bytes, 4 members, launch 7, op
// 3)". The fields may come from a peer, so they may have any value.
std::string Describe(const CallSummary& summary);

// Describes a rank, as "rank 2 (device 1 of executor w1/0, host b)".
std::string DescribeRank(const CommunicatorConfig& config, int rank);

// A member for which a call waited in vain, and how far that member came.
struct MissingRank {
  int rank = 0;
  std::string phase;  // "not entered", "not connected" or "stalled: 5 of 9 bytes received"
};

// The error of a call that has waited for `waited`. If that is longer than the timeout, a peer had
// not received the launch.
absl::Status TimeoutError(const CommunicatorConfig& config, const Call& call,
                          absl::Span<const MissingRank> missing, absl::Duration waited);
absl::Status PeerLostError(const CommunicatorConfig& config, const Call& call, int rank,
                           const std::string& reason);
absl::Status MismatchError(const CommunicatorConfig& config, const Call& call, int other_rank,
                           const CallSummary& other);

}  // namespace tessera::worker
