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

// What a member takes at a time: large against the cost of taking, small against the last cache.
constexpr size_t kBlockBytes = 128 << 10;

// About 20 us: less than a park and wake, more than neighbours' skew.
constexpr int kSpins = 1000;

// kEnded: it will never have all its members.
enum State : int { kGathering, kReady, kDone, kEnded };

struct Slot {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool arrived = false;
};

void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

struct LocalRendezvous::Meeting {
  explicit Meeting(const Call& first)
      : summary(Summarize(first)),
        fingerprint(first.fingerprint),
        kind(first.kind),
        reducer(first.reducer),
        group(first.group.begin(), first.group.end()),
        slots(first.group.size()),
        chunk(ChunkBytes(first)),
        blocks_per_chunk((chunk + kBlockBytes - 1) / kBlockBytes),
        // An all-reduce has one chunk, the others one for each position.
        blocks(blocks_per_chunk * (kind == CallKind::kAllReduce ? 1 : group.size())) {
    if (kind == CallKind::kPermute) {
      for (size_t i = 0; i < group.size(); ++i) sources.push_back(PermuteSource(first, i));
    }
  }

  int PositionOf(int rank) const {
    const auto at = std::find(group.begin(), group.end(), rank);
    return at == group.end() ? -1 : static_cast<int>(at - group.begin());
  }

  void RunBlock(size_t block) const;

  // Immutable.
  const CallSummary summary;
  const uint64_t fingerprint;
  const CallKind kind;
  const Reducer reducer;
  const std::vector<int> group;
  std::vector<int> sources;  // Permute: by target, -1 for none.

  // Written under the rendezvous' lock while gathering, then read only.
  std::vector<Slot> slots;
  size_t arrived = 0;

  const size_t chunk;
  const size_t blocks_per_chunk;
  const size_t blocks;
  std::atomic<size_t> next_block{0};
  std::atomic<size_t> blocks_done{0};
  std::atomic<int> state{kGathering};  // Raised under the rendezvous' lock.
  absl::CondVar changed;
};

void LocalRendezvous::Meeting::RunBlock(size_t block) const {
  const size_t position = block / blocks_per_chunk;
  const size_t begin = (block % blocks_per_chunk) * kBlockBytes;
  const size_t size = std::min(kBlockBytes, chunk - begin);
  const size_t at = position * chunk + begin;
  absl::InlinedVector<const std::byte*, 16> inputs;
  absl::InlinedVector<std::byte*, 16> outputs;
  switch (kind) {
    case CallKind::kAllReduce:
      for (const Slot& slot : slots) inputs.push_back(slot.in + begin);
      for (const Slot& slot : slots) outputs.push_back(slot.out + begin);
      return reducer(inputs, outputs, static_cast<int64_t>(size));
    case CallKind::kReduceScatter:
      for (const Slot& slot : slots) inputs.push_back(slot.in + at);
      outputs.push_back(slots[position].out + begin);
      return reducer(inputs, outputs, static_cast<int64_t>(size));
    case CallKind::kAllGather:
      for (const Slot& slot : slots) std::memcpy(slot.out + at, slots[position].in + begin, size);
      return;
    case CallKind::kAllToAll:
      for (size_t source = 0; source < slots.size(); ++source) {
        std::memcpy(slots[position].out + source * chunk + begin, slots[source].in + at, size);
      }
      return;
    case CallKind::kPermute:
      if (sources[position] < 0) {
        std::memset(slots[position].out + begin, 0, size);
      } else {
        std::memcpy(slots[position].out + begin, slots[sources[position]].in + begin, size);
      }
      return;
    case CallKind::kBarrier:
      return;
  }
}

LocalRendezvous::LocalRendezvous(const CommunicatorConfig* config, const FailureLatch* failure)
    : config_(config), failure_(failure), entered_(config->members.size()) {}

LocalRendezvous::~LocalRendezvous() = default;

void LocalRendezvous::Wake() {
  absl::MutexLock lock(&mu_);
  for (auto& [key, meeting] : open_) meeting->changed.SignalAll();
}

void LocalRendezvous::End(uint64_t launch) {
  absl::MutexLock lock(&mu_);
  auto it = open_.lower_bound(MeetingKey(launch, 0, {}));
  while (it != open_.end() && std::get<0>(it->first) == launch) {
    it->second->state.store(kEnded, std::memory_order_release);
    it->second->changed.SignalAll();
    it = open_.erase(it);
  }
}

absl::Status LocalRendezvous::Run(const Call& call, const Deadline& deadline) {
  std::shared_ptr<Meeting> meeting;
  TESSERA_RETURN_IF_ERROR(Arrive(call, &meeting));
  TESSERA_RETURN_IF_ERROR(AwaitMembers(call, deadline, *meeting));
  Work(*meeting);
  return absl::OkStatus();
}

