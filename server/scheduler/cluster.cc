// Keeps the tables of workers, executors and devices. The functions of Machine in workers.cc,
// inventory.cc and restore.cc call these when workers register, leave or come back, and decide what
// happens to the workers' arrays and operations.
#include "server/scheduler/cluster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/words.h"

namespace tessera::server::scheduler {
namespace {

constexpr char kRestarted[] = "the coordinator restarted";

}  // namespace

std::string ExecutorName(const std::string& worker, int32_t index) {
  return absl::StrCat(worker, "/", index);
}

bool Cluster::DeviceExists(int64_t id) const {
  return id >= 0 && id < num_ids() && !devices_[id].executor.empty();
}

std::vector<std::string> Cluster::ExecutorsOf(const std::vector<int64_t>& devices) const {
  std::vector<std::string> executors;
  for (int64_t d : devices)
    if (const std::string& x = devices_[d].executor;
        std::find(executors.begin(), executors.end(), x) == executors.end())
      executors.push_back(x);
  return executors;
}

absl::Status Cluster::CheckDevicesExist(const std::vector<int64_t>& devices) const {
  for (int64_t d : devices)
    if (!DeviceExists(d))
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("device ", d, " does not exist; the cluster has ",
                                    Pluralize(num_devices(), "device"), ", ",
                                    devices_deleted_ == 0 ? "numbered from 0" : "list them"));
  return absl::OkStatus();
}

std::string Cluster::DescribeFirstLost(const std::vector<std::string>& executors) const {
  for (const std::string& name : executors)
    if (const Executor& x = executor(name); !x.alive())
      return absl::StrCat("executor ", name, " of worker ", x.worker, " is ",
                          x.away ? "away" : "lost", " (", x.lost_reason, ")");
  return "";
}

void Cluster::RestoreWorker(const std::string& name, Worker worker) {
  worker.last_seen = absl::InfinitePast();
  worker.lost_reason = kRestarted;
  workers_.insert_or_assign(name, std::move(worker));
}

void Cluster::RestoreExecutor(Executor executor, absl::Time away_until) {
  RestoreIds(executor.first_device);
  for (int32_t d = 0; d < executor.info.num_devices; ++d) devices_.push_back({executor.name, d});
  const auto [worker, added] = workers_.try_emplace(executor.worker);
  if (added) {
    worker->second.last_seen = absl::InfinitePast();
    worker->second.lost_reason = kRestarted;
  }
  worker->second.executors.push_back(executor.name);
  if (executor.lost_reason.empty() && executor.info.incarnation != 0)
    BeginAway(executor, away_until);
  executor.registration_id = 0;
  executor.lost_reason = kRestarted;
  const std::string name = executor.name;
  executors_.insert_or_assign(name, std::move(executor));
}

void Cluster::RestoreIds(int64_t ids) {
  while (num_ids() < ids) DeleteDevice({});
}

void Cluster::Adopt(Executor& executor) {
  EndAway(executor);
  executor.adopted = true;
  executor.registration_id = workers_.at(executor.worker).registration_id;
  if (executor.last_registration_id != executor.registration_id) executor.attachment = 0;
  executor.last_registration_id = executor.registration_id;
  executor.lost_reason.clear();
  executor.last_heartbeat = {};
}

bool Cluster::AnyAway(const Worker& worker) const {
  return std::any_of(worker.executors.begin(), worker.executors.end(),
                     [this](const std::string& name) { return executor(name).away; });
}

void Cluster::BeginAway(Executor& executor, absl::Time until) {
  if (!executor.away) ++num_away_;
  executor.away = true;
  executor.away_until = until;
}

void Cluster::EndAway(Executor& executor) {
  if (executor.away) --num_away_;
  executor.away = false;
}

Worker& Cluster::Connect(const std::string& worker, uint64_t registration_id) {
  Worker& w = workers_[worker];
  w.registration_id = registration_id;
  w.lost_reason.clear();
  registrations_[registration_id] = worker;
  return w;
}

