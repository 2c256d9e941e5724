// Operations: accepted, given their place in the order, ended.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/api/placement.h"
#include "ir/api/ticket.h"
#include "ir/builder.h"
#include "ir/type.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

// A failure that only says that somebody else failed.
bool BlamesAPeer(const absl::Status& status) {
  const ErrorKind kind = KindOf(status);
  // An executor that speaks is not lost itself: WORKER_LOST is what it saw of a peer.
  return kind == ErrorKind::kPeerFailed || kind == ErrorKind::kCollectiveTimeout ||
         kind == ErrorKind::kWorkerLost;
}

std::string_view StateName(api::OperationState state) {
  switch (state) {
    case api::OperationState::kPending:
      return "pending";
    case api::OperationState::kRunning:
      return "running";
    case api::OperationState::kDone:
      return "done";
    case api::OperationState::kFailed:
      return "failed";
    case api::OperationState::kCancelled:
      return "cancelled";
  }
  return "?";
}

}  // namespace

absl::Status Machine::CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body) {
  const auto it = s_.executables.find(body.executable);
  if (it == s_.executables.end() || it->second.state != ExecutableState::kPlanned ||
      !May(caller, it->second.tenant, Access::kChange))
    return MakeError(
        ErrorKind::kProgramNotFound,
        absl::StrCat(
            "execute: executable ", body.executable, " does not exist, or was dropped",
            it == s_.executables.end() ? WhatElse(caller, body.executable, Access::kChange) : "",
            "; compile it again"));
  const Executable& x = it->second;
  if (static_cast<int64_t>(s_.live.size()) >= s_.config.queue_bound)
    return MakeError(
        ErrorKind::kQueueFull,
        absl::StrCat("execute: ", s_.live.size(), " operations have not ended, at most ",
                     s_.config.queue_bound, " are accepted; wait and retry"));
  if (body.args.size() != x.reply.in.size())
    return MakeError(ErrorKind::kTypeError,
                     absl::StrCat("execute: ", x.name, " takes ", x.reply.in.size(),
                                  " arguments but got ", body.args.size()));
  if (!body.donate.empty() && body.donate.size() != body.args.size())
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("execute: donate has ", body.donate.size(), " entries for ",
                                  body.args.size(), " arguments"));
  if (body.deadline && *body.deadline <= absl::ZeroDuration())
    return MakeError(ErrorKind::kDeadlineExceeded, "execute: the deadline has passed already");
  std::map<uint64_t, size_t> donated;
  const auto after = [&](size_t made) { return static_cast<int64_t>(s_.arrays.size() + made); };
  // An argument whose blocks lie elsewhere is first moved into a temporary array.
  const bool close = after(x.reply.out.size() + body.args.size()) > s_.config.arrays_max;
  size_t made = x.reply.out.size();
  for (size_t i = 0; i < body.args.size(); ++i) {
    auto found = FindArray(caller, body.args[i], Access::kChange);
    if (!found.ok())
      return Annotate(found.status(),
                      std::string(absl::StrCat("execute: argument ", i, " of ", x.name)));
    const api::ArraySpec& has = (*found)->spec;
    const api::ArraySpec& wants = x.reply.in[i];
    if (has.dtype != wants.dtype || has.shape != wants.shape)
      return MakeError(
          ErrorKind::kTypeError,
          absl::StrCat("execute: argument ", i, " of ", x.name, " is array ", body.args[i],
                       " of type ", ir::MakeType(has.dtype, has.shape).ToString(),
                       "; the program takes ", ir::MakeType(wants.dtype, wants.shape).ToString()));
    const bool donate = !body.donate.empty() && body.donate[i];
    if (donate) donated.emplace(body.args[i], i);
    if (close && !BlocksMatch(has, wants)) ++made;
  }
  if (close && after(made) > s_.config.arrays_max)
    return MakeError(
        ErrorKind::kLimitExceeded,
        absl::StrCat("execute: ", x.name, " makes ", made, " arrays, and ", s_.arrays.size(),
                     " of at most ", s_.config.arrays_max, " exist; delete some"));
  for (size_t i = 0; i < body.args.size(); ++i)
    if (auto d = donated.find(body.args[i]); d != donated.end() && d->second != i)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("execute: array ", body.args[i], " is donated as argument ", d->second,
                       " and is argument ", i, " as well; donate an array once and use it once"));
  return absl::OkStatus();
}

