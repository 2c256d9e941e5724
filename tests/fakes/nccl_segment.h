// The shared memory of the ranks of a fake communicator. A rank finds it by its name, which is the
// communicator's id, so ranks may be threads or processes. The memory records which ranks have
// joined. For each ordered pair of ranks it has a mailbox for one chunk of a message.
//
// The ranks of one process share a Segment. The memory is freed when the Segments of all processes
// are gone. The name is removed once all ranks have joined, or else when the process that made it
// ends. If that process was killed, the next process that uses segments removes the name.
// Thread-safe.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::fakes {

constexpr int kRanksMax = 8;
constexpr size_t kChunkBytes = 64 << 10;

// The properties of a message that sender and receiver must agree on.
struct Label {
  uint32_t kind = 0;  // OpKind
  uint32_t type = 0;
  uint32_t reduction = 0;
  uint64_t count = 0;
  uint64_t number = 0;  // number of the collective, or of the send between the two ranks
  bool operator==(const Label&) const = default;
};

// A mailbox is in shared memory and guarded by the segment's lock.
struct Mailbox {
  bool full = false;
  uint32_t bytes = 0;
  Label label;
  std::byte data[kChunkBytes];
};

enum class RankState : int32_t { kAbsent, kJoined, kFinalized, kAborted };

struct Member {
  RankState state = RankState::kAbsent;
  int32_t process = 0;
  int32_t device = 0;
  // Bit sets of peers, which are not 0 only while the rank waits. `receiving` has the peers from
  // which the rank waits for a chunk. `sending` has the peers for which the rank has a chunk, but
  // whose mailbox is full.
  uint32_t receiving = 0;
  uint32_t sending = 0;
};

class Segment {
 public:
  // Makes a new segment and returns its name.
  static std::string Create();
  // Returns null if no segment has that name.
  static std::shared_ptr<Segment> Open(const std::string& name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Locks out all other ranks of all processes. If a process dies, its lock is released.
  class Lock {
   public:
    explicit Lock(Segment* segment);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Segment* const segment_;
  };

  // These functions must be called under the lock.
  int32_t& num_ranks() { return shared_->num_ranks; }
  Member& member(int rank) { return shared_->members[rank]; }
  Mailbox& mailbox(int from, int to) { return shared_->mailboxes[from][to]; }
  // Returns the number of ranks in this state or a later one.
  int NumRanksAtLeast(RankState state);
  void Unlink();

  // WaitForChange waits until changes() is no longer `seen`, but only for a short while. It must
  // not be called under the lock. NotifyChange counts a change and wakes those who wait.
  uint32_t changes() const { return shared_->changes.load(); }
  void WaitForChange(uint32_t seen);
  void NotifyChange();

 private:
  struct Shared {
    pthread_mutex_t mutex;
    std::atomic<uint32_t> changes;
    int32_t num_ranks;
    Member members[kRanksMax];
    Mailbox mailboxes[kRanksMax][kRanksMax];
  };
  Segment(std::string name, Shared* shared) : name_(std::move(name)), shared_(shared) {}
  static Shared* Map(int file);

  const std::string name_;
  Shared* const shared_;
};

// Returns false once the process has ended, even if its parent has not reaped it yet.
bool IsAlive(int32_t process);

}  // namespace tessera::fakes