std::vector<std::string> Cluster::Disconnect(const std::string& worker, const std::string& reason) {
  Worker& w = workers_.at(worker);
  std::vector<std::string> lost;
  for (const std::string& name : w.executors) {
    Executor& x = executors_.at(name);
    if (x.registration_id != w.registration_id) continue;
    DisconnectExecutor(x, reason);
    lost.push_back(name);
  }
  registrations_.erase(w.registration_id);
  w.registration_id = 0;
  w.lost_reason = reason;
  return lost;
}

void Cluster::DisconnectExecutor(Executor& executor, const std::string& reason) {
  executor.lost_reason = reason;
  executor.registration_id = 0;
}

Executor* Cluster::FindExecutorOf(uint64_t registration_id, int32_t index) {
  for (auto& [name, x] : executors_)
    if (x.last_registration_id == registration_id && x.info.index == index) return &x;
  return nullptr;
}

// Records what the process of the executor says of itself, and forgets what was known of the
// executor's earlier process. A new executor gets the next device ids, because clients name devices
// by ids that are never reused.
bool Cluster::RegisterExecutor(const std::string& worker, const std::string& host,
                               const api::ExecutorInfo& info) {
  Worker& w = workers_.at(worker);
  const std::string name = ExecutorName(worker, info.index);
  auto [it, added] = executors_.try_emplace(name);
  Executor& x = it->second;
  if (added) {
    x.name = name;
    x.worker = worker;
    x.first_device = num_ids();
    for (int32_t d = 0; d < info.num_devices; ++d) devices_.push_back({name, d});
    w.executors.push_back(name);
  }
  EndAway(x);
  x.host = host;
  x.registration_id = x.last_registration_id = w.registration_id;
  x.attachment = 0;
  x.info = info;
  x.adopted = false;
  x.returned_generations.clear();
  x.last_report_before_return = 0;
  x.lost_reason.clear();
  x.last_heartbeat = {};
  x.overdue_for.clear();
  return added;
}

// Scales down the memory of all CPU executors of a host when together they offer more than the host
// has. Several workers on one host each offer the memory that they see, so that the planner would
// otherwise count it more than once.
void Cluster::ShareMemory(const std::string& host) {
  double offered = 0;
  int64_t total = 0;  // smallest host memory that a worker reports; 0 if unknown
  std::vector<Executor*> executors;
  std::set<std::string> workers;
  for (auto& [name, x] : executors_) {
    if (!x.alive() || x.host != host) continue;
    x.memory_bytes = x.info.memory_bytes;
    if (x.info.device_kind != "cpu") continue;  // Other kinds of devices have memory of their own.
    executors.push_back(&x);
    workers.insert(x.worker);
    offered += static_cast<double>(x.info.memory_bytes) * x.info.num_devices;
    const int64_t reported = workers_.at(x.worker).host_memory_bytes;
    if (reported > 0) total = total == 0 ? reported : std::min(total, reported);
  }
  // A worker that is alone on its host offers what it was configured with.
  if (workers.size() < 2 || total == 0 || offered <= static_cast<double>(total)) return;
  for (Executor* x : executors)
    x->memory_bytes = static_cast<int64_t>(static_cast<double>(x->info.memory_bytes) *
                                           (static_cast<double>(total) / offered));
}

void Cluster::DeleteDevice(std::optional<int64_t> device) {
  if (devices_deleted_++ == 0)
    workers_[""].lost_reason = executors_[""].lost_reason = "its worker was deleted";
  if (device) {
    devices_[*device] = {"", 0};
  } else {
    devices_.push_back({"", 0});
  }
}

void Cluster::RemoveExecutor(const std::string& name) {
  const Executor& x = executors_.at(name);
  TESSERA_CHECK(!x.alive()) << name;
  for (int32_t d = 0; d < x.info.num_devices; ++d) DeleteDevice(x.first_device + d);
  std::vector<std::string>& siblings = workers_.at(x.worker).executors;
  siblings.erase(std::remove(siblings.begin(), siblings.end(), name), siblings.end());
  cache_ = {};
  executors_.erase(name);
}

void Cluster::RemoveWorker(const std::string& name) {
  draining_.erase(name);
  workers_.erase(name);
}

}  // namespace tessera::server::scheduler
