// Arrays: made, written, read, lost, freed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

void Machine::On(const ListDevices& e) {
  std::vector<api::Device> devices;
  for (size_t id = 0; id < s_.devices.size(); ++id) {
    const Executor& x = s_.executors.at(s_.devices[id].executor);
    devices.push_back({.id = static_cast<int64_t>(id),
                       .kind = x.info.device_kind,
                       .worker = x.worker,
                       .host = x.host,
                       .executor = x.name,
                       .healthy = x.alive(),
                       .reason = x.alive() ? "" : x.lost_reason});
  }
  Answer(e.request, std::move(devices));
}

bool Machine::DeviceExists(int64_t device) const {
  return device >= 0 && device < static_cast<int64_t>(s_.devices.size());
}
Executor& Machine::ExecutorOf(int64_t device) {
  return s_.executors.at(s_.devices.at(device).executor);
}

absl::Status Machine::CheckDevices(const std::vector<int64_t>& devices) const {
  for (int64_t d : devices)
    if (!DeviceExists(d))
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("device ", d, " does not exist; the cluster has ",
                                    s_.devices.size(), " devices, numbered from 0"));
  return absl::OkStatus();
}

absl::StatusOr<ArrayRecord*> Machine::FindArray(uint64_t id) {
  const auto it = s_.arrays.find(id);
  if (it != s_.arrays.end() && !it->second.deleted) return &it->second;
  // Ids are given in order and never reused, so one that was given is of an array that is gone, or
  // of something else.
  const bool given =
      id != 0 && id <= s_.last_id && s_.executables.count(id) == 0 && s_.operations.count(id) == 0;
  if (!given)
    return MakeError(ErrorKind::kArrayNotFound, absl::StrCat("array ", id, " does not exist"));
  const bool donated = it != s_.arrays.end() && it->second.donated_to != 0;
  return MakeError(ErrorKind::kArrayDeleted,
                   donated ? absl::StrCat("array ", id, " was donated to operation ",
                                          it->second.donated_to, " and has been deleted")
                           : absl::StrCat("array ", id, " has been deleted"));
}

uint64_t Machine::NewArray(api::ArraySpec spec, ArrayState state) {
  const uint64_t id = ++s_.last_id;
  ArrayRecord& a = s_.arrays[id];
  a.spec = std::move(spec);
  a.state = state;
  return id;
}

void Machine::HoldByCurrent(ArrayRecord& array) {
  for (int64_t d : array.spec.placement.devices) array.holders[d] = ExecutorOf(d).info.incarnation;
}

ArrayInfo Machine::Info(uint64_t id) {
  const ArrayRecord& a = s_.arrays.at(id);
  ArrayInfo info;
  info.array = id;
  info.spec = a.spec;
  switch (a.state) {
    case ArrayState::kReady:
      info.state = "READY";
      break;
    case ArrayState::kFailed:
      info.state = "FAILED";
      break;
    case ArrayState::kLost:
      info.state = "LOST";
      break;
    default:
      info.state = "PENDING";
  }
  for (int64_t d : a.spec.placement.devices) {
    const Executor& x = ExecutorOf(d);
    const auto held = a.holders.find(d);
    info.shards.push_back({.executor = x.name,
                           .endpoint = x.info.data_endpoint,
                           .incarnation = held == a.holders.end() ? 0 : held->second,
                           .device = s_.devices[d].local});
  }
  return info;
}

void Machine::On(const CreateArray& e) {
  if (static_cast<int64_t>(s_.arrays.size()) >= s_.config.arrays_max)
    return Answer(e.request,
                  MakeError(ErrorKind::kLimitExceeded,
                            absl::StrCat("array: ", s_.arrays.size(), " exist, at most ",
                                         s_.config.arrays_max, " are kept; delete some")));
  if (absl::Status s = CheckDevices(e.spec.placement.devices); !s.ok())
    return Answer(e.request, Annotate(s, "array"));
  if (TryCreate(e.request, e.spec)) return;
  Waiter w;
  w.kind = Waiter::kCreate;
  w.until = now_ + s_.config.recovery_wait;
  w.spec = e.spec;
  Wait(e.request, std::move(w));
}

