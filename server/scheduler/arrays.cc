// Arrays: creation, writes, reads, loss and deletion. Requests of clients create, read and delete
// arrays; operations.cc calls this file to schedule, finish and fail the results of operations, and
// workers.cc when arrays are lost. holders.cc says which devices hold a shard.
#include <algorithm>

#include "base/log.h"
#include "base/words.h"
#include "ir/api/placement.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

namespace tessera::server::scheduler {

absl::Status Machine::CheckRoomForArrays(const char* what, int64_t more) const {
  if (catalogue_.num_arrays() + more <= s_.config.arrays_max) return absl::OkStatus();
  return Error(ErrorKind::kLimitExceeded, what, ": ", catalogue_.num_arrays(),
               " arrays exist, at most ", s_.config.arrays_max, " are kept; delete some");
}

absl::StatusOr<ArrayRecord*> Machine::FindArray(const core::Caller& caller, uint64_t id,
                                                Access access) {
  auto* const it = catalogue_.FindArray(id);
  if (it != nullptr && !it->deleted && Allowed(caller, it->tenant, access)) return it;
  // Ids are assigned in order and never reused, so an assigned id belongs to an array that has been
  // deleted, or to something else.
  const std::string* owner = ownership_.OwnerOf(id);
  const bool was_assigned = it != nullptr ? Allowed(caller, it->tenant, access)
                                          : owner != nullptr && Allowed(caller, *owner, access) &&
                                                catalogue_.FindExecutable(id) == nullptr &&
                                                order_.Find(id) == nullptr;
  if (!was_assigned)
    return Error(ErrorKind::kArrayNotFound, "array ", id, " does not exist",
                 HintAboutId(caller, id, access));
  const bool donated = it != nullptr && it->donated_to != 0;
  return MakeError(ErrorKind::kArrayDeleted,
                   donated ? absl::StrCat("array ", id, " was donated to operation ",
                                          it->donated_to, " and has been deleted")
                           : absl::StrCat("array ", id, " has been deleted"));
}

Requests* Machine::WaitersFor(const ArrayWait& wait) {
  ArrayRecord* const a = catalogue_.FindArray(wait.array);
  return a == nullptr ? nullptr : &a->waiters;
}

void Machine::AnswerTimeout(const ArrayWait& wait, uint64_t request) {
  Answer(request, Error(ErrorKind::kDeadlineExceeded, "array ", wait.array,
                        " was not ready within the timeout; ask again"));
}

void Machine::AnswerTimeout(const ReadWait& wait, uint64_t request) {
  if (const ArrayRecord* const a = catalogue_.FindArray(wait.array); a != nullptr)
    if (const Executor& x =
            cluster_.ExecutorOf(a->spec->placement.devices[SourcesOf(*a)[wait.ordinal]]);
        x.away)
      return Answer(request, Error(ErrorKind::kDeadlineExceeded, "array ", wait.array, ": ",
                                   cluster_.DescribeFirstLost({x.name}),
                                   ", and was not back within the timeout; ask again"));
  if (wait.executor.empty()) return AnswerTimeout(static_cast<const ArrayWait&>(wait), request);
  Answer(request,
         Error(ErrorKind::kDeadlineExceeded, "array ", wait.array, ": ",
               NameWithSilence(wait.executor), " did not send the shard in time; ask again"));
  MarkOverdue(wait.executor, absl::StrCat("a read of array ", wait.array));
}

void Machine::AnswerTimeout(const WriteWait& wait, uint64_t request) {
  AnswerAndLogTimeout(request,
                      Error(ErrorKind::kDeadlineExceeded, "array ", wait.array, ": ",
                            NameWithSilence(wait.executor), " did not take the shard in time"));
  MarkOverdue(wait.executor, absl::StrCat("a write of array ", wait.array));
}

void Machine::AnswerTimeout(const CreateWait& wait, uint64_t request) {
  const std::vector<int64_t>& devices = wait.call.spec.placement.devices;
  AnswerAndLogTimeout(request, Error(ErrorKind::kWorkerLost, "array: ",
                                     cluster_.DescribeFirstLost(cluster_.ExecutorsOf(devices)),
                                     ", and it was not back within ",
                                     absl::FormatDuration(s_.config.recovery_wait), "; retry"));
}

void Machine::AnswerTimeout(const DonationWait& wait, uint64_t request) {
  Answer(request,
         Error(ErrorKind::kDeadlineExceeded, "array ", wait.array, " was donated to operation ",
               wait.operation, ", which has ended and not left its executors yet; ask again"));
}

void Machine::OnUploadTimer(uint64_t id) {
  ArrayRecord* const a = catalogue_.FindArray(id);
  if (a == nullptr || a->state != ArrayState::kWriting) return;
  std::set<std::string> late_executors;
  for (int64_t d : a->unwritten) late_executors.insert(cluster_.ExecutorOf(d).name);
  for (const std::string& x : late_executors)
    MarkOverdue(x, absl::StrCat("an upload of array ", id));
  const absl::Status error = Error(ErrorKind::kDeadlineExceeded, "array ", id, ": ",
                                   a->unwritten.size(), " of its shards were not uploaded within ",
                                   absl::FormatDuration(s_.config.ticket_lifetime));
  LogIncident("upload timed out",
              {{"array", absl::StrCat(id)},
               {"session", absl::StrCat(ownership_.ClientIdOf(a->session))},
               {"tenant", a->tenant}},
              error);
  FailArray(id, error);
  if (ArrayRecord* const failed = catalogue_.FindArray(id)) FreeShards(id, *failed);
}

uint64_t Machine::NewArray(SpecRef spec, ArrayState state, uint64_t session) {
  Session& owner = ownership_.session(session);
  const uint64_t id = NewId(owner.tenant);
  ArrayRecord& a = catalogue_.AddArray(id, std::move(spec));
  a.state = state;
  a.tenant = owner.tenant;
  a.session = session;
  owner.arrays.insert(id);
  MarkChanged(id, a);
  return id;
}

void Machine::SetDeleted(uint64_t id, bool deleted) {
  ArrayRecord& a = catalogue_.array(id);
  a.deleted = deleted;
  MarkChanged(id, a);
  auto* const session = ownership_.FindSession(a.session);
  if (session == nullptr) return;
  if (deleted) {
    session->arrays.erase(id);
  } else {
    session->arrays.insert(id);
  }
}

void Machine::SetHolders(ArrayRecord& array) {
  for (int64_t d : array.spec->placement.devices)
    array.holders[d] = cluster_.ExecutorOf(d).info.incarnation;
}

// Describes an array for clients and for the makers of tickets. The shards of an array that is
// ready are listed with the devices from which to read them (SourcesOf). Until then each shard is
// listed with its own device, to which it is written.
ArrayInfo Machine::ArrayInfoOf(uint64_t id) {
  const ArrayRecord& a = catalogue_.array(id);
  ArrayInfo info;
  info.array = id;
  info.spec = a.spec;
  using State = ArrayInfo::State;
  constexpr State kStates[] = {State::kPending, State::kPending, State::kPending,
                               State::kReady,   State::kFailed,  State::kLost};
  info.state = kStates[static_cast<int>(a.state)];
  info.num_held = NumHeld(a);
  std::vector<int> sources;
  if (a.state == ArrayState::kReady) sources = SourcesOf(a);
  for (size_t k = 0; k < a.spec->placement.devices.size(); ++k) {
    const int64_t d = a.spec->placement.devices[sources.empty() ? k : sources[k]];
    const Executor& x = cluster_.ExecutorOf(d);
    const auto holder = a.holders.find(d);
    if (a.unwritten.count(d) > 0) info.unwritten.push_back(static_cast<int>(k));
    info.shards.push_back({.executor = x.name,
                           .endpoint = x.info.data_endpoint,
                           .incarnation = holder == a.holders.end() ? 0 : holder->second,
                           .device = cluster_.device(d).local_index});
  }
  info.tenant = a.tenant;
  info.session = ownership_.ClientIdOf(a.session);
  info.upload_until = a.upload_until + s_.steady_ahead;
  return info;
}

void Machine::On(const CreateArray& e) {
  if (catalogue_.num_arrays() >= s_.config.arrays_max)
    return Answer(e.request,
                  Error(ErrorKind::kLimitExceeded, "array: ", catalogue_.num_arrays(),
                        " arrays exist, at most ", s_.config.arrays_max, " are kept; delete some"));
  if (absl::Status s = cluster_.CheckDevicesExist(e.spec.placement.devices); !s.ok())
    return Answer(e.request, Annotate(s, "array"));
  const auto session = FindSession(e.caller, e.session, Access::kChange);
  if (!session.ok()) return Answer(e.request, session.status());
  if (e.check_only) {
    ArrayInfo checked;
    checked.spec = std::make_shared<const api::ArraySpec>(e.spec);
    return Answer(e.request, std::move(checked));
  }
  if (TryCreate(e, *session)) return;
  BeginWait(e.request, now_ + s_.config.recovery_wait, CreateWait{*session, e});
}

bool Machine::BeginWrites(uint64_t id) {
  ArrayRecord* const a = catalogue_.FindArray(id);
  if (a == nullptr) return false;
  a->state = ArrayState::kWriting;
  a->unwritten.insert(a->spec->placement.devices.begin(), a->spec->placement.devices.end());
  SetHolders(*a);
  MarkChanged(id, *a);
  return true;
}

bool Machine::TryCreate(const CreateArray& e, uint64_t session) {
  for (int64_t d : e.spec.placement.devices)
    if (!cluster_.ExecutorOf(d).alive()) return false;
  // Another copy of the call may have waited too, and have created the array.
  if (AnswerIfRepeated(e)) return true;
  const uint64_t id =
      NewArray(std::make_shared<const api::ArraySpec>(e.spec), ArrayState::kWriting, session);
  BeginWrites(id);
  ArrayRecord& a = catalogue_.array(id);
  a.upload_until = now_ + s_.config.ticket_lifetime;
  Arm(a.upload_until, kUploadTimer, id);
  Log("array ", id, " created");
  Remember(e, id);
  Answer(e.request, ArrayInfoOf(id));
  return true;
}

absl::StatusOr<ArrayInfo> Machine::On(const DescribeUpload& e) {
  TESSERA_ASSIGN_OR_RETURN(const ArrayRecord* array, FindArray(e.caller, e.array, Access::kChange));
  if (!array->error.ok()) return ErrorOf(e.array, *array);
  if (array->state != ArrayState::kWriting)
    return Error(ErrorKind::kValueError, "array ", e.array,
                 " is written already, or a program makes it; "
                 "arrays are written once");
  return ArrayInfoOf(e.array);
}

void Machine::On(const WriteShard& e) {
  auto found = FindArray(e.caller, e.array, Access::kChange);
  if (!found.ok()) return Answer(e.request, found.status());
  ArrayRecord& a = **found;
  if (!a.error.ok()) return Answer(e.request, ErrorOf(e.array, a));
  const int shards = static_cast<int>(a.spec->placement.devices.size());
  if (a.state != ArrayState::kWriting || e.ordinal < 0 || e.ordinal >= shards)
    return Answer(e.request,
                  Error(ErrorKind::kValueError, "array ", e.array, ": shard ", e.ordinal, " of ",
                        shards, " cannot be written now; arrays are written once"));
  const int64_t device = a.spec->placement.devices[e.ordinal];
  if (a.unwritten.count(device) == 0)
    return Answer(e.request, Error(ErrorKind::kValueError, "array ", e.array, ": shard ", e.ordinal,
                                   " of ", shards, " is written already and cannot be changed"));
  const Executor& x = cluster_.ExecutorOf(device);
  if (!x.alive())
    return Answer(e.request,
                  Error(ErrorKind::kWorkerLost, "array ", e.array, ": executor ", x.name,
                        " of worker ", x.worker, " is away (", x.lost_reason, "); retry"));
  Send(x, api::WriteBuffer{e.array, cluster_.device(device).local_index, e.value});
  BeginWait(e.request,
            now_ + std::min(s_.config.ticket_lifetime, std::max(e.timeout, absl::ZeroDuration())),
            WriteWait{{e.array}, device, x.name});
}

void Machine::HandleReport(Executor& executor, const api::BufferWritten& report) {
  auto* const it = catalogue_.FindArray(report.array);
  const int64_t device = executor.first_device + report.device;
  if (it == nullptr || it->state != ArrayState::kWriting || it->unwritten.count(device) == 0)
    return;
  if (KindOf(report.status) == ErrorKind::kArrayDeleted)
    return LoseArray(report.array, Error(ErrorKind::kWorkerLost, "lost: ", executor.name,
                                         " deleted it before the coordinator restarted, and the "
                                         "deletion was not recorded; make it again"));
  if (!report.status.ok()) return FailArray(report.array, report.status);
  it->unwritten.erase(device);
  for (uint64_t request : IdSet(it->waiters)) {
    const auto* wait = WaitOf<WriteWait>(request);
    if (wait == nullptr || wait->device != device) continue;
    EndWait(request);
    Answer(request, std::monostate());
  }
  if (it->unwritten.empty()) {
    SetArrayReady(report.array);
    TryFree(report.array);
  }
}

void Machine::On(const DescribeArray& e) {
  auto found = FindArray(e.caller, e.array, Access::kRead);
  if (found.ok()) return Answer(e.request, ArrayInfoOf(e.array));
  auto* const array = catalogue_.FindArray(e.array);
  const Operation* donee = array == nullptr || KindOf(found.status()) != ErrorKind::kArrayDeleted
                               ? nullptr
                               : order_.Find(array->donated_to);
  const bool open = donee != nullptr && donee->ended() && !donee->outstanding.empty();
  if (!open) return Answer(e.request, found.status());
  // The request waits, because the executors of the operation have not all reported whether they
  // have consumed the array.
  BeginWait(e.request, now_ + 2 * s_.config.cancel_grace, DonationWait{{donee->id}, e.array});
}

absl::StatusOr<Page<ArrayInfo>> Machine::On(const ListArrays& e) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t key, FindSession(e.caller, e.session, Access::kRead));
  Page<ArrayInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const absl::btree_set<uint64_t>& arrays = ownership_.session(key).arrays;
  auto it = arrays.upper_bound(e.page.after);
  for (; it != arrays.end() && page.items.size() < size; ++it)
    page.items.push_back(ArrayInfoOf(*it));
  page.has_more = it != arrays.end();
  return page;
}

