// The part of the state that says what runs when: the operations, their sequence numbers in the one
// global order, and the communicators of their launches.
//
// Invariants:
// - An operation is live (not ended), lingering (ended, but not all of its executors have
//   acknowledged it), or a record. A record stays until later records need the space.
// - Sequence numbers are assigned in the order in which operations start, and are never reused.
// - A blocked or held operation has no sequence number. A blocked operation waits for executors to
//   return or to compile its program. A held operation waits for the end of a drain.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/find.h"
#include "server/scheduler/operation.h"

namespace tessera::server::scheduler {

class Order {
 public:
  // The executors of a communicator in order of rank, each with its incarnation.
  using Members = std::vector<std::pair<std::string, uint64_t>>;

  const std::map<uint64_t, Operation>& operations() const { return operations_; }
  const IdSet& live() const { return live_; }
  const IdSet& lingering() const { return lingering_; }
  const IdSet& blocked() const { return blocked_; }
  const IdSet& held() const { return held_; }
  int64_t num_live() const { return static_cast<int64_t>(live_.size()); }
  int64_t num_records() const {
    return static_cast<int64_t>(records_.size() + canary_records_.size());
  }
  uint64_t last_sequence() const { return last_sequence_; }
  // Returns null if no operation with this id is known. 0 is no operation's id.
  Operation* Find(uint64_t id) { return id == 0 ? nullptr : FindIn(operations_, id); }
  // Requires: the operation is known.
  Operation& operation(uint64_t id) { return operations_.at(id); }

  // Makes all later sequence numbers and generations greater than `first_id`.
  void Begin(uint64_t first_id) { last_sequence_ = last_generation_ = first_id; }
  void Add(Operation&& op);
  // Adds an operation of an earlier life. Call it for ended operations in the order in which they
  // ended.
  void Restore(Operation&& op);
  // Adds a communicator of an earlier life, which no launch of this life will use.
  void RestoreRetired(uint64_t generation, Members members) {
    retired_[generation] = std::move(members);
  }
  // Gives the operation the next sequence number.
  void Place(Operation& op) { op.sequence = ++last_sequence_; }
  // Returns false if the operation was blocked already.
  bool Block(uint64_t id) { return blocked_.insert(id); }
  void Unblock(uint64_t id) { blocked_.erase(id); }
  void Hold(uint64_t id) { held_.insert(id); }
  void Unhold(uint64_t id) { held_.erase(id); }
  // Returns the held operations, which then count as held no longer.
  IdSet TakeHeld() {
    const IdSet held = held_;
    held_.clear();
    return held;
  }
  // Records that the operation has ended. It lingers until its executors have acknowledged the end.
  void End(const Operation& op);
  // Records that all executors have acknowledged the end of the operation.
  void EndLingering(const Operation& op);
  // Erases the oldest records until there are at most `kept`; records of canaries go before records
  // of tenants. Returns the ids of the erased records of tenants.
  std::vector<uint64_t> DropRecords(int64_t kept);

  int64_t num_communicators() const { return static_cast<int64_t>(communicators_.size()); }
  int64_t num_retired() const { return static_cast<int64_t>(retired_.size()); }
  // Returns the generation of the open communicator of these members, or 0 if there is none.
  uint64_t FindCommunicator(const Members& members) const;
  uint64_t AddCommunicator(const Members& members);
  // Returns the generations of the open communicators that this executor is a member of.
  std::set<uint64_t> FindCommunicatorsWith(const std::string& executor, uint64_t incarnation) const;
  // Retires the communicator: no later launch uses it.
  void Retire(uint64_t generation);
  // If the communicator is retired and no live operation uses it, erases it and returns its
  // members. Otherwise returns no members.
  Members CloseRetiredIfUnused(uint64_t generation);
  // Erases the open communicators that this executor is a member of, and returns them.
  std::vector<std::pair<uint64_t, Members>> CloseCommunicatorsWith(const std::string& executor,
                                                                   uint64_t incarnation);

 private:
  void KeepRecord(const Operation& op);

  uint64_t last_sequence_ = 0;
  uint64_t last_generation_ = 0;
  std::map<uint64_t, Operation> operations_;
  IdSet live_, lingering_, blocked_, held_;
  // The records of tenants, and the records of the coordinator's canaries; oldest first.
  std::deque<uint64_t> records_, canary_records_;
  std::map<Members, uint64_t> communicators_;  // members -> generation
  std::map<uint64_t, Members> retired_;        // communicators that only earlier launches use
};

}  // namespace tessera::server::scheduler
