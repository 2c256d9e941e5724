// Collectives between the ranks of one executor, through its memory. HostCollectives
// (host_collectives.cc) calls Run when all members are local, and InterProcExchange (exchange.cc)
// calls the single steps when some are remote. Waiting members spin for a while before they sleep,
// because a meeting is usually over sooner than a thread wakes.
#include "worker/collectives/inproc.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/host_limits.h"
#include "base/status.h"

namespace tessera::worker {
namespace {

// The size of a piece of a meeting's work: large enough that taking one costs little, small enough
// to stay in the last-level cache.
constexpr size_t kPieceBytes = 128 << 10;

// The states of a meeting. kEnded means that a member has left or the launch has failed, so that
// the meeting never becomes ready.
enum State : int { kGathering, kReady, kDone, kEnded };

// The state of one member in a meeting: the buffers of the member, and how far it is.
struct Slot {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::unique_ptr<std::byte[]> remote_block;  // the `in` of a remote member
  bool local = false;
  bool arrived = false;
  bool finished = false;
};

}  // namespace

struct LocalRendezvous::Meeting {
  Meeting(const CheckedCall& first, const std::vector<bool>& is_local)
      : summary(Summarize(first)),
        fingerprint(first.fingerprint),
        reducer(first.reducer),
        layout(first.layout),
        group(first.group.begin(), first.group.end()),
        slots(first.group.size()),
        pieces_per_block((layout.block_bytes + kPieceBytes - 1) / kPieceBytes),
        // An all-reduce has one result for all members. In the other kinds each position has its
        // own result.
        pieces(pieces_per_block * (reducer != nullptr && !layout.in_each ? 1 : group.size())) {
    for (size_t i = 0; i < group.size(); ++i) {
      slots[i].local = is_local[group[i]];
      if (slots[i].local) ++unfinished;
    }
  }

  int PositionOf(int rank) const {
    const auto at = std::find(group.begin(), group.end(), rank);
    return at == group.end() ? -1 : static_cast<int>(at - group.begin());
  }

  void RunPiece(size_t piece) const;

  // Immutable.
  const CallSummary summary;
  const uint64_t fingerprint;
  const Reducer reducer;  // null for the kinds that do not combine
  const Layout layout;
  const std::vector<int> group;

  // Written under the lock of the rendezvous while members arrive, and only read afterwards.
  std::vector<Slot> slots;
  size_t unfinished = 0;  // number of local members that have not finished

