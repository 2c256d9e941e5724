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

// The metrics of one device. `busy_time`, `waiting_time` and `idle_time` add up to the total time.
// `array_bytes` and `workspace_bytes` are parts of `reserved_bytes`.
struct DeviceMetrics {
  Counter busy_time;
  Counter waiting_time;  // the device waits for other devices
  Counter idle_time;     // the device has no launch
  AgeGauge progress_age;
  UpDownCounter reserved_bytes, array_bytes, workspace_bytes, peak_bytes;
};

class ExecutorMetrics {
 public:
  // Makes metrics that are disabled.
  ExecutorMetrics() = default;
  // `platform` is "cpu" or "gpu". Sets the total memory of each device.
  ExecutorMetrics(MetricsPage* page, std::string_view platform, int64_t device_memory_bytes);

  bool enabled() const { return page_ != nullptr; }
  const DeviceMetrics& device(int d) const {
    return page_ == nullptr ? disabled_device_ : devices_[d];
  }

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
  void RecordTransferRetry() const { put_retries_.Add(); }
  void RecordChecksumError(TransferKind kind) const {
    checksum_errors_[static_cast<size_t>(kind)].Add();
  }
  // `bytes` is the size of the rank's input. `busbw_factor` is the bus bandwidth divided by the
  // algorithm bandwidth, as in nccl-tests. `time` is zero if it is unknown; then only the bytes
  // count.
  void RecordCollective(ir::CollectiveKind kind, CollectiveBackend backend, int64_t bytes,
                        double busbw_factor, absl::Duration time) const;
  void RecordCommunicatorInit(CollectiveBackend backend, int ranks, absl::Duration time) const;
  void RecordCommunicatorAbort(absl::Duration time) const {
    communicator_abort_seconds_.Observe(time);
  }

 private:
  static constexpr size_t kCollectiveKinds = ir::kNumCollectiveKinds, kBackends = 3, kSizes = 6,
                          kTransferKinds = 4, kTransferPaths = 2;

  MetricsPage* page_ = nullptr;
  DeviceMetrics disabled_device_;
  std::vector<DeviceMetrics> devices_;
  Histogram compile_seconds_ok_, compile_seconds_error_, dispatch_queue_seconds_,
      dispatch_launch_seconds_, communicator_abort_seconds_;
  Counter put_retries_;
  std::array<Counter, kTransferKinds> checksum_errors_;
  std::array<std::array<Counter, kTransferPaths>, kTransferKinds> transfer_bytes_;
  std::array<std::array<Histogram, kTransferPaths>, kTransferKinds> transfer_seconds_;
  std::array<std::array<std::array<Histogram, kSizes>, kBackends>, kCollectiveKinds>
      collective_seconds_;
  std::array<std::array<Counter, kBackends>, kCollectiveKinds> collective_bytes_;
  std::array<std::array<Gauge, kSizes>, kCollectiveKinds> collective_bandwidth_;
  std::array<std::array<Histogram, 4>, kBackends> communicator_init_seconds_;
};

}  // namespace tessera::worker
