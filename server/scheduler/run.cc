// Runs of executables: accepting an Execute, sending its launches, and collecting the results that
// come back inline. The communicators that launches on several executors use are opened and closed
// here, too.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "ir/api/placement.h"
#include "ir/strided.h"
#include "ir/type.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"
#include "server/scheduler/slices.h"

namespace tessera::server::scheduler {
namespace {

// Returns whether another accepted operation reads the array after `op`. The array is then not
// donated to `op`. The result is the same when `op` is sent again and later operations have already
// started.
bool IsReadLater(const State& s, const Operation& op, const ArrayRecord& a) {
  return std::any_of(a.readers.begin(), a.readers.end(), [&](uint64_t reader) {
    const Operation& other = s.order.operations().at(reader);
    return other.id != op.id && (other.sequence == 0 || other.sequence > op.sequence);
  });
}

}  // namespace

// Checks everything that can be wrong with an Execute, so that a refused call makes nothing. The
// checks rely on the reply of the executable, which states the types of its arguments and results.
absl::Status Machine::CheckExecute(const core::Caller& caller, const api::ExecuteRequest& body) {
  auto* const it = catalogue_.FindExecutable(body.executable);
  if (it == nullptr || it->state != ExecutableState::kPlanned ||
      !Allowed(caller, it->tenant, Access::kChange))
    return Error(ErrorKind::kProgramNotFound, "execute: executable ", body.executable,
                 " does not exist, or was dropped",
                 it == nullptr ? HintAboutId(caller, body.executable, Access::kChange) : "",
                 "; compile it again");
  const Executable& x = *it;
  TESSERA_RETURN_IF_ERROR(CheckQueue("execute"));
  if (body.args.size() != x.reply.in.size())
    return Error(ErrorKind::kTypeError, "execute: ", x.name, " takes ", x.reply.in.size(),
                 " arguments but got ", body.args.size());
  if (!body.donate.empty() && body.donate.size() != body.args.size())
    return Error(ErrorKind::kValueError, "execute: donate has ", body.donate.size(),
                 " entries for ", body.args.size(), " arguments");
  if (body.time_limit && *body.time_limit <= absl::ZeroDuration())
    return MakeError(ErrorKind::kDeadlineExceeded, "execute: the deadline has passed already");
  for (size_t i = 0; i < body.args.size(); ++i) {
    auto found = FindArray(caller, body.args[i], Access::kChange);
    if (!found.ok())
      return Annotate(found.status(),
                      std::string(absl::StrCat("execute: argument ", i, " of ", x.name)));
    const api::ArraySpec& has = *(*found)->spec;
    const api::ArraySpec& wants = x.reply.in[i];
    if (has.dtype != wants.dtype || has.shape != wants.shape)
      return Error(ErrorKind::kTypeError, "execute: argument ", i, " of ", x.name, " is array ",
                   body.args[i], " of type ", ir::MakeType(has.dtype, has.shape).ToString(),
                   "; the program takes ", ir::MakeType(wants.dtype, wants.shape).ToString());
  }
  TESSERA_RETURN_IF_ERROR(CheckResultsFit(x, body));
  return CheckDonations(body);
}

absl::Status Machine::CheckResultsFit(const Executable& x, const api::ExecuteRequest& body) {
  const auto fits = [&](size_t made) {
    return catalogue_.num_arrays() + static_cast<int64_t>(made) <= s_.config.arrays_max;
  };
  size_t made = x.reply.out.size();
  if (fits(made + body.args.size())) return absl::OkStatus();
  // An argument with another placement is first copied into a temporary array.
  for (size_t i = 0; i < body.args.size(); ++i)
    if (!BlocksMatch(*catalogue_.array(body.args[i]).spec, x.reply.in[i])) ++made;
  if (fits(made)) return absl::OkStatus();
  return Error(ErrorKind::kLimitExceeded, "execute: ", x.name, " makes ", made, " arrays, and ",
               catalogue_.num_arrays(), " of at most ", s_.config.arrays_max,
               " exist; delete some");
}

absl::Status Machine::CheckDonations(const api::ExecuteRequest& body) {
  std::map<uint64_t, size_t> donated;
  for (size_t i = 0; i < body.donate.size(); ++i)
    if (body.donate[i]) donated.emplace(body.args[i], i);
  if (donated.empty()) return absl::OkStatus();
  for (size_t i = 0; i < body.args.size(); ++i)
    if (auto d = donated.find(body.args[i]); d != donated.end() && d->second != i)
      return Error(ErrorKind::kValueError, "execute: array ", body.args[i],
                   " is donated as argument ", d->second, " and is argument ", i,
                   " as well; donate an array once and use it once");
  return absl::OkStatus();
}

// Accepts a run. First deletes the arrays in `release`, then starts to copy each argument whose
// placement does not match into a temporary array, and adds the run, which waits for these copies.
// If a copy cannot be started, the whole call is refused. A refused call has deleted the arrays in
// `release` as well: the caller has given them up, and without them there may be room for the
// results. The answer leaves with the ids of the results, before the run starts.
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
  // The deletions are sent before the launch, which may need the memory.
  Delete(e.caller, e.body.release);
  SendDeletes();
  if (absl::Status s = CheckExecute(e.caller, e.body); !s.ok()) return refuse(s);
  Executable& x = catalogue_.executable(e.body.executable);
  catalogue_.Touch(x);
  const std::vector<api::ArraySpec>& in = x.reply.in;
  Operation op;
  op.name = x.name;
  op.session = *session;
  op.args = e.body.args;
  Run run{.executable = e.body.executable, .donate = e.body.donate};
  if (e.body.time_limit) {
    op.time_allowed = *e.body.time_limit;
    op.deadline = now_ + op.time_allowed;
  }
  if (e.end_request != 0)
    run.inline_bytes_max = std::min(e.body.inline_bytes_max, api::kInlineBytesMax);
  // An argument with another placement is copied into a temporary array by an operation before the
  // run.
  std::vector<uint64_t> temporaries;
  absl::Status copy_status;
  for (size_t i = 0; i < op.args.size() && copy_status.ok(); ++i) {
    if (BlocksMatch(*catalogue_.array(op.args[i]).spec, in[i])) continue;
    // Operation 0 stands for the coming run, so that the executable is not dropped to make room for
    // the executables of the copies.
    x.operations.insert(0);
    const auto copy = StartReshard(*session, op.args[i], in[i]);
    copy_status = copy.status();
    if (!copy_status.ok()) break;
    if (!run.donate.empty() && run.donate[i]) run.originals.push_back(op.args[i]);
    op.args[i] = order_.operation(*copy).results[0];
    temporaries.push_back(op.args[i]);
  }
  if (!temporaries.empty() || !copy_status.ok()) x.operations.erase(0);
  op.work = std::move(run);
  const uint64_t id = copy_status.ok() ? NewOperation(std::move(op), x.result_specs) : 0;
  // Only the run needs the temporary arrays, so they are deleted when it no longer does.
  for (uint64_t t : temporaries) SetDeleted(t, true);
  if (!copy_status.ok()) {
    for (uint64_t t : temporaries) TryFree(t);
    return refuse(copy_status);
  }
  for (size_t i = 0; i < e.body.args.size(); ++i) {
    if (e.body.donate.empty() || !e.body.donate[i]) continue;
    SetDeleted(e.body.args[i], true);
    catalogue_.array(e.body.args[i]).donated_to = id;  // SetDeleted has marked the change.
    EndArrayWaits(e.body.args[i], Error(ErrorKind::kArrayDeleted, "array ", e.body.args[i],
                                        " was donated to operation ", id));
  }
  const Operation& accepted = order_.operation(id);
  if (s_.config.wants_debug)
    Log("operation ", id, " accepted: executable ", e.body.executable, " (",
        absl::StrJoin(e.body.args, ","), ") -> (", absl::StrJoin(accepted.results, ","), ")");
  Remember(e, id, accepted.results);
  Answer(e.request, api::ExecuteReply{id, accepted.results});
  if (e.end_request != 0)
    BeginWait(e.end_request, now_ + s_.config.result_wait_max, CompletionWait{{id}});
  TryStart(id);
}