void Machine::On(const Execute& e) {
  const auto refuse = [&](const absl::Status& why) {
    Answer(e.request, why);
    if (e.end_request != 0) Answer(e.end_request, why);
  };
  const auto session = FindSession(e.caller, e.body.session, Access::kChange);
  if (!session.ok()) return refuse(session.status());
  if (e.body.check_only) {
    if (absl::Status s = CheckExecute(e.caller, e.body); !s.ok()) return refuse(s);
    Answer(e.request, api::ExecuteReply{});
    if (e.end_request != 0) Answer(e.end_request, api::Completion{});
    return;
  }
  // Before the launch, which may need their memory.
  Delete(e.caller, e.body.release);
  SendDeletes();
  if (absl::Status s = CheckExecute(e.caller, e.body); !s.ok()) return refuse(s);
  Executable& x = s_.executables.at(e.body.executable);
  x.last_use = ++s_.uses;
  const std::vector<api::ArraySpec> in = x.reply.in, out = x.reply.out;
  Operation op;
  op.name = x.name;
  op.session = *session;
  op.executable = e.body.executable;
  op.args = e.body.args;
  op.donate = e.body.donate;
  if (e.body.deadline) {
    op.time_allowed = *e.body.deadline;
    op.deadline = now_ + op.time_allowed;
  }
  if (e.end_request != 0)
    op.inline_bytes_max = std::min(e.body.inline_bytes_max, api::kInlineBytesMax);
  // Where an argument lies otherwise, an operation before this one moves it into a temporary.
  x.operations.insert(0);  // Not to be dropped for the programs that move arguments.
  std::vector<uint64_t> temporaries;
  absl::Status moved;
  for (size_t i = 0; i < op.args.size() && moved.ok(); ++i) {
    if (BlocksMatch(s_.arrays.at(op.args[i]).spec, in[i])) continue;
    const auto move = Reshard(*session, op.args[i], in[i]);
    moved = move.status();
    if (!moved.ok()) break;
    op.args[i] = s_.operations.at(*move).results[0];
    temporaries.push_back(op.args[i]);
  }
  s_.executables.at(e.body.executable).operations.erase(0);
  const uint64_t id = moved.ok() ? NewOperation(std::move(op), out) : 0;
  // Temporaries are needed by this operation alone.
  for (uint64_t t : temporaries) SetDeleted(t, true);
  if (!moved.ok()) {
    for (uint64_t t : temporaries) TryFree(t);
    return refuse(moved);
  }
  for (size_t i = 0; i < e.body.args.size(); ++i) {
    if (e.body.donate.empty() || !e.body.donate[i]) continue;
    SetDeleted(e.body.args[i], true);
    s_.arrays.at(e.body.args[i]).donated_to = id;
    EndArrayWaits(e.body.args[i], MakeError(ErrorKind::kArrayDeleted,
                                            absl::StrCat("array ", e.body.args[i],
                                                         " was donated to operation ", id)));
  }
  const Operation& accepted = s_.operations.at(id);
  Log(absl::StrCat("operation ", id, " accepted: executable ", e.body.executable, " (",
                   absl::StrJoin(e.body.args, ","), ") -> (", absl::StrJoin(accepted.results, ","),
                   ")"));
  Answer(e.request, api::ExecuteReply{id, accepted.results});
  if (e.end_request != 0) {
    Waiter w;
    w.kind = Waiter::kEnd;
    w.id = id;
    w.until = now_ + s_.config.result_wait_max;
    Wait(e.end_request, std::move(w));
  }
  for (uint64_t a : e.body.args) TryFree(a);  // Donated, and read by a move alone.
  TryStart(id);
}

absl::StatusOr<uint64_t> Machine::Reshard(uint64_t session, uint64_t source,
                                          const api::ArraySpec& wanted) {
  const api::ArraySpec has = s_.arrays.at(source).spec;
  Operation op;
  op.name = "reshard";
  op.kind = api::OperationKind::kReshard;
  op.session = session;
  op.args = {source};
  if (has.placement.mesh.SameShape(wanted.placement.mesh) &&
      has.placement.devices == wanted.placement.devices && has.placement.mesh.num_devices() > 1 &&
      !BlocksMatch(has, wanted)) {
    // On one mesh: the identity, which the planner turns into collectives.
    ir::Mesh mesh = has.placement.mesh;
    for (ir::MeshAxis& axis : mesh.axes) axis.type = ir::AxisType::kAuto;
    api::CompileRequest request;
    request.name = "reshard";
    request.devices = has.placement.devices;
    TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
      ir::Builder b({mesh, true}, "reshard");
      const ir::Value v = b.Param(ir::MakeType(has.dtype, has.shape));
      request.program.entry = b.Build({v});
    }));
    request.program.in_shardings = {has.placement.spec};
    request.program.out_shardings = {wanted.placement.spec};
    TESSERA_ASSIGN_OR_RETURN(op.executable,
                             FindOrPlan(request, ir::StructuralHash(request.program),
                                        s_.sessions.at(session).tenant, /*cordoned=*/true));
  }
  const uint64_t id = NewOperation(std::move(op), {wanted});
  TryStart(id);
  return id;
}

