// The part of the state with what requests can name: arrays, executables, meshes.
//
// Invariants:
// - Every executable but plan-only ones is found by its key, and keys are unique.
// - plans() counts the plans that were requested and are not finished, whether or not their
//   executable still exists.
// - An array's waiting and readers are operations of the order that have not ended.
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

// kPlanned: its producer has no sequence number yet.  kScheduled: it has.
enum class ArrayState : uint8_t { kWriting, kPlanned, kScheduled, kReady, kFailed, kLost };
// Of the results of a program: the same for every run.
using SpecRef = std::shared_ptr<const api::ArraySpec>;
struct ArrayRecord {
  SpecRef spec;
  std::string tenant;
  uint64_t session = 0;  // its key in Ownership; it may have ended
  ArrayState state = ArrayState::kWriting;
  // kFailed, kLost. All that an executor's loss has lost share theirs, which names none of them:
  // "lost with its shards on ..."; Machine::ErrorOf makes a sentence of it.
  absl::Status error;
  IdMap<uint64_t> holders;      // device id -> incarnation of its executor, once scheduled
  std::set<int64_t> unwritten;  // device ids, kWriting
  IdSet waiting;                // operations that read it and are not scheduled yet
  IdSet readers;                // operations that read it and have not ended
  IdSet waiters;                // requests
  bool deleted = false;         // by the client; later requests do not find it
  bool freed = false;           // its buffers are being deleted
  absl::Time upload_until = absl::InfiniteFuture();  // kWriting
  uint64_t donated_to = 0;                           // operation
};

// The arrays, and which of them have shards on each device.
class ArrayTable {
 public:
  using Entry = RecordList<ArrayRecord>::Entry;

  ArrayTable() = default;
  ArrayTable(ArrayTable&&) = default;
  ArrayTable& operator=(ArrayTable&&) = default;
  // The lists of the copy are of its own records.
  ArrayTable(const ArrayTable& other);
  ArrayTable& operator=(const ArrayTable& other) { return *this = ArrayTable(other); }

  const std::map<uint64_t, ArrayRecord>& all() const { return arrays_; }
  ArrayRecord* Find(uint64_t id) { return FindIn(arrays_, id); }
  // Requires: it exists.
  ArrayRecord& at(uint64_t id) { return arrays_.at(id); }
  // A record with this spec alone. Requires: its devices have ids.
  ArrayRecord& Add(uint64_t id, SpecRef spec);
  void Remove(uint64_t id);
  // Those whose placement has the device, whatever their state, in order of their ids. Valid until
  // one is added or removed.
  const std::vector<Entry>& On(int64_t device) { return OnDevice(device).entries(); }
  // Their number.
  size_t NumOn(int64_t device) const {
    return static_cast<size_t>(device) < on_device_.size() ? on_device_[device].size() : 0;
  }

 private:
  RecordList<ArrayRecord>& OnDevice(int64_t device);
  void List(uint64_t id, ArrayRecord& record);

  std::map<uint64_t, ArrayRecord> arrays_;
  std::vector<RecordList<ArrayRecord>> on_device_;  // by device
};

enum class ExecutableState : uint8_t { kPlanning, kPlanned, kFailed };
struct Executable {
  std::string key, name, tenant;
  bool plan_only = false;                 // dropped once the plan is returned
  int64_t hypothetical_memory_bytes = 0;  // > 0: planned for absent devices with this much each
  ExecutableState state = ExecutableState::kPlanning;
  absl::Status error;
  std::vector<int64_t> devices;  // per mesh coordinate
  std::shared_ptr<const core::Plan> plan;
  api::CompileReply reply;
  std::vector<SpecRef> out;          // of reply.out
  std::vector<std::string> members;  // executors, in order of first coordinate
  std::vector<api::LoadProgram::Coordinate> coordinates;
  std::map<std::string, uint64_t> sent;    // executor -> incarnation it was sent to
  std::map<std::string, uint64_t> loaded;  // executor -> incarnation that has compiled it
  IdSet waiters;                           // Compile requests
  IdSet operations;                        // not ended
  uint64_t last_use = 0;                   // grows with every use
  // On the slowest of its executors, of the run that ended well last; 0: none since this start.
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
  size_t NumArraysOn(int64_t device) const { return arrays_.NumOn(device); }
  ArrayRecord* FindArray(uint64_t id) { return arrays_.Find(id); }
  // Requires: it exists.
  ArrayRecord& array(uint64_t id) { return arrays_.at(id); }
  // As those of ArrayTable.
  ArrayRecord& AddArray(uint64_t id, SpecRef spec) { return arrays_.Add(id, std::move(spec)); }
  void RemoveArray(uint64_t id) { arrays_.Remove(id); }
  const std::vector<ArrayTable::Entry>& ArraysOn(int64_t device) { return arrays_.On(device); }

  const std::map<uint64_t, Executable>& executables() const { return executables_; }
  int64_t plans() const { return plans_; }
  Executable* FindExecutable(uint64_t id) { return FindIn(executables_, id); }
  // 0: none.
  uint64_t ExecutableOf(const std::string& key) const;
  int64_t num_keys() const { return static_cast<int64_t>(executable_of_.size()); }
  // Requires: it exists.
  Executable& executable(uint64_t id) { return executables_.at(id); }
  // Adds one without a plan, and counts the plan.
  Executable& AddExecutable(uint64_t id);
  void SetKey(uint64_t id, const std::string& key);
  // One of an earlier life, with its plan.
  void RestoreExecutable(uint64_t id, Executable executable);
  // Marks it as the most recently used.
  void Touch(Executable& executable) { executable.last_use = ++uses_; }
  void EndPlan() { --plans_; }
  void RemoveExecutable(uint64_t id);
  // The least recently used one without operations and waiters; 0: none.
  uint64_t OldestUnused() const;
  // An executor has lost its compiled programs.  Returns the operations of those sent to it.
  std::vector<uint64_t> Unload(const std::string& executor);

  const std::map<MeshKey, NamedMesh>& meshes() const { return meshes_; }
  void AddMesh(const MeshKey& key, NamedMesh mesh) { meshes_[key] = std::move(mesh); }
  void RemoveMesh(const MeshKey& key) { meshes_.erase(key); }

 private:
  ArrayTable arrays_;
  std::map<uint64_t, Executable> executables_;
  std::map<std::string, uint64_t> executable_of_;  // by key
  int64_t plans_ = 0;
  uint64_t uses_ = 0;
  std::map<MeshKey, NamedMesh> meshes_;
};

}  // namespace tessera::server::scheduler
