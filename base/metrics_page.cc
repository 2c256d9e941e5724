// Lays the metrics of an executor out in memory that it shares with its worker's daemon. The
// executor writes slots during launches; the daemon reads them whenever Prometheus asks. Both
// derive the layout from the same table, and Map refuses memory of another layout.
#include "base/metrics_page.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace tessera {

using internal::MetricSlot;

// The header at the start of the memory. The slots follow at kHeaderBytes.
struct MetricsPage::Header {
  std::atomic<uint64_t> layout;  // PageLayout::hash
  std::atomic<uint64_t> num_devices;
};

namespace {

constexpr size_t kHeaderBytes = 64;  // a cache line
// The number of stripes of a series. It is less than kStripes because few threads of an executor
// record metrics.
constexpr size_t kPageStripes = 4;

// A row of the table, and where its slots are.
struct PageRow {
  const MetricInfo* info = nullptr;
  size_t begin = 0;              // index of the first slot
  size_t stride = 0;             // number of slots per stripe
  size_t series_per_device = 1;  // number of series per device, or of all if the row has no device
  bool has_device = false;

  size_t NumSeries(int num_devices) const {
    return series_per_device * (has_device ? num_devices : 1);
  }
};
struct PageLayout {
  std::vector<PageRow> rows;
  size_t slots = 0;
  uint64_t hash = 14695981039346656037u;  // FNV-1a of the rows' names and labels

  size_t bytes() const { return kHeaderBytes + slots * sizeof(MetricSlot); }
};

bool IsAge(const MetricInfo& info) {
  return info.type == MetricType::kGauge && absl::EndsWith(info.name, "_age_seconds");
}

// Returns whether an alert watches this counter. Watched counters are exposed as 0 from the start,
// so that Prometheus sees the first event as an increase.
bool IsWatched(const MetricInfo& info) {
  return info.id == Metric::kChecksumErrors || info.id == Metric::kTransferRetries;
}

// Returns whether this is a label whose value Collect fills in, so that it is not a part of the
// layout.
bool IsWorkerOrDevice(const LabelInfo& label) {
  return label.name == "worker" || label.name == "device";
}

// Gives each row of the table a range of slots, one series after the other. The hash covers the
// names and label values, so that two processes with different tables do not map the same memory.
// Labels other than "worker" and "device" must have closed domains, because the number of series
// must be known when the memory is allocated.
PageLayout LayoutOf(int num_devices) {
  PageLayout layout;
  const auto mix = [&](std::string_view text) {
    for (const char c : text)
      layout.hash = (layout.hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  };
  for (const MetricInfo& info : AllMetrics()) {
    if (!info.in_executor()) continue;
    PageRow row;
    row.info = &info;
    row.begin = layout.slots;
    row.stride = internal::StrideOf(info);
    mix(info.name);
    for (const LabelInfo& label : info.labels) {
      if (label.name == "device") row.has_device = true;
      if (IsWorkerOrDevice(label)) continue;
      TESSERA_CHECK(!label.domain->open)
          << info.name << " is a metric of executors, but has the open label " << label.name;
      row.series_per_device *= label.domain->values.size();
      for (const std::string& value : label.domain->values) mix(value);
    }
    layout.slots += row.NumSeries(num_devices) * row.stride * kPageStripes;
    layout.rows.push_back(row);
  }
  mix(absl::StrCat(layout.slots));
  return layout;
}

// Returns the layout for a number of devices. Layouts are computed once and kept.
const PageLayout& Layout(int num_devices) {
  static absl::Mutex mu(absl::kConstInit);
  static auto* const layouts = new std::map<int, PageLayout>;
  absl::MutexLock lock(&mu);
  auto it = layouts->find(num_devices);
  if (it == layouts->end()) it = layouts->emplace(num_devices, LayoutOf(num_devices)).first;
  return it->second;
}

}  // namespace

void MetricsPage::MapFd(int fd) {
  bytes_ = Layout(num_devices_).bytes();
  void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TESSERA_CHECK(memory != MAP_FAILED) << std::strerror(errno);
  header_ = static_cast<Header*>(memory);
  slots_ = reinterpret_cast<MetricSlot*>(static_cast<char*>(memory) + kHeaderBytes);
}

MetricsPage::MetricsPage(int num_devices) : num_devices_(num_devices) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  TESSERA_CHECK(num_devices > 0 && num_devices <= kDevicesMax) << num_devices;
  fd_ = memfd_create("tessera-metrics", MFD_CLOEXEC);
  TESSERA_CHECK(fd_ >= 0) << std::strerror(errno);
  const PageLayout& layout = Layout(num_devices);
  TESSERA_CHECK(ftruncate(fd_, static_cast<off_t>(layout.bytes())) == 0) << std::strerror(errno);
  MapFd(fd_);
  header_->layout = layout.hash;
  header_->num_devices = static_cast<uint64_t>(num_devices);
}

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Map(int fd, int num_devices) {
  auto page = std::unique_ptr<MetricsPage>(new MetricsPage);
  page->num_devices_ = num_devices;
  struct stat file {};
  const PageLayout& layout = Layout(num_devices);
  if (fstat(fd, &file) != 0 || file.st_size != static_cast<off_t>(layout.bytes())) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("metrics page: descriptor ", fd, " is not a page of ", num_devices,
                     " devices; the daemon and its executors must be the same program"));
  }
  page->MapFd(fd);
  if (page->header_->layout != layout.hash) {
    return MakeError(ErrorKind::kValueError,
                     "metrics page: its rows differ from the rows of this program; the daemon and "
                     "its executors must be the same program");
  }
  return page;
}