void Machine::On(const ReshardArray& e) {
  const auto operation = [&]() -> absl::StatusOr<uint64_t> {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t session,
                             FindSession(e.caller, e.session, Access::kChange));
    TESSERA_ASSIGN_OR_RETURN(const ArrayRecord* source,
                             FindArray(e.caller, e.array, Access::kChange));
    TESSERA_RETURN_IF_ERROR(source->error);
    TESSERA_RETURN_IF_ERROR(
        Annotate(api::CheckPlacement(e.placement, source->spec.shape), "reshard"));
    TESSERA_RETURN_IF_ERROR(Annotate(CheckDevices(e.placement.devices), "reshard"));
    if (static_cast<int64_t>(s_.live.size()) >= s_.config.queue_bound)
      return MakeError(
          ErrorKind::kQueueFull,
          absl::StrCat("reshard: ", s_.live.size(), " operations have not ended, at most ",
                       s_.config.queue_bound, " are accepted; wait and retry"));
    if (static_cast<int64_t>(s_.arrays.size()) >= s_.config.arrays_max)
      return MakeError(ErrorKind::kLimitExceeded,
                       absl::StrCat("reshard: ", s_.arrays.size(), " arrays exist, at most ",
                                    s_.config.arrays_max, " are kept; delete some"));
    return Reshard(session, e.array, {source->spec.dtype, source->spec.shape, e.placement});
  }();
  if (!operation.ok()) return Answer(e.request, operation.status());
  const Operation& op = s_.operations.at(*operation);
  Log(absl::StrCat("operation ", op.id, " accepted: reshard ", e.array, " -> ", op.results[0]));
  Answer(e.request, Making{Describe(op), {Info(op.results[0])}});
}

uint64_t Machine::NewOperation(Operation op, std::vector<api::ArraySpec> results) {
  Session& session = s_.sessions.at(op.session);
  const uint64_t id = op.id = NewId(session.tenant);
  op.tenant = session.tenant;
  op.session_name = session.own ? 0 : op.session;
  op.created = now_;
  op.wall_ahead = s_.wall_ahead;
  session.operations.insert(id);
  for (api::ArraySpec& spec : results)
    op.results.push_back(NewArray(std::move(spec), ArrayState::kPlanned, op.session));
  for (uint64_t a : op.args) {
    s_.arrays.at(a).waiting.insert(id);
    s_.arrays.at(a).readers.insert(id);
  }
  if (op.executable != 0) {
    Executable& x = s_.executables.at(op.executable);
    x.operations.insert(id);
    op.planned_late = x.state != ExecutableState::kPlanned;
  }
  Note(core::OperationSubmitted{op.tenant, op.kind});
  Arm(op.deadline, kDeadlineTimer, id);
  s_.live.insert(id);
  s_.operations.emplace(id, std::move(op));
  return id;
}

std::vector<std::string> Machine::ExecutorsOf(const Operation& op) {
  if (op.executable != 0) return s_.executables.at(op.executable).members;
  if (op.file != nullptr) return ExecutorsOfFile(op);
  // A transfer runs where its result lies.
  std::vector<std::string> executors;
  for (int64_t d : s_.arrays.at(op.results[0]).spec.placement.devices)
    if (const std::string& x = s_.devices[d].executor;
        std::find(executors.begin(), executors.end(), x) == executors.end())
      executors.push_back(x);
  return executors;
}

void Machine::TryStart(uint64_t id) {
  due_.push_back({id, absl::OkStatus(), {}});
  DrainDue();
}

void Machine::Fail(uint64_t id, absl::Status error, api::OperationState state) {
  due_.push_back({id, std::move(error), state});
  DrainDue();
}

void Machine::DrainDue() {
  if (draining_due_) return;
  draining_due_ = true;
  while (!due_.empty()) {
    const Due due = std::move(due_.front());
    due_.pop_front();
    if (due.error.ok()) {
      TryStartNow(due.operation);
    } else {
      FailNow(due.operation, due.error, due.state);
    }
  }
  draining_due_ = false;
}

