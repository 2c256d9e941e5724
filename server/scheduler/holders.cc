// The holders of an array: from which device a shard is read, and what becomes of an array when
// devices lose their shards. An array stays while processes that are alive or away hold every shard
// of it. workers.cc and restore.cc call DropHolders when an executor is lost or has come back
// without an array; arrays.cc, transfer.cc, save.cc and run.cc ask where the shards are.
//
// Reference: docs/decisions/0039.
#include <algorithm>
#include <numeric>

#include "ir/api/placement.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

namespace tessera::server::scheduler {

Machine::Presence Machine::PresenceOn(const ArrayRecord& a, int64_t device) const {
  const auto holder = a.holders.find(device);
  if (holder == a.holders.end()) return Presence::kNone;
  const Executor& x = cluster_.ExecutorOf(device);
  if (x.info.incarnation != holder->second) return Presence::kNone;
  return x.alive() ? Presence::kAlive : x.away ? Presence::kAway : Presence::kNone;
}

std::vector<int> Machine::SourcesOf(const ArrayRecord& a) const {
  const std::vector<int64_t>& devices = a.spec->placement.devices;
  std::vector<int> sources(devices.size());
  std::iota(sources.begin(), sources.end(), 0);
  if (HasAllHolders(a) && cluster_.num_away() == 0) return sources;
  std::vector<Presence> presence;
  for (const int64_t d : devices) presence.push_back(PresenceOn(a, d));
  const std::vector<int> first = api::FirstReplicas(a.spec->placement, a.spec->shape);
  std::vector<int> best = sources;  // by the first replica: the first ordinal of the best presence
  for (const int k : sources)
    if (presence[k] > presence[best[first[k]]]) best[first[k]] = k;
  for (int& k : sources)
    if (presence[best[first[k]]] > presence[k]) k = best[first[k]];
  return sources;
}

bool Machine::IsAllAlive(const ArrayRecord& a) const {
  const std::vector<int> sources = SourcesOf(a);
  return std::all_of(sources.begin(), sources.end(), [&](int k) {
    return PresenceOn(a, a.spec->placement.devices[k]) == Presence::kAlive;
  });
}

absl::Status Machine::DropHolders(uint64_t id, ArrayRecord& a, const std::vector<int64_t>& devices,
                                  LossErrors& errors) {
  for (const int64_t d : devices) {
    a.holders.erase(d);
    a.unwritten.erase(d);
  }
  MarkChanged(id, a);
  if (a.holders.empty()) return errors.Whole();
  const std::vector<int> missing = MissingShards(a);
  return missing.empty() ? absl::OkStatus() : errors.Of(a, missing, devices);
}

void Machine::UseOtherHolders(uint64_t id, const std::string& executor) {
  ArrayRecord* const a = catalogue_.FindArray(id);
  if (a == nullptr || !a->error.ok()) return;
  for (uint64_t request : IdSet(a->waiters)) {
    if (const auto* write = WaitOf<WriteWait>(request);
        write != nullptr && write->executor == executor) {
      // The shard is written to other devices, too.
      EndWait(request);
      Answer(request, std::monostate());
    }
    auto* const read = WaitOf<ReadWait>(request);
    if (read == nullptr || read->executor != executor) continue;
    read->executor.clear();
    TrySendRead(request, *a);
  }
  // All shards that were still to be written were on the executor.
  if (a->state == ArrayState::kWriting && a->unwritten.empty()) {
    SetArrayReady(id);
    TryFree(id);
  }
}

}  // namespace tessera::server::scheduler
