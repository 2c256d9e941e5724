// The state of an Executor's programs, launches and transfers. For executor*.cc only.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "worker/runtime/executor.h"

namespace tessera::worker {

// A loaded program. Shared by the launches that use it, so it may be unloaded at any time.
struct Executor::Program {
  // Immutable.
  uint64_t id = 0;
  std::shared_ptr<const std::string> name;  // memory that is held for it may outlive it
  std::string tenant;
  ir::FunctionRef entry;
  std::vector<api::LoadProgram::Coordinate> coordinates;
  std::vector<std::pair<int64_t, int32_t>> local;  // mesh device, local device
  bool all_local = false;

  // Set before `compiled` is notified.
  absl::StatusOr<std::shared_ptr<const Executable>> executable = absl::UnknownError("");
  absl::Notification compiled;

  absl::Mutex mu;
  // Collectives among this executor's own devices, for launches without a generation. A launch
  // takes one, and returns it unless it failed.
  std::vector<std::shared_ptr<Collectives>> idle_collectives ABSL_GUARDED_BY(mu);
  uint64_t ranks_generation ABSL_GUARDED_BY(mu) = 0;
  std::shared_ptr<const std::vector<int>> ranks ABSL_GUARDED_BY(mu);  // of ranks_generation
};

// A launch or a transfer. Shared by the streams it runs on, the timer and the table of launches.
struct Executor::Launch {
  // Immutable once pushed.
  uint64_t id = 0;
  ProgramRef program;                             // null: a transfer
  std::shared_ptr<Communicator> communicator;     // null: generation 0
  std::shared_ptr<const std::vector<int>> ranks;  // null: it needs none
  std::vector<uint64_t> args, results;
  std::vector<bool> donate;
  absl::InlinedVector<int32_t, 2> devices;
  absl::InlinedVector<BufferId, 2> expected;
  std::vector<BufferId> inline_results;  // whose values LaunchDone returns
  absl::Duration timeout;
  int64_t arrival_ns = 0;  // by AgeGauge::Now

  CancelToken cancel;
  // Per device of the executor; written by the device's own run, before its work is enqueued.
  absl::InlinedVector<InFlightQueue::Launch*, 2> in_flight;
  std::atomic<int> remaining{0};
  std::atomic<bool> failed{false};  // the run on some device failed
  // A device was given the arguments, so those that are donated no longer hold their values.
  std::atomic<bool> donated_inputs_consumed{false};

  ReportTo report_to;  // while it runs on the thread that has sent it

  absl::Mutex mu;
  bool started ABSL_GUARDED_BY(mu) = false;
  absl::Time started_at ABSL_GUARDED_BY(mu) = absl::InfiniteFuture();
  std::optional<Timer::Id> timer ABSL_GUARDED_BY(mu);
  std::shared_ptr<Collectives> local_collectives ABSL_GUARDED_BY(mu);  // generation 0
  std::map<BufferId, DeviceBufferRef> retained_inline_results
      ABSL_GUARDED_BY(mu);  // of `inline_results`

  bool donates(size_t arg) const { return arg < donate.size() && donate[arg]; }
  // Whether it is donated, and no other argument is the same array.
  bool DonatesExclusively(size_t arg) const;
  std::string Name() const;  // "launch 7 of train_step"
  bool UsesCollectives() const;
  // The status that its peers in collectives get.
  static absl::Status StatusForPeers(const absl::Status& why);
};

// A buffer that is retained as soon as it is ready, so that a later delete does not affect it.
class RetainedBuffer {
 public:
  static std::shared_ptr<RetainedBuffer> Of(BufferTable& buffers, const BufferId& id);
  // The buffer, or why it failed, or why the wait was cancelled.
  absl::StatusOr<DeviceBufferRef> Await(CancelToken& cancel) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<DeviceBufferRef> buffer_ ABSL_GUARDED_BY(mu_) = absl::UnknownError("");
};

struct Executor::TransferPiece {
  api::Transfer::Piece piece;
  std::shared_ptr<RetainedBuffer> source;  // null when it is not on this executor
};

struct Executor::TransferShard {
  int32_t device = 0;
  BufferId result;
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
  std::vector<TransferPiece> pieces;
};

}  // namespace tessera::worker