void Machine::TryStartNow(uint64_t id) {
  const auto found = s_.operations.find(id);
  if (found == s_.operations.end()) return;
  Operation& op = found->second;
  if (op.ended() || op.sequence != 0) return;
  if (op.executable != 0 && s_.executables.at(op.executable).state != ExecutableState::kPlanned)
    return;
  for (uint64_t arg : op.args) {
    const ArrayRecord& a = s_.arrays.at(arg);
    if (!a.error.ok()) {
      const absl::Status error = a.error;
      return Fail(id, error);
    }
    if (a.state != ArrayState::kReady && a.state != ArrayState::kScheduled) return;
  }
  const std::vector<std::string> executors = ExecutorsOf(op);
  for (const std::string& name : executors) {
    if (s_.executors.at(name).alive()) continue;
    return Block(op, /*loading=*/false);
  }
  if (!s_.draining.empty()) {
    for (const std::string& name : executors) {
      if (s_.draining.count(s_.executors.at(name).worker) == 0) continue;
      s_.held.insert(id);
      Unblock(op);
      return;
    }
  }
  if (op.executable != 0 && !IsLoaded(s_.executables.at(op.executable))) {
    LoadWhereAlive(op.executable);
    return Block(op, /*loading=*/true);
  }
  Start(op, executors);
}

void Machine::Block(Operation& op, bool loading) {
  if (!s_.blocked_on_executors.insert(op.id).second && op.loading == loading) return;
  Disarm(op.executors_until, kExecutorsTimer, op.id);
  op.loading = loading;
  op.executors_until = now_ + (loading ? s_.config.load_wait : s_.config.recovery_wait);
  Arm(op.executors_until, kExecutorsTimer, op.id);
}

void Machine::Unblock(const Operation& op) {
  s_.blocked_on_executors.erase(op.id);
  Disarm(op.executors_until, kExecutorsTimer, op.id);
}

void Machine::ExecutorsLate(uint64_t id) {
  const Operation& op = s_.operations.at(id);
  if (op.loading) {
    const Executable& x = s_.executables.at(op.executable);
    MissThoseThatLoad(x, absl::StrCat("operation ", id));
    return Fail(id, NotLoaded(x, absl::StrCat("operation ", id)));
  }
  Fail(id, MakeError(ErrorKind::kWorkerLost,
                     absl::StrCat("operation ", id, ": ", PendingReason(op),
                                  ", and it was not back within ",
                                  absl::FormatDuration(s_.config.recovery_wait))));
}

void Machine::Start(Operation& op, const std::vector<std::string>& executors) {
  Unblock(op);
  op.sequence = ++s_.last_sequence;
  op.state = api::OperationState::kRunning;
  op.started = now_;
  TellChange(op);
  const bool on_files = op.file != nullptr;  // nothing in the order waits for it
  for (const std::string& name : executors) {
    Executor& x = s_.executors.at(name);
    op.outstanding[name] = x.info.incarnation;
    if (!on_files) x.running.emplace(op.sequence, op.id);
  }
  if (op.executable != 0) {
    SendLaunches(op, executors);
  } else if (op.kind == api::OperationKind::kSave) {
    SendSaves(op, executors);
  } else if (op.kind == api::OperationKind::kLoad) {
    SendLoads(op, executors);
  } else {
    SendTransfers(op, executors);
  }
  BeginTurn(op);
  const uint64_t id = op.id;
  const std::vector<uint64_t> args = op.args, results = op.results;
  // Later uses of the arguments stand behind this launch now.
  for (uint64_t a : args) {
    s_.arrays.at(a).waiting.erase(id);
    TryFree(a);
  }
  const bool written_later = s_.operations.at(id).kind == api::OperationKind::kLoad;
  for (uint64_t r : results) {
    if (!written_later) ArrayScheduled(r);
    TryFree(r);
  }
}

void Machine::SendLaunches(Operation& op, const std::vector<std::string>& executors) {
  api::Launch launch;
  launch.launch = op.id;
  launch.sequence = op.sequence;
  launch.executable = op.executable;
  launch.args = op.args;
  launch.results = op.results;
  if (op.deadline < absl::InfiniteFuture()) launch.timeout = op.deadline - now_;
  for (size_t i = 0; i < op.donate.size(); ++i) {
    // An operation that was accepted earlier and still waits needs the bytes as they are.
    const ArrayRecord& a = s_.arrays.at(op.args[i]);
    launch.donate.push_back(op.donate[i] && a.waiting.size() == 1);
  }
  launch.generation = op.generation = executors.size() > 1 ? GenerationFor(executors) : 0;
  const std::vector<std::pair<int32_t, int>> inlined = InlineShards(op);
  for (const std::string& name : executors) {
    launch.inline_results.clear();
    for (const auto& [result, ordinal] : inlined) {
      const int64_t device = s_.arrays.at(op.results[result]).spec.placement.devices[ordinal];
      if (s_.devices[device].executor == name)
        launch.inline_results.push_back({result, s_.devices[device].local});
    }
    Send(s_.executors.at(name), launch);
  }
}