std::vector<std::string> Machine::ExecutorsFor(const Run& run, const Operation&) const {
  return catalogue_.executable(run.executable).members;
}

bool Machine::HasArguments(const Run& run, const Operation& op, const std::string& executor) const {
  const std::vector<api::ArraySpec>& in = catalogue_.executable(run.executable).reply.in;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const ArrayRecord& a = catalogue_.array(op.args[i]);
    if (HasAllHolders(a)) continue;
    for (const int64_t d : in[i].placement.devices)
      if ((executor.empty() || cluster_.device(d).executor == executor) && a.holders.count(d) == 0)
        return false;
  }
  return true;
}

// Puts a copy in the place of each argument that is not on all devices of the run, as On(Execute)
// does with arguments of another placement. The copy is made by a Transfer from the devices that
// have the shards, and its result has the placement that the program wants. The run then waits for
// the copies and does not read the originals any more. A donated original is kept until the run
// starts.
void Machine::CopyLostArguments(Operation& op) {
  Run& run = *op.run();
  const std::vector<api::ArraySpec>& in = catalogue_.executable(run.executable).reply.in;
  Unblock(op);
  const std::vector<uint64_t> originals = op.args;
  absl::Status status;
  for (size_t i = 0; i < originals.size() && status.ok(); ++i) {
    const ArrayRecord& a = catalogue_.array(originals[i]);
    const std::vector<int64_t>& devices = in[i].placement.devices;
    const auto lacking = std::find_if(devices.begin(), devices.end(),
                                      [&](int64_t d) { return a.holders.count(d) == 0; });
    if (lacking == devices.end()) continue;
    const absl::StatusOr<uint64_t> copy = TryCopy(op.session, originals[i], in[i]);
    if (!copy.ok()) {
      status =
          Annotate(copy.status(), absl::StrCat("operation ", op.id, " (", op.name, "): device ",
                                               *lacking, " has lost its shard of argument array ",
                                               originals[i], ", and the array cannot be copied"));
      break;
    }
    op.args[i] = order_.operation(*copy).results[0];
    ArrayRecord& temporary = catalogue_.array(op.args[i]);
    temporary.unscheduled_readers.insert(op.id);
    temporary.readers.insert(op.id);
    SetDeleted(op.args[i], true);
    if (a.donated_to == op.id) run.originals.push_back(originals[i]);
  }
  MarkChanged(op);
  for (const uint64_t original : originals) {
    ArrayRecord* const a = catalogue_.FindArray(original);
    if (a == nullptr || std::find(op.args.begin(), op.args.end(), original) != op.args.end())
      continue;
    a->unscheduled_readers.erase(op.id);
    a->readers.erase(op.id);
    TryFree(original);
  }
  if (!status.ok()) Fail(op.id, status);
}

