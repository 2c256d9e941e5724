// Describes and lists operations for clients, and explains why they wait. The handlers only read
// the state, except that FindSession may create the tenant's default session.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {

absl::StatusOr<Operation*> Machine::FindOperation(const core::Caller& caller, uint64_t id,
                                                  Access access) {
  auto* const it = order_.Find(id);
  if (it == nullptr || !Allowed(caller, it->tenant, access))
    return Error(ErrorKind::kOperationNotFound, "operation ", id,
                 " does not exist, or its record has expired", HintAboutId(caller, id, access));
  return it;
}

api::Operation Machine::Describe(const Operation& op) {
  api::Operation out;
  out.id = op.id;
  out.name = op.name;
  out.state = op.state;
  out.error = op.error;
  if (op.state == api::OperationState::kPending) out.pending_reason = DescribeDelay(op);
  if (op.state == api::OperationState::kRunning) out.pending_reason = AwayReason(op);
  out.session = op.client_session_id;
  out.tenant = op.tenant;
  out.kind = op.kind;
  out.created = op.created + op.wall_ahead;
  out.started = op.started + op.wall_ahead;
  out.ended = op.ended_at + op.wall_ahead;
  out.outputs = op.results;
  return out;
}

// Adds a reason for each executor that is lost, and then for each device with a fault and each
// worker that is cordoned. A worker is named once, however many executors it has here.
void Machine::AddPlaceReasons(const std::vector<std::string>& executors,
                              std::vector<api::PendingReason>* reasons) const {
  std::vector<api::PendingReason> cordoned;
  std::set<std::string> workers;
  for (const std::string& name : executors) {
    const Executor& x = cluster_.executor(name);
    const Worker& worker = cluster_.worker(x.worker);
    if (!x.alive())
      reasons->push_back({"WORKER_LOST",
                          cluster_.DescribeFirstLost({name}),
                          {absl::StrCat("workers/", x.worker)}});
    if (x.has_fault())
      cordoned.push_back({"WORKER_CORDONED",
                          absl::StrCat("device ", x.first_device, " of worker ", x.worker,
                                       " is cordoned: ", x.fault),
                          {absl::StrCat("workers/", x.worker)}});
    if (!worker.cordoned || !workers.insert(x.worker).second) continue;
    const char* how = cluster_.IsDraining(x.worker) ? "draining" : "cordoned";
    cordoned.push_back(
        {"WORKER_CORDONED",
         absl::StrCat("worker ", x.worker, " is ", how, worker.cordon_reason.empty() ? "" : ": ",
                      worker.cordon_reason),
         {absl::StrCat("workers/", x.worker)}});
  }
  reasons->insert(reasons->end(), cordoned.begin(), cordoned.end());
}

void Machine::AddAwaySources(const ArrayRecord& array, std::vector<std::string>* executors) const {
  for (const int k : SourcesOf(array)) {
    const int64_t d = array.spec->placement.devices[k];
    const std::string& name = cluster_.device(d).executor;
    if (PresenceOn(array, d) == Presence::kAway &&
        std::find(executors->begin(), executors->end(), name) == executors->end())
      executors->push_back(name);
  }
}

std::vector<api::PendingReason> Machine::PendingReasonsOn(const std::vector<int64_t>& devices,
                                                          bool compiled) {
  std::vector<api::PendingReason> reasons;
  AddPlaceReasons(cluster_.ExecutorsOf(devices), &reasons);
  if (!compiled) reasons.push_back({"COMPILING", "its program is not compiled yet", {}});
  return reasons;
}

// Collects everything that keeps an operation from starting. The order matters, because clients and
// metrics show only the first reason: first lost or draining workers, then planning and compiling,
// then uploads, and last arguments that other operations produce.
std::vector<api::PendingReason> Machine::PendingReasons(const Operation& op) {
  std::vector<api::PendingReason> reasons;
  if (op.ended() || op.sequence != 0) return reasons;
  std::vector<api::PendingReason> place;
  std::vector<std::string> executors = ExecutorsOf(op);
  if (op.reads_peers())
    for (uint64_t a : op.args) AddAwaySources(catalogue_.array(a), &executors);
  AddPlaceReasons(executors, &place);
  // A cordon alone does not keep an operation from starting; a drain does.
  for (api::PendingReason& reason : place)
    if (reason.code == "WORKER_LOST" || order_.held().count(op.id) > 0)
      reasons.push_back(std::move(reason));
  const Executable* const program = ExecutableOf(op);
  if (program != nullptr && program->state != ExecutableState::kPlanned)
    reasons.push_back({"COMPILING",
                       "its program is being planned",
                       {absl::StrCat("executables/", op.run()->executable)}});
  if (op.loading && order_.blocked().count(op.id) > 0)
    reasons.push_back({"COMPILING",
                       "its program is being compiled",
                       {absl::StrCat("executables/", op.run()->executable)}});
  std::vector<api::PendingReason> inputs;
  for (uint64_t a : op.args) {
    const ArrayRecord& array = catalogue_.array(a);
    const std::string name = absl::StrCat("arrays/", a);
    if (array.state == ArrayState::kWriting)
      reasons.push_back(
          {"WAITING_FOR_UPLOAD",
           absl::StrCat("argument array ", a, " is being uploaded: ",
                        array.spec->placement.devices.size() - array.unwritten.size(), " of ",
                        array.spec->placement.devices.size(), " shards are there"),
           {name}});
    if (array.state == ArrayState::kPlanned)
      inputs.push_back({"WAITING_FOR_INPUT",
                        absl::StrCat("argument array ", a, " is not produced yet"),
                        {name}});
  }
  reasons.insert(reasons.end(), inputs.begin(), inputs.end());
  if (reasons.empty()) reasons.push_back({"WAITING_FOR_TURN", "about to start", {}});
  return reasons;
}

