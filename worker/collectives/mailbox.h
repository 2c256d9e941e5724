// The frames (wire.h) that one local rank has received, and its credit for sending to other ranks.
//
// Owned by the communicator, which has one for each local rank. The rank's thread consumes frames;
// the readers of connections and other local ranks deliver them. Frames from one rank are queued in
// the order in which they were sent, which is the plan's order at both ends. A rank may have sent
// at most kWindowBytes that the receiver has not consumed. The receiver returns consumed bytes to
// the sender as credit, so each queue is bounded. Delivery never blocks, so every connection is
// always read, and one slow rank delays no other.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "worker/collectives/deadline.h"
#include "worker/collectives/wire.h"

namespace tessera::worker {

struct Frame {
  FrameHeader header;
  std::string label;
  std::unique_ptr<std::byte[]> payload;  // `header.payload_length` bytes

  int64_t Cost() const { return int64_t{header.payload_length} + kFrameCostBytes; }
};

class Mailbox {
 public:
  // Returns false, and drops the frame, if `from` has exceeded its window.
  bool Deliver(int from, Frame frame) {
    absl::MutexLock lock(&mu_);
    Inbox& inbox = inboxes_[from];
    if (inbox.queued_bytes + frame.Cost() > kWindowBytes) return false;
    inbox.queued_bytes += frame.Cost();
    inbox.frames.push_back(std::move(frame));
    CountChange();
    return true;
  }

  // Adds credit for `bytes` that rank `to` has consumed. Returns false if that is more than this
  // rank has sent to it.
  bool ReturnCredit(int to, int64_t bytes) {
    absl::MutexLock lock(&mu_);
    int64_t& bytes_in_flight = bytes_in_flight_[to];
    if (bytes > bytes_in_flight) return false;
    bytes_in_flight -= bytes;
    CountChange();
    return true;
  }

  // Notes that the executor of some other rank has not received `launch`.
  void DeliverNotReceived(uint64_t launch) {
    absl::MutexLock lock(&mu_);
    not_received_launch_ = launch;
    CountChange();
  }

  // Wakes the rank's thread. Call when the state of a connection, a meeting or the failure latch
  // has changed, for which the thread may wait, too.
  void Wake() {
    absl::MutexLock lock(&mu_);
    CountChange();
  }

  // Only the rank's thread may call the functions below.

  // Takes credit for `bytes` that are sent to rank `to`. Returns false if the rank must wait for
  // credit.
  bool TakeCredit(int to, int64_t bytes) {
    absl::MutexLock lock(&mu_);
    int64_t& bytes_in_flight = bytes_in_flight_[to];
    if (bytes_in_flight + bytes > kWindowBytes) return false;
    bytes_in_flight += bytes;
    return true;
  }

  // Undoes a TakeCredit for a frame that was not sent.
  void UndoTakeCredit(int to, int64_t bytes) {
    absl::MutexLock lock(&mu_);
    bytes_in_flight_[to] -= bytes;
  }

  // Returns the launch of the frame that Take(from) would return, or nullopt if there is none.
  std::optional<uint64_t> NextLaunch(int from) const {
    absl::MutexLock lock(&mu_);
    const auto inbox = inboxes_.find(from);
    if (inbox == inboxes_.end() || inbox->second.frames.empty()) return std::nullopt;
    return inbox->second.frames.front().header.launch;
  }

  // Removes and returns the oldest frame from rank `from`, or nullopt if there is none. The cost of
  // the frame becomes credit that is due to the sender.
  std::optional<Frame> Take(int from) {
    absl::MutexLock lock(&mu_);
    Inbox& inbox = inboxes_[from];
    if (inbox.frames.empty()) return std::nullopt;
    Frame frame = std::move(inbox.frames.front());
    inbox.frames.pop_front();
    inbox.queued_bytes -= frame.Cost();
    inbox.unreturned_bytes += frame.Cost();
    return frame;
  }

  // Takes the credit that the caller must return to rank `from` now, in bytes. Returns 0 until a
  // quarter of the window is due.
  int64_t TakeDueCredit(int from) {
    absl::MutexLock lock(&mu_);
    Inbox& inbox = inboxes_[from];
    return inbox.unreturned_bytes < kWindowBytes / 4 ? 0 : std::exchange(inbox.unreturned_bytes, 0);
  }

  // Undoes a TakeDueCredit whose credit was not returned.
  void UndoTakeDueCredit(int from, int64_t bytes) {
    absl::MutexLock lock(&mu_);
    inboxes_[from].unreturned_bytes += bytes;
  }

  // Returns whether DeliverNotReceived(launch) was called since the last call of this function.
  bool TakeNotReceived(uint64_t launch) {
    absl::MutexLock lock(&mu_);
    return std::exchange(not_received_launch_, std::nullopt) == launch;
  }

  // The number of deliveries, credits and wakes so far.
  uint64_t change_count() const {
    absl::MutexLock lock(&mu_);
    return change_count_;
  }

  // Waits until change_count() differs from `seen` or the deadline passes.
  void AwaitChange(uint64_t seen, const Deadline& deadline) {
    absl::MutexLock lock(&mu_);
    while (change_count_ == seen && !deadline.Passed())
      changed_.WaitWithTimeout(&mu_, deadline.Left());
  }

 private:
  struct Inbox {
    std::deque<Frame> frames;
    int64_t queued_bytes = 0;
    int64_t unreturned_bytes = 0;  // bytes that were consumed and not yet returned as credit
  };

  void CountChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++change_count_;
    changed_.SignalAll();
  }

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  absl::flat_hash_map<int, Inbox> inboxes_ ABSL_GUARDED_BY(mu_);            // by sending rank
  absl::flat_hash_map<int, int64_t> bytes_in_flight_ ABSL_GUARDED_BY(mu_);  // by receiving rank
  std::optional<uint64_t> not_received_launch_ ABSL_GUARDED_BY(mu_);
  uint64_t change_count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tessera::worker
