// The part of the state about machines: workers, executors, devices.
//
// Invariants:
// - A worker is connected (registration_id != 0) exactly while registrations_ lists its
//   registration. An executor that is alive has the registration id of its worker.
// - Ids of devices are dense and never reused. The ids of a deleted worker's devices belong to a
//   placeholder executor that is never alive. The placeholder and its worker have the name "".
// - A worker that is draining is cordoned.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/build.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/scheduler/find.h"
#include "server/scheduler/id_set.h"

namespace tessera::server::scheduler {

struct Executor {
  std::string name;  // "worker/index"
  std::string worker, host;
  uint64_t registration_id = 0;  // id of its worker's registration; 0 if it is lost or away
  // The id of its worker's registration when it was last alive; 0 if it was not alive since the
  // coordinator started.
  uint64_t last_registration_id = 0;
  uint64_t attachment = 0;  // how often its own connection has ended under this registration
  api::ExecutorInfo info;
  int64_t first_device = 0;  // device ids are first_device + Device::local_index
  std::string lost_reason;   // reason for which the executor is lost or away
  // Whether the executor is away: it is not alive, because its worker is silent, a connection has
  // ended, or the coordinator has restarted. Until `away_until` it may come back with the arrays
  // and programs that it holds.
  bool away = false;
  absl::Time away_until = absl::InfinitePast();
  bool adopted = false;                        // whether its process came back after it was away
  std::vector<uint64_t> returned_generations;  // communicators that it had when it came back
  uint64_t last_report_before_return = 0;      // number of its last report before it came back
  int64_t memory_bytes = 0;  // memory per device: as reported, or its share of the host's memory
  // For health checks: the number of launches that succeeded, the number of these that had
  // collectives, and the age of the last reported progress.
  int64_t launches_succeeded = 0, collective_launches_succeeded = 0;
  absl::Duration progress_age;
  api::Heartbeat::Executor last_heartbeat;  // what its worker's last heartbeat said of it
  // Link speeds as exchanges have shown them: among its own devices, and with other executors.
  core::LinkFigures in_executor, between_executors;
  // Operations that use its devices, as sequence number -> id: those that were sent to it and whose
  // end it has not acknowledged. Some of them may have ended for their clients.
  IdMap<uint64_t> running;
  // The highest sequence number among the operations that were sent to it, as far as this life
  // knows.
  uint64_t last_sent_sequence = 0;
  // Describes the request or operation that last waited too long for this executor; "" if there is
  // none. The executor is killed if it does not reply to its worker either.
  std::string overdue_for;
  // The last fault that its worker has reported about its device, with the time; "" if there was
  // none. The device is cordoned for it until an operator accepts the fault.
  std::string fault;
  bool fault_accepted = false;
  bool alive() const { return registration_id != 0; }
  bool has_fault() const { return !fault.empty() && !fault_accepted; }
};
struct Worker {
  uint64_t registration_id = 0;  // id of its registration; 0 if the worker is lost or away
  absl::Time last_seen;
  std::vector<std::string> executors;
  std::string host;
  int64_t host_memory_bytes = 0;  // memory of the host as the worker reported it
  Build build;                    // build that the worker registered with; not kept over restarts
  // How many executors came with arrays that are not known here, when the worker registered last.
  // They are replaced.
  int64_t executors_not_adopted = 0;
  std::string lost_reason;  // reason for which the worker is lost or away
  bool cordoned = false;    // whether the worker takes no new programs
  std::string cordon_reason;
  bool draining = false;
  IdSet drains;  // Drain requests that wait until nothing runs on the worker
};
struct Device {
  std::string executor;
  int32_t local_index = 0;
};

class Cluster {
 public:
  const std::map<std::string, Worker>& workers() const { return workers_; }
  const std::map<std::string, Executor>& executors() const { return executors_; }
  // The names of the draining workers, on which no operation starts.
  const std::set<std::string>& draining() const { return draining_; }
  bool IsDraining(const std::string& worker) const { return workers_.at(worker).draining; }

  // Returns null if the name is unknown. The placeholder worker is never found.
  Worker* FindWorker(const std::string& name) {
    return name.empty() ? nullptr : FindIn(workers_, name);
  }
  Executor* FindExecutor(const std::string& name) { return FindIn(executors_, name); }
  // Returns the executor with this index of the worker that has, or last had, this registration.
  // Returns null if there is none.
  Executor* FindExecutorOf(uint64_t registration_id, int32_t index);
  // Requires: the worker or executor is known.
  Worker& worker(const std::string& name) { return workers_.at(name); }
  const Worker& worker(const std::string& name) const { return workers_.at(name); }
  Executor& executor(const std::string& name) {
    if (cache_.executor == nullptr || cache_.executor->name != name)
      cache_.executor = &executors_.at(name);
    return *cache_.executor;
  }
  const Executor& executor(const std::string& name) const {
    return cache_.executor != nullptr && cache_.executor->name == name ? *cache_.executor
                                                                       : executors_.at(name);
  }

