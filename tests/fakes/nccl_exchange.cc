// Moves the messages of one rank through the mailboxes of the segment. nccl_run.cc calls Exchange
// on the thread of a stream. While nothing moves, it looks for peers that are gone and for
// deadlocks, so that a test fails with the reason instead of hanging.
#include "tests/fakes/nccl_exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

namespace tessera::fakes {
namespace {

using Queues = std::map<int, std::deque<Message>>;

Queues ByPeer(std::vector<Message> messages) {
  Queues queues;
  for (Message& message : messages) queues[message.peer].push_back(message);
  return queues;
}

// Records that `bytes` bytes of the message at the front of the queue have moved.
void Advance(std::deque<Message>* queue, size_t bytes) {
  queue->front().data += bytes;
  queue->front().bytes -= bytes;
  if (queue->front().bytes == 0) queue->pop_front();
}

class ExchangeProgress {
 public:
  ExchangeProgress(Segment* segment, int rank, Queues sends, Queues receives)
      : segment_(segment), rank_(rank), sends_(std::move(sends)), receives_(std::move(receives)) {}

  // Moves as much data as possible without waiting. Returns whether any data moved.
  bool Step(const ExchangeEvents& events) {
    const Segment::Lock lock(segment_);
    bool moved = false;
    Member& self = segment_->member(rank_);
    self.sending = self.receiving = 0;
    for (auto& [peer, queue] : sends_) {
      Mailbox& box = segment_->mailbox(rank_, peer);
      if (queue.empty() || box.full) continue;
      Message& message = queue.front();
      const size_t bytes = std::min(message.bytes, kChunkBytes);
      if (bytes > 0) memcpy(box.data, message.data, bytes);
      box.bytes = static_cast<uint32_t>(bytes);
      box.label = message.label;
      box.full = true;
      Advance(&queue, bytes);
      moved = true;
    }
    for (auto& [peer, queue] : receives_) {
      Mailbox& box = segment_->mailbox(peer, rank_);
      if (queue.empty() || !box.full || mismatched_) continue;
      Message& message = queue.front();
      if (box.label != message.label || box.bytes > message.bytes) {
        mismatched_ = true;
        events.mismatched(peer, box.label, message.label);
        continue;
      }
      if (box.bytes > 0) memcpy(message.data, box.data, box.bytes);
      box.full = false;
      Advance(&queue, box.bytes);
      moved = true;
    }
    if (!moved) {
      self.sending = PeersOf(sends_);
      self.receiving = PeersOf(receives_);
    }
    return moved;
  }

  // Records that the rank waits for nothing any more.
  void Leave() {
    const Segment::Lock lock(segment_);
    Member& self = segment_->member(rank_);
    self.sending = self.receiving = 0;
  }

  bool IsDone() const {
    const auto empty = [](const auto& entry) { return entry.second.empty(); };
    return std::all_of(sends_.begin(), sends_.end(), empty) &&
           std::all_of(receives_.begin(), receives_.end(), empty);
  }

  // Reports each peer that is gone and for which this rank waits. Reports each peer only once.
  void ReportLostPeers(const ExchangeEvents& events) {
    for (const Queues* queues : {&sends_, &receives_}) {
      for (const auto& [peer, queue] : *queues) {
        if (queue.empty() || reported_lost_[peer]) continue;
        Member member;
        {
          const Segment::Lock lock(segment_);
          member = segment_->member(peer);
        }
        const char* how = member.state == RankState::kAborted ? "has aborted"
                          : !IsAlive(member.process)          ? "has died"
                                                              : nullptr;
        if (how == nullptr) continue;
        reported_lost_[peer] = true;
        events.lost(peer, how);
      }
    }
  }

  // Reports that the ranks have deadlocked. Reports it only once.
  void ReportDeadlock(const ExchangeEvents& events) {
    if (deadlocked_) return;
    uint32_t found = 1u << rank_;
    std::vector<int32_t> processes;  // the process of each rank in `found`
    {
      const Segment::Lock lock(segment_);
      for (uint32_t known = 0; known != found;) {
        known = found;
        for (int rank = 0; rank < kRanksMax; ++rank) {
          if ((known >> rank & 1) == 0) continue;
          const Member& member = segment_->member(rank);
          if ((member.sending | member.receiving) == 0 || CanMove(rank)) return;
          found |= member.sending | member.receiving;
        }
      }
      for (int rank = 0; rank < kRanksMax; ++rank) {
        if ((found >> rank & 1) != 0) processes.push_back(segment_->member(rank).process);
      }
    }
    // A rank that died while it waited counts as lost, and this is not a deadlock.
    if (!std::all_of(processes.begin(), processes.end(), IsAlive)) return;
    deadlocked_ = true;
    events.deadlocked(found);
  }

 private:
  static uint32_t PeersOf(const Queues& queues) {
    uint32_t peers = 0;
    for (const auto& [peer, queue] : queues) peers |= queue.empty() ? 0 : 1u << peer;
    return peers;
  }

  // Returns whether a waiting rank could go on if it looked now. Must be called under the lock.
  bool CanMove(int rank) {
    const Member& member = segment_->member(rank);
    for (int peer = 0; peer < kRanksMax; ++peer) {
      if ((member.sending >> peer & 1) != 0 && !segment_->mailbox(rank, peer).full) return true;
      if ((member.receiving >> peer & 1) != 0 && segment_->mailbox(peer, rank).full) return true;
    }
    return false;
  }

  Segment* const segment_;
  const int rank_;
  Queues sends_;
  Queues receives_;
  bool mismatched_ = false;
  bool deadlocked_ = false;
  std::map<int, bool> reported_lost_;
};

}  // namespace

bool Exchange(Segment* segment, int rank, std::vector<Message> sends, std::vector<Message> receives,
              const ExchangeEvents& events) {
  ExchangeProgress progress(segment, rank, ByPeer(std::move(sends)), ByPeer(std::move(receives)));
  while (!progress.IsDone()) {
    if (events.aborted()) {
      progress.Leave();
      return false;
    }
    const uint32_t seen = segment->changes();
    if (progress.Step(events)) {
      segment->NotifyChange();
      continue;
    }
    segment->WaitForChange(seen);
    if (segment->changes() != seen) continue;
    progress.ReportLostPeers(events);
    progress.ReportDeadlock(events);
  }
  return true;
}

}  // namespace tessera::fakes
