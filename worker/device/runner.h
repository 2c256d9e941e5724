// Enqueues one launch of an executable on the device's two streams.
//
// Collectives go to their own stream and wait for everything enqueued before them; other steps go
// to the compute stream and wait only for the collectives in program::Step::after. The steps
// between two such waits are a segment, which is captured as a graph when the same buffers recur.
// Collectives are in no graph (docs/decisions/0005). Created and used by the enqueueing thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/core.h"
#include "worker/device/executable.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

class Runner {
 public:
  // Device addresses. `arena` is in the executable's scratch memory.
  struct Memory {
    std::vector<uint64_t> arguments, results;
    uint64_t arena = 0;
  };
  // All arguments outlive this.
  Runner(DeviceResources& core, const DeviceExecutable& executable, const RunContext& context,
         Memory memory)
      : core_(core),
        device_(*core.device),
        executable_(executable),
        context_(context),
        memory_(std::move(memory)),
        trips_(executable.program.num_loops) {}

  // An error names the step that was not enqueued; the steps before it were.
  absl::Status Run();
  // Makes later work on the compute stream wait for the launch's collectives, even if the launch
  // was enqueued only in part. An error means that the device is lost.
  absl::Status Join();

  std::vector<WatchedCollective> TakeCollectives() { return std::move(collectives_); }

 private:
  using Steps = std::vector<program::Step>;

  const program::StepProgram& program() const { return executable_.program; }
  tessera_stream* compute() const { return core_.compute.get(); }
  tessera_stream* exchange() const { return core_.exchange.get(); }

  // Enqueues a list of steps; later steps wait for its collectives. `graphs` may be null.
  absl::Status RunList(const Steps& steps, Graphs::GraphSegments* graphs);
  absl::Status RunSegment(const Steps& steps, size_t begin, size_t end,
                          Graphs::GraphSegments* graphs);
  absl::Status RunSteps(const Steps& steps, size_t begin, size_t end);
  absl::StatusOr<GraphHandle> Capture(const Steps& steps, size_t begin, size_t end);
  absl::Status RunLabelled(const program::Step& step);
  absl::Status Wait(tessera_stream* stream, const EventHandle& event);

  absl::Status Run(const program::KernelStep& step);
  absl::Status Run(const program::MatmulStep& step);
  absl::Status Run(const program::CollectiveStep& step);
  absl::Status Run(const program::AxisIndexStep& step);
  absl::Status Run(const program::CopyStep& step);
  absl::Status Run(const program::HostFallbackStep& step);
  absl::Status Run(const program::LoopStep& step);
  // Enqueues the collective on its stream; returns the event at its end.
  absl::StatusOr<EventHandle> EnqueueCollective(const program::CollectiveStep& step);
  absl::Status Exchange(const program::CollectiveStep& step);
  absl::Status Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes);

  uint64_t AddressOf(int slot_index) const;

  DeviceResources& core_;
  const Device& device_;
  const DeviceExecutable& executable_;
  const RunContext& context_;
  const Memory memory_;
  std::vector<int64_t> trips_;  // the current iteration of each loop
  const std::string* label_ = nullptr;
  uint32_t sequence_ = 0;  // of collectives
  std::vector<WatchedCollective> collectives_;
  bool collectives_enqueued_ = false;  // something is on the collectives' stream
  bool compute_advanced_ = true;       // since collectives last waited for the compute stream
};

}  // namespace tessera::worker::device