bool Machine::TryCreate(uint64_t request, const api::ArraySpec& spec) {
  for (int64_t d : spec.placement.devices)
    if (!ExecutorOf(d).alive()) return false;
  const uint64_t id = NewArray(spec, ArrayState::kWriting);
  ArrayRecord& a = s_.arrays.at(id);
  HoldByCurrent(a);
  a.unwritten.insert(spec.placement.devices.begin(), spec.placement.devices.end());
  a.upload_until = now_ + s_.config.write_wait;
  Arm(a.upload_until, kUploadTimer, id);
  Log(absl::StrCat("array ", id, " created"));
  Answer(request, Info(id));
  return true;
}

void Machine::On(const WriteShard& e) {
  auto found = FindArray(e.array);
  if (!found.ok()) return Answer(e.request, found.status());
  ArrayRecord& a = **found;
  if (!a.error.ok()) return Answer(e.request, a.error);
  const int shards = static_cast<int>(a.spec.placement.devices.size());
  if (a.state != ArrayState::kWriting || e.ordinal < 0 || e.ordinal >= shards)
    return Answer(e.request,
                  MakeError(ErrorKind::kValueError,
                            absl::StrCat("array ", e.array, ": shard ", e.ordinal, " of ", shards,
                                         " cannot be written now; arrays are written once")));
  const int64_t device = a.spec.placement.devices[e.ordinal];
  const Executor& x = ExecutorOf(device);
  Send(x, api::WriteBuffer{e.array, s_.devices[device].local, e.value});
  Waiter w;
  w.kind = Waiter::kWrite;
  w.id = e.array;
  w.until = now_ + s_.config.write_wait;
  w.executor = x.name;
  w.device = device;
  Wait(e.request, std::move(w));
}

void Machine::Written(Executor& executor, const api::BufferWritten& report) {
  const auto it = s_.arrays.find(report.array);
  const int64_t device = executor.first_device + report.device;
  if (it == s_.arrays.end() || it->second.state != ArrayState::kWriting ||
      it->second.unwritten.count(device) == 0)
    return;
  if (!report.status.ok()) return ArrayFailed(report.array, report.status);
  it->second.unwritten.erase(device);
  const std::set<uint64_t> waiters = it->second.waiters;
  for (uint64_t request : waiters) {
    const Waiter& w = s_.waiters.at(request);
    if (w.kind != Waiter::kWrite || w.device != device) continue;
    EndWait(request);
    Answer(request, std::monostate());
  }
  if (it->second.unwritten.empty()) {
    ArrayReady(report.array);
    TryFree(report.array);
  }
}

void Machine::On(const DescribeArray& e) {
  auto found = FindArray(e.array);
  if (!found.ok()) return Answer(e.request, found.status());
  Answer(e.request, Info(e.array));
}

void Machine::On(const WaitArray& e) {
  auto found = FindArray(e.array);
  if (!found.ok()) return Answer(e.request, found.status());
  if (!(*found)->error.ok()) return Answer(e.request, (*found)->error);
  if ((*found)->state == ArrayState::kReady) return Answer(e.request, Info(e.array));
  Waiter w;
  w.id = e.array;
  w.until = now_ + std::min(e.timeout, s_.config.result_wait_max);
  Wait(e.request, std::move(w));
}

void Machine::On(const ReadShard& e) {
  auto found = FindArray(e.array);
  if (!found.ok()) return Answer(e.request, found.status());
  const ArrayRecord& a = **found;
  if (!a.error.ok()) return Answer(e.request, a.error);
  const int shards = static_cast<int>(a.spec.placement.devices.size());
  if (e.ordinal < 0 || e.ordinal >= shards)
    return Answer(e.request, MakeError(ErrorKind::kValueError,
                                       absl::StrCat("array ", e.array, ": shard ", e.ordinal,
                                                    " does not exist; it has ", shards)));
  Waiter w;
  w.kind = Waiter::kShard;
  w.id = e.array;
  w.ordinal = e.ordinal;
  w.until = now_ + std::min(e.timeout, s_.config.result_wait_max);
  Wait(e.request, std::move(w));
  if (a.state == ArrayState::kReady) SendRead(e.request, a);
}

