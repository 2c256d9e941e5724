// What an executor counts, in memory that its daemon reads: handles into a MetricsPage.
//
// Made once per executor and handed down by pointer; without a page every handle drops what it
// gets. Thread-safe; the page outlives it.
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
enum class TransferDirection : uint8_t { kPut, kGet, kD2d, kReshard };
enum class TransferPath : uint8_t { kTicket, kRelay };

// Of one device. Busy, waiting and idle time add up to all time.
struct DeviceMetrics {
  Counter busy, idle_no_work, idle_peer;
  AgeGauge progress;
  UpDownCounter reserved, arrays, workspace, peak;
};

class ExecutorMetrics {
 public:
  // Nobody looks.
  ExecutorMetrics() = default;
  // `platform`: "cpu", "gpu". Says at once how much memory each device has.
  ExecutorMetrics(MetricsPage* page, std::string_view platform, int64_t device_memory_bytes);

  const DeviceMetrics& device(int d) const { return page_ == nullptr ? none_ : devices_[d]; }

  void Compiled(absl::Duration time, bool ok) const {
    (ok ? compiled_ : not_compiled_).Observe(time);
  }
  void Dispatched(absl::Duration queued, absl::Duration launch) const {
    worker_queue_.Observe(queued);
    launch_.Observe(launch);
  }
  void Transferred(TransferDirection direction, TransferPath path, int64_t bytes,
                   absl::Duration time) const;
  // The same in two parts, for those who know one of them.
  void TransferTook(TransferDirection direction, TransferPath path, absl::Duration time) const;
  void TransferredBytes(TransferDirection direction, TransferPath path, int64_t bytes) const;
  void TransferRetried() const { retries_.Add(); }
  void ChecksumFailed(TransferDirection direction) const {
    checksum_errors_[static_cast<size_t>(direction)].Add();
  }
  // `bytes`: what the rank brought. `bus_factor`: by how much a bus carries more than that,
  // relative to what the rank brought.
  void Collective(ir::CollectiveKind kind, CollectiveBackend backend, int64_t bytes,
                  double bus_factor, absl::Duration time) const;
  void CommunicatorOpened(CollectiveBackend backend, int ranks, absl::Duration time) const;
  void CommunicatorAborted(absl::Duration time) const { abort_.Observe(time); }

 private:
  static constexpr size_t kKinds = ir::kNumCollectiveKinds, kBackends = 3, kSizes = 6,
                          kDirections = 4, kPaths = 2;

  MetricsPage* page_ = nullptr;
  DeviceMetrics none_;
  std::vector<DeviceMetrics> devices_;
  Histogram compiled_, not_compiled_, worker_queue_, launch_, abort_;
  Counter retries_;
  std::array<Counter, kDirections> checksum_errors_;
  std::array<std::array<Counter, kPaths>, kDirections> transfer_bytes_;
  std::array<std::array<Histogram, kPaths>, kDirections> transfer_seconds_;
  std::array<std::array<std::array<Histogram, kSizes>, kBackends>, kKinds> collective_;
  std::array<std::array<Counter, kBackends>, kKinds> collective_bytes_;
  std::array<std::array<Gauge, kSizes>, kKinds> bandwidth_;
  std::array<std::array<Histogram, 4>, kBackends> opened_;
};

}  // namespace tessera::worker