void Machine::On(const WaitArray& e) {
  auto found = FindArray(e.caller, e.array, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  if (!(*found)->error.ok()) return Answer(e.request, ErrorOf(e.array, **found));
  if ((*found)->state == ArrayState::kReady) return Answer(e.request, ArrayInfoOf(e.array));
  BeginWait(e.request, now_ + std::min(e.timeout, s_.config.result_wait_max), ArrayWait{e.array});
}

void Machine::On(const ReadShard& e) {
  auto found = FindArray(e.caller, e.array, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  const ArrayRecord& a = **found;
  if (!a.error.ok()) return Answer(e.request, ErrorOf(e.array, a));
  const int shards = static_cast<int>(a.spec->placement.devices.size());
  if (e.ordinal < 0 || e.ordinal >= shards)
    return Answer(e.request, Error(ErrorKind::kValueError, "array ", e.array, ": shard ", e.ordinal,
                                   " does not exist; the array has ", Pluralize(shards, "shard")));
  BeginWait(e.request, now_ + std::min(e.timeout, s_.config.result_wait_max),
            ReadWait{{e.array}, e.ordinal});
  if (a.state == ArrayState::kReady) TrySendRead(e.request, a);
}

void Machine::TrySendRead(uint64_t request, const ArrayRecord& array) {
  ReadWait& wait = *WaitOf<ReadWait>(request);
  const int64_t device = array.spec->placement.devices[SourcesOf(array)[wait.ordinal]];
  // While all executors that have the shard are away, the read waits for RetryBlocked.
  if (PresenceOn(array, device) != Presence::kAlive) return;
  const Executor& x = cluster_.ExecutorOf(device);
  wait.executor = x.name;
  Send(x, api::ReadBuffer{request, wait.array, cluster_.device(device).local_index});
}

absl::StatusOr<MissingArrays> Machine::On(const DeleteArrays& e) {
  MissingArrays missing;
  for (uint64_t id : e.arrays)
    if (!FindArray(e.caller, id, Access::kChange).ok()) missing.arrays.push_back(id);
  Delete(e.caller, e.arrays);
  Remember(e, /*made=*/0, missing.arrays);
  const AnswerRecord* const creation =
      FindAnswer(e.caller, CallKind::kCreateArray, e.creation_request_id);
  if (creation != nullptr && std::count(e.arrays.begin(), e.arrays.end(), creation->made) > 0) {
    const uint64_t number = s_.answers.NumberOf(*creation);
    s_.answers.Erase(number);
    MarkChanged(core::RowKind::kAnswer, number, e.caller.tenant);
  }
  return missing;
}

void Machine::Delete(const core::Caller& caller, const std::vector<uint64_t>& arrays) {
  for (uint64_t id : arrays)
    if (auto* const it = catalogue_.FindArray(id);
        it != nullptr && Allowed(caller, it->tenant, Access::kChange))
      Delete(id);
}

void Machine::Delete(uint64_t id) {
  auto* const it = catalogue_.FindArray(id);
  if (it == nullptr) return;
  if (it->deleted) {
    // Deleting a donated array gives it up even if the run fails before it starts.
    it->donated_to = 0;
    MarkChanged(id, *it);
    return TryFree(id);
  }
  SetDeleted(id, true);
  if (!it->waiters.empty())
    EndArrayWaits(id, Error(ErrorKind::kArrayDeleted, "array ", id, " has been deleted"));
  TryFree(id);
}

void Machine::SetArrayScheduled(uint64_t id) {
  ArrayRecord& a = catalogue_.array(id);
  a.state = ArrayState::kScheduled;
  SetHolders(a);
  MarkChanged(id, a);
  for (uint64_t op : IdSet(a.unscheduled_readers)) TryStart(op);
}

void Machine::SetArrayReady(uint64_t id) {
  ArrayRecord& a = catalogue_.array(id);
  a.state = ArrayState::kReady;
  MarkChanged(id, a);
  Disarm(a.upload_until, kUploadTimer, id);
  for (uint64_t request : IdSet(a.waiters)) {
    if (WaitOf<ReadWait>(request) != nullptr) {
      TrySendRead(request, a);
    } else {
      EndWait(request);
      Answer(request, ArrayInfoOf(id));
    }
  }
  for (uint64_t op : IdSet(a.unscheduled_readers)) TryStart(op);
}

void Machine::FailArray(uint64_t id, const absl::Status& error, ArrayState state) {
  auto* const it = catalogue_.FindArray(id);
  if (it == nullptr || !it->error.ok()) return;
  ArrayRecord& a = *it;
  MarkFailed(id, a, error, state);
  const absl::Status reported = ErrorOf(id, a);
  EndArrayWaits(id, reported);
  for (uint64_t op : IdSet(a.readers)) Fail(op, reported);
  TryFree(id);
}

void Machine::MarkFailed(uint64_t id, ArrayRecord& a, const absl::Status& error, ArrayState state) {
  a.state = state;
  a.error = error;
  MarkChanged(id, a);
  a.unwritten.clear();
  Disarm(a.upload_until, kUploadTimer, id);
}

absl::Status Machine::ErrorOf(uint64_t id, const ArrayRecord& a) {
  if (a.state != ArrayState::kLost) return a.error;
  return Error(KindOf(a.error), "array ", id, " is ", a.error.message());
}

void Machine::EndArrayWaits(uint64_t id, const absl::Status& error) {
  EndWaits(catalogue_.array(id).waiters, error);
}

bool Machine::HasPeerReaders(const ArrayRecord& array) {
  return std::any_of(array.readers.begin(), array.readers.end(), [this](uint64_t reader) {
    const Operation* const op = order_.Find(reader);
    return op != nullptr && op->reads_peers() && !op->ended();
  });
}

const Operation* Machine::RunReadingCopy(uint64_t id, const ArrayRecord& array) const {
  const Operation* const donee = order_.Find(array.donated_to);
  const Run* const run = donee == nullptr ? nullptr : donee->run();
  if (run == nullptr) return nullptr;
  const std::vector<uint64_t>& originals = run->originals;
  return std::find(originals.begin(), originals.end(), id) == originals.end() ? nullptr : donee;
}

bool Machine::IsKeptOriginal(uint64_t id, const ArrayRecord& array) const {
  const Operation* const donee = RunReadingCopy(id, array);
  return donee != nullptr && !donee->ended() && donee->sequence == 0;
}

void Machine::FreeOriginals(const Operation& op) {
  if (const Run* const run = op.run())
    for (uint64_t a : run->originals) TryFree(a);
}

void Machine::FreeShards(uint64_t id, ArrayRecord& a) {
  if (std::exchange(a.freed, true)) return;
  // As long as it is not durable that the operation to which the array was donated has started, the
  // next life of the coordinator may still need the array. So the deletion waits for that commit.
  // After a restart, the coordinator may not know of the operation.
  const Operation* const donee = order_.Find(a.donated_to);
  const bool may_return = donee != nullptr && donee->started_in_commit > s_.durable_commit;
  auto& deletes = may_return || RunReadingCopy(id, a) != nullptr ? deletes_of_donated_ : deletes_;
  for (const auto& [device, incarnation] : a.holders) {
    const Executor& x = cluster_.ExecutorOf(device);
    if (!x.alive() || x.info.incarnation != incarnation) continue;
    std::vector<uint64_t>& ids = deletes[x.name];
    // Each executor deletes the array once, however many of its devices hold it.
    if (ids.empty() || ids.back() != id) ids.push_back(id);
  }
}

void Machine::TryFree(uint64_t id) {
  auto* const it = catalogue_.FindArray(id);
  if (it == nullptr) return;
  ArrayRecord& a = *it;
  if (!a.deleted || !a.unscheduled_readers.empty() || a.state == ArrayState::kPlanned) return;
  // The client gets a donated array back if the run fails before it reaches a device.
  if (auto* const op = order_.Find(a.donated_to); op != nullptr) {
    const Operation& donee = *op;
    const bool settled = donee.ended() && donee.outstanding.empty();
    if (!settled && std::find(donee.args.begin(), donee.args.end(), id) != donee.args.end()) return;
  }
  if (IsKeptOriginal(id, a)) return;
  if (HasPeerReaders(a)) return;
  FreeShards(id, a);
  // While its producer or a reader runs, the record of the array is needed to propagate a failure.
  if (!a.readers.empty() || a.state == ArrayState::kScheduled) return;
  Disarm(a.upload_until, kUploadTimer, id);
  MarkChanged(id, a);
  catalogue_.RemoveArray(id);
}

}  // namespace tessera::server::scheduler