std::vector<std::pair<int32_t, int>> Machine::InlineShards(const Operation& op) const {
  std::vector<std::pair<int32_t, int>> shards;
  int64_t bytes = 0;
  for (size_t r = 0; r < op.results.size(); ++r) {
    const api::ArraySpec& spec = s_.arrays.at(op.results[r]).spec;
    bytes += ir::MakeType(spec.dtype, spec.shape).num_bytes();
    if (bytes > op.inline_bytes_max) return {};
    for (int ordinal : api::DistinctBlocks(spec.placement, spec.shape))
      shards.emplace_back(static_cast<int32_t>(r), ordinal);
  }
  return shards;
}

void Machine::KeepInlined(const Executor& executor, const api::LaunchDone& done) {
  const auto it = s_.operations.find(done.launch);
  if (it == s_.operations.end() || it->second.ended() || it->second.inline_bytes_max == 0) return;
  for (const auto& [array, device, value] : done.inline_results) {
    const auto a = s_.arrays.find(array);
    if (a == s_.arrays.end() || device < 0 || device >= executor.info.num_devices) continue;
    const api::ArraySpec& spec = a->second.spec;
    if (value.dtype() != spec.dtype || value.shape() != api::LocalShape(spec.placement, spec.shape))
      continue;
    it->second.inlined.insert_or_assign({array, executor.first_device + device}, value);
  }
}

api::Completion Machine::Complete(Operation& op) {
  api::Completion out{Describe(op), {}};
  const auto inlined = std::exchange(op.inlined, {});
  if (op.state != api::OperationState::kDone) return out;
  for (uint64_t r : op.results) {
    const auto it = s_.arrays.find(r);
    if (it == s_.arrays.end()) continue;
    const api::ArraySpec& spec = it->second.spec;
    ir::Array whole;
    bool complete = true;
    for (int k : api::DistinctBlocks(spec.placement, spec.shape)) {
      const auto shard = inlined.find({r, spec.placement.devices[k]});
      complete = shard != inlined.end();
      if (!complete) break;
      if (shard->second.shape() == spec.shape) {
        whole = shard->second;
        break;
      }
      if (whole.shape() != spec.shape) whole = ir::Array(spec.dtype, spec.shape);
      ir::WriteBlock(&whole, api::BlockStarts(spec.placement, spec.shape, k), shard->second);
    }
    if (complete) out.results.emplace_back(r, std::move(whole));
  }
  return out;
}

void Machine::SendTransfers(Operation& op, const std::vector<std::string>& executors) {
  const ArrayRecord& source = s_.arrays.at(op.args[0]);
  const api::ArraySpec& wanted = s_.arrays.at(op.results[0]).spec;
  const ir::Dims local = api::LocalShape(wanted.placement, wanted.shape);
  const ir::Dims source_local = api::LocalShape(source.spec.placement, source.spec.shape);
  const std::vector<int64_t>& from = source.spec.placement.devices;
  std::map<std::string, api::Transfer> transfers;
  for (size_t k = 0; k < wanted.placement.devices.size(); ++k) {
    const int64_t device = wanted.placement.devices[k];
    const std::string& here = s_.devices[device].executor;
    api::Transfer::Shard shard;
    shard.device = s_.devices[device].local;
    auto prefer = [&](int64_t s) {
      return from[s] == device ? 2 : s_.devices[from[s]].executor == here ? 1 : 0;
    };
    for (SourcePiece& p : PiecesOf(source.spec, wanted, static_cast<int64_t>(k), prefer)) {
      const Executor& x = ExecutorOf(from[p.source]);
      api::Transfer::Piece piece;
      piece.local = x.name == here;
      piece.source = op.args[0];
      piece.source_device = s_.devices[from[p.source]].local;
      if (!piece.local) {
        piece.endpoint = x.info.peer_data_endpoint;
        piece.ticket =
            api::SignTicket({.access = api::Ticket::Access::kRead,
                             .incarnation = x.info.incarnation,
                             .array = op.args[0],
                             .device = piece.source_device,
                             .dtype = source.spec.dtype,
                             .shape = source_local,
                             .expires = now_ + s_.steady_ahead + s_.config.write_wait},
                            api::TicketKeyFor(s_.config.ticket_key, x.name, x.info.incarnation));
      }
      piece.source_starts = std::move(p.source_starts);
      piece.dest_starts = std::move(p.dest_starts);
      piece.shape = std::move(p.shape);
      shard.pieces.push_back(std::move(piece));
    }
    transfers[here].shards.push_back(std::move(shard));
  }
  for (const std::string& name : executors) {
    api::Transfer& t = transfers.at(name);
    t.launch = op.id;
    t.sequence = op.sequence;
    t.result = op.results[0];
    t.dtype = wanted.dtype;
    t.local_shape = local;
    t.timeout = op.deadline < absl::InfiniteFuture() ? op.deadline - now_ : s_.config.write_wait;
    Send(s_.executors.at(name), std::move(t));
  }
}

