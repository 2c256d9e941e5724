// A call as the transports see it, checked and placed, and the words in which verdicts speak of it.
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

// Which blocks pass between the positions of a group, and where they lie.
struct Layout {
  // Whether `to` is sent a block of `from`: the one at InOffset(to) in its `in`. It comes to lie at
  // OutOffset(from) in the `out` of `to`, or is combined with the others that come there.
  bool Sends(int from, int to) const { return sources.empty() || sources[to] == from; }
  bool GetsNothing(int to) const { return !sources.empty() && sources[to] < 0; }
  size_t InOffset(int to) const { return in_each ? to * block : 0; }
  size_t OutOffset(int from) const { return out_each ? from * block : 0; }

  size_t block = 0;  // Bytes.
  bool in_each = false, out_each = false;
  std::vector<int> sources;  // By target, -1 for none; empty unless pairs say who sends to whom.
};

// Lives on the calling rank's stack.
struct CheckedCall : Call {
  explicit CheckedCall(const Call& call) : Call(call) {}

  Reducer reducer = nullptr;  // Null for the kinds that do not combine.
  int position = 0;           // Of `rank` in `group`.
  uint64_t fingerprint = 0;   // Of what must be equal at every member, but for launch and sequence.
  Layout layout;
};

// Sets the rest of a call whose reducer is known; checks the group, the sizes, the pairs and that
// buffers do not overlap.
absl::Status Validate(const CommunicatorConfig& config, CheckedCall& call);

// A call as a peer knows it: what fits into a frame.
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
// come from a peer; any value prints.
std::string Describe(const CallSummary& summary);

// "rank 2 (device 5, executor w1, host b)".
std::string DescribeRank(const CommunicatorConfig& config, int rank);

struct MissingRank {
  int rank = 0;
  std::string phase;  // "not entered", "not connected", "stalled: 5 of 9 bytes received".
};

absl::Status TimeoutVerdict(const CommunicatorConfig& config, const Call& call,
                            absl::Span<const MissingRank> missing);
absl::Status LostVerdict(const CommunicatorConfig& config, const Call& call, int rank,
                         const std::string& reason);
absl::Status MismatchVerdict(const CommunicatorConfig& config, const Call& call, int other_rank,
                             const CallSummary& other);

}  // namespace tessera::worker
