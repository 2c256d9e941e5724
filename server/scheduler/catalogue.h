// The part of the state that holds the things that requests name by id or by name: arrays,
// executables and named meshes.
//
// Invariants:
// - Every executable except plan-only ones is found by its key, and keys are unique.
// - num_plans() counts the plans that were requested and are not finished, whether or not their
//   executable still exists.
// - An array's `unscheduled_readers` and `readers` are ids of operations in Order (order.h) that
//   have not ended.
// - While an array is scheduled, written or ready, its holders are processes that are alive or
//   away, and each of its shards has one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/scheduler/find.h"
#include "server/scheduler/id_set.h"
#include "server/scheduler/record_list.h"

namespace tessera::server::scheduler {

// kWriting: an upload or a load writes the array's shards. kPlanned: the operation that produces
// the array has no sequence number yet. kScheduled: the operation has one.
enum class ArrayState : uint8_t { kWriting, kPlanned, kScheduled, kReady, kFailed, kLost };
// The spec of a result of a program is shared by all runs of the program.
using SpecRef = std::shared_ptr<const api::ArraySpec>;
struct ArrayRecord {
  SpecRef spec;
  std::string tenant;
  uint64_t session = 0;  // key of the session in Ownership; the session may have ended
  ArrayState state = ArrayState::kWriting;
  // The reason for kFailed and kLost. Arrays that were lost with the same shards of one executor
  // share one error, which names none of them: "lost with its shards on ...". Machine::ErrorOf
  // makes a sentence about one array of it.
  absl::Status error;
  // Device id -> incarnation of its executor, set once scheduled. A device that has lost its shard
  // is no holder any more.
  IdMap<uint64_t> holders;
  std::set<int64_t> unwritten;  // ids of devices whose shard is not written yet, while kWriting
  IdSet unscheduled_readers;    // operations that read the array and are not scheduled yet
  IdSet readers;                // operations that read the array and have not ended
  IdSet waiters;                // requests that wait for the array
  bool deleted = false;         // whether it is deleted or donated; later requests do not find it
  bool freed = false;           // whether its buffers are being deleted
  absl::Time upload_until = absl::InfiniteFuture();  // end of the upload, while kWriting
  uint64_t donated_to = 0;                           // operation that the array is donated to
};

// The arrays, and which of them have shards on each device.
class ArrayTable {
 public:
  using Entry = RecordList<ArrayRecord>::Entry;

  ArrayTable() = default;
  ArrayTable(ArrayTable&&) = default;
  ArrayTable& operator=(ArrayTable&&) = default;
  // The lists of arrays in the copy (on_device_) point to the records of the copy.
  ArrayTable(const ArrayTable& other);
  ArrayTable& operator=(const ArrayTable& other) { return *this = ArrayTable(other); }

  const std::map<uint64_t, ArrayRecord>& all() const { return arrays_; }
  ArrayRecord* Find(uint64_t id) { return FindIn(arrays_, id); }
  // Requires: the array exists.
  ArrayRecord& at(uint64_t id) { return arrays_.at(id); }
  // Adds a record in which only the spec is set. Requires: the ids of the devices in the spec are
  // assigned.
  ArrayRecord& Add(uint64_t id, SpecRef spec);
  void Remove(uint64_t id);
  // Returns the arrays whose placement has the device, whatever their state, in order of their ids.
  // The list is valid until an array is added or removed.
  const std::vector<Entry>& ArraysOn(int64_t device) { return ListOfDevice(device).entries(); }
  // Returns the number of arrays that ArraysOn returns.
  size_t NumArraysOn(int64_t device) const {
    return static_cast<size_t>(device) < on_device_.size() ? on_device_[device].size() : 0;
  }

 private:
  RecordList<ArrayRecord>& ListOfDevice(int64_t device);
  void AddToLists(uint64_t id, ArrayRecord& record);