void Machine::SendRead(uint64_t request, const ArrayRecord& array) {
  Waiter& w = s_.waiters.at(request);
  const int64_t device = array.spec.placement.devices[w.ordinal];
  const Executor& x = ExecutorOf(device);
  w.executor = x.name;
  Send(x, api::ReadBuffer{request, w.id, s_.devices[device].local});
}

void Machine::On(const DeleteArrays& e) {
  Delete(e.arrays);
  Answer(e.request, std::monostate());
}

void Machine::Delete(const std::vector<uint64_t>& arrays) {
  for (uint64_t id : arrays) {
    const auto it = s_.arrays.find(id);
    if (it == s_.arrays.end() || it->second.deleted) continue;
    it->second.deleted = true;
    EndArrayWaits(
        id, MakeError(ErrorKind::kArrayDeleted, absl::StrCat("array ", id, " has been deleted")));
    TryFree(id);
  }
}

void Machine::ArrayScheduled(uint64_t id) {
  ArrayRecord& a = s_.arrays.at(id);
  a.state = ArrayState::kScheduled;
  HoldByCurrent(a);
  const std::set<uint64_t> waiting = a.waiting;
  for (uint64_t op : waiting) TryStart(op);
}

void Machine::ArrayReady(uint64_t id) {
  ArrayRecord& a = s_.arrays.at(id);
  a.state = ArrayState::kReady;
  Disarm(a.upload_until, kUploadTimer, id);
  const std::set<uint64_t> waiters = a.waiters;
  for (uint64_t request : waiters) {
    if (s_.waiters.at(request).kind == Waiter::kShard) {
      SendRead(request, a);
    } else {
      EndWait(request);
      Answer(request, Info(id));
    }
  }
  const std::set<uint64_t> waiting = a.waiting;
  for (uint64_t op : waiting) TryStart(op);
}

void Machine::ArrayFailed(uint64_t id, const absl::Status& error, ArrayState state) {
  const auto it = s_.arrays.find(id);
  if (it == s_.arrays.end() || !it->second.error.ok()) return;
  ArrayRecord& a = it->second;
  a.state = state;
  a.error = error;
  a.unwritten.clear();
  Disarm(a.upload_until, kUploadTimer, id);
  EndArrayWaits(id, error);
  const std::set<uint64_t> readers = a.readers;
  for (uint64_t op : readers) Fail(op, error);
  TryFree(id);
}

void Machine::EndArrayWaits(uint64_t id, const absl::Status& error) {
  const std::set<uint64_t> waiters = s_.arrays.at(id).waiters;
  for (uint64_t request : waiters) {
    EndWait(request);
    Answer(request, error);
  }
}

void Machine::TryFree(uint64_t id) {
  const auto it = s_.arrays.find(id);
  if (it == s_.arrays.end()) return;
  ArrayRecord& a = it->second;
  if (!a.deleted || !a.waiting.empty() || a.state == ArrayState::kPlanned) return;
  if (!a.freed) {
    a.freed = true;
    std::set<std::string> executors;
    for (const auto& [device, incarnation] : a.holders) {
      const Executor& x = ExecutorOf(device);
      if (x.alive() && x.info.incarnation == incarnation) executors.insert(x.name);
    }
    for (const std::string& x : executors) deletes_[x].push_back(id);
  }
  // While its producer or a reader runs, a failure must still find the way through it.
  if (!a.readers.empty() || a.state == ArrayState::kScheduled) return;
  Disarm(a.upload_until, kUploadTimer, id);
  s_.arrays.erase(it);
}

}  // namespace tessera::server::scheduler
