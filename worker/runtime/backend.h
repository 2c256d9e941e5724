// The interface between the executor and one kind of devices, CPUs or GPUs.
//
// A backend owns the devices of one executor. It compiles device programs to executables and
// enqueues them on the devices. The executor owns everything else: order, buffers, quotas and
// failures.
//
// Every device has one dispatch stream. One thread at a time calls Enqueue for a device, in the
// order of the launches: the stream's own thread or, for a quick or brief executable, another
// thread that runs the task in its place (stream.h). Enqueue may return before the work has run.
// Work that is enqueued later on the same device may use the results at once, and other users must
// wait for the event. The events of a device are done in the order of its Enqueues; the events of a
// synchronous backend are null. The backend outlives its executables, buffers and events. All other
// calls are thread-safe.
#pragma once
#include <algorithm>
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
#include "base/status.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/op_kinds.h"
#include "ir/program.h"
#include "ir/strided.h"
#include "worker/collectives/collectives.h"
#include "worker/memory/device_buffer.h"
#include "worker/memory/memory_account.h"
#include "worker/runtime/cancel.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

// The memory of one launch on one device, without its arguments. Backend::ReserveMemory makes it.
class LaunchMemory {
 public:
  virtual ~LaunchMemory() = default;
};

// Tells when enqueued work has ended.
class Event {
 public:
  virtual ~Event() = default;
  // Calls `done` once, possibly at once, on any thread, with the status of the work.
  virtual void OnDone(std::function<void(const absl::Status&)> done) = 0;
};

// The run of a launch on one device.
struct RunContext {
  uint64_t launch = 0;
  std::string_view program;
  std::string_view tenant;  // the tenant for whom the program was compiled
  int device = 0;           // index of the device in the executor
  int64_t mesh_device = 0;  // this device's row-major index in the mesh
  // The collectives, which are null for programs that have none. `ranks` is the rank of each mesh
  // device. `generation` is the generation of the communicator, or 0 for a communicator among the
  // executor's own devices.
  Collectives* collectives = nullptr;
  uint64_t generation = 0;
  absl::Span<const int> ranks;
  // The result of Backend::ChooseDonations for these arguments. Empty if no result reuses memory.
  absl::Span<const int> donations;
  // The result of Backend::ReserveMemory for this launch. If it is null, Enqueue reserves memory.
  const LaunchMemory* memory = nullptr;
  const CancelToken* cancel = nullptr;
  InFlightQueue::Launch* in_flight = nullptr;  // null if the op in flight is not recorded

  void SetOp(std::string_view label, bool waiting) const {
    if (in_flight != nullptr) in_flight->SetOp(label, waiting);
  }
  // Returns the ranks of this device's group along `axes`, in the order of Mesh::GroupOf.
  std::vector<int> GroupRanks(const ir::Mesh& mesh, absl::Span<const std::string> axes) const {
    std::vector<int> group;
    for (const int64_t member : mesh.GroupOf(mesh_device, axes)) group.push_back(ranks.at(member));
    return group;
  }
};

class Executable {
 public:
  virtual ~Executable() = default;
  // The peak memory on each device while it runs: arguments, results and scratch.
  virtual int64_t memory_bytes() const = 0;
  virtual bool has_collectives() const = 0;
  // Returns whether a run takes only microseconds, so that a context switch would cost more than
  // the run.
  virtual bool quick() const = 0;
  // Returns whether Enqueue ends within about ten milliseconds and waits for nobody. A thread that
  // is about to wait for the run may then run it itself.
  virtual bool brief() const { return quick(); }
};

// The results of Enqueue, in the program's order, and the event of their completion. The errors of
// Enqueue and of the event name the op and its call site.
struct Enqueued {
  absl::InlinedVector<DeviceBufferRef, 2> results;
  std::unique_ptr<Event> event;  // null if the work has ended without an error
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view device_kind() const = 0;  // "cpu" or "gpu"
  virtual int num_devices() const = 0;
  virtual int64_t memory_bytes() const = 0;  // per device
  // The speed of one device while all devices work. It is measured once per process, and the call
  // blocks until it has been measured. A figure of 0 is unknown.
  struct Speed {
    double flops_per_second = 0;         // operations on f32
    double memory_bytes_per_second = 0;  // bytes read and written
  };
  virtual Speed speed() const { return {}; }

  // The kinds of ops that this backend compiles. The reference evaluator runs the others.
  virtual absl::Span<const ir::Lowering> lowerings() const = 0;

  // Compiles `program`, a device program, which is not used after the call. The compiled code and
  // the processes that compile it are used for this tenant only.
  virtual absl::StatusOr<std::shared_ptr<const Executable>> CompileFor(
      const std::string& tenant, const ir::Program& program) = 0;
  // Compiles where there is only one tenant, which then needs no name.
  absl::StatusOr<std::shared_ptr<const Executable>> Compile(const ir::Program& program) {
    return CompileFor("", program);
  }