  std::map<uint64_t, ArrayRecord> arrays_;
  std::vector<RecordList<ArrayRecord>> on_device_;  // indexed by device id
};

enum class ExecutableState : uint8_t { kPlanning, kPlanned, kFailed };
struct Executable {
  std::string key, name, tenant;
  bool plan_only = false;  // whether the executable is dropped once the plan is returned
  // If positive, the executable is planned for absent devices with this much memory each.
  int64_t absent_device_memory_bytes = 0;
  ExecutableState state = ExecutableState::kPlanning;
  absl::Status error;
  std::vector<int64_t> devices;  // device per mesh coordinate
  std::shared_ptr<const core::Plan> plan;
  api::CompileReply reply;
  std::vector<SpecRef> result_specs;  // the specs in reply.out
  std::vector<std::string> members;   // executors, in the order of their first coordinate
  std::vector<api::LoadProgram::Coordinate> coordinates;
  std::map<std::string, uint64_t> sent_to;  // executor -> incarnation that the program was sent to
  std::map<std::string, uint64_t> loaded_on;  // executor -> incarnation that has compiled it
  IdSet waiters;                              // Compile requests that wait for the executable
  IdSet operations;                           // operations that have not ended
  uint64_t last_use = 0;  // number of the last use; later uses have greater ones
  // Duration of the last run that ended well, on its slowest executor; 0 if there was none since
  // this start of the coordinator.
  absl::Duration last_run;
};

struct NamedMesh {
  ir::Mesh mesh;
  std::vector<int64_t> devices;
};

class Catalogue {
 public:
  using MeshKey = std::pair<std::string, std::string>;  // (tenant, name)

  const std::map<uint64_t, ArrayRecord>& arrays() const { return arrays_.all(); }
  int64_t num_arrays() const { return static_cast<int64_t>(arrays_.all().size()); }
  size_t NumArraysOn(int64_t device) const { return arrays_.NumArraysOn(device); }
  ArrayRecord* FindArray(uint64_t id) { return arrays_.Find(id); }
  // Requires: the array exists.
  ArrayRecord& array(uint64_t id) { return arrays_.at(id); }
  // These three functions behave like Add, Remove and ArraysOn of ArrayTable.
  ArrayRecord& AddArray(uint64_t id, SpecRef spec) { return arrays_.Add(id, std::move(spec)); }
  void RemoveArray(uint64_t id) { arrays_.Remove(id); }
  const std::vector<ArrayTable::Entry>& ArraysOn(int64_t device) {
    return arrays_.ArraysOn(device);
  }

  const std::map<uint64_t, Executable>& executables() const { return executables_; }
  int64_t num_plans() const { return num_plans_; }
  Executable* FindExecutable(uint64_t id) { return FindIn(executables_, id); }
  // Returns 0 if there is no executable with this key.
  uint64_t ExecutableIdOf(const std::string& key) const;
  int64_t num_keys() const { return static_cast<int64_t>(id_of_key_.size()); }
  // Requires: the executable exists.
  Executable& executable(uint64_t id) { return executables_.at(id); }
  // Adds an executable without a plan, and counts the plan as requested.
  Executable& AddExecutable(uint64_t id);
  void SetKey(uint64_t id, const std::string& key);
  // Adds an executable of an earlier life, with its plan.
  void RestoreExecutable(uint64_t id, Executable executable);
  // Marks the executable as the most recently used.
  void Touch(Executable& executable) { executable.last_use = ++uses_; }
  void EndPlan() { --num_plans_; }
  void RemoveExecutable(uint64_t id);
  // Returns the least recently used executable without operations and waiters, or 0 if there is
  // none.
  uint64_t OldestUnused() const;
  // Records that an executor has lost its compiled programs. Returns the operations of the
  // executables that were sent to this executor.
  std::vector<uint64_t> MarkUnloaded(const std::string& executor);

  const std::map<MeshKey, NamedMesh>& meshes() const { return meshes_; }
  void AddMesh(const MeshKey& key, NamedMesh mesh) { meshes_[key] = std::move(mesh); }
  void RemoveMesh(const MeshKey& key) { meshes_.erase(key); }

 private:
  ArrayTable arrays_;
  std::map<uint64_t, Executable> executables_;
  std::map<std::string, uint64_t> id_of_key_;  // key -> id
  int64_t num_plans_ = 0;
  uint64_t uses_ = 0;
  std::map<MeshKey, NamedMesh> meshes_;
};

}  // namespace tessera::server::scheduler