std::string Machine::AwayReason(const Operation& op) const {
  if (cluster_.num_away() == 0) return "";
  for (const auto& [name, incarnation] : op.outstanding)
    if (cluster_.executor(name).away) return cluster_.DescribeFirstLost({name});
  return "";
}

std::string Machine::DescribeAbsent(const Operation& op) {
  std::vector<std::string> needed;
  for (const auto& [name, incarnation] : op.outstanding) needed.push_back(name);
  if (op.sequence == 0) needed = ExecutorsOf(op);
  for (const std::string& name : needed) {
    const Executor& x = cluster_.executor(name);
    if (x.away) return cluster_.DescribeFirstLost({name});
    if (x.alive() && !Responsive(x)) return NameWithSilence(name);
  }
  return "";
}

std::string Machine::DescribeDelay(const Operation& op) {
  if (op.ended()) return "";
  if (op.sequence == 0) return PendingReasons(op).front().message;
  return absl::StrCat("running on ", DescribeProgress(op));
}

std::string Machine::DescribeProgress(const Operation& op) {
  std::vector<std::string> places;
  const Executable* const program = ExecutableOf(op);
  for (const auto& [name, incarnation] : op.outstanding) {
    const Executor& x = cluster_.executor(name);
    std::vector<std::string> what;
    const bool loaded = program == nullptr || program->loaded_on.count(name) > 0;
    if (x.last_heartbeat.launch == op.id) {
      if (!x.last_heartbeat.op.empty())
        what.push_back(
            absl::StrCat(x.last_heartbeat.waiting ? "waiting in " : "at ", x.last_heartbeat.op));
    } else if (const uint64_t before = OperationAhead(op, x); before != 0) {
      what.push_back(absl::StrCat("behind operation ", before));
    } else if (!loaded) {
      what.emplace_back("compiling its program");
    }
    if (const std::string silence = SilenceOf(x); !silence.empty()) what.push_back(silence);
    if (x.away) what.push_back(absl::StrCat("away: ", x.lost_reason));
    places.push_back(what.empty() ? name
                                  : absl::StrCat(name, " (", absl::StrJoin(what, "; "), ")"));
  }
  return absl::StrJoin(places, ", ");
}

absl::StatusOr<Page<api::Operation>> Machine::On(const ListOperations& e) {
  uint64_t session = 0;
  if (!e.all_sessions) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t key, FindSession(e.caller, e.session, Access::kRead));
    session = key;
  }
  Page<api::Operation> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const std::map<uint64_t, Operation>& operations = order_.operations();
  for (auto it = operations.upper_bound(e.page.after); it != operations.end(); ++it) {
    const Operation& op = it->second;
    if (e.live_only && op.ended()) continue;
    if (e.all_sessions ? !e.caller.MayRead(op.tenant) : op.session != session) continue;
    if (page.items.size() == size) {
      page.has_more = true;
      break;
    }
    page.items.push_back(Describe(op));
  }
  return page;
}

absl::StatusOr<PendingInfo> Machine::On(const ExplainPending& e) {
  TESSERA_ASSIGN_OR_RETURN(const Operation* op,
                           FindOperation(e.caller, e.operation, Access::kRead));
  PendingInfo info{op->state, PendingReasons(*op), 0};
  if (op->state == api::OperationState::kPending) {
    const std::vector<std::string> wanted = ExecutorsOf(*op);
    for (uint64_t id : order_.live()) {
      if (id >= op->id) break;
      const std::vector<std::string> used = ExecutorsOf(order_.operation(id));
      info.position += std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
        return std::find(used.begin(), used.end(), name) != used.end();
      });
    }
  }
  return info;
}

}  // namespace tessera::server::scheduler