  const size_t pieces_per_block;
  const size_t pieces;
  std::atomic<size_t> next_piece{0};
  std::atomic<size_t> pieces_done{0};
  std::atomic<int> state{kGathering};  // changed under the lock of the rendezvous only
  absl::CondVar changed;
};

void LocalRendezvous::Meeting::RunPiece(size_t piece) const {
  const auto position = static_cast<int>(piece / pieces_per_block);
  const size_t begin = (piece % pieces_per_block) * kPieceBytes;
  const size_t size = std::min(kPieceBytes, layout.block_bytes - begin);
  const int n = static_cast<int>(slots.size());
  if (reducer != nullptr) {
    absl::InlinedVector<const std::byte*, 16> inputs;
    absl::InlinedVector<std::byte*, 16> outputs;
    for (const Slot& slot : slots) inputs.push_back(slot.in + layout.InOffset(position) + begin);
    for (int to = 0; to < n; ++to) {
      const bool gets = slots[to].local && (!layout.in_each || to == position);
      if (gets) outputs.push_back(slots[to].out + begin);
    }
    return reducer(inputs, outputs, static_cast<int64_t>(size));
  }
  for (int to = 0; to < n; ++to) {
    if (!slots[to].local || !layout.Sends(position, to)) continue;
    std::memcpy(slots[to].out + layout.OutOffset(position) + begin,
                slots[position].in + layout.InOffset(to) + begin, size);
  }
  if (layout.ReceivesNothing(position)) std::memset(slots[position].out + begin, 0, size);
}

LocalRendezvous::LocalRendezvous(const CommunicatorConfig* config, const FailureLatch* failure)
    : config_(config),
      failure_(failure),
      is_local_(config->ranks.size()),
      spinners_(config->ranks.size()),
      last_meeting_(config->ranks.size()) {
  for (const int rank : config->local_ranks) is_local_[rank] = true;
}

LocalRendezvous::~LocalRendezvous() = default;

void LocalRendezvous::Wake() {
  absl::MutexLock lock(&mu_);
  for (auto& [key, meeting] : open_meetings_) meeting->changed.SignalAll();
}

void LocalRendezvous::EndMeetings(uint64_t launch) {
  absl::MutexLock lock(&mu_);
  auto it = open_meetings_.lower_bound(MeetingKey(launch, 0, {}));
  while (it != open_meetings_.end() && std::get<0>(it->first) == launch) {
    it->second->state.store(kEnded, std::memory_order_release);
    it->second->changed.SignalAll();
    it = open_meetings_.erase(it);
  }
}

absl::Status LocalRendezvous::Run(const CheckedCall& call, const Deadline& deadline) {
  MeetingRef meeting;
  TESSERA_RETURN_IF_ERROR(Arrive(call, &meeting));
  Finish(*meeting, call.position);
  TESSERA_RETURN_IF_ERROR(AwaitMembers(call, deadline, *meeting));
  Work(*meeting);
  return absl::OkStatus();
}

// Joins the meeting of this call, or opens it if this rank is the first. The buffers of the rank
// are entered in its slot, and are accessed only when all members have arrived. Two mistakes are
// reported at once instead of at the deadline: another rank waits for this rank in a different
// meeting, or the arguments of this call differ from those of the first member.
absl::Status LocalRendezvous::Arrive(const CheckedCall& call, MeetingRef* meeting) {
  absl::MutexLock lock(&mu_);
  // The latch is read under the lock, so that a launch that fails later finds this meeting and ends
  // it.
  TESSERA_RETURN_IF_ERROR(failure_->status(call.key.launch));
  MeetingKey key(call.key.launch, call.key.op_sequence,
                 std::vector<int>(call.group.begin(), call.group.end()));
  auto at = open_meetings_.find(key);
  TESSERA_RETURN_IF_ERROR(
      FindConflict(call, at == open_meetings_.end() ? nullptr : at->second.get()));
  if (at == open_meetings_.end()) {
    at = open_meetings_.emplace(std::move(key), std::make_shared<Meeting>(call, is_local_)).first;
  }
  *meeting = at->second;
  Meeting& m = **meeting;
  if (m.fingerprint != call.fingerprint) {
    int other = 0;
    while (!m.slots[other].local || !m.slots[other].arrived) ++other;
    return MismatchError(*config_, call, m.group[other], m.summary);
  }
  Slot& slot = m.slots[call.position];
  slot.in = call.in.data();
  slot.out = call.out.data();
  slot.arrived = true;
  last_meeting_[call.rank] = *meeting;
  return absl::OkStatus();
}

void LocalRendezvous::DeliverRemoteBlock(Meeting& m, int position,
                                         std::unique_ptr<std::byte[]> block) {
  absl::MutexLock lock(&mu_);
  Slot& slot = m.slots[position];
  slot.remote_block = std::move(block);
  slot.in = slot.remote_block.get();
  slot.arrived = true;
}

bool LocalRendezvous::Finish(Meeting& m, int position) {
  absl::MutexLock lock(&mu_);
  m.slots[position].finished = true;
  if (m.state.load(std::memory_order_relaxed) == kEnded || --m.unfinished > 0) return false;
  open_meetings_.erase(MeetingKey(m.summary.launch, m.summary.op_sequence, m.group));
  m.state.store(m.pieces == 0 ? kDone : kReady, std::memory_order_release);
  // A single piece is done by the member that takes it before another member could wake to help.
  if (m.pieces != 1) m.changed.SignalAll();
  return true;
}

bool LocalRendezvous::IsReady(const Meeting& m) {
  const int state = m.state.load(std::memory_order_acquire);
  return state == kReady || state == kDone;
}

bool LocalRendezvous::Leave(Meeting& m) {
  absl::MutexLock lock(&mu_);
  if (IsReady(m)) return false;
  m.state.store(kEnded, std::memory_order_release);
  return true;
}

std::vector<MissingRank> LocalRendezvous::Missing(const Meeting& m) const {
  absl::MutexLock lock(&mu_);
  return FindMissing(m);
}

// Returns the error if a member of the group waits in another meeting for this rank: that member
// will never come to this meeting.
absl::Status LocalRendezvous::FindConflict(const Call& call, const Meeting* mine) const {
  for (const int rank : call.group) {
    const Meeting* other = last_meeting_[rank].get();
    if (rank == call.rank || other == nullptr || other == mine) continue;
    if (other->state.load(std::memory_order_relaxed) != kGathering) continue;
    const int position = other->PositionOf(call.rank);
    if (position < 0 || other->slots[position].arrived) continue;
    return MismatchError(*config_, call, rank, other->summary);
  }
  return absl::OkStatus();
}

absl::Status LocalRendezvous::AwaitMembers(const Call& call, const Deadline& deadline,
                                           Meeting& meeting) {
  static const auto cores = static_cast<size_t>(ProcessLimits().cores);
  if (meeting.group.size() <= cores) {
    const auto over = [&meeting] {
      return meeting.state.load(std::memory_order_acquire) != kGathering;
    };
    spinners_[call.rank].Until(over);
    if (IsReady(meeting)) return absl::OkStatus();
  }
  absl::MutexLock lock(&mu_);
  while (!IsReady(meeting)) {
    absl::Status status = failure_->status(call.key.launch);
    if (status.ok() && deadline.Passed()) {
      status = TimeoutError(*config_, call, FindMissing(meeting), BoundOf(config_->timeout, call));
    }
    if (!status.ok()) {
      meeting.state.store(kEnded, std::memory_order_release);
      return status;
    }
    meeting.changed.WaitWithTimeout(&mu_, deadline.Left());
  }
  return absl::OkStatus();
}

std::vector<MissingRank> LocalRendezvous::FindMissing(const Meeting& m) const {
  std::vector<MissingRank> missing;
  for (size_t i = 0; i < m.group.size(); ++i) {
    if (m.slots[i].arrived) continue;
    const int rank = m.group[i];
    const Meeting* other = last_meeting_[rank].get();
    const bool elsewhere =
        other != nullptr && other->state.load(std::memory_order_relaxed) == kGathering;
    missing.push_back({rank, elsewhere
                                 ? absl::StrCat("not entered, waits in ", Describe(other->summary))
                                 : "not entered"});
  }
  if (!missing.empty()) return missing;
  for (size_t i = 0; i < m.group.size(); ++i) {
    if (m.slots[i].local && !m.slots[i].finished) missing.push_back({m.group[i], "still sending"});
  }
  return missing;
}

void LocalRendezvous::Work(Meeting& m) {
  size_t piece;
  while ((piece = m.next_piece.fetch_add(1, std::memory_order_relaxed)) < m.pieces) {
    m.RunPiece(piece);
    if (m.pieces_done.fetch_add(1, std::memory_order_acq_rel) + 1 == m.pieces) {
      absl::MutexLock lock(&mu_);
      m.state.store(kDone, std::memory_order_release);
      m.changed.SignalAll();
    }
  }
  if (SpinUntil([&m] { return m.state.load(std::memory_order_acquire) == kDone; })) return;
  // This wait needs no deadline, because every piece that is left is being worked on.
  absl::MutexLock lock(&mu_);
  while (m.state.load(std::memory_order_acquire) != kDone) m.changed.Wait(&mu_);
}

}  // namespace tessera::worker
