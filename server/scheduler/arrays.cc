// Arrays: made, written, read, lost, freed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/words.h"
#include "ir/api/placement.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

bool Machine::DeviceExists(int64_t device) const {
  return device >= 0 && device < static_cast<int64_t>(s_.devices.size()) &&
         !s_.devices[device].executor.empty();
}
Executor& Machine::ExecutorOf(int64_t device) {
  return s_.executors.at(s_.devices.at(device).executor);
}

absl::Status Machine::CheckDevices(const std::vector<int64_t>& devices) const {
  for (int64_t d : devices)
    if (!DeviceExists(d))
      return MakeError(
          ErrorKind::kNotEnoughDevices,
          absl::StrCat(
              "device ", d, " does not exist; the cluster has ",
              Counted(static_cast<int64_t>(s_.devices.size()) - s_.devices_deleted, "device"), ", ",
              s_.devices_deleted == 0 ? "numbered from 0" : "list them"));
  return absl::OkStatus();
}

absl::StatusOr<ArrayRecord*> Machine::FindArray(const core::Caller& caller, uint64_t id,
                                                Access access) {
  const auto it = s_.arrays.find(id);
  if (it != s_.arrays.end() && !it->second.deleted && May(caller, it->second.tenant, access))
    return &it->second;
  // Ids are given in order and never reused, so one that was given is of an array that is gone, or
  // of something else.
  const std::string* owner = OwnerOf(id);
  const bool given = owner != nullptr && May(caller, *owner, access) &&
                     s_.executables.count(id) == 0 && s_.operations.count(id) == 0;
  if (!given)
    return MakeError(ErrorKind::kArrayNotFound,
                     absl::StrCat("array ", id, " does not exist", WhatElse(caller, id, access)));
  const bool donated = it != s_.arrays.end() && it->second.donated_to != 0;
  return MakeError(ErrorKind::kArrayDeleted,
                   donated ? absl::StrCat("array ", id, " was donated to operation ",
                                          it->second.donated_to, " and has been deleted")
                           : absl::StrCat("array ", id, " has been deleted"));
}

uint64_t Machine::NewArray(api::ArraySpec spec, ArrayState state, uint64_t session) {
  Session& owner = s_.sessions.at(session);
  const uint64_t id = NewId(owner.tenant);
  ArrayRecord& a = s_.arrays[id];
  a.spec = std::move(spec);
  a.state = state;
  a.tenant = owner.tenant;
  a.session = session;
  owner.arrays.insert(id);
  return id;
}

void Machine::SetDeleted(uint64_t id, bool deleted) {
  ArrayRecord& a = s_.arrays.at(id);
  a.deleted = deleted;
  const auto session = s_.sessions.find(a.session);
  if (session == s_.sessions.end()) return;
  if (deleted) {
    session->second.arrays.erase(id);
  } else {
    session->second.arrays.insert(id);
  }
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
      info.state = ArrayInfo::State::kReady;
      break;
    case ArrayState::kFailed:
      info.state = ArrayInfo::State::kFailed;
      break;
    case ArrayState::kLost:
      info.state = ArrayInfo::State::kLost;
      break;
    default:
      info.state = ArrayInfo::State::kPending;
  }
  for (int64_t d : a.spec.placement.devices) {
    const Executor& x = ExecutorOf(d);
    const auto held = a.holders.find(d);
    if (a.unwritten.count(d) > 0) info.unwritten.push_back(static_cast<int>(info.shards.size()));
    info.shards.push_back({.executor = x.name,
                           .endpoint = x.info.data_endpoint,
                           .incarnation = held == a.holders.end() ? 0 : held->second,
                           .device = s_.devices[d].local});
  }
  info.tenant = a.tenant;
  info.session = NameOfSession(a.session);
  info.upload_until = a.upload_until + s_.steady_ahead;
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
  const auto session = FindSession(e.caller, e.session, Access::kChange);
  if (!session.ok()) return Answer(e.request, session.status());
  if (e.check_only) {
    ArrayInfo checked;
    checked.spec = e.spec;
    return Answer(e.request, std::move(checked));
  }
  if (TryCreate(e.request, *session, e.spec)) return;
  Waiter w;
  w.kind = Waiter::kCreate;
  w.id = *session;
  w.until = now_ + s_.config.recovery_wait;
  w.spec = e.spec;
  Wait(e.request, std::move(w));
}

