// Records what an executor does in a page of shared memory. The executor, its streams and its
// collectives call the Record functions, and the daemon reads the page and exposes the metrics, so
// that they survive the process and a scrape never waits for it.
#include "worker/telemetry/executor_metrics.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/log.h"

namespace tessera::worker {
namespace {

// The values of the labels `direction`, `path` and `backend`.
constexpr const char* kTransferKindNames[] = {"put", "get", "d2d", "reshard"};
constexpr const char* kTransferPathNames[] = {"ticket", "relay"};
constexpr const char* kBackendNames[] = {"inproc", "tcp", "nccl"};

// Return indices into the values of the labels size_class and ranks_class.
size_t SizeClassIndex(int64_t bytes) {
  constexpr int64_t kClassLimits[] = {1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20};
  return std::lower_bound(std::begin(kClassLimits), std::end(kClassLimits), bytes) -
         std::begin(kClassLimits);
}
size_t RanksClassIndex(int ranks) { return ranks <= 2 ? 0 : ranks <= 8 ? 1 : ranks <= 64 ? 2 : 3; }

const std::vector<std::string>& LabelValues(Metric metric, std::string_view label) {
  const MetricInfo& info = InfoOf(metric);
  return info.labels[info.LabelIndex(label)].domain->values;
}

}  // namespace

// Looks up the handle of every metric for every combination of its labels. This is done once, so
// that recording is only an atomic addition at a known address, without a search or a lock on the
// path of a run.
ExecutorMetrics::ExecutorMetrics(MetricsPage* page, std::string_view platform,
                                 int64_t device_memory_bytes)
    : page_(page) {
  if (page == nullptr) return;
  for (int d = 0; d < page->num_devices(); ++d) {
    DeviceMetrics& device = devices_.emplace_back();
    device.busy_time = page->counter(Metric::kDeviceBusy, {}, d);
    device.idle_time = page->counter(Metric::kDeviceIdle, {"no_work"}, d);
    device.waiting_time = page->counter(Metric::kDeviceIdle, {"waiting_peer"}, d);
    device.progress_age = page->age_gauge(Metric::kDeviceProgressAge, {}, d);
    device.reserved_bytes = page->up_down_counter(Metric::kDeviceMemory, {"reserved"}, d);
    device.array_bytes = page->up_down_counter(Metric::kDeviceMemory, {"arrays"}, d);
    device.workspace_bytes = page->up_down_counter(Metric::kDeviceMemory, {"workspace"}, d);
    device.peak_bytes = page->up_down_counter(Metric::kDeviceMemoryPeak, {}, d);
    page->up_down_counter(Metric::kDeviceMemory, {"total"}, d).Add(device_memory_bytes);
  }
  compile_seconds_ok_ = page->histogram(Metric::kCompileSeconds, {platform, "ok"});
  compile_seconds_error_ = page->histogram(Metric::kCompileSeconds, {platform, "error"});
  dispatch_queue_seconds_ = page->histogram(Metric::kDispatch, {"worker_queue"});
  dispatch_launch_seconds_ = page->histogram(Metric::kDispatch, {"launch"});
  communicator_abort_seconds_ = page->histogram(Metric::kCollectiveAbort, {"abort"});
  put_retries_ = page->counter(Metric::kTransferRetries, {"put"});
  for (size_t k = 0; k < kTransferKinds; ++k) {
    checksum_errors_[k] = page->counter(Metric::kChecksumErrors, {kTransferKindNames[k]});
    for (size_t p = 0; p < kTransferPaths; ++p) {
      transfer_bytes_[k][p] =
          page->counter(Metric::kTransferBytes, {kTransferKindNames[k], kTransferPathNames[p]});
      transfer_seconds_[k][p] =
          page->histogram(Metric::kTransferSeconds, {kTransferKindNames[k], kTransferPathNames[p]});
    }
  }
  const std::vector<std::string>& sizes = LabelValues(Metric::kCollectiveSeconds, "size_class");
  TESSERA_CHECK_EQ(sizes.size(), kSizes);
  for (size_t k = 0; k < kCollectiveKinds; ++k) {
    const std::string_view kind = ir::kCollectiveInfos[k].name;
    for (size_t b = 0; b < kBackends; ++b) {
      collective_bytes_[k][b] = page->counter(Metric::kCollectiveBytes, {kind, kBackendNames[b]});
      for (size_t s = 0; s < kSizes; ++s) {
        collective_seconds_[k][b][s] =
            page->histogram(Metric::kCollectiveSeconds, {kind, kBackendNames[b], sizes[s]});
      }
    }
    for (size_t s = 0; s < kSizes; ++s) {
      collective_bandwidth_[k][s] = page->gauge(Metric::kCollectiveBandwidth, {kind, sizes[s]});
    }
  }
  const std::vector<std::string>& ranks = LabelValues(Metric::kCommunicatorInit, "ranks_class");
  for (size_t b = 0; b < kBackends; ++b) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      communicator_init_seconds_[b][r] =
          page->histogram(Metric::kCommunicatorInit, {kBackendNames[b], ranks[r]});
    }
  }
}

void ExecutorMetrics::RecordTransfer(TransferKind kind, TransferPath path, int64_t bytes,
                                     absl::Duration time) const {
  RecordTransferBytes(kind, path, bytes);
  RecordTransferDuration(kind, path, time);
}

void ExecutorMetrics::RecordTransferDuration(TransferKind kind, TransferPath path,
                                             absl::Duration time) const {
  transfer_seconds_[static_cast<size_t>(kind)][static_cast<size_t>(path)].Observe(time);
}

void ExecutorMetrics::RecordTransferBytes(TransferKind kind, TransferPath path,
                                          int64_t bytes) const {
  transfer_bytes_[static_cast<size_t>(kind)][static_cast<size_t>(path)].Add(bytes);
}

void ExecutorMetrics::RecordCollective(ir::CollectiveKind kind, CollectiveBackend backend,
                                       int64_t bytes, double busbw_factor,
                                       absl::Duration time) const {
  if (page_ == nullptr) return;
  const auto k = static_cast<size_t>(kind), b = static_cast<size_t>(backend);
  const size_t s = SizeClassIndex(bytes);
  collective_bytes_[k][b].Add(bytes);
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds <= 0) return;
  collective_seconds_[k][b][s].Observe(time);
  if (busbw_factor <= 0) return;
  collective_bandwidth_[k][s].Set(
      static_cast<int64_t>(static_cast<double>(bytes) * busbw_factor / seconds));
}

void ExecutorMetrics::RecordCommunicatorInit(CollectiveBackend backend, int ranks,
                                             absl::Duration time) const {
  communicator_init_seconds_[static_cast<size_t>(backend)][RanksClassIndex(ranks)].Observe(time);
}

}  // namespace tessera::worker