absl::Status LocalRendezvous::Arrive(const Call& call, std::shared_ptr<Meeting>* meeting) {
  absl::MutexLock lock(&mu_);
  // Under the lock: a launch that fails later finds this meeting and ends it.
  TESSERA_RETURN_IF_ERROR(failure_->Of(call.key->launch));
  MeetingKey key(call.key->launch, call.key->op_sequence,
                 std::vector<int>(call.group.begin(), call.group.end()));
  auto at = open_.find(key);
  TESSERA_RETURN_IF_ERROR(FindConflict(call, at == open_.end() ? nullptr : at->second.get()));
  if (at == open_.end()) at = open_.emplace(std::move(key), std::make_shared<Meeting>(call)).first;
  *meeting = at->second;
  Meeting& m = **meeting;
  if (m.fingerprint != call.fingerprint) {
    int other = 0;
    while (!m.slots[other].arrived) ++other;
    return MismatchVerdict(*config_, call, m.group[other], m.summary);
  }
  m.slots[call.position] = {call.in.data(), call.out.data(), /*arrived=*/true};
  entered_[call.rank] = *meeting;
  if (++m.arrived == m.group.size()) {
    open_.erase(at);
    m.state.store(m.blocks == 0 ? kDone : kReady, std::memory_order_release);
    // One block is done sooner than a helper wakes.
    if (m.blocks != 1) m.changed.SignalAll();
  }
  return absl::OkStatus();
}

// A member that waits for this rank in another meeting will never come to this one.
absl::Status LocalRendezvous::FindConflict(const Call& call, const Meeting* mine) const {
  for (const int rank : call.group) {
    const Meeting* other = entered_[rank].get();
    if (rank == call.rank || other == nullptr || other == mine) continue;
    if (other->state.load(std::memory_order_relaxed) != kGathering) continue;
    const int position = other->PositionOf(call.rank);
    if (position < 0 || other->slots[position].arrived) continue;
    return MismatchVerdict(*config_, call, rank, other->summary);
  }
  return absl::OkStatus();
}

absl::Status LocalRendezvous::AwaitMembers(const Call& call, const Deadline& deadline,
                                           Meeting& meeting) {
  static const auto cores = static_cast<size_t>(OwnLimits().cores);
  if (meeting.group.size() <= cores) {
    for (int i = 0; i < kSpins; ++i) {
      const int state = meeting.state.load(std::memory_order_acquire);
      if (state == kEnded) return failure_->Of(call.key->launch);
      if (state != kGathering) return absl::OkStatus();
      Relax();
    }
  }
  absl::MutexLock lock(&mu_);
  while (true) {
    const int state = meeting.state.load(std::memory_order_acquire);
    if (state == kEnded) return failure_->Of(call.key->launch);
    if (state != kGathering) break;
    if (failure_->failed()) return failure_->status();
    if (deadline.Passed()) return Timeout(call, meeting);
    meeting.changed.WaitWithTimeout(&mu_, deadline.Left());
  }
  return absl::OkStatus();
}

absl::Status LocalRendezvous::Timeout(const Call& call, const Meeting& meeting) const {
  std::vector<MissingRank> missing;
  for (size_t i = 0; i < meeting.group.size(); ++i) {
    if (meeting.slots[i].arrived) continue;
    const int rank = meeting.group[i];
    const Meeting* other = entered_[rank].get();
    const bool elsewhere =
        other != nullptr && other->state.load(std::memory_order_relaxed) == kGathering;
    missing.push_back({rank, elsewhere
                                 ? absl::StrCat("not entered, waits in ", Describe(other->summary))
                                 : "not entered"});
  }
  return TimeoutVerdict(*config_, call, missing);
}

void LocalRendezvous::Work(Meeting& m) {
  size_t block;
  while ((block = m.next_block.fetch_add(1, std::memory_order_relaxed)) < m.blocks) {
    m.RunBlock(block);
    if (m.blocks_done.fetch_add(1, std::memory_order_acq_rel) + 1 == m.blocks) {
      absl::MutexLock lock(&mu_);
      m.state.store(kDone, std::memory_order_release);
      m.changed.SignalAll();
    }
  }
  for (int i = 0; i < kSpins; ++i) {
    if (m.state.load(std::memory_order_acquire) == kDone) return;
    Relax();
  }
  // No deadline: every block that is left is being worked on.
  absl::MutexLock lock(&mu_);
  while (m.state.load(std::memory_order_acquire) != kDone) m.changed.Wait(&mu_);
}

}  // namespace tessera::worker