absl::StatusOr<uint64_t> Machine::TryCopy(uint64_t session, uint64_t source,
                                          const api::ArraySpec& wanted) {
  if (ownership_.FindSession(session) == nullptr) return NoSessionError(session);
  TESSERA_RETURN_IF_ERROR(CheckQueue("copy"));
  TESSERA_RETURN_IF_ERROR(CheckRoomForArrays("copy", 1));
  return StartReshard(session, source, wanted);
}

// Sends the launch to all executors of the run in one step, so that they agree on its place in the
// order. An argument is donated only if no later operation reads it, and no other executor reads
// it. When the launch is sent again to one executor, it keeps the communicator that the others use.
void Machine::SendWork(const Run& run, Operation& op, const std::vector<std::string>& executors,
                       const std::string& only) {
  api::Launch launch;
  launch.launch = op.id;
  launch.sequence = op.known_sequence();
  launch.executable = run.executable;
  launch.args = op.args;
  launch.results = op.results;
  if (op.deadline < absl::InfiniteFuture()) launch.timeout = op.deadline - now_;
  for (size_t i = 0; i < run.donate.size(); ++i) {
    const ArrayRecord& a = catalogue_.array(op.args[i]);
    launch.donate.push_back(run.donate[i] && !IsReadLater(s_, op, a) && !HasPeerReaders(a));
  }
  if (only.empty()) op.generation = executors.size() > 1 ? FindOrOpenCommunicator(executors) : 0;
  launch.generation = op.generation;
  const std::vector<std::pair<int32_t, int>> inlined_shards =
      InlineShards(op, run.inline_bytes_max);
  for (size_t i = 0; i < executors.size(); ++i) {
    const std::string& name = executors[i];
    if (!only.empty() && name != only) continue;
    launch.inline_results.clear();
    for (const auto& [result, ordinal] : inlined_shards) {
      const int64_t id = catalogue_.array(op.results[result]).spec->placement.devices[ordinal];
      const Device& device = cluster_.device(id);
      if (device.executor == name) launch.inline_results.push_back({result, device.local_index});
    }
    const bool is_last = !only.empty() || i + 1 == executors.size();
    Send(cluster_.executor(name), is_last ? std::move(launch) : launch);
  }
}

