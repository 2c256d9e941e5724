// The metrics of an executor, as handles into a MetricsPage, the shared memory that its daemon
// reads.
//
// There is one ExecutorMetrics per executor, which is passed by pointer. Without a page the handles
// do nothing. Thread-safe. The page outlives the ExecutorMetrics.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics.h"
#include "base/metrics_page.h"
#include "ir/collective.h"

namespace tessera::worker {

enum class CollectiveBackend : uint8_t { kInproc, kTcp, kNccl };
enum class TransferKind : uint8_t { kPut, kGet, kD2d, kReshard };
enum class TransferPath : uint8_t { kTicket, kRelay };

// The metrics of one device. Busy, waiting and idle time add up to the total time. `arrays` and
// `workspace` are parts of `reserved`.
struct DeviceMetrics {
  Counter busy, idle_no_work, idle_peer;
  AgeGauge since_progress;
  UpDownCounter reserved, arrays, workspace, peak;
};

class ExecutorMetrics {
 public:
  // Makes metrics that are disabled.
  ExecutorMetrics() = default;
  // `platform` is "cpu" or "gpu". Sets the total memory of each device.
  ExecutorMetrics(MetricsPage* page, std::string_view platform, int64_t device_memory_bytes);

  bool enabled() const { return page_ != nullptr; }
  const DeviceMetrics& device(int d) const { return page_ == nullptr ? none_ : devices_[d]; }

  void RecordCompile(absl::Duration time, bool ok) const {
    (ok ? compile_seconds_ok_ : compile_seconds_error_).Observe(time);
  }
  void RecordDispatch(absl::Duration queued, absl::Duration launch) const {
    dispatch_queue_seconds_.Observe(queued);
    dispatch_launch_seconds_.Observe(launch);
  }
  void RecordTransfer(TransferKind kind, TransferPath path, int64_t bytes,
                      absl::Duration time) const;
  void RecordTransferDuration(TransferKind kind, TransferPath path, absl::Duration time) const;
  void RecordTransferBytes(TransferKind kind, TransferPath path, int64_t bytes) const;
  void RecordTransferRetry() const { retries_.Add(); }
  void RecordChecksumError(TransferKind kind) const {
    checksum_errors_[static_cast<size_t>(kind)].Add();
  }
  // `bytes` is the size of the rank's input. `busbw_factor` is the bus bandwidth divided by the
  // algorithm bandwidth, as in nccl-tests.
  void RecordCollective(ir::CollectiveKind kind, CollectiveBackend backend, int64_t bytes,
                        double busbw_factor, absl::Duration time) const;
  void RecordCommunicatorInit(CollectiveBackend backend, int ranks, absl::Duration time) const;
  void RecordCommunicatorAbort(absl::Duration time) const { communicator_abort_.Observe(time); }

 private:
  static constexpr size_t kKinds = ir::kNumCollectiveKinds, kBackends = 3, kSizes = 6,
                          kTransferKinds = 4, kPaths = 2;

  MetricsPage* page_ = nullptr;
  DeviceMetrics none_;
  std::vector<DeviceMetrics> devices_;
  Histogram compile_seconds_ok_, compile_seconds_error_, dispatch_queue_seconds_,
      dispatch_launch_seconds_, communicator_abort_;
  Counter retries_;
  std::array<Counter, kTransferKinds> checksum_errors_;
  std::array<std::array<Counter, kPaths>, kTransferKinds> transfer_bytes_;
  std::array<std::array<Histogram, kPaths>, kTransferKinds> transfer_seconds_;
  std::array<std::array<std::array<Histogram, kSizes>, kBackends>, kKinds> collective_;
  std::array<std::array<Counter, kBackends>, kKinds> collective_bytes_;
  std::array<std::array<Gauge, kSizes>, kKinds> bandwidth_;
  std::array<std::array<Histogram, 4>, kBackends> communicator_init_;
};

}  // namespace tessera::worker
