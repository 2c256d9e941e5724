// Enqueues one launch of an executable on the device's two streams.
//
// Exchanges go to their own stream and wait for what was enqueued before them; other steps go to
// the compute stream and wait for those exchanges only that program::Step::after names. Between two
// such waits lies a stretch of steps that asks nothing of the other stream: one that is seen again
// with the same buffers becomes a graph. Exchanges are in no graph (docs/decisions/0005).
//
// Made and used by the thread that enqueues.
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
  // Addresses. `arena` is that of the executable's scratch memory.
  struct Memory {
    std::vector<uint64_t> arguments, results;
    uint64_t arena = 0;
  };
  // All outlive this.
  Runner(Core& core, const DeviceExecutable& executable, const RunContext& context, Memory memory)
      : core_(core),
        device_(*core.device),
        executable_(executable),
        context_(context),
        memory_(std::move(memory)),
        trips_(executable.program.num_loops) {}

  // An error says which step was not enqueued; steps before it were.
  absl::Status Run();
  // What is enqueued on the compute stream from now on comes after the launch's exchanges. Also of
  // a launch that was not enqueued whole. An error means that the device is lost.
  absl::Status Join();

  std::vector<WatchedExchange> TakeExchanges() { return std::move(exchanges_); }

 private:
  using Steps = std::vector<program::Step>;

  const program::StepProgram& program() const { return executable_.program; }
  tessera_stream* compute() const { return core_.compute.get(); }
  tessera_stream* exchange() const { return core_.exchange.get(); }

  // A whole list of steps: what is enqueued later waits for its exchanges. `graphs` may be null.
  absl::Status RunList(const Steps& steps, Graphs::Stretches* graphs);
  absl::Status RunStretch(const Steps& steps, size_t begin, size_t end, Graphs::Stretches* graphs);
  absl::Status RunSteps(const Steps& steps, size_t begin, size_t end);
  absl::StatusOr<GraphHandle> Capture(const Steps& steps, size_t begin, size_t end);
  absl::Status RunLabelled(const program::Step& step);
  absl::Status Wait(tessera_stream* stream, const EventHandle& event);

  absl::Status Run(const program::KernelStep& step);
  absl::Status Run(const program::MatmulStep& step);
  absl::Status Run(const program::CollectiveStep& step);
  absl::Status Run(const program::PositionStep& step);
  absl::Status Run(const program::CopyStep& step);
  absl::Status Run(const program::GeneralStep& step);
  absl::Status Run(const program::LoopStep& step);
  // Enqueues the exchange on its stream; the event is recorded at its end.
  absl::StatusOr<EventHandle> RunExchange(const program::CollectiveStep& step);
  absl::Status Exchange(const program::CollectiveStep& step);
  absl::Status Copy(tessera_stream* stream, uint64_t to, uint64_t from, int64_t bytes);

  uint64_t AddressOf(int slot_index) const;

  Core& core_;
  const Device& device_;
  const DeviceExecutable& executable_;
  const RunContext& context_;
  const Memory memory_;
  std::vector<int64_t> trips_;  // the present trip of each loop
  const std::string* label_ = nullptr;
  uint32_t sequence_ = 0;  // of exchanges
  std::vector<WatchedExchange> exchanges_;
  bool exchanged_ = false;      // something is on the stream of exchanges
  bool compute_is_new_ = true;  // since exchanges last waited for the compute stream
};

}  // namespace tessera::worker::device
