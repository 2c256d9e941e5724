// The part of the state with what runs when: operations, their sequence numbers in the one global
// order, and the communicators of their launches.
//
// Invariants:
// - An operation is live (not ended), lingering (ended, but not all of its executors have
//   acknowledged it), or a record, which stays until later records need the space.
// - Sequence numbers are assigned in order of start and never reused.
// - A blocked or held operation has none. A blocked one waits for executors to return or to
// compile,
//   a held one for the end of a drain.
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
  // The executors of a communicator in order of rank, with their incarnations.
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
  // Null if it is not known; 0 is no operation's id.
  Operation* Find(uint64_t id) { return id == 0 ? nullptr : FindIn(operations_, id); }
  // Requires: it is known.
  Operation& operation(uint64_t id) { return operations_.at(id); }

  // Sequence numbers and generations will be greater than this.
  void Begin(uint64_t first_id) { last_sequence_ = last_generation_ = first_id; }
  void Add(Operation&& op);
  // One of an earlier life. Those that have ended come in order of their ends.
  void Restore(Operation&& op);
  // A communicator of an earlier life, that no launch of this one uses.
  void RestoreRetired(uint64_t generation, Members members) {
    retired_[generation] = std::move(members);
  }
  void Place(Operation& op) { op.sequence = ++last_sequence_; }
  // Returns false if it was blocked already.
  bool Block(uint64_t id) { return blocked_.insert(id); }
  void Unblock(uint64_t id) { blocked_.erase(id); }
  void Hold(uint64_t id) { held_.insert(id); }
  void Unhold(uint64_t id) { held_.erase(id); }
  IdSet TakeHeld() {
    const IdSet held = held_;
    held_.clear();
    return held;
  }
  // It has ended, and lingers until its executors acknowledge that.
  void End(const Operation& op);
  // It has ended, and all of its executors have acknowledged that.
  void Leave(const Operation& op);
  // Erases the oldest records until there are at most `kept`, canaries' before tenants', and
  // returns which of tenants it has erased.
  std::vector<uint64_t> DropRecords(int64_t kept);

  int64_t num_communicators() const { return static_cast<int64_t>(communicators_.size()); }
  int64_t num_retired() const { return static_cast<int64_t>(retired_.size()); }
  // The generation of the open communicator of these members; 0: there is none.
  uint64_t FindCommunicator(const Members& members) const;
  uint64_t AddCommunicator(const Members& members);
  // The generations of the open communicators with this member.
  std::set<uint64_t> OpenWith(const std::string& executor, uint64_t incarnation) const;
  // No later launch uses it.
  void Retire(uint64_t generation);
  // Erases a retired one that no live operation uses, and returns its members; else empty.
  Members CloseRetired(uint64_t generation);
  // Erases the communicators with this member, and returns them.
  std::vector<std::pair<uint64_t, Members>> CloseThoseWith(const std::string& executor,
                                                           uint64_t incarnation);

 private:
  void KeepRecord(const Operation& op);

  uint64_t last_sequence_ = 0;
  uint64_t last_generation_ = 0;
  std::map<uint64_t, Operation> operations_;
  IdSet live_, lingering_, blocked_, held_;
  // Oldest first: records of tenants, and of the coordinator's canaries.
  std::deque<uint64_t> records_, canary_records_;
  std::map<Members, uint64_t> communicators_;  // -> generation
  std::map<uint64_t, Members> retired_;        // generations that only launches sent earlier use
};

}  // namespace tessera::server::scheduler