  // The number of assigned device ids, which count from 0. The device of an id may have been
  // deleted.
  int64_t num_ids() const { return static_cast<int64_t>(devices_.size()); }
  int64_t num_devices() const { return num_ids() - devices_deleted_; }
  const Device& device(int64_t id) const { return devices_[id]; }
  bool DeviceExists(int64_t id) const;
  // Requires: the id is assigned.
  Executor& ExecutorOf(int64_t device) { return executor(devices_.at(device).executor); }
  const Executor& ExecutorOf(int64_t device) const {
    return executor(devices_.at(device).executor);
  }
  // Returns the distinct executors of these devices, in the order of the devices.
  std::vector<std::string> ExecutorsOf(const std::vector<int64_t>& devices) const;
  // Returns whether the executor's devices take no new programs: its worker is cordoned, or its
  // device has a fault.
  bool IsCordoned(const Executor& x) const { return worker(x.worker).cordoned || x.has_fault(); }
  bool IsCordoned(int64_t device) const { return IsCordoned(ExecutorOf(device)); }
  // Returns NOT_ENOUGH_DEVICES if a device does not exist. The error names the first such device.
  absl::Status CheckDevicesExist(const std::vector<int64_t>& devices) const;
  // Describes the first executor that is lost or away: "executor w0/0 of worker w0 is lost (its
  // connection ended)". Returns "" when all are alive.
  std::string DescribeFirstLost(const std::vector<std::string>& executors) const;
  // Returns whether an executor of the worker is away.
  bool AnyAway(const Worker& worker) const;
  // The number of executors that are away.
  int64_t num_away() const { return num_away_; }

  // Returns the worker of a live connection, or null when the connection has ended.
  const std::string* WorkerOf(uint64_t registration_id) const {
    return FindIn(registrations_, registration_id);
  }
  // Adds a worker of an earlier life. Call it before any worker connects.
  void RestoreWorker(const std::string& name, Worker worker);
  // Adds an executor of an earlier life, and its worker if that is not known. Unless the executor
  // was lost, it is away until `away_until`. Call it in the order of the executors' device ids; ids
  // between those of two executors belong to deleted workers. Requires: the ids of its devices are
  // not assigned yet.
  void RestoreExecutor(Executor executor, absl::Time away_until);
  // Assigns all device ids below `ids` that are not assigned yet, as ids of deleted devices.
  void RestoreIds(int64_t ids);
  // Records that the executor is back with the arrays and programs that it held. Requires: its
  // worker is connected.
  void Adopt(Executor& executor);
  // Marks the executor as away: it is not alive, and may come back before `until`. If it is away
  // already, only its time changes.
  void BeginAway(Executor& executor, absl::Time until);
  // Ends the absence of the executor: it is back, or will not come back.
  void EndAway(Executor& executor);
  // Records that the worker is connected, under `registration_id`. Adds the worker if it is
  // unknown.
  Worker& Connect(const std::string& worker, uint64_t registration_id);
  // Ends the worker's connection, after which none of its executors is alive. Returns the names of
  // the executors that were.
  std::vector<std::string> Disconnect(const std::string& worker, const std::string& reason);
  // Ends the executor's own connection. It is not alive any more.
  static void DisconnectExecutor(Executor& executor, const std::string& reason);
  // Records that an executor has registered, perhaps not for the first time. Returns whether it was
  // unknown.
  bool RegisterExecutor(const std::string& worker, const std::string& host,
                        const api::ExecutorInfo& info);
  // Limits the memory of all CPU executors of a host together to the memory of the host.
  void ShareMemory(const std::string& host);
  // Returns false if the worker was draining already.
  bool Drain(const std::string& worker) {
    workers_.at(worker).draining = true;
    return draining_.insert(worker).second;
  }
  // Returns false if the worker was not draining.
  bool EndDrain(const std::string& worker) {
    workers_.at(worker).draining = false;
    return draining_.erase(worker) > 0;
  }
  // Invalidates the ids of the executor's devices. Requires: it is not alive.
  void RemoveExecutor(const std::string& name);
  // Requires: the worker has no executors.
  void RemoveWorker(const std::string& name);

 private:
  // Gives the id `device` to the placeholder executor. If `device` is nullopt, gives the next
  // unassigned id to the placeholder.
  void DeleteDevice(std::optional<int64_t> device);

  std::map<std::string, Worker> workers_;
  // The registration id of a connected worker -> the worker's name.
  std::map<uint64_t, std::string> registrations_;
  std::map<std::string, Executor> executors_;
  // A cache of the executor that was looked up last: a step looks up the same executor many times.
  // A copy of a Cluster has executors of its own, so its cache starts empty.
  struct LookupCache {
    LookupCache() = default;
    LookupCache(const LookupCache& /*other*/) {}
    LookupCache& operator=(const LookupCache& /*other*/) {
      executor = nullptr;
      return *this;
    }
    Executor* executor = nullptr;
  };
  LookupCache cache_;
  std::vector<Device> devices_;  // indexed by device id
  int64_t devices_deleted_ = 0;  // number of ids in devices_ whose device was deleted
  int64_t num_away_ = 0;
  std::set<std::string> draining_;
};

// Returns the name of an executor, for example "w0/1".
std::string ExecutorName(const std::string& worker, int32_t index);

}  // namespace tessera::server::scheduler
