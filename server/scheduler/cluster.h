// The part of the state about machines: workers, executors, devices.
//
// Invariants:
// - A worker is connected (session != 0) exactly while its registration is here, and an executor
//   that is alive has the session of its worker.
// - Ids of devices are dense and never reused.  The ids of a deleted worker's devices belong to a
//   placeholder executor that is never alive: its name and its worker's is "".
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
  uint64_t session = 0;  // of its worker's connection; 0: it is lost
  api::ExecutorInfo info;
  int64_t first_device = 0;  // ids are first_device + local device
  std::string lost_reason;   // when it is lost or away
  // Not alive, since its worker is silent or the coordinator has restarted; until then it may come
  // back with what it holds.
  bool away = false;
  absl::Time away_until = absl::InfinitePast();
  bool adopted = false;             // its process came back to this life with what it holds
  std::vector<uint64_t> came_with;  // communicators that it had when it came back
  uint64_t reports_before = 0;      // the number of its last report then
  int64_t memory_bytes = 0;         // per device: as reported, or its share of its host's
  // For health: launches that succeeded, those of them with collectives, and the last reported
  // progress.
  int64_t ended = 0, ended_collectives = 0;
  absl::Duration progress_age;
  api::Heartbeat::Executor seen;  // from its worker's last heartbeat
  // As its exchanges have shown: among its devices, and with other executors.
  core::LinkFigures in_executor, between_executors;
  // Operations that were sent to it and whose end it has not acknowledged, whether or not they have
  // ended for their clients: sequence -> id.
  IdMap<uint64_t> running;
  // The newest place in the order of what it was sent, as far as this life knows.
  uint64_t newest = 0;
  // The waiter that timed out for it; it is killed if it does not reply to its worker either.
  std::string overdue_for;
  bool alive() const { return session != 0; }
};
struct Worker {
  uint64_t session = 0;  // of its connection; 0: it is lost
  absl::Time last_seen;
  std::vector<std::string> executors;
  std::string host;
  int64_t host_memory_bytes = 0;  // as the worker reported
  Build build;                    // as the worker registered; not kept over restarts
  std::string lost_reason;        // when it is lost
  bool cordoned = false;          // takes no new programs
  std::string cordon_reason;
  bool draining = false;
  IdSet drains;  // Drain requests that wait until nothing runs there
};
struct Device {
  std::string executor;
  int32_t local = 0;
};

class Cluster {
 public:
  const std::map<std::string, Worker>& workers() const { return workers_; }
  const std::map<std::string, Executor>& executors() const { return executors_; }
  // Cordoned workers on which no operation starts.
  const std::set<std::string>& draining() const { return draining_; }
  bool IsDraining(const std::string& worker) const { return workers_.at(worker).draining; }

  // Null if it is unknown. The placeholder is never found.
  Worker* FindWorker(const std::string& name) {
    return name.empty() ? nullptr : FindIn(workers_, name);
  }
  Executor* FindExecutor(const std::string& name) { return FindIn(executors_, name); }
  // Require: it is known.
  Worker& worker(const std::string& name) { return workers_.at(name); }
  const Worker& worker(const std::string& name) const { return workers_.at(name); }
  Executor& executor(const std::string& name) {
    if (last_.executor == nullptr || last_.executor->name != name)
      last_.executor = &executors_.at(name);
    return *last_.executor;
  }
  const Executor& executor(const std::string& name) const {
    return last_.executor != nullptr && last_.executor->name == name ? *last_.executor
                                                                     : executors_.at(name);
  }

  // The assigned ids, in order from 0, and their devices.
  int64_t num_ids() const { return static_cast<int64_t>(devices_.size()); }
  int64_t num_devices() const { return num_ids() - devices_deleted_; }
  const Device& device(int64_t id) const { return devices_[id]; }
  bool DeviceExists(int64_t id) const;
  // Requires: the id is assigned.
  Executor& ExecutorOf(int64_t device) { return executor(devices_.at(device).executor); }
  const Executor& ExecutorOf(int64_t device) const {
    return executor(devices_.at(device).executor);
  }
  // The distinct executors, in order of the devices.
  std::vector<std::string> ExecutorsOf(const std::vector<int64_t>& devices) const;
  bool IsCordoned(int64_t device) const { return worker(ExecutorOf(device).worker).cordoned; }
  // NOT_ENOUGH_DEVICES, with the first device that does not exist.
  absl::Status CheckDevices(const std::vector<int64_t>& devices) const;
  // "executor w0/0 of worker w0 is lost (its connection ended)", or away; "" when all are alive.
  std::string FirstLost(const std::vector<std::string>& executors) const;
  // Whether an executor of the worker is away.
  bool AnyAway(const Worker& worker) const;
  // How many executors are away.
  int64_t num_away() const { return num_away_; }

  // The worker of a live connection; null when it has ended.
  const std::string* WorkerOf(uint64_t session) const { return FindIn(registrations_, session); }
  // Of earlier lives, before any worker connects.
  void RestoreWorker(const std::string& name, Worker worker);
  // Its worker is known from now on, and it is away until then unless it was lost. Called in order
  // of device; ids between are of deleted workers. Requires: its devices have ids that are not
  // assigned yet.
  void RestoreExecutor(Executor executor, absl::Time away_until);
  // The ids below this are assigned.
  void RestoreIds(int64_t ids);
  // It is back with what it holds. Requires: its worker is connected.
  void Adopt(Executor& executor);
  // It is not alive, and may come back until then.
  void BeginAway(Executor& executor, absl::Time until);
  // It is back, or will not come back.
  void EndAway(Executor& executor);
  Worker& Connect(const std::string& worker, uint64_t session);
  // Marks its executors as lost; returns those that were alive.
  std::vector<std::string> Disconnect(const std::string& worker, const std::string& reason);
  // An executor has registered, perhaps again.  Returns whether it was unknown.
  bool ExecutorUp(const std::string& worker, const std::string& host,
                  const api::ExecutorInfo& info);
  // Limits the memory of a host's executors to what the host has.
  void ShareMemory(const std::string& host);
  // Returns false if it was draining already.
  bool Drain(const std::string& worker) {
    workers_.at(worker).draining = true;
    return draining_.insert(worker).second;
  }
  bool EndDrain(const std::string& worker) {
    workers_.at(worker).draining = false;
    return draining_.erase(worker) > 0;
  }
  // Invalidates its devices' ids.  Requires: it is not alive.
  void RemoveExecutor(const std::string& name);
  // Requires: it has no executors.
  void RemoveWorker(const std::string& name);

 private:
  // Assigns the id of a device, or the next id, to the placeholder.
  void DeleteDevice(std::optional<int64_t> device);

  std::map<std::string, Worker> workers_;
  std::map<uint64_t, std::string> registrations_;  // sessions of connected workers -> worker
  std::map<std::string, Executor> executors_;
  // The one that was asked for last: a step asks for the same again and again. A copy has others.
  struct Last {
    Last() = default;
    Last(const Last& /*other*/) {}
    Last& operator=(const Last& /*other*/) {
      executor = nullptr;
      return *this;
    }
    Executor* executor = nullptr;
  };
  Last last_;
  std::vector<Device> devices_;  // by id
  int64_t devices_deleted_ = 0;  // of these
  int64_t num_away_ = 0;
  std::set<std::string> draining_;
};

// "w0/1"
std::string ExecutorName(const std::string& worker, int32_t index);

}  // namespace tessera::server::scheduler