bool Machine::TryCreate(uint64_t request, uint64_t session, const api::ArraySpec& spec) {
  for (int64_t d : spec.placement.devices)
    if (!ExecutorOf(d).alive()) return false;
  const uint64_t id = NewArray(spec, ArrayState::kWriting, session);
  ArrayRecord& a = s_.arrays.at(id);
  HoldByCurrent(a);
  a.unwritten.insert(spec.placement.devices.begin(), spec.placement.devices.end());
  a.upload_until = now_ + s_.config.write_wait;
  Arm(a.upload_until, kUploadTimer, id);
  Log(absl::StrCat("array ", id, " created"));
  Answer(request, Info(id));
  return true;
}

void Machine::On(const DescribeUpload& e) {
  auto found = FindArray(e.caller, e.array, Access::kChange);
  if (!found.ok()) return Answer(e.request, found.status());
  if (!(*found)->error.ok()) return Answer(e.request, (*found)->error);
  if ((*found)->state != ArrayState::kWriting)
    return Answer(e.request, MakeError(ErrorKind::kValueError,
                                       absl::StrCat("array ", e.array,
                                                    " is written already, or a program makes it; "
                                                    "arrays are written once")));
  Answer(e.request, Info(e.array));
}

void Machine::On(const WriteShard& e) {
  auto found = FindArray(e.caller, e.array, Access::kChange);
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
  w.until = now_ + std::min(s_.config.write_wait, std::max(e.timeout, absl::ZeroDuration()));
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
  auto found = FindArray(e.caller, e.array, Access::kRead);
  if (found.ok()) return Answer(e.request, Info(e.array));
  const auto array = s_.arrays.find(e.array);
  const auto donee = array == s_.arrays.end() || KindOf(found.status()) != ErrorKind::kArrayDeleted
                         ? s_.operations.end()
                         : s_.operations.find(array->second.donated_to);
  const bool open =
      donee != s_.operations.end() && donee->second.ended() && !donee->second.outstanding.empty();
  if (!open) return Answer(e.request, found.status());
  // Its executors are about to say whether they have begun with it.
  Waiter w;
  w.kind = Waiter::kSettled;
  w.id = donee->first;
  w.array = e.array;
  w.until = now_ + 2 * s_.config.cancel_grace;
  Wait(e.request, std::move(w));
}

void Machine::On(const ListArrays& e) {
  const auto key = FindSession(e.caller, e.session, Access::kRead);
  if (!key.ok()) return Answer(e.request, key.status());
  Page<ArrayInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const std::set<uint64_t>& arrays = s_.sessions.at(*key).arrays;
  auto it = arrays.upper_bound(e.page.after);
  for (; it != arrays.end() && page.items.size() < size; ++it) page.items.push_back(Info(*it));
  page.more = it != arrays.end();
  Answer(e.request, std::move(page));
}

void Machine::On(const WaitArray& e) {
  auto found = FindArray(e.caller, e.array, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  if (!(*found)->error.ok()) return Answer(e.request, (*found)->error);
  if ((*found)->state == ArrayState::kReady) return Answer(e.request, Info(e.array));
  Waiter w;
  w.id = e.array;
  w.until = now_ + std::min(e.timeout, s_.config.result_wait_max);
  Wait(e.request, std::move(w));
}

void Machine::On(const ReadShard& e) {
  auto found = FindArray(e.caller, e.array, Access::kRead);
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
  MissingArrays missing;
  for (uint64_t id : e.arrays)
    if (!FindArray(e.caller, id, Access::kChange).ok()) missing.arrays.push_back(id);
  Delete(e.caller, e.arrays);
  Answer(e.request, std::move(missing));
}

void Machine::Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays) {
  for (uint64_t id : arrays)
    if (const auto it = s_.arrays.find(id);
        it != s_.arrays.end() && May(caller, it->second.tenant, Access::kChange))
      Delete(id);
}

void Machine::Delete(uint64_t id) {
  const auto it = s_.arrays.find(id);
  if (it == s_.arrays.end()) return;
  if (it->second.deleted) {
    // Nobody wants it back from a run that it was donated to and that ends before it begins.
    it->second.donated_to = 0;
    return TryFree(id);
  }
  SetDeleted(id, true);
  EndArrayWaits(
      id, MakeError(ErrorKind::kArrayDeleted, absl::StrCat("array ", id, " has been deleted")));
  TryFree(id);
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
  // What was donated to a run is the client's again if the run fails before it is given to devices.
  if (const auto op = s_.operations.find(a.donated_to); op != s_.operations.end()) {
    const Operation& donee = op->second;
    const bool settled = donee.ended() && donee.outstanding.empty();
    if (!settled && std::find(donee.args.begin(), donee.args.end(), id) != donee.args.end()) return;
  }
  // A move reads it from other executors, whose order this one's deletions do not follow.
  for (uint64_t reader : a.readers) {
    const auto op = s_.operations.find(reader);
    if (op != s_.operations.end() && op->second.executable == 0 && !op->second.ended()) return;
  }
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
