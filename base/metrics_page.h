// Metrics in memory that two processes share: one writes, the other reads them even when the first
// hangs or has died.
//
// The layout is that of the rows of base/metrics.def whose place is Executor: for each the cells of
// every series it can have, so that nothing is ever allocated in the page. The maker (a worker's
// daemon) owns the memory and keeps it over the incarnations of its writer, so that counters never
// fall back; ResetGauges, called while no writer lives, takes away what died with one.
//
// Threads: as base/metrics.h. Writers and readers need not know of each other.
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

  // New memory. Dies on no memory.
  explicit MetricsPage(int num_devices);
  // Maps what another process made; `fd` is borrowed for the call. VALUE_ERROR: it was made by
  // another version of this program.
  static absl::StatusOr<std::unique_ptr<MetricsPage>> Map(int fd, int num_devices);
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;
  ~MetricsPage();

  // To hand to another process; -1 when this was mapped from a descriptor.
  int fd() const { return fd_; }
  int num_devices() const { return num_devices_; }

  // The labels of the row but "worker"; that of "device" is `device`, and "" in `labels`.
  using Labels = std::initializer_list<std::string_view>;
  Counter counter(Metric metric, Labels labels = {}, int device = 0);
  UpDownCounter up_down_counter(Metric metric, Labels labels = {}, int device = 0) {
    return counter(metric, labels, device);
  }
  Gauge gauge(Metric metric, Labels labels = {}, int device = 0);
  // Of a row whose name ends _age_seconds.
  AgeGauge age_gauge(Metric metric, Labels labels = {}, int device = 0);
  Histogram histogram(Metric metric, Labels labels = {}, int device = 0);

  // Adds what is there to a scrape. Device d is shown as `first_device` + d.
  void Collect(Scrape& scrape, std::string_view worker, int first_device) const;
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
  internal::Cell* cells_ = nullptr;
};

}  // namespace tessera