std::vector<std::pair<int32_t, int>> Machine::InlineShards(const Operation& op,
                                                           int64_t bytes_max) const {
  std::vector<std::pair<int32_t, int>> shards;
  if (bytes_max == 0) return shards;
  std::vector<const api::ArraySpec*> specs;
  for (const uint64_t result : op.results) specs.push_back(catalogue_.array(result).spec.get());
  for (const int r : api::IndicesOfInlineResults(specs, bytes_max)) {
    for (int ordinal : api::OrdinalsOfDistinctShards(specs[r]->placement, specs[r]->shape))
      shards.emplace_back(r, ordinal);
  }
  return shards;
}

void Machine::KeepInlined(const Executor& executor, const api::LaunchDone& done) {
  Operation* const op = order_.Find(done.launch);
  Run* const run = op == nullptr || op->ended() ? nullptr : op->run();
  if (run == nullptr || run->inline_bytes_max == 0) return;
  for (const auto& [array, device, value] : done.inline_results) {
    auto* const a = catalogue_.FindArray(array);
    if (a == nullptr || device < 0 || device >= executor.info.num_devices) continue;
    const api::ArraySpec& spec = *a->spec;
    if (value.dtype() != spec.dtype || value.shape() != api::LocalShape(spec.placement, spec.shape))
      continue;
    run->inlined.insert_or_assign({array, executor.first_device + device}, value);
  }
}

// Assembles each result whose distinct shards have all come inline. Once the operation has ended,
// the shards are taken out of it, so only the first completion carries results. The client fetches
// the missing results itself. A caller whose wait ends before the operation gets no results. The
// shards that have come by then stay for a caller that goes on waiting.
api::Completion Machine::TakeCompletion(Operation& op) {
  api::Completion out{Describe(op), {}};
  if (!op.ended()) return out;
  const auto inlined = std::exchange(op.run()->inlined, {});
  if (op.state != api::OperationState::kDone) return out;
  for (uint64_t r : op.results) {
    auto* const it = catalogue_.FindArray(r);
    if (it == nullptr) continue;
    const api::ArraySpec& spec = *it->spec;
    if (api::IsPendingSum(spec.placement)) continue;
    ir::Array whole;
    bool complete = true;
    for (int k : api::OrdinalsOfDistinctShards(spec.placement, spec.shape)) {
      const auto shard = inlined.find({r, spec.placement.devices[k]});
      complete = shard != inlined.end();
      if (!complete) break;
      if (shard->second.shape() == spec.shape) {
        whole = shard->second;
        break;
      }
      if (whole.shape() != spec.shape) whole = ir::Array(spec.dtype, spec.shape);
      ir::WriteBlock(&whole, api::ShardStarts(spec.placement, spec.shape, k), shard->second);
    }
    if (complete) out.results.emplace_back(r, std::move(whole));
  }
  return out;
}

void Machine::AnswerTimeout(const CompletionWait& wait, uint64_t request) {
  Answer(request, TakeCompletion(order_.operation(wait.operation)));
}

uint64_t Machine::FindOrOpenCommunicator(const std::vector<std::string>& executors) {
  Order::Members members;
  for (const std::string& name : executors)
    members.emplace_back(name, cluster_.executor(name).info.incarnation);
  if (const uint64_t known = order_.FindCommunicator(members); known != 0) return known;
  const uint64_t generation = order_.AddCommunicator(members);
  for (const std::string& name : executors) SendConfiguration(generation, executors, name);
  return generation;
}

void Machine::SendConfiguration(uint64_t generation, const std::vector<std::string>& members,
                                const std::string& to) {
  api::ConfigureCommunicator configure;
  configure.generation = generation;
  configure.secret = s_.config.communicator_secret;
  for (const std::string& name : members) {
    const api::ExecutorInfo& info = cluster_.executor(name).info;
    if (name == to) configure.self = static_cast<int32_t>(configure.members.size());
    configure.members.push_back({name, info.incarnation, info.peer_endpoint, info.num_devices});
  }
  Send(cluster_.executor(to), std::move(configure));
}

void Machine::CloseCommunicator(uint64_t generation, const Order::Members& members) {
  for (const auto& [name, incarnation] : members)
    if (const Executor* x = cluster_.FindExecutor(name);
        x != nullptr && x->alive() && x->info.incarnation == incarnation)
      Send(*x, api::CloseCommunicator{generation});
}

}  // namespace tessera::server::scheduler
