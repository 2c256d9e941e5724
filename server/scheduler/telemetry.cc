// Readings of the current state for metrics and health, and the notes of a step for counters and
// the log. The metrics and the health monitor ask for readings with ReadTelemetry; the driver
// passes the notes to its observer.
#include <algorithm>
#include <map>
#include <utility>

#include "ir/api/placement.h"
#include "ir/type.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

namespace tessera::server::scheduler {
namespace {

// The number of arrays that one step reads, so that a scrape of a million arrays does not delay
// other events for long.
constexpr int64_t kArraysPerStep = 4096;
constexpr char kPriorityClass[] = "normal";

// Adds up values by labels, or keeps the greatest. The destructor appends the results to the
// reading.
class Tally {
 public:
  Tally(Metric metric, core::ClusterReading* out) : metric_(metric), out_(out) {}
  ~Tally() {
    for (auto& [labels, value] : counts_) out_->readings.push_back({metric_, labels, value});
  }
  void Add(std::vector<std::string> labels, double value = 1) {
    counts_[std::move(labels)] += value;
  }
  void KeepGreatest(std::vector<std::string> labels, double value) {
    double& greatest = counts_[std::move(labels)];
    greatest = std::max(greatest, value);
  }

 private:
  const Metric metric_;
  core::ClusterReading* const out_;
  std::map<std::vector<std::string>, double> counts_;
};

const char* NameOf(ArrayState state) {
  constexpr const char* kNames[] = {"writing", "pending", "pending", "ready", "failed", "lost"};
  return kNames[static_cast<int>(state)];
}

const char* NameOf(WorkerState state) {
  constexpr const char* kNames[] = {"ready", "suspect", "cordoned", "draining", "lost"};
  return kNames[static_cast<int>(state)];
}

}  // namespace

void Machine::ReadOperations(core::ClusterReading* out) {
  Tally active(Metric::kOperationsActive, out), oldest(Metric::kOperationOldestAge, out),
      depth(Metric::kQueueDepth, out), reasons(Metric::kQueuePendingReason, out);
  // Time series that alerts watch exist even when they are 0.
  for (const char* stage : {"queued", "running"}) oldest.KeepGreatest({"execute", stage}, 0);
  for (const std::string& reason :
       tessera::InfoOf(Metric::kQueuePendingReason).labels[0].domain->values)
    reasons.Add({reason}, 0);
  depth.Add({core::kDefaultTenant, kPriorityClass}, 0);
  for (uint64_t id : order_.live()) {
    const Operation& op = order_.operation(id);
    const bool queued = op.sequence == 0;
    const std::string kind = core::MetricLabelOf(op.kind), stage = queued ? "queued" : "running";
    active.Add({op.tenant, kind, stage});
    oldest.KeepGreatest({kind, stage}, absl::ToDoubleSeconds(now_ - op.created));
    if (!queued) continue;
    depth.Add({op.tenant, kPriorityClass});
    reasons.Add({PendingReasons(op).front().code});
  }
}

// Reads the states of workers, devices, executors and communicators. The time series of workers'
// states exist even when they are 0, as in ReadOperations. The operations of an executor are
// counted by one pass over all operations that have not left their executors.
void Machine::ReadWorkers(core::ClusterReading* out) {
  Tally workers(Metric::kWorkers, out), devices(Metric::kDevices, out),
      age(Metric::kWorkerHeartbeatAge, out), communicators(Metric::kCommunicators, out);
  for (const char* state : {"ready", "suspect", "draining", "cordoned", "lost"})
    workers.Add({state}, 0);
  devices.Add({"ready", "cpu", "cpu"}, 0);
  for (const auto& [name, worker] : cluster_.workers()) {
    if (name.empty()) continue;
    const bool draining = cluster_.IsDraining(name);
    const absl::Duration silence = std::max(now_ - worker.last_seen, absl::ZeroDuration());
    WorkerState state = WorkerState::kReady;
    if (worker.registration_id == 0) {
      state = cluster_.AnyAway(worker) ? WorkerState::kSuspect : WorkerState::kLost;
    } else if (silence > 2 * s_.config.heartbeat) {
      state = WorkerState::kSuspect;
    } else if (worker.cordoned) {
      state = draining ? WorkerState::kDraining : WorkerState::kCordoned;
    }
    workers.Add({NameOf(state)});
    if (worker.registration_id != 0) age.Add({name}, absl::ToDoubleSeconds(silence));
    int first_device = 0;
    for (const std::string& executor : worker.executors) {
      const Executor& x = cluster_.executor(executor);
      const char* device_state = x.away                   ? "away"
                                 : !x.alive()             ? "lost"
                                 : !Responsive(x)         ? "unresponsive"
                                 : draining               ? "draining"
                                 : cluster_.IsCordoned(x) ? "cordoned"
                                                          : "ready";
      devices.Add({device_state, x.info.device_kind, x.info.device_kind}, x.info.num_devices);
      core::ExecutorReading reading{
          .name = x.name,
          .worker = name,
          .device_kind = x.info.device_kind,
          .index = x.info.index,
          .incarnation = x.info.incarnation,
          .devices = {},
          .first_device = first_device,
          .alive = x.alive(),
          .cordoned = cluster_.IsCordoned(x),
          .operations = 0,
          .launches_succeeded = x.launches_succeeded,
          .collective_launches_succeeded = x.collective_launches_succeeded,
          .progress_age = x.progress_age,
          .silence = Responsive(x) ? absl::ZeroDuration() : x.last_heartbeat.silence,
          .answers = x.last_heartbeat.silence <= absl::ZeroDuration()};
      for (int32_t d = 0; d < x.info.num_devices; ++d)
        reading.devices.push_back(x.first_device + d);
      first_device += x.info.num_devices;
      out->executors.push_back(std::move(reading));
    }
  }
  std::map<std::string, core::ExecutorReading*> by_name;
  for (core::ExecutorReading& x : out->executors) by_name[x.name] = &x;
  for (const IdSet* operations : {&order_.live(), &order_.lingering()})
    for (uint64_t id : *operations)
      for (const auto& [name, incarnation] : order_.operation(id).outstanding)
        if (const auto x = by_name.find(name); x != by_name.end()) ++x->second->operations;
  communicators.Add({"open"}, static_cast<double>(order_.num_communicators()));
  communicators.Add({"retired"}, static_cast<double>(order_.num_retired()));
}

// Answers with the requested part of the readings. Arrays are read a few thousand at a time, and
// next_array tells the caller where to go on, so that a large table does not hold up other events.
absl::StatusOr<core::ClusterReading> Machine::On(const ReadTelemetry& e) {
  core::ClusterReading out;
  if (e.part == ReadTelemetry::kWorkers) ReadWorkers(&out);
  if (e.part != ReadTelemetry::kEverything) return out;
  if (e.first_array == 0) {
    ReadOperations(&out);
    ReadWorkers(&out);
    Tally sessions(Metric::kSessions, &out), entries(Metric::kCompileCacheEntries, &out);
    sessions.Add({core::kDefaultTenant, "active"}, 0);
    for (const auto& [id, session] : ownership_.sessions())
      if (!session.own) sessions.Add({session.tenant, "active"});
    entries.Add({"memory"}, static_cast<double>(catalogue_.executables().size()));
  }
  {
    Tally arrays(Metric::kArrays, &out), bytes(Metric::kArrayBytes, &out);
    arrays.Add({core::kDefaultTenant, "ready"}, 0);
    bytes.Add({core::kDefaultTenant, "device"}, 0);
    int64_t left = kArraysPerStep;
    const std::map<uint64_t, ArrayRecord>& all = catalogue_.arrays();
    for (auto it = all.lower_bound(e.first_array); it != all.end(); ++it) {
      if (left-- == 0) {
        out.next_array = it->first;
        break;
      }
      const ArrayRecord& array = it->second;
      if (array.freed) continue;
      const api::Placement& placement = array.spec->placement;
      if (!array.deleted) arrays.Add({array.tenant, NameOf(array.state)});
      if (array.state == ArrayState::kFailed || array.state == ArrayState::kLost) continue;
      const int64_t shard =
          ir::MakeType(array.spec->dtype, api::LocalShape(placement, array.spec->shape))
              .num_bytes();
      bytes.Add({array.tenant, "device"},
                static_cast<double>(shard) * static_cast<double>(NumHeld(array)));
    }
  }
  return out;
}

void Machine::LogIncident(const char* what,
                          std::vector<std::pair<std::string, std::string>> fields) {
  Note(core::Incident{what, std::move(fields)});
}
void Machine::LogIncident(const char* what, std::vector<std::pair<std::string, std::string>> fields,
                          const absl::Status& why) {
  fields.emplace_back("reason", ReasonOf(why));
  fields.emplace_back("why", std::string(why.message()));
  LogIncident(what, std::move(fields));
}

// Makes the note of an ended operation for counters. The bytes moved come from the plan's
// collectives or, for a reshard, from the size of its result, because executors do not report them.
void Machine::NoteEnded(const Operation& op) {
  if (!s_.config.wants_notes) return;
  core::OperationEnded note;
  note.tenant = op.tenant;
  note.name = op.name;
  note.kind = op.kind;
  note.state = op.state;
  note.error = op.error;
  note.created = op.created;
  note.started = op.sequence == 0 ? absl::InfiniteFuture() : op.started;
  note.ended = now_;
  note.run_longest = op.run_longest;
  note.run_total = op.run_total;
  note.planned_late = op.planned_late;
  if (const Executable* const x = ExecutableOf(op); x != nullptr) {
    if (!x->devices.empty())
      note.device_kind = cluster_.ExecutorOf(x->devices.front()).info.device_kind;
    if (x->plan != nullptr)
      for (const core::CollectiveSummary& c : x->plan->collectives)
        note.bytes_moved += c.bytes_per_device * static_cast<int64_t>(x->devices.size());
  } else if (!op.results.empty()) {
    if (auto* const a = catalogue_.FindArray(op.results.front()); a != nullptr) {
      const api::ArraySpec& spec = *a->spec;
      if (!spec.placement.devices.empty())
        note.device_kind = cluster_.ExecutorOf(spec.placement.devices.front()).info.device_kind;
      if (op.kind == api::OperationKind::kReshard)
        note.bytes_moved = ir::MakeType(spec.dtype, spec.shape).num_bytes();
    }
  }
  Note(std::move(note));
}

}  // namespace tessera::server::scheduler