uint64_t Machine::GenerationFor(const std::vector<std::string>& executors) {
  std::vector<std::pair<std::string, uint64_t>> key;
  for (const std::string& name : executors)
    key.emplace_back(name, s_.executors.at(name).info.incarnation);
  const auto it = s_.communicators.find(key);
  if (it != s_.communicators.end()) {
    it->second.last_use = ++s_.uses;
    return it->second.generation;
  }
  api::ConfigureCommunicator configure;
  configure.generation = ++s_.last_generation;
  configure.secret = s_.config.communicator_secret;
  for (const auto& [name, incarnation] : key)
    configure.members.push_back({name, incarnation, s_.executors.at(name).info.peer_endpoint,
                                 s_.executors.at(name).info.num_devices});
  for (size_t i = 0; i < executors.size(); ++i) {
    configure.self = static_cast<int32_t>(i);
    Send(s_.executors.at(executors[i]), configure);
  }
  s_.communicators[key] = {configure.generation, ++s_.uses};
  return configure.generation;
}

void Machine::Retire(uint64_t generation) {
  const auto it = std::find_if(
      s_.communicators.begin(), s_.communicators.end(),
      [&](const auto& communicator) { return communicator.second.generation == generation; });
  if (it == s_.communicators.end()) return;
  s_.retired[generation] = it->first;
  s_.communicators.erase(it);
}

void Machine::CloseRetired(uint64_t generation) {
  const auto it = s_.retired.find(generation);
  if (it == s_.retired.end()) return;
  for (uint64_t id : s_.live)
    if (s_.operations.at(id).generation == generation) return;
  for (const auto& [name, incarnation] : it->second)
    if (const auto x = s_.executors.find(name);
        x != s_.executors.end() && x->second.alive() && x->second.info.incarnation == incarnation)
      Send(x->second, api::CloseCommunicator{generation});
  s_.retired.erase(it);
}

void Machine::Done(uint64_t id) {
  Operation& op = s_.operations.at(id);
  const std::vector<uint64_t> results = op.results;
  End(op, api::OperationState::kDone);
  for (uint64_t r : results) {
    // What a file was loaded into was ready when its last shard was written.
    if (const auto it = s_.arrays.find(r);
        it == s_.arrays.end() || !it->second.error.ok() || it->second.state == ArrayState::kReady)
      continue;
    ArrayReady(r);
    TryFree(r);
  }
}

void Machine::FailNow(uint64_t id, const absl::Status& error, api::OperationState state) {
  Operation& op = s_.operations.at(id);
  if (op.ended()) return;
  op.error = error;
  const std::vector<uint64_t> args = op.args, results = op.results;
  const ErrorKind kind = KindOf(error);
  const absl::Status stop =
      kind == ErrorKind::kCancelled || kind == ErrorKind::kDeadlineExceeded
          ? error
          : MakeError(ErrorKind::kPeerFailed,
                      absl::StrCat("operation ", id, " (", op.name,
                                   ") was stopped; first failure: ", error.message()));
  for (const auto& [name, incarnation] : op.outstanding) {
    const Executor& x = s_.executors.at(name);
    if (x.alive() && x.info.incarnation == incarnation) Send(x, api::CancelLaunch{id, stop});
  }
  // Its executors may have left their collectives at different points.
  if (op.generation != 0) Retire(op.generation);
  End(op, state);
  if (op.outstanding.empty()) SettleDonated(op);
  for (uint64_t r : results) ArrayFailed(r, error);
}

void Machine::SettleDonated(const Operation& op) {
  const std::vector<uint64_t> args = op.args;
  for (uint64_t a : args) {
    const auto it = s_.arrays.find(a);
    if (it == s_.arrays.end() || it->second.donated_to != op.id) continue;
    if (op.inputs_gone || it->second.freed || s_.sessions.count(it->second.session) == 0) {
      if (!op.inputs_gone) it->second.donated_to = 0;
      TryFree(a);
    } else {
      it->second.donated_to = 0;
      SetDeleted(a, false);
    }
  }
  const std::set<uint64_t> waiters = op.waiters;
  for (uint64_t request : waiters) {
    if (s_.waiters.at(request).kind != Waiter::kSettled) continue;
    const uint64_t array = EndWait(request).array;
    const auto it = s_.arrays.find(array);
    if (it != s_.arrays.end() && !it->second.deleted) {
      Answer(request, Info(array));
    } else {
      Answer(request, MakeError(ErrorKind::kArrayDeleted,
                                absl::StrCat("array ", array, " was donated to operation ", op.id,
                                             " and has been deleted")));
    }
  }
}

