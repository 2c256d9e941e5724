// Keeps the table of operations and the table of communicators. The functions of Machine
// (operations.cc, run.cc, restore.cc) call these to move an operation from one set to the next, and
// decide which operation starts or fails.
#include "server/scheduler/order.h"

#include <algorithm>

#include "server/core/caller.h"

namespace tessera::server::scheduler {

void Order::Add(Operation&& op) {
  const uint64_t id = op.id;
  live_.insert(id);
  operations_.emplace_hint(operations_.end(), id, std::move(op));
}

void Order::Restore(Operation&& op) {
  const uint64_t id = op.id;
  const Operation& known = operations_.insert_or_assign(id, std::move(op)).first->second;
  if (!known.ended()) {
    live_.insert(id);
  } else if (!known.outstanding.empty()) {
    lingering_.insert(id);
  } else {
    KeepRecord(known);
  }
}

void Order::End(const Operation& op) {
  live_.erase(op.id);
  held_.erase(op.id);
  if (op.outstanding.empty()) {
    KeepRecord(op);
  } else {
    lingering_.insert(op.id);
  }
}

void Order::EndLingering(const Operation& op) {
  lingering_.erase(op.id);
  KeepRecord(op);
}

void Order::KeepRecord(const Operation& op) {
  (op.tenant == core::kSystemTenant ? canary_records_ : records_).push_back(op.id);
}

std::vector<uint64_t> Order::DropRecords(int64_t kept) {
  std::vector<uint64_t> dropped;
  while (num_records() > kept) {
    std::deque<uint64_t>& oldest = canary_records_.empty() ? records_ : canary_records_;
    // In most cases the oldest record belongs to the oldest of all operations.
    const auto first = operations_.begin();
    operations_.erase(first->first == oldest.front() ? first : operations_.find(oldest.front()));
    if (canary_records_.empty()) dropped.push_back(oldest.front());
    oldest.pop_front();
  }
  return dropped;
}

uint64_t Order::FindCommunicator(const Members& members) const {
  const auto it = communicators_.find(members);
  return it == communicators_.end() ? 0 : it->second;
}

uint64_t Order::AddCommunicator(const Members& members) {
  return communicators_[members] = ++last_generation_;
}

std::set<uint64_t> Order::FindCommunicatorsWith(const std::string& executor,
                                                uint64_t incarnation) const {
  std::set<uint64_t> open;
  for (const auto& [members, generation] : communicators_)
    if (std::find(members.begin(), members.end(), std::pair(executor, incarnation)) !=
        members.end())
      open.insert(generation);
  return open;
}

void Order::Retire(uint64_t generation) {
  const auto it = std::find_if(communicators_.begin(), communicators_.end(),
                               [&](const auto& open) { return open.second == generation; });
  if (it == communicators_.end()) return;
  retired_[generation] = it->first;
  communicators_.erase(it);
}

Order::Members Order::CloseRetiredIfUnused(uint64_t generation) {
  const auto it = retired_.find(generation);
  if (it == retired_.end()) return {};
  for (uint64_t id : live_)
    if (operations_.at(id).generation == generation) return {};
  Members members = std::move(it->second);
  retired_.erase(it);
  return members;
}

std::vector<std::pair<uint64_t, Order::Members>> Order::CloseCommunicatorsWith(
    const std::string& executor, uint64_t incarnation) {
  std::vector<std::pair<uint64_t, Members>> closed;
  for (auto it = communicators_.begin(); it != communicators_.end();) {
    const Members& members = it->first;
    if (std::find(members.begin(), members.end(), std::pair(executor, incarnation)) ==
        members.end()) {
      ++it;
      continue;
    }
    closed.emplace_back(it->second, members);
    it = communicators_.erase(it);
  }
  return closed;
}

}  // namespace tessera::server::scheduler