MetricsPage::~MetricsPage() {
  if (header_ != nullptr) munmap(header_, bytes_);
  if (fd_ >= 0) close(fd_);
}

internal::Series MetricsPage::SeriesAt(Metric metric, Labels labels, int device) {
  for (const PageRow& row : Layout(num_devices_).rows) {
    if (row.info->id != metric) continue;
    size_t index = row.has_device ? static_cast<size_t>(device) * row.series_per_device : 0;
    size_t next_label = 0;
    size_t scale = 1;
    TESSERA_CHECK(!row.has_device || (device >= 0 && device < num_devices_)) << device;
    for (const LabelInfo& label : row.info->labels) {
      if (IsWorkerOrDevice(label)) continue;
      TESSERA_CHECK(next_label < labels.size()) << row.info->name;
      int value = label.domain->Find(labels.begin()[next_label++]);
      if (value < 0) value = label.domain->Find(kOtherLabel);
      // If the domain has neither the value nor "other", the event is not counted.
      if (value < 0) return {};
      index += static_cast<size_t>(value) * scale;
      scale *= label.domain->values.size();
    }
    TESSERA_CHECK_EQ(next_label, labels.size()) << row.info->name;
    return {slots_ + row.begin + index * row.stride * kPageStripes, row.stride, kPageStripes};
  }
  TESSERA_CHECK(false) << InfoOf(metric).name << " is not a metric of executors";
  return {};
}

Counter MetricsPage::counter(Metric metric, Labels labels, int device) {
  TESSERA_CHECK(InfoOf(metric).buckets == nullptr) << InfoOf(metric).name;
  return Counter(SeriesAt(metric, labels, device));
}

Gauge MetricsPage::gauge(Metric metric, Labels labels, int device) {
  TESSERA_CHECK(InfoOf(metric).type == MetricType::kGauge) << InfoOf(metric).name;
  return Gauge(SeriesAt(metric, labels, device));
}

AgeGauge MetricsPage::age_gauge(Metric metric, Labels labels, int device) {
  TESSERA_CHECK(IsAge(InfoOf(metric))) << InfoOf(metric).name;
  return AgeGauge(SeriesAt(metric, labels, device));
}

Histogram MetricsPage::histogram(Metric metric, Labels labels, int device) {
  TESSERA_CHECK(InfoOf(metric).buckets != nullptr) << InfoOf(metric).name;
  return {SeriesAt(metric, labels, device), InfoOf(metric).buckets};
}

// Turns slots back into samples with labels. SeriesAt computes the index of a series from its label
// values; this function computes the label values from the index. Most series of a page are never
// used, so those at 0 are left out, with two exceptions: gauges of devices, and counters that an
// alert watches.
void MetricsPage::Collect(SampleSink& sink, std::string_view worker, int first_device) const {
  for (const PageRow& row : Layout(num_devices_).rows) {
    const MetricInfo& info = *row.info;
    for (size_t s = 0; s < row.NumSeries(num_devices_); ++s) {
      const internal::Series series{slots_ + row.begin + s * row.stride * kPageStripes, row.stride,
                                    kPageStripes};
      const std::string device =
          absl::StrCat(first_device + static_cast<int>(s / row.series_per_device));
      std::vector<std::string_view> labels;
      size_t index = s % row.series_per_device;
      for (const LabelInfo& label : info.labels) {
        if (label.name == "worker") {
          labels.push_back(worker);
        } else if (label.name == "device") {
          labels.push_back(device);
        } else {
          labels.push_back(label.domain->values[index % label.domain->values.size()]);
          index /= label.domain->values.size();
        }
      }
      if (IsAge(info)) {
        sink.Add(info.id, labels, absl::ToDoubleSeconds(AgeGauge(series).Age()));
        continue;
      }
      if (info.buckets == nullptr) {
        const auto units = static_cast<int64_t>(series.Sum(0));
        // A series with the value 0 is left out unless one of the exceptions applies.
        const bool is_always_shown =
            (row.has_device && info.type == MetricType::kGauge) || IsWatched(info);
        if (units == 0 && !is_always_shown) continue;
        sink.Add(info.id, labels, static_cast<double>(units) / info.units_per_exposed);
        continue;
      }
      std::vector<uint64_t> counts;
      uint64_t total = 0;
      for (size_t b = 0; b <= info.buckets->bounds.size(); ++b) {
        counts.push_back(series.Sum(1 + b));
        total += counts.back();
      }
      if (total == 0) continue;
      sink.Merge(info.id, labels, counts,
                 static_cast<double>(series.Sum(0)) / info.units_per_exposed);
    }
  }
}

void MetricsPage::ResetGauges() {
  for (const PageRow& row : Layout(num_devices_).rows) {
    if (row.info->type != MetricType::kGauge) continue;
    const size_t slots = row.NumSeries(num_devices_) * row.stride * kPageStripes;
    for (size_t c = 0; c < slots; ++c) {
      slots_[row.begin + c].store(0, std::memory_order_relaxed);
    }
  }
}

}  // namespace tessera