void Machine::BeginTurn(Operation& op) {
  if (op.ended() || op.deadline < absl::InfiniteFuture()) return;
  const bool on_files = op.file != nullptr;
  if (!on_files)
    for (const auto& [name, incarnation] : op.outstanding)
      if (const auto& running = s_.executors.at(name).running;
          !running.empty() && running.begin()->second != op.id)
        return;
  op.time_allowed = on_files ? s_.config.file_deadline : s_.config.run_deadline;
  op.deadline = now_ + op.time_allowed;
  Arm(op.deadline, kDeadlineTimer, op.id);
}

void Machine::Left(Operation& op, const std::string& executor) {
  if (op.outstanding.erase(executor) == 0) return;
  auto& running = s_.executors.at(executor).running;
  running.erase(op.sequence);
  if (!running.empty()) BeginTurn(s_.operations.at(running.begin()->second));
  if (!op.ended() || !op.outstanding.empty()) return;
  if (op.state == api::OperationState::kCancelled)
    Note(core::CancelDone{core::CancelDone::kStopped, now_ - op.ended_at});
  Disarm(op.kill_at, kKillTimer, op.id);
  s_.lingering.erase(op.id);
  KeepRecord(op);
  SettleDonated(op);
}

void Machine::KeepRecord(const Operation& op) {
  (op.tenant == core::kSystemTenant ? s_.ended_canaries : s_.ended).push_back(op.id);
}

uint64_t Machine::StandsBefore(const Operation& op, const Executor& executor) const {
  const auto devices_of = [this](const Operation& o) -> const std::vector<int64_t>* {
    if (const auto x = s_.executables.find(o.executable); x != s_.executables.end())
      return &x->second.devices;
    if (o.executable != 0 || o.results.empty()) return nullptr;
    const auto a = s_.arrays.find(o.results[0]);
    return a == s_.arrays.end() ? nullptr : &a->second.spec.placement.devices;
  };
  const std::vector<int64_t>* const mine = devices_of(op);
  const auto here = [&](int64_t d) {
    return d >= executor.first_device && d < executor.first_device + executor.info.num_devices;
  };
  for (const auto& [sequence, id] : executor.running) {
    if (sequence >= op.sequence) break;
    const Operation& other = s_.operations.at(id);
    if (other.ended()) continue;
    const std::vector<int64_t>* const theirs = devices_of(other);
    if (mine == nullptr || theirs == nullptr) return id;
    for (int64_t d : *theirs)
      if (here(d) && std::find(mine->begin(), mine->end(), d) != mine->end()) return id;
  }
  return 0;
}

void Machine::KillThoseThatStay(uint64_t id) {
  const auto it = s_.operations.find(id);
  if (it == s_.operations.end() || s_.lingering.count(id) == 0) return;
  Operation& op = it->second;
  for (const auto& [name, incarnation] : op.outstanding) {
    const Executor& x = s_.executors.at(name);
    // One that answers has taken the operation off, or will when it comes to it; a disk that hangs
    // holds up no device.
    if (Responsive(x) && (op.file != nullptr || StandsBefore(op, x) != 0)) continue;
    std::string reason =
        absl::StrCat("killed: operation ", id, " (", op.name, "), which ended with ",
                     ToAbsl(InfoOf(KindOf(op.error)).reason), ", was not left within ",
                     absl::FormatDuration(s_.config.cancel_grace));
    Log(absl::StrCat("executor ", name, " ", reason));
    Send(x, api::KillExecutor{std::move(reason)});
  }
  op.kill_at = now_ + s_.config.cancel_grace;
  Arm(op.kill_at, kKillTimer, id);
}

