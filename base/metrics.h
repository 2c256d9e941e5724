// Counters, gauges and histograms of one process. The table base/metrics.def defines them.
//
//   Counter submitted = metrics->counter(Metric::kOperationsSubmitted, {tenant, "execute"});
//   submitted.Add(1);
//
// The main function of a daemon (or a test) owns the Metrics object and passes a pointer to the
// code that records metrics. A null Metrics* disables metrics. A default-constructed Counter, Gauge
// or Histogram records nothing.
//
// Thread-safe. A series is a metric with one value for each of its labels. The numbers of a series
// are in atomic slots that live as long as the Metrics, and a Counter, Gauge or Histogram is a
// pointer to the slots of one series. A counter or histogram has up to kStripes copies of its
// slots, called stripes, so that few threads write to the same copy. Add and Observe are wait-free,
// touch about one cache line of the calling thread's copy, and cost some nanoseconds. Creating a
// Counter, Gauge or Histogram takes a lock: create it once and keep it.
//
// Values that have to be right even while a thread hangs are computed when Prometheus reads the
// metrics; see AddCollector.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera {

enum class Metric : int {
#define TESSERA_METRIC(id, ...) k##id,
#include "base/metrics.def"
};

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
enum class MetricSource : uint8_t {
  kCoordinator,
  kWorker,
  kCoordinatorAndWorker,
  kExecutor,
  kCoordinatorAndExecutor
};

// The values that a label may take.
struct LabelDomain {
  std::string name;
  // An open domain accepts any value until it has `max` distinct ones. A closed domain lists its
  // values.
  bool open = false;
  size_t max = 0;                   // number of values that an open domain distinguishes
  std::vector<std::string> values;  // all values of a closed domain; "other" only if it is listed
  // Returns the index of `value` in `values`, or -1.
  int Find(std::string_view value) const;
};

struct LabelInfo {
  std::string name;
  const LabelDomain* domain = nullptr;
};

// The upper bounds of a histogram's buckets, without the last one, which is +Inf.
struct MetricBuckets {
  std::vector<double> bounds;             // bounds in the exposed unit, for example seconds
  std::vector<uint64_t> observed_bounds;  // bounds in the observed unit, for example nanoseconds
};

struct MetricInfo {
  Metric id;
  std::string name;
  MetricType type = MetricType::kCounter;
  std::vector<LabelInfo> labels;
  const MetricBuckets* buckets = nullptr;  // null if the metric is not a histogram
  MetricSource source = MetricSource::kCoordinatorAndWorker;
  std::string help;
  // The number of observed units per exposed unit: 1e9 for seconds, which are kept in nanoseconds,
  // and 1 for all other metrics.
  double units_per_exposed = 1;

  bool in_executor() const {
    return source == MetricSource::kExecutor || source == MetricSource::kCoordinatorAndExecutor;
  }
  int LabelIndex(std::string_view label_name) const;  // index in `labels`, or -1
};

const std::vector<MetricInfo>& AllMetrics();
const MetricInfo& InfoOf(Metric metric);
const std::vector<LabelDomain>& AllLabelDomains();
// Returns the text of docs/metrics.md.
std::string MetricsMarkdown();

// The label value that replaces all values that are not in a domain.
inline constexpr char kOtherLabel[] = "other";

namespace internal {

using MetricSlot = std::atomic<uint64_t>;
static_assert(MetricSlot::is_always_lock_free);

inline constexpr size_t kStripes = 16;
inline constexpr size_t kSlotsPerLine = 64 / sizeof(MetricSlot);

extern std::atomic<uint32_t> last_thread;
// Returns the number of the stripe that this thread writes. If there are more threads than stripes,
// several threads share a stripe.
inline size_t ThisStripe() {
  // The initial value is a constant, so that the compiler need not check at each access whether the
  // variable is initialised.
  static thread_local uint32_t mine = 0;
  if (__builtin_expect(mine == 0, 0)) {
    mine = last_thread.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  return mine % kStripes;
}

// Returns the number of slots from one stripe of a series to the next, a multiple of a cache line.
// Slot 0 of a stripe is the value of a counter or gauge, or the sum of a histogram. In a histogram,
// the counts of the buckets follow in slots 1, 2 and so on.
size_t StrideOf(const MetricInfo& info);

// The slots of one series. The slots of each stripe are contiguous.
struct Series {
  MetricSlot* slots = nullptr;
  size_t stride = 0;   // result of StrideOf
  size_t stripes = 0;  // number of stripes: a power of two, at most kStripes

  // Returns the slots of the stripe that this thread writes.
  MetricSlot* SlotsOfThisThread() const { return slots + (ThisStripe() & (stripes - 1)) * stride; }
  uint64_t Sum(size_t slot) const {
    uint64_t sum = 0;
    for (size_t s = 0; s < stripes; ++s) {
      sum += slots[s * stride + slot].load(std::memory_order_relaxed);
    }
    return sum;
  }
};

}  // namespace internal

// A monotonic counter.
class Counter {
 public:
  Counter() = default;
  explicit Counter(internal::Series series) : series_(series) {}

