// One call of one rank, as the transports see it, and the words in which verdicts speak of it.
//
// A Call borrows the caller's buffers and key, and lives on the calling rank's stack.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/reduce.h"

namespace tessera::worker {

enum class CallKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kPermute,
  kBarrier
};

struct Call {
  CallKind kind = CallKind::kBarrier;
  ReduceKind reduce = ReduceKind::kSum;  // The reductions only.
  ir::DType dtype = ir::DType::kU8;      // The reductions only.
  Reducer reducer = nullptr;             // The reductions only.
  int rank = 0;
  int position = 0;          // Of `rank` in `group`; set by Validate.
  uint64_t fingerprint = 0;  // Set by Validate.
  absl::Span<const int> group;
  const CallKey* key = nullptr;
  absl::Span<const PermutePair> pairs;  // Permute only.
  absl::Span<const std::byte> in;
  absl::Span<std::byte> out;
};

// What one member sends to or keeps for one position: the unit in which a call's bytes divide. All
// of `in` for an all-reduce.
size_t ChunkBytes(const Call& call);

// The position whose `in` this one receives, or -1 (Permute only).
int PermuteSource(const Call& call, int target);

// Sets `position` and `fingerprint`; checks the group, the sizes, the pairs and that buffers do not
// overlap.
absl::Status Validate(const CommunicatorConfig& config, Call& call);

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