void Machine::End(Operation& op, api::OperationState state) {
  op.state = state;
  const uint64_t id = op.id;
  Disarm(op.deadline, kDeadlineTimer, id);
  Unblock(op);
  Disarm(op.verdict_until, kVerdictTimer, id);
  op.ended_at = now_;
  NoteEnded(op);
  if (state == api::OperationState::kFailed) {
    std::vector<std::string> silent;  // executors that have not said how it ended there
    for (const auto& [name, incarnation] : op.outstanding) silent.push_back(name);
    Tell("operation failed",
         {{"operation", absl::StrCat(id)},
          {"program", op.name},
          {"session", absl::StrCat(op.session_name)},
          {"tenant", op.tenant},
          {"executors", absl::StrJoin(silent, ",")}},
         op.error);
  }
  s_.live.erase(id);
  s_.held.erase(id);
  if (const auto session = s_.sessions.find(op.session); session != s_.sessions.end())
    session->second.operations.erase(id);
  if (op.generation != 0) CloseRetired(op.generation);
  if (const auto x = s_.executables.find(op.executable); x != s_.executables.end())
    x->second.operations.erase(id);
  std::string record = absl::StrCat("operation ", id, " ", ToAbsl(StateName(state)));
  if (!op.error.ok()) absl::StrAppend(&record, ": ", ToAbsl(InfoOf(KindOf(op.error)).reason));
  Log(std::move(record));
  const std::set<uint64_t> waiters = op.waiters;
  for (uint64_t request : waiters) {
    if (EndWait(request).kind == Waiter::kEnd) {
      Answer(request, Complete(op));
    } else {
      Answer(request, Describe(op));
    }
  }
  op.inlined.clear();
  const std::vector<uint64_t> args = op.args;
  if (op.outstanding.empty()) {
    KeepRecord(s_.operations.at(id));
  } else {
    s_.lingering.insert(id);
    op.kill_at = now_ + s_.config.cancel_grace;
    Arm(op.kill_at, kKillTimer, id);
  }
  for (uint64_t a : args)
    if (const auto it = s_.arrays.find(a); it != s_.arrays.end()) {
      it->second.waiting.erase(id);
      it->second.readers.erase(id);
      // Of one that failed: see SettleDonated.
      if (it->second.donated_to != id || state == api::OperationState::kDone) TryFree(a);
    }
}

void Machine::LaunchEnded(const Executor& executor, uint64_t launch, const absl::Status& status,
                          bool inputs_kept) {
  const auto it = s_.operations.find(launch);
  if (it == s_.operations.end()) return;
  Operation& op = it->second;
  if (op.outstanding.count(executor.name) == 0) return;
  op.inputs_gone = op.inputs_gone || !inputs_kept;
  Left(op, executor.name);
  if (op.ended()) return;
  if (!status.ok()) {
    const absl::Status error = Annotate(
        status,
        std::string(absl::StrCat("operation ", launch, " (", op.name, ") on ", executor.name)));
    if (!BlamesAPeer(status)) return Fail(launch, error);
    // Who is gone or was missing says more than that a peer failed.
    if (op.peer_error.ok() || (KindOf(op.peer_error) == ErrorKind::kPeerFailed &&
                               KindOf(error) != ErrorKind::kPeerFailed))
      op.peer_error = error;
    if (op.verdict_until == absl::InfiniteFuture()) {
      op.verdict_until = now_ + s_.config.verdict_wait;
      Arm(op.verdict_until, kVerdictTimer, launch);
    }
  }
  if (!op.outstanding.empty()) return;
  // A lost executor stays outstanding until its loss is known, so all have spoken.
  if (op.peer_error.ok()) return Done(launch);
  const absl::Status error = op.peer_error;
  Fail(launch, error);
}

void Machine::TellChange(Operation& op) {
  std::vector<uint64_t> told;
  for (uint64_t request : op.waiters)
    if (s_.waiters.at(request).kind == Waiter::kChange) told.push_back(request);
  for (uint64_t request : told) {
    EndWait(request);
    Answer(request, Describe(op));
  }
}

void Machine::On(const WaitOperation& e) {
  const auto found = FindOperation(e.caller, e.operation, Access::kRead);
  if (!found.ok()) return Answer(e.request, found.status());
  const Operation& op = **found;
  if (op.ended() || e.timeout <= absl::ZeroDuration() || (e.seen && *e.seen != op.state))
    return Answer(e.request, Describe(op));
  Waiter w;
  w.kind = e.seen ? Waiter::kChange : Waiter::kOperation;
  w.id = e.operation;
  w.until = now_ + std::min(e.timeout, s_.config.result_wait_max);
  Wait(e.request, std::move(w));
}

void Machine::On(const CancelOperation& e) {
  const auto found = FindOperation(e.caller, e.operation, Access::kChange);
  if (!found.ok()) return Answer(e.request, found.status());
  if ((*found)->ended()) {
    Note(core::CancelDone{core::CancelDone::kCompleted, absl::ZeroDuration()});
  } else if ((*found)->sequence == 0) {
    Note(core::CancelDone{core::CancelDone::kNotStarted, absl::ZeroDuration()});
  }
  Fail(e.operation,
       MakeError(ErrorKind::kCancelled, absl::StrCat("operation ", e.operation, " (",
                                                     (*found)->name, ") was cancelled on request")),
       api::OperationState::kCancelled);
  Answer(e.request, std::monostate());
}

}  // namespace tessera::server::scheduler
