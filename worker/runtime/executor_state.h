// The state of an executor's programs, launches and transfers. Only executor*.cc include this
// header; executor.h declares the types and hides them from the users of the executor.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"
#include "ir/dtype.h"
#include "ir/program.h"
#include "ir/type.h"
#include "worker/collectives/collectives.h"
#include "worker/memory/buffer_table.h"
#include "worker/memory/device_buffer.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/cancel.h"
#include "worker/runtime/communicator.h"
#include "worker/runtime/timer.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

// A loaded program. Shared by the launches that use it, so it may be unloaded at any time.
struct LoadedProgram {
  // Immutable.
  uint64_t id = 0;
  // Shared, since reserved memory that is named after it may outlive the program.
  std::shared_ptr<const std::string> name;
  std::string tenant;
  ir::FunctionRef entry;
  std::vector<api::LoadProgram::Coordinate> coordinates;
  // For each mesh device that is a device of this executor: its index in the mesh and in the
  // executor.
  std::vector<std::pair<int64_t, int32_t>> local;
  bool all_local = false;  // whether all mesh devices are devices of this executor

  // Set before `compiled` is notified.
  absl::StatusOr<std::shared_ptr<const Executable>> executable = absl::UnknownError("");
  absl::Notification compiled;

  absl::Mutex mu;
  // Collectives among this executor's own devices, for launches without a generation. A launch
  // takes one set and returns it, unless the launch failed.
  std::vector<std::shared_ptr<Collectives>> idle_collectives ABSL_GUARDED_BY(mu);
  uint64_t ranks_generation ABSL_GUARDED_BY(mu) = 0;
  // The rank of each mesh device in ranks_generation; null before they are needed.
  std::shared_ptr<const std::vector<int>> ranks ABSL_GUARDED_BY(mu);
};

// Where the thread that has sent a command wants to get the command's report.
struct ReportSlot {
  api::ReportBody* report = nullptr;  // null if the report goes to the report function
  bool filled = false;                // whether `*report` has been set
};

// A launch or a transfer. It is shared by the streams on which it runs, the timer and the table of
// launches.
struct LaunchState {
  // Immutable once the launch has been pushed to a stream.
  uint64_t id = 0;
  std::shared_ptr<LoadedProgram> program;         // null for a transfer
  std::shared_ptr<Communicator> communicator;     // null for generation 0
  std::shared_ptr<const std::vector<int>> ranks;  // null if the launch needs none
  std::vector<uint64_t> args, results;
  std::vector<bool> donate;
  absl::InlinedVector<int32_t, 2> devices;
  absl::InlinedVector<BufferId, 2> expected_ids;  // results that the buffer table expects
  std::vector<BufferId> inline_results;           // results whose values LaunchDone returns
  absl::Duration timeout;
  int64_t arrival_ns = 0;  // time by AgeGauge::Now

  CancelToken cancel;
  // Per device of the executor. The device's own run writes it before its work is enqueued.
  absl::InlinedVector<InFlightQueue::Launch*, 2> in_flight;
  std::atomic<int> remaining{0};
  std::atomic<bool> failed{false};  // whether the run on some device has failed
  // Whether a device was given the arguments, so that donated arguments may be overwritten.
  std::atomic<bool> donated_inputs_consumed{false};

  ReportSlot report_slot;  // used while the launch runs on the thread that has sent it

  mutable absl::Mutex mu;
  bool started ABSL_GUARDED_BY(mu) = false;
  absl::Time started_at ABSL_GUARDED_BY(mu) = absl::InfiniteFuture();
  std::optional<Timer::Id> timer ABSL_GUARDED_BY(mu);
  std::shared_ptr<Collectives> local_collectives ABSL_GUARDED_BY(mu);  // set if the generation is 0
  std::map<BufferId, DeviceBufferRef> retained_inline_results
      ABSL_GUARDED_BY(mu);  // values of `inline_results`

  bool donates(size_t arg) const { return arg < donate.size() && donate[arg]; }
  // Returns whether the argument is donated, and no other argument is the same array.
  bool DonatesExclusively(size_t arg) const;
  std::string Name() const;  // "launch 7 of train_step"
  bool HasStarted() const ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    return started;
  }
  bool UsesCollectives() const;
};

// Retains a buffer as soon as it is ready, so that a later delete does not affect it.
class RetainedBuffer {
 public:
  static std::shared_ptr<RetainedBuffer> Retain(BufferTable& buffers, const BufferId& id);
  // Returns the buffer, or the reason why it failed or why the wait was cancelled.
  absl::StatusOr<DeviceBufferRef> Await(CancelToken& cancel) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<DeviceBufferRef> buffer_ ABSL_GUARDED_BY(mu_) = absl::UnknownError("");
};

// A piece of a shard that a transfer makes.
struct TransferPiece {
  api::Transfer::Piece piece;
  std::shared_ptr<RetainedBuffer> source;  // null if the source is not on this executor
};

// A shard that a transfer makes on a device of this executor.
struct TransferShard {
  int32_t device = 0;
  BufferId result;
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  std::vector<TransferPiece> pieces;
};

}  // namespace tessera::worker
