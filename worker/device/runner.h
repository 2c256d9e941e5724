// Enqueues one launch of an executable on the device's two streams.
//
// Collectives go to their own stream, and wait for everything enqueued before them. Other steps go
// to the compute stream, and wait only for the collectives in program::Step::after. The steps
// between two such waits are a segment, which is captured as a graph when the same buffers recur.
// Collectives are in no graph (docs/decisions/0005). A host step (program::HostStep) runs on the
// host: it waits for everything before it, and the steps after it are enqueued when it has ended.
// The enqueueing thread makes and uses a Runner.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/cpu/thread_pool.h"
#include "worker/device/device_resources.h"
#include "worker/device/executable.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/long_steps.h"

namespace tessera::worker::device {

class Runner {
 public:
  // Addresses on the device. `arena` is in the executable's scratch memory.
  struct Memory {
    std::vector<uint64_t> arguments, results;
    uint64_t arena = 0;
  };
  // The functions of the backend that are needed where the host must read or write values: for host
  // steps, and for the conditions of loops and branches. All three functions block: `drain` until a
  // launch would end or be aborted, and the copies until a timeout of Staging.
  struct HostAccess {
    // Waits for the end of the work enqueued so far, and watches its collectives meanwhile.
    std::function<absl::Status(std::vector<WatchedCollective> collectives)> drain;
    std::function<absl::Status(absl::Span<std::byte> to, uint64_t from)> to_host;
    std::function<absl::Status(uint64_t to, absl::Span<const std::byte> from)> to_device;
    // Where long host steps are evaluated; null if they are evaluated like the others.
    LongSteps* long_steps = nullptr;
    // Returns the threads that compute host steps: `num_threads` with the calling one.
    std::function<ThreadPool&()> threads;
    int num_threads = 1;
  };
  // All arguments must outlive this object.
  Runner(DeviceResources& resources, const DeviceExecutable& executable, const RunContext& context,
         Memory memory, HostAccess host)
      : resources_(resources),
        device_(*resources.device),
        executable_(executable),
        context_(context),
        memory_(std::move(memory)),
        host_(std::move(host)),
        iterations_(executable.program.num_loops) {}

  // Enqueues all steps. An error names the step that was not enqueued. The steps before it were
  // enqueued.
  absl::Status EnqueueAll();
  // Makes later work on the compute stream wait for the launch's collectives. It must be called
  // even after an EnqueueAll that failed. An error means that the device is lost.
  absl::Status Join();

  // Returns the collectives that have been enqueued since the last call.
  std::vector<WatchedCollective> TakeCollectives() { return std::exchange(collectives_, {}); }

 private:
  using Steps = std::vector<program::Step>;

  const program::StepProgram& program() const { return executable_.program; }
  tessera_stream* compute_stream() const { return resources_.compute_stream.get(); }
  tessera_stream* collective_stream() const { return resources_.collective_stream.get(); }

  // Enqueues the steps of the program, of a loop's body or of a branch. Work that is enqueued later
  // on the compute stream waits for their collectives. Captures no graphs if `graphs` is null.
  absl::Status EnqueueList(const Steps& steps, Graphs::GraphSegments* graphs);
  absl::Status EnqueueSegment(const Steps& steps, size_t begin, size_t end,
                              Graphs::GraphSegments* graphs);
  absl::Status EnqueueSteps(const Steps& steps, size_t begin, size_t end);
  absl::StatusOr<GraphHandle> Capture(const Steps& steps, size_t begin, size_t end);
  absl::Status EnqueueLabelled(const program::Step& step);
  absl::Status MakeStreamWait(tessera_stream* stream, const EventHandle& event);

  absl::Status Enqueue(const program::KernelStep& step);
  absl::Status Enqueue(const program::MatmulStep& step);
  absl::Status Enqueue(const program::CollectiveStep& step);
  absl::Status Enqueue(const program::AxisIndexStep& step);
  absl::Status Enqueue(const program::CopyStep& step);
  absl::Status Enqueue(const program::SortStep& step);
  absl::Status Enqueue(const program::HostStep& step);
  // Sorts the operands of a host step that is a sort.
  absl::StatusOr<std::vector<ir::Array>> SortOnHost(const SortShape& shape,
                                                    const std::vector<ir::Array>& in);
  // Has the function of a long step evaluated by HostAccess::long_steps.
  absl::StatusOr<std::vector<ir::Array>> EvaluateElsewhere(const program::HostStep& step,
                                                           std::vector<ir::Array> in);
  absl::Status Enqueue(const program::LoopStep& step);
  absl::Status Enqueue(const program::BranchStep& step);
  template <class T>
  absl::StatusOr<T> ReadAs(int slot);
  // Enqueues the collective on its stream. Returns the event at its end.
  absl::StatusOr<EventHandle> EnqueueCollective(const program::CollectiveStep& step);
  absl::Status Exchange(const program::CollectiveStep& step);
  absl::Status Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes);

  uint64_t AddressOf(int slot_index) const;

  DeviceResources& resources_;
  const Device& device_;
  const DeviceExecutable& executable_;
  const RunContext& context_;
  const Memory memory_;
  const HostAccess host_;
  std::vector<int64_t> iterations_;     // current iteration of each loop of the program
  const std::string* label_ = nullptr;  // label of the current step
  CallNumbers call_numbers_;
  std::vector<WatchedCollective> collectives_;
  bool collectives_enqueued_ = false;
  // Whether work was enqueued on the compute stream since the collective stream last waited for it.
  bool compute_advanced_ = true;
};

}  // namespace tessera::worker::device
