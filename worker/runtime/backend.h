// The interface between the executor and one kind of devices, CPUs or GPUs.
//
// A backend owns the devices of one executor. It compiles device programs to executables and
// enqueues them on the devices; the executor owns everything else: order, buffers, quotas,
// failures.
//
// Every device has one dispatch stream. Enqueue is called by one thread at a time for a device, in
// the order of the plan: the stream's own, or, for a quick executable, one that has claimed the
// stream (stream.h). It may return before the work has run: work that is enqueued later on the same
// device may use the results at once, and others once the event is done. The events of a device are
// done in the order of its Enqueues; those of a synchronous backend are null. The backend outlives
// its executables, buffers and events. All other calls are thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/host_memory.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/op_kinds.h"
#include "ir/program.h"
#include "worker/collectives/collectives.h"
#include "worker/memory/device_buffer.h"
#include "worker/runtime/cancel.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

// The end of enqueued work.
class Event {
 public:
  virtual ~Event() = default;
  // Calls `done` once, possibly at once, on any thread, with the status of the ended work.
  virtual void OnDone(std::function<void(const absl::Status&)> done) = 0;
};

// The run of a launch on one device.
struct RunContext {
  uint64_t launch = 0;
  std::string_view program;
  int device = 0;           // local
  int64_t mesh_device = 0;  // this device's row-major index in the mesh
  // Null for programs without collectives. `ranks`: the rank of each mesh device. `generation`: of
  // the communicator, 0 for one among the executor's own devices.
  Collectives* collectives = nullptr;
  uint64_t generation = 0;
  absl::Span<const int> ranks;
  // From Backend::ChooseDonations for these arguments; empty: none.
  absl::Span<const int> donations;
  const CancelToken* cancel = nullptr;
  InFlightQueue::Launch* in_flight = nullptr;  // Null: the op in flight is not recorded.

  void SetOp(std::string_view label, bool waiting) const {
    if (in_flight != nullptr) in_flight->SetOp(label, waiting);
  }
  // The ranks of this device's group along `axes`, in the order of Mesh::GroupOf.
  std::vector<int> GroupRanks(const ir::Mesh& mesh, absl::Span<const std::string> axes) const {
    std::vector<int> group;
    for (const int64_t member : mesh.GroupOf(mesh_device, axes)) group.push_back(ranks.at(member));
    return group;
  }
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Peak per device while it runs: arguments, results and scratch.
  virtual int64_t memory_bytes() const = 0;
  virtual bool has_collectives() const = 0;
  // Whether it takes only microseconds, so that a context switch would cost more.
  virtual bool quick() const = 0;
  // Whether Enqueue ends within some ten milliseconds, waiting for nobody, so that a thread which
  // is about to wait for it may run it.
  virtual bool brief() const { return quick(); }
};

// The results of Enqueue, in the program's order, and the event of their completion. The errors of
// Enqueue and of the event name the op and its source location.
struct Enqueued {
  absl::InlinedVector<DeviceBufferRef, 2> results;
  std::unique_ptr<Event> event;  // null: the work has ended, without an error
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view device_kind() const = 0;  // "cpu", "gpu"
  virtual int num_devices() const = 0;
  virtual int64_t memory_bytes() const = 0;  // per device
  // Of a device while all of them work, as measured once in the process; blocking.
  struct Speed {
    double flops_per_second = 0;         // f32
    double memory_bytes_per_second = 0;  // read and written
  };
  virtual Speed speed() const { return {}; }

  // Kinds of ops that this backend compiles; the reference evaluator runs the others.
  virtual absl::Span<const ir::Lowering> lowerings() const = 0;

  // `program` is the program of each device, on shards. Not referred to after the call. What is
  // compiled, and the processes that compile it, are the tenant's alone.
  virtual absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) = 0;
  // Where there is one tenant.
  absl::StatusOr<std::shared_ptr<const Executable>> Compile(const ir::Program& program) {
    return CompileFor("", program);
  }

  // Input-output aliases: for each result of a launch with these arguments, the argument whose
  // memory it reuses, or -1. `donated` are the arguments that only work enqueued earlier on the
  // device may still use; the choice leaves out those that share their memory with another array.
  virtual std::vector<int> ChooseDonations(const Executable&, absl::Span<const DeviceBufferRef>,
                                           std::vector<bool> donated) const {
    static_cast<void>(donated);
    return {};
  }

  // Requires: `args` match the program's params in number; their types are checked. What `context`
  // points to stays valid until the event is done.
  virtual absl::StatusOr<Enqueued> Enqueue(const Executable& executable, const RunContext& context,
                                           absl::Span<const DeviceBufferRef> args) = 0;

  // No further launch uses this communicator's generation.
  virtual void CloseGeneration(uint64_t) {}

  // Uninitialised memory for a shard to upload, best suited for FromHost.
  virtual std::shared_ptr<std::byte[]> NewShardMemory(int64_t bytes) {
    return NewHostMemory(bytes);
  }
  // Copies, unordered: the buffers must be ready. Blocking.
  virtual absl::StatusOr<DeviceBufferRef> FromHost(int device, ir::Array value) = 0;
  virtual absl::StatusOr<ir::Array> ToHost(const DeviceBuffer& buffer) = 0;
};

}  // namespace tessera::worker