  void Add(int64_t units = 1) const {
    if (series_.slots == nullptr) return;
    series_.SlotsOfThisThread()->fetch_add(static_cast<uint64_t>(units), std::memory_order_relaxed);
  }
  void Add(absl::Duration time) const { Add(absl::ToInt64Nanoseconds(time)); }
  int64_t value() const {
    return series_.slots == nullptr ? 0 : static_cast<int64_t>(series_.Sum(0));
  }
  explicit operator bool() const { return series_.slots != nullptr; }

 private:
  internal::Series series_;
};
// A gauge that Add changes by positive and negative values.
using UpDownCounter = Counter;

// A gauge that is set to a value. The last writer wins.
class Gauge {
 public:
  Gauge() = default;
  explicit Gauge(internal::Series series) : slot_(series.slots) {}

  void Set(int64_t units) const {
    if (slot_ != nullptr) slot_->store(static_cast<uint64_t>(units), std::memory_order_relaxed);
  }

 private:
  internal::MetricSlot* slot_ = nullptr;
};

// A gauge of an age. It stores the time at which the age was 0, and readers compute the age.
class AgeGauge {
 public:
  AgeGauge() = default;
  explicit AgeGauge(internal::Series series) : slot_(series.slots) {}

  // Sets the time from which the age counts, as a result of Now(). If `monotonic_ns` is 0, the age
  // is always 0.
  void Set(int64_t monotonic_ns) const {
    if (slot_ != nullptr) {
      slot_->store(static_cast<uint64_t>(monotonic_ns), std::memory_order_relaxed);
    }
  }
  absl::Duration Age() const {
    const auto since =
        slot_ == nullptr ? 0 : static_cast<int64_t>(slot_->load(std::memory_order_relaxed));
    return since == 0 ? absl::ZeroDuration()
                      : absl::Nanoseconds(std::max<int64_t>(0, Now() - since));
  }
  // Reads the monotonic clock in nanoseconds. All processes of this machine share that clock.
  static int64_t Now();

 private:
  internal::MetricSlot* slot_ = nullptr;
};

class Histogram {
 public:
  Histogram() = default;
  Histogram(internal::Series series, const MetricBuckets* buckets)
      : series_(series), buckets_(buckets) {}

  void Observe(uint64_t units) const {
    if (series_.slots == nullptr) return;
    size_t bucket = 0;
    // The loop compares with every bound instead of stopping early: without a branch, none can be
    // mispredicted.
    for (const uint64_t bound : buckets_->observed_bounds) bucket += units > bound ? 1 : 0;
    internal::MetricSlot* const slots = series_.SlotsOfThisThread();
    slots[1 + bucket].fetch_add(1, std::memory_order_relaxed);
    slots[0].fetch_add(units, std::memory_order_relaxed);
  }
  void Observe(absl::Duration time) const {
    Observe(static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(time))));
  }
  explicit operator bool() const { return series_.slots != nullptr; }

 private:
  internal::Series series_;
  const MetricBuckets* buckets_ = nullptr;
};

// ---- The result of a collection. ---------------------------------------------------------------
struct MetricSample {
  std::vector<std::string> labels;  // label values, in the order of MetricInfo::labels
  double value = 0;                 // value of a counter or gauge
  std::vector<uint64_t> counts;     // counts of a histogram's buckets, not cumulative
  double sum = 0;                   // sum of a histogram's observations
};
struct MetricFamily {
  const MetricInfo* info = nullptr;
  std::vector<MetricSample> samples;  // in the order of their labels
};

