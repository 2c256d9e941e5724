// The shared memory of the ranks of a fake communicator, found by a name that is the communicator's
// id, so that ranks may be threads or processes. It records which ranks have joined, and has for
// each pair of ranks a mailbox for one chunk.
//
// A Segment is shared by the ranks of one process. The memory goes with the last of them; the name
// goes once all ranks have joined, when the process that made it ends or, if that was killed, when
// another makes one. Any thread.
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

// What both ends of a message must agree on.
struct Label {
  uint32_t kind = 0;  // OpKind
  uint32_t type = 0;
  uint32_t reduction = 0;
  uint64_t count = 0;
  uint64_t number = 0;  // Of the collective, or of the send between these two.
  bool operator==(const Label&) const = default;
};

// In shared memory, under the segment's lock.
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
  // While it waits: the peers, as bits, whose chunks it waits for, and those to whom it has more to
  // send than their mailbox takes. Both are 0 while it does anything else.
  uint32_t receiving = 0;
  uint32_t sending = 0;
};

class Segment {
 public:
  // A new one, and its name.
  static std::string Create();
  // Null if no segment has that name.
  static std::shared_ptr<Segment> Open(const std::string& name);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Locks among all ranks of all processes; a process that dies releases the lock.
  class Lock {
   public:
    explicit Lock(Segment* segment);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Segment* const segment_;
  };

  // Under the lock.
  int32_t& num_ranks() { return shared_->num_ranks; }
  Member& member(int rank) { return shared_->members[rank]; }
  Mailbox& mailbox(int from, int to) { return shared_->mailboxes[from][to]; }
  int NumIn(RankState state);
  void Unlink();

  // Waits, not under the lock, for a change after `seen`, or a short while.
  uint32_t changes() const { return shared_->changes.load(); }
  void WaitForChange(uint32_t seen);
  void Changed();

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

// False once the process has ended, also if its parent has not reaped it yet.
bool IsAlive(int32_t process);

}  // namespace tessera::fakes