  // Chooses input-output aliases: for each result of a launch with these arguments, the argument
  // whose memory it reuses, or -1. `donated` says which arguments can only be used by work that was
  // enqueued earlier on the device. The choice leaves out arguments that share their memory with
  // another array.
  virtual std::vector<int> ChooseDonations(const Executable&, absl::Span<const DeviceBufferRef>,
                                           std::vector<bool> donated) const {
    static_cast<void>(donated);
    return {};
  }

  // Memory has two owners: the executor, which counts it in an account per device, and the backend,
  // which allocates it. The account never has less than is allocated, so what fits into the account
  // fits into the device, unless the free memory is in pieces.
  //
  // Names the account of a device. The backend reserves there what belongs to no launch and to no
  // array: constants, and scratch memory that launches share. Called once for each device, before
  // everything else. The account outlives the backend.
  virtual void SetAccount(int device, MemoryAccount* account) {
    static_cast<void>(device), static_cast<void>(account);
  }
  // Returns how many bytes of a device's memory an array of this size takes.
  virtual int64_t AllocationBytes(int64_t array_bytes) const { return array_bytes; }
  // Returns how many bytes a launch needs beside its arguments, and beside memory that launches
  // share. `donations` is the result of ChooseDonations, or empty.
  virtual int64_t LaunchBytes(const Executable& executable, absl::Span<const DeviceBufferRef> args,
                              absl::Span<const int> donations) const {
    int64_t bytes = executable.memory_bytes();
    for (const DeviceBufferRef& arg : args) bytes -= arg->num_bytes();
    // A result uses the memory of a donated argument, too.
    for (const int arg : donations) bytes -= arg >= 0 ? args[arg]->num_bytes() : 0;
    return std::max<int64_t>(bytes, 0);
  }
  // Allocates what LaunchBytes counts, and the memory that launches share. Returns null if Enqueue
  // allocates it. Called after the bytes have been reserved in the account, by the thread that
  // calls Enqueue. Returns OUT_OF_MEMORY if the memory is not free, or not free in one piece. The
  // call may then succeed once earlier launches have ended.
  virtual absl::StatusOr<std::unique_ptr<LaunchMemory>> ReserveMemory(
      const Executable&, absl::Span<const DeviceBufferRef> args, absl::Span<const int> donations) {
    static_cast<void>(args), static_cast<void>(donations);
    return nullptr;
  }
  // Gives back memory that launches share, unless one of them uses it. Returns whether any was
  // given back.
  virtual bool GiveBackSharedMemory(int device) {
    static_cast<void>(device);
    return false;
  }

  // Requires that `args` match the program's params in number and type. The objects to which
  // `context` points stay valid until the event is done.
  virtual absl::StatusOr<Enqueued> Enqueue(const Executable& executable, const RunContext& context,
                                           absl::Span<const DeviceBufferRef> args) = 0;

  // Says that a launch will not be enqueued on the device, although other executors of its
  // communicator may have enqueued it. Called instead of Enqueue, by the thread that would call it.
  // `executable` is null if it is not known. The context has the generation and, if the executable
  // is known, `ranks` and `mesh_device`.
  virtual void Skip(const Executable*, const RunContext&) {}

  // Called when no further launch uses this generation of the communicator.
  virtual void CloseGeneration(uint64_t) {}

  // Returns uninitialised memory for the upload of a shard, in the kind of memory that suits
  // FromHost best.
  virtual std::shared_ptr<std::byte[]> NewShardMemory(int64_t bytes) {
    return NewHostMemory(bytes);
  }
  // Copies a shard to or from a device. The copies are not ordered with enqueued work, so the
  // buffers must be ready. Blocking.
  virtual absl::StatusOr<DeviceBufferRef> FromHost(int device, ir::Array value) = 0;
  virtual absl::StatusOr<ir::Array> ToHost(const DeviceBuffer& buffer) = 0;
  // Copies a block of a shard from a device, as ir::SliceBlock does. Requires that it lies inside
  // the shard.
  virtual absl::StatusOr<ir::Array> BlockToHost(const DeviceBuffer& buffer, const ir::Dims& starts,
                                                const ir::Dims& shape) {
    TESSERA_ASSIGN_OR_RETURN(const ir::Array whole, ToHost(buffer));
    return ir::SliceBlock(whole, starts, shape);
  }
  // Returns whether the host has the bytes of the buffer, so that ToHost and BlockToHost need no
  // copy from the device.
  virtual bool IsOnHost(const DeviceBuffer&) const { return true; }
};

}  // namespace tessera::worker