class Metrics;

// Receives the samples that collectors compute during one collection. Used by one thread.
class SampleSink {
 public:
  using Labels = std::initializer_list<std::string_view>;
  // Adds `value` to the value that the series has in this collection.
  void Add(Metric metric, Labels labels, double value) { Add(metric, Span(labels), value); }
  void Add(Metric metric, absl::Span<const std::string_view> labels, double value);
  // Adds counts of buckets and the sum of observations to a histogram.
  void Merge(Metric metric, absl::Span<const std::string_view> labels,
             const std::vector<uint64_t>& counts, double sum);

 private:
  friend class Metrics;
  explicit SampleSink(Metrics* metrics) : metrics_(metrics) {}
  static absl::Span<const std::string_view> Span(Labels labels) {
    return {labels.begin(), labels.size()};
  }
  // Returns the sample, or null if there are too many series.
  MetricSample* SampleOf(Metric metric, absl::Span<const std::string_view> labels);

  Metrics* const metrics_;
  std::map<Metric, std::map<std::vector<std::string>, MetricSample>> families_;
  int64_t series_count_ = 0;
  int64_t refused_count_ = 0;
};

class Metrics {
 public:
  using Labels = std::initializer_list<std::string_view>;

  explicit Metrics(int64_t series_max = 20'000) : series_max_(series_max) {}
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `labels` are the values of the labels in the row of the metric. A value that is not in a closed
  // domain, or is beyond the bound of an open one, counts as "other". If there are `series_max`
  // series already, the result records nothing, and the refusal is counted.
  Counter counter(Metric metric, Labels labels = {}) ABSL_LOCKS_EXCLUDED(mu_);
  UpDownCounter up_down_counter(Metric metric, Labels labels = {}) {
    return counter(metric, labels);
  }
  Histogram histogram(Metric metric, Labels labels = {}) ABSL_LOCKS_EXCLUDED(mu_);

  // Every Collect calls `collector`, on the thread that called Collect, until RemoveCollector has
  // returned.
  using Collector = std::function<void(SampleSink&)>;
  int64_t AddCollector(Collector collector) ABSL_LOCKS_EXCLUDED(collectors_mu_);
  void RemoveCollector(int64_t id) ABSL_LOCKS_EXCLUDED(collectors_mu_);

  // Returns all metrics, in the order of the table. Concurrent calls run one at a time.
  std::vector<MetricFamily> Collect() ABSL_LOCKS_EXCLUDED(collectors_mu_, mu_);
  // Returns the value of one series, or the number of observations of a histogram. Returns 0 if
  // there is no such series. For tests.
  double Value(Metric metric, std::vector<std::string> labels = {});

 private:
  friend class SampleSink;
  // Returns `labels` with "other" in place of values that are not in a closed domain or are beyond
  // the bound of an open one.
  std::vector<std::string> BoundedLabels(const MetricInfo& info,
                                         absl::Span<const std::string_view> labels)
      ABSL_LOCKS_EXCLUDED(mu_);
  internal::Series SeriesOf(const MetricInfo& info, absl::Span<const std::string_view> labels)
      ABSL_LOCKS_EXCLUDED(mu_);

  const int64_t series_max_;
  std::atomic<int64_t> refused_{0};

  absl::Mutex collectors_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  int64_t last_collector_ ABSL_GUARDED_BY(collectors_mu_) = 0;
  std::map<int64_t, Collector> collectors_ ABSL_GUARDED_BY(collectors_mu_);

  absl::Mutex mu_;
  // The values of open domains that have been used so far.
  std::map<const LabelDomain*, std::set<std::string, std::less<>>> seen_ ABSL_GUARDED_BY(mu_);
  std::map<Metric, std::map<std::vector<std::string>, internal::Series>> series_
      ABSL_GUARDED_BY(mu_);
  int64_t series_count_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<internal::MetricSlot[]>> memory_ ABSL_GUARDED_BY(mu_);
};

// Adds the metrics of this process: process_*, tessera_threads, tessera_log_dropped_total and
// tessera_build_info. `grpc_version` is "" in a program without gRPC.
void CollectProcess(SampleSink& sink, std::string_view grpc_version);

}  // namespace tessera
