// Validates a rank's call before a transport runs it, and makes the errors that all transports
// return. HostCollectives (host_collectives.cc) passes each call to Validate first. A call that
// breaks a rule is our own bug, so the error is INTERNAL and describes the call.
#include "worker/collectives/call.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace tessera::worker {
namespace {

absl::Status InvalidCallError(const Call& call, absl::string_view what) {
  return MakeError(ErrorKind::kInternal, absl::StrCat(Describe(Summarize(call)), ": ", what));
}

// Checks the ranks of the group, and sets the position of the calling rank in it.
absl::Status FindPosition(const CommunicatorConfig& config, CheckedCall& call) {
  const int num_ranks = static_cast<int>(config.ranks.size());
  call.position = -1;
  std::vector<bool> seen(num_ranks);
  for (size_t i = 0; i < call.group.size(); ++i) {
    const int rank = call.group[i];
    if (rank < 0 || rank >= num_ranks) {
      return InvalidCallError(
          call, absl::StrCat("rank ", rank, " is not one of ", num_ranks, " members"));
    }
    if (seen[rank])
      return InvalidCallError(call, absl::StrCat("rank ", rank, " is in the group twice"));
    seen[rank] = true;
    if (rank == call.rank) call.position = static_cast<int>(i);
  }
  if (call.position < 0) {
    return InvalidCallError(call,
                            absl::StrCat("the calling rank ", call.rank, " is not in the group"));
  }
  const auto& local = config.local_ranks;
  if (std::find(local.begin(), local.end(), call.rank) == local.end()) {
    return InvalidCallError(call,
                            absl::StrCat("rank ", call.rank, " is not local to this executor"));
  }
  return absl::OkStatus();
}

absl::Status DivideIntoBlocks(CheckedCall& call) {
  const ir::CollectiveInfo& info = ir::InfoOf(call.kind);
  const size_t n = call.group.size();
  const size_t in = call.in.size();
  const size_t out = call.out.size();
  Layout& layout = call.layout;
  layout.in_each = info.in == ir::BlockCount::kEach;
  layout.out_each = info.out == ir::BlockCount::kEach;
  layout.block_bytes = layout.in_each ? in / n : in;
  const size_t width = info.combines ? ir::ByteWidth(call.dtype) : 1;
  if (in == layout.block_bytes * (layout.in_each ? n : 1) &&
      out == layout.block_bytes * (layout.out_each ? n : 1) && layout.block_bytes % width == 0) {
    return absl::OkStatus();
  }
  return InvalidCallError(call, absl::StrCat("sizes do not fit: in is ", in, " bytes, out is ", out,
                                             " bytes, for ", n, " members"));
}

absl::Status CheckOverlap(const Call& call) {
  if (call.in.empty() || call.out.empty()) return absl::OkStatus();
  if (call.kind == ir::CollectiveKind::kAllReduce && call.in.data() == call.out.data()) {
    return absl::OkStatus();
  }
  const std::less_equal<const std::byte*> before;  // Unlike <=, it orders any two pointers.
  const std::byte* out = call.out.data();
  if (before(call.in.data() + call.in.size(), out) ||
      before(out + call.out.size(), call.in.data())) {
    return absl::OkStatus();
  }
  return InvalidCallError(call, "in and out overlap");
}

absl::Status FindSources(CheckedCall& call) {
  if (!ir::InfoOf(call.kind).paired) return absl::OkStatus();
  const int n = static_cast<int>(call.group.size());
  std::vector<bool> sends(n);
  std::vector<int>& sources = call.layout.sources;
  sources.assign(n, -1);
  for (const PermutePair& pair : call.pairs) {
    const bool inside = pair.source >= 0 && pair.source < n && pair.target >= 0 && pair.target < n;
    if (!inside || sends[pair.source] || sources[pair.target] != -1) {
      return InvalidCallError(call,
                              absl::StrCat("pair (", pair.source, ", ", pair.target,
                                           ") is outside the group or repeats a source or target"));
    }
    sends[pair.source] = true;
    sources[pair.target] = pair.source;
  }
  return absl::OkStatus();
}

class Fnv1a {
 public:
  void Mix(uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) hash_ = (hash_ ^ (value & 0xff)) * 0x100000001b3;
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// Hashes the arguments that all members must pass alike. The hash is the same on every host, so
// that a member can compare it with the one in a peer's frame.
uint64_t Fingerprint(const Call& call) {
  Fnv1a hash;
  hash.Mix(static_cast<uint64_t>(call.kind));
  hash.Mix(static_cast<uint64_t>(call.reduce));
  hash.Mix(static_cast<uint64_t>(call.dtype));
  hash.Mix(call.in.size());
  hash.Mix(call.group.size());
  for (const int rank : call.group) hash.Mix(static_cast<uint64_t>(rank));
  for (const PermutePair& pair : call.pairs) {
    hash.Mix(static_cast<uint64_t>(pair.source));
    hash.Mix(static_cast<uint64_t>(pair.target));
  }
  return hash.hash();
}

std::string Context(const Call& call) {
  return absl::StrCat("program ", call.key.program, ", launch ", call.key.launch, ", op ",
                      call.key.op_sequence);
}

}  // namespace

absl::Status StatusForPeers(const absl::Status& why) {
  const ErrorKind kind = KindOf(why);
  return kind == ErrorKind::kWorkerLost || kind == ErrorKind::kCollectiveTimeout
             ? why
             : MakeError(ErrorKind::kPeerFailed, std::string(why.message()));
}

absl::Status Validate(const CommunicatorConfig& config, CheckedCall& call) {
  TESSERA_RETURN_IF_ERROR(FindPosition(config, call));
  TESSERA_RETURN_IF_ERROR(DivideIntoBlocks(call));
  TESSERA_RETURN_IF_ERROR(FindSources(call));
  call.fingerprint = Fingerprint(call);
  return CheckOverlap(call);
}

CallSummary Summarize(const Call& call) {
  return {static_cast<uint8_t>(call.kind),
          static_cast<uint8_t>(call.reduce),
          static_cast<uint8_t>(call.dtype),
          static_cast<uint32_t>(call.group.size()),
          call.in.size(),
          call.key.launch,
          call.key.op_sequence,
          call.key.op};
}

std::string Describe(const CallSummary& s) {
  const bool known = s.kind < ir::kNumCollectiveKinds;
  const ir::CollectiveInfo& info =
      ir::InfoOf(known ? static_cast<ir::CollectiveKind>(s.kind) : ir::CollectiveKind::kNone);
  std::string what(known ? info.name : "unknown");
  if (info.combines && s.dtype < ir::kNumDTypes) {
    absl::StrAppend(&what, " ", ToAbsl(ir::ReduceKindName(static_cast<ir::ReduceKind>(s.reduce))),
                    " ", ToAbsl(ir::DTypeName(static_cast<ir::DType>(s.dtype))));
  }
  return absl::StrCat(s.op, " (", what, ", ", s.bytes, " bytes, ", s.group_size,
                      " members, launch ", s.launch, ", op ", s.op_sequence, ")");
}

std::string DescribeRank(const CommunicatorConfig& config, int rank) {
  const RankInfo& info = config.ranks[rank];
  return absl::StrCat("rank ", rank, " (device ", info.device, " of executor ", info.executor,
                      ", host ", info.host, ")");
}

absl::Status TimeoutError(const CommunicatorConfig& config, const Call& call,
                          absl::Span<const MissingRank> missing, absl::Duration waited) {
  const std::string who =
      absl::StrJoin(missing, "; ", [&config](std::string* out, const MissingRank& m) {
        absl::StrAppend(out, DescribeRank(config, m.rank), ": ", m.phase);
      });
  return MakeError(
      ErrorKind::kCollectiveTimeout,
      absl::StrCat(call.key.op, ": ", missing.size(), " of ", call.group.size(),
                   " members missing after ", absl::FormatDuration(waited),
                   waited > BoundOf(config.timeout, call)
                       ? " (an executor had not received the launch from the coordinator)"
                       : "",
                   ", seen from rank ", call.rank, ": ", who, " [", Context(call), "]"));
}

absl::Status PeerLostError(const CommunicatorConfig& config, const Call& call, int rank,
                           const std::string& reason) {
  return MakeError(ErrorKind::kWorkerLost,
                   absl::StrCat(call.key.op, ": lost ", DescribeRank(config, rank), ": ", reason,
                                " [", Context(call), "]"));
}

absl::Status MismatchError(const CommunicatorConfig& config, const Call& call, int other_rank,
                           const CallSummary& other) {
  return MakeError(
      ErrorKind::kInternal,
      absl::StrCat("members of a group made different calls: ", DescribeRank(config, call.rank),
                   " called ", Describe(Summarize(call)), ", ", DescribeRank(config, other_rank),
                   " called ", Describe(other), " [program ", call.key.program, "]"));
}

}  // namespace tessera::worker
