// Keeps the tables of arrays, executables and meshes. The functions of Machine (arrays.cc,
// programs.cc, inventory.cc, restore.cc) call these to add, find and remove records, and decide
// when a record may go.
#include "server/scheduler/catalogue.h"

#include <limits>
#include <utility>

namespace tessera::server::scheduler {

ArrayTable::ArrayTable(const ArrayTable& other) : arrays_(other.arrays_) {
  for (auto& [id, record] : arrays_) AddToLists(id, record);
}

ArrayRecord& ArrayTable::Add(uint64_t id, SpecRef spec) {
  ArrayRecord& added = arrays_.try_emplace(arrays_.end(), id)->second;
  added.spec = std::move(spec);
  AddToLists(id, added);
  return added;
}

void ArrayTable::Remove(uint64_t id) {
  const auto it = arrays_.find(id);
  for (const int64_t device : it->second.spec->placement.devices) ListOfDevice(device).Remove(id);
  arrays_.erase(it);
}

RecordList<ArrayRecord>& ArrayTable::ListOfDevice(int64_t device) {
  if (static_cast<size_t>(device) >= on_device_.size()) on_device_.resize(device + 1);
  return on_device_[device];
}

void ArrayTable::AddToLists(uint64_t id, ArrayRecord& record) {
  for (const int64_t device : record.spec->placement.devices) ListOfDevice(device).Add(id, &record);
}

uint64_t Catalogue::ExecutableIdOf(const std::string& key) const {
  const auto it = id_of_key_.find(key);
  return it == id_of_key_.end() ? 0 : it->second;
}

Executable& Catalogue::AddExecutable(uint64_t id) {
  Executable& x = executables_[id];
  Touch(x);
  ++num_plans_;
  return x;
}

void Catalogue::SetKey(uint64_t id, const std::string& key) {
  Executable& x = executables_.at(id);
  x.key = key;
  if (!x.plan_only) id_of_key_[key] = id;
}

void Catalogue::RestoreExecutable(uint64_t id, Executable executable) {
  Touch(executable);
  id_of_key_[executable.key] = id;
  executables_.insert_or_assign(id, std::move(executable));
}

void Catalogue::RemoveExecutable(uint64_t id) {
  const Executable& x = executables_.at(id);
  if (!x.plan_only) id_of_key_.erase(x.key);
  executables_.erase(id);
}

uint64_t Catalogue::OldestUnused() const {
  uint64_t oldest = 0, use = std::numeric_limits<uint64_t>::max();
  for (const auto& [id, x] : executables_)
    if (x.state == ExecutableState::kPlanned && x.operations.empty() && x.waiters.empty() &&
        x.last_use < use) {
      oldest = id;
      use = x.last_use;
    }
  return oldest;
}

std::vector<uint64_t> Catalogue::MarkUnloaded(const std::string& executor) {
  std::vector<uint64_t> operations;
  for (auto& [id, x] : executables_) {
    x.loaded_on.erase(executor);
    if (x.sent_to.erase(executor) > 0)
      operations.insert(operations.end(), x.operations.begin(), x.operations.end());
  }
  return operations;
}

}  // namespace tessera::server::scheduler
