// A call after validation, and the error messages about it.
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

// Which blocks are sent between the members of a group, and their offsets in the buffers.
struct Layout {
  // Whether `from` sends a block to `to`: the one at InOffset(to) in its `in`. It is written to
  // OutOffset(from) in the `out` of `to`, or combined with the others there.
  bool Sends(int from, int to) const { return sources.empty() || sources[to] == from; }
  bool ReceivesNothing(int to) const { return !sources.empty() && sources[to] < 0; }
  size_t InOffset(int to) const { return in_each ? to * block : 0; }
  size_t OutOffset(int from) const { return out_each ? from * block : 0; }

  size_t block = 0;  // Bytes.
  // Whether the buffer holds one block for each position, or a single one.
  bool in_each = false, out_each = false;
  std::vector<int> sources;  // The source of each target or -1; empty unless pairs are given.
};

// Lives on the calling rank's stack.
struct CheckedCall : Call {
  explicit CheckedCall(const Call& call) : Call(call) {}

  Reducer reducer = nullptr;  // Null for the kinds that do not combine.
  int position = 0;           // The index of `rank` in `group`.
  uint64_t fingerprint = 0;   // Hash of what every member must pass alike, besides the key.
  Layout layout;
};

// Checks the group, the sizes, the pairs and that buffers do not overlap; sets all fields but the
// reducer.
absl::Status Validate(const CommunicatorConfig& config, CheckedCall& call);

// The description of a call that is sent with a frame.
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

// "psum at model.cc:41 (all_reduce sum f32, 64 bytes, 4 members, launch 7, op 3)". The fields may
// come from a peer, so any value is allowed.
std::string Describe(const CallSummary& summary);

// "rank 2 (device 1 of executor w1/0, host b)".
std::string DescribeRank(const CommunicatorConfig& config, int rank);

struct MissingRank {
  int rank = 0;
  std::string phase;  // "not entered", "not connected", "stalled: 5 of 9 bytes received".
};

absl::Status TimeoutError(const CommunicatorConfig& config, const Call& call,
                          absl::Span<const MissingRank> missing);
absl::Status PeerLostError(const CommunicatorConfig& config, const Call& call, int rank,
                           const std::string& reason);
absl::Status MismatchError(const CommunicatorConfig& config, const Call& call, int other_rank,
                           const CallSummary& other);

}  // namespace tessera::worker
