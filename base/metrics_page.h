// Keeps metrics in shared memory: an executor writes them, and its daemon can read them even when
// the executor hangs or has died.
//
// The layout follows from the rows of base/metrics.def whose source is Executor. Each row has slots
// for all its possible series, so nothing is allocated at run time. The daemon owns the memory and
// keeps it when the executor is replaced by its next incarnation, so that counters never decrease.
// It calls ResetGauges between two incarnations.
//
// Thread-safe like base/metrics.h, also between the two processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/metrics.h"

namespace tessera {

class MetricsPage {
 public:
  static constexpr int kDevicesMax = 256;

  // Allocates the memory. Aborts the process if the allocation fails.
  explicit MetricsPage(int num_devices);
  // Maps the memory that another process allocated. Borrows `fd` for the call. Returns VALUE_ERROR
  // if the other process is another version of this program.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Map(int fd, int num_devices);
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;
  ~MetricsPage();

  // Returns the descriptor to pass to another process; -1 in a process that has mapped the memory.
  int fd() const { return fd_; }
  int num_devices() const { return num_devices_; }

  // `labels` are the values of the row's labels, without "worker" and "device". The argument
  // `device` gives the device.
  using Labels = std::initializer_list<std::string_view>;
  Counter counter(Metric metric, Labels labels = {}, int device = 0);
  UpDownCounter up_down_counter(Metric metric, Labels labels = {}, int device = 0) {
    return counter(metric, labels, device);
  }
  Gauge gauge(Metric metric, Labels labels = {}, int device = 0);
  // Requires: the name of the metric ends in _age_seconds.
  AgeGauge age_gauge(Metric metric, Labels labels = {}, int device = 0);
  Histogram histogram(Metric metric, Labels labels = {}, int device = 0);

  // Adds all series to `sink`. Device d gets the label value `first_device` + d.
  void Collect(SampleSink& sink, std::string_view worker, int first_device) const;
  void ResetGauges();

 private:
  struct Header;

  MetricsPage() = default;
  void MapFd(int fd);
  internal::Series SeriesAt(Metric metric, Labels labels, int device);

  int fd_ = -1;
  int num_devices_ = 0;
  size_t bytes_ = 0;
  Header* header_ = nullptr;
  internal::MetricSlot* slots_ = nullptr;
};

}  // namespace tessera
