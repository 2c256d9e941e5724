// Implements the metrics of a process. Threads add to slots in different stripes, so that they
// rarely write to the same slot. Each request for /metrics calls Collect, which sums the slots and
// asks the collectors for the other values. docs/metrics.md is generated from the same table of
// metrics.
#include "base/metrics.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "base/steady_nanos.h"

namespace tessera {
namespace internal {

std::atomic<uint32_t> last_thread{0};

size_t StrideOf(const MetricInfo& info) {
  const size_t slots = info.buckets == nullptr ? 1 : info.buckets->bounds.size() + 2;
  return (slots + kSlotsPerLine - 1) / kSlotsPerLine * kSlotsPerLine;
}

}  // namespace internal

namespace {

using internal::kStripes;
using internal::MetricSlot;

enum class BucketSet : uint8_t { kNone, kFast, kLong };

struct MetricRow {
  const char* name;
  MetricType type;
  const char* labels;
  BucketSet buckets;
  MetricSource source;
  const char* help;
};
constexpr MetricRow kRows[] = {
#define TESSERA_METRIC(id, name, type, labels, buckets, source, help) \
  {name, MetricType::k##type, labels, BucketSet::k##buckets, MetricSource::k##source, help},
#include "base/metrics.def"
};

std::vector<std::string> ParseClosedValues(std::string_view text) {
  std::vector<std::string> values;
  for (const auto value : absl::StrSplit(ToAbsl(text), '|')) {
    if (value == "@error_kinds") {
      for (const ErrorKindInfo* info = ErrorKindsBegin(); info != ErrorKindsEnd(); ++info) {
        values.emplace_back(info->reason);
      }
    } else if (value == "@collective_kinds") {
#define TESSERA_COLLECTIVE_KIND(symbol, name, ...) values.emplace_back(name);
#include "base/collective_kinds.def"
#undef TESSERA_COLLECTIVE_KIND
    } else {
      values.emplace_back(value);
    }
  }
  return values;
}

std::vector<LabelDomain> MakeDomains() {
  std::vector<LabelDomain> domains;
#define TESSERA_LABEL(domain, values) \
  domains.push_back({#domain, /*open=*/false, 0, ParseClosedValues(values)});
#define TESSERA_OPEN_LABEL(domain, max) domains.push_back({#domain, /*open=*/true, max, {}});
#include "base/metrics.def"
  return domains;
}

// Returns the number of observed units per exposed unit. Times are observed in nanoseconds and
// exposed in seconds; all other values are exposed as they are observed.
double UnitsPerExposed(std::string_view name) {
  return name.find("seconds") != std::string_view::npos ? 1e9 : 1;
}

// Returns the upper bounds of the buckets, in seconds.
const std::vector<double>& Bounds(BucketSet set) {
  static const auto* const fast = new std::vector<double>{
      .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10};
  static const auto* const longer = new std::vector<double>{
      .001, .01, .05, .1, .5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400};
  return set == BucketSet::kFast ? *fast : *longer;
}

// Returns the buckets of a bucket set in a unit. There is one object for each such pair, and it is
// never freed.
const MetricBuckets* BucketsOf(BucketSet set, double units) {
  static auto* const made = new std::map<std::pair<BucketSet, double>, const MetricBuckets*>;
  const MetricBuckets*& buckets = (*made)[{set, units}];
  if (buckets != nullptr) return buckets;
  auto* const fresh = new MetricBuckets;
  fresh->bounds = Bounds(set);
  for (const double bound : fresh->bounds) {
    fresh->observed_bounds.push_back(static_cast<uint64_t>(bound * units + 0.5));
  }
  return buckets = fresh;
}

std::vector<LabelInfo> ParseLabels(std::string_view text) {
  std::vector<LabelInfo> labels;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(ToAbsl(text), ',', absl::SkipEmpty()))) {
    const size_t colon = part.find(':');
    const std::string domain = colon == std::string::npos ? part : part.substr(colon + 1);
    const auto& domains = AllLabelDomains();
    const auto it = std::find_if(domains.begin(), domains.end(),
                                 [&](const LabelDomain& d) { return d.name == domain; });
    TESSERA_CHECK(it != domains.end()) << "base/metrics.def: there is no label domain " << domain;
    labels.push_back({part.substr(0, colon), &*it});
  }
  return labels;
}

std::vector<MetricInfo> MakeInfos() {
  std::vector<MetricInfo> infos;
  for (const MetricRow& row : kRows) {
    MetricInfo info;
    info.id = static_cast<Metric>(infos.size());
    info.name = row.name;
    info.type = row.type;
    info.labels = ParseLabels(row.labels);
    info.source = row.source;
    info.help = row.help;
    info.units_per_exposed = UnitsPerExposed(row.name);
    TESSERA_CHECK_EQ(row.type == MetricType::kHistogram, row.buckets != BucketSet::kNone)
        << row.name;
    if (row.buckets != BucketSet::kNone)
      info.buckets = BucketsOf(row.buckets, info.units_per_exposed);
    infos.push_back(std::move(info));
  }
  return infos;
}

std::string_view TypeName(MetricType type) {
  constexpr std::string_view kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view SourceName(MetricSource source) {
  constexpr std::string_view kNames[] = {"coordinator", "worker", "both", "worker", "both"};
  return kNames[static_cast<size_t>(source)];
}

std::string_view BucketsName(const MetricInfo& info) {
  if (info.buckets == nullptr) return "";
  return info.buckets->bounds == Bounds(BucketSet::kFast) ? "fast" : "long";
}

}  // namespace

int64_t AgeGauge::Now() { return SteadyNanos(); }

int LabelDomain::Find(std::string_view value) const {
  const auto it = std::find(values.begin(), values.end(), value);
  return it == values.end() ? -1 : static_cast<int>(it - values.begin());
}

int MetricInfo::LabelIndex(std::string_view label_name) const {
  for (size_t l = 0; l < labels.size(); ++l) {
    if (labels[l].name == label_name) return static_cast<int>(l);
  }
  return -1;
}

const std::vector<LabelDomain>& AllLabelDomains() {
  static const auto* const domains = new std::vector<LabelDomain>(MakeDomains());
  return *domains;
}

const std::vector<MetricInfo>& AllMetrics() {
  static const auto* const infos = new std::vector<MetricInfo>(MakeInfos());
  return *infos;
}

const MetricInfo& InfoOf(Metric metric) { return AllMetrics()[static_cast<size_t>(metric)]; }

// Writes the page from the same table that the daemons use, so that it cannot become wrong.
// base_docs_test compares the result with docs/metrics.md and can rewrite the file.
std::string MetricsMarkdown() {
  std::string text =
      "# Metrics\n\n"
      "For operators, and for people who build dashboards and alerts.\n\n"
      "Generated by `base_docs_test --rewrite` from `base/metrics.def`.\n\n"
      "The coordinator exposes its metrics at `http://127.0.0.1:9470/metrics`, a worker its own\n"
      "and its executors' at `http://127.0.0.1:9471/metrics` (`--metrics-listen`). They are plain\n"
      "HTTP without a password. They hold no data of users, but names of tenants and programs, so\n"
      "open them only to the network of your Prometheus.\n\n"
      "A counter or histogram appears with its first event. Gauges are computed when they are\n"
      "asked for. If the coordinator's scheduler does not answer within a second, the gauges that\n"
      "need it are left out instead of showing old values, and `tessera_eventloop_lag_seconds`\n"
      "grows. The metrics of an executor are read from memory that it shares with its worker, so\n"
      "they are current even if the executor hangs. `/healthz` at the same address says whether\n"
      "the daemon is alive. `device` is the device's number within its worker. Canaries run under\n"
      "the tenant `system`. The metrics `exposer_*` are the HTTP server's own.\n\n"
      "| metric | type | labels | buckets | where | meaning |\n"
      "|---|---|---|---|---|---|\n";
  for (const MetricInfo& info : AllMetrics()) {
    std::vector<std::string> labels;
    for (const LabelInfo& label : info.labels) {
      labels.push_back(label.name == label.domain->name
                           ? label.name
                           : absl::StrCat(label.name, " (", label.domain->name, ")"));
    }
    absl::StrAppend(&text, "| `", info.name, "` | ", ToAbsl(TypeName(info.type)), " | ",
                    absl::StrJoin(labels, ", "), " | ", ToAbsl(BucketsName(info)), " | ",
                    ToAbsl(SourceName(info.source)), " | ", info.help, " |\n");
  }
  absl::StrAppend(&text, "\n## Labels\n\n| label | values |\n|---|---|\n");
  for (const LabelDomain& domain : AllLabelDomains()) {
    absl::StrAppend(&text, "| ", domain.name, " | ",
                    domain.open ? absl::StrCat("names, at most ", domain.max,
                                               "; further names count as `other`")
                                : absl::StrCat("`", absl::StrJoin(domain.values, "` `"), "`"),
                    " |\n");
  }
  absl::StrAppend(&text, "\n## Buckets\n\n| buckets | upper bounds |\n|---|---|\n");
  for (const auto& [set, name] :
       {std::pair(BucketSet::kFast, "fast"), {BucketSet::kLong, "long"}}) {
    absl::StrAppend(&text, "| ", name, " | ", absl::StrJoin(Bounds(set), " "), " |\n");
  }
  return text;
}

// ---- Series. ------------------------------------------------------------------------------------

std::vector<std::string> Metrics::BoundedLabels(const MetricInfo& info,
                                                absl::Span<const std::string_view> labels) {
  TESSERA_CHECK_EQ(labels.size(), info.labels.size()) << info.name;
  std::vector<std::string> out;
  for (size_t l = 0; l < labels.size(); ++l) {
    const LabelDomain& domain = *info.labels[l].domain;
    if (!domain.open) {
      out.emplace_back(domain.Find(labels[l]) >= 0 ? labels[l] : kOtherLabel);
      continue;
    }
    absl::MutexLock lock(&mu_);
    auto& seen = seen_[&domain];
    if (seen.size() < domain.max) seen.emplace(labels[l]);
    out.emplace_back(seen.contains(labels[l]) ? labels[l] : kOtherLabel);
  }
  return out;
}

internal::Series Metrics::SeriesOf(const MetricInfo& info,
                                   absl::Span<const std::string_view> labels) {
  const std::vector<std::string> bounded = BoundedLabels(info, labels);
  absl::MutexLock lock(&mu_);
  auto& family = series_[info.id];
  if (const auto it = family.find(bounded); it != family.end()) return it->second;
  if (series_count_ >= series_max_) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  ++series_count_;
  internal::Series series;
  series.stride = internal::StrideOf(info);
  series.stripes = kStripes;
  // Allocate one more cache line, so that the first stripe can begin at the start of a line.
  const size_t total = series.stride * kStripes + internal::kSlotsPerLine;
  memory_.push_back(std::make_unique<MetricSlot[]>(total));
  const auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
  series.slots = memory_.back().get() + (64 - address % 64) % 64 / sizeof(MetricSlot);
  family.emplace(bounded, series);
  return series;
}

Counter Metrics::counter(Metric metric, Labels labels) {
  const MetricInfo& info = InfoOf(metric);
  TESSERA_CHECK(info.type != MetricType::kHistogram) << info.name;
  return Counter(SeriesOf(info, {labels.begin(), labels.size()}));
}

Histogram Metrics::histogram(Metric metric, Labels labels) {
  const MetricInfo& info = InfoOf(metric);
  TESSERA_CHECK(info.type == MetricType::kHistogram) << info.name;
  return {SeriesOf(info, {labels.begin(), labels.size()}), info.buckets};
}

// ---- Collection. --------------------------------------------------------------------------------

MetricSample* SampleSink::SampleOf(Metric metric, absl::Span<const std::string_view> labels) {
  std::vector<std::string> bounded = metrics_->BoundedLabels(InfoOf(metric), labels);
  auto& family = families_[metric];
  const auto it = family.find(bounded);
  if (it != family.end()) return &it->second;
  if (series_count_ >= metrics_->series_max_) {
    ++refused_count_;
    return nullptr;
  }
  ++series_count_;
  MetricSample sample;
  sample.labels = bounded;
  return &family.emplace(std::move(bounded), std::move(sample)).first->second;
}

void SampleSink::Add(Metric metric, absl::Span<const std::string_view> labels, double value) {
  if (MetricSample* const sample = SampleOf(metric, labels)) sample->value += value;
}

void SampleSink::Merge(Metric metric, absl::Span<const std::string_view> labels,
                       const std::vector<uint64_t>& counts, double sum) {
  MetricSample* const sample = SampleOf(metric, labels);
  if (sample == nullptr) return;
  sample->counts.resize(std::max(sample->counts.size(), counts.size()));
  for (size_t b = 0; b < counts.size(); ++b) sample->counts[b] += counts[b];
  sample->sum += sum;
}

int64_t Metrics::AddCollector(Collector collector) {
  absl::MutexLock lock(&collectors_mu_);
  collectors_.emplace(++last_collector_, std::move(collector));
  return last_collector_;
}

void Metrics::RemoveCollector(int64_t id) {
  absl::MutexLock lock(&collectors_mu_);
  collectors_.erase(id);
}

// Collects the values of all series and then runs the collectors, which may add to the same series.
// The map of series is copied under its lock, so that recording threads that create series do not
// wait for slow collectors. The limit on series also holds for series that the collectors add;
// values beyond it are left out and counted.
std::vector<MetricFamily> Metrics::Collect() {
  // The lock is held while the collectors run, so that RemoveCollector waits for them.
  absl::MutexLock collecting(&collectors_mu_);
  SampleSink sink(this);
  std::map<Metric, std::map<std::vector<std::string>, internal::Series>> series;
  {
    absl::MutexLock lock(&mu_);
    series = series_;
  }
  for (const auto& [metric, family] : series) {
    const MetricInfo& info = InfoOf(metric);
    for (const auto& [labels, slots] : family) {
      const std::vector<std::string_view> views(labels.begin(), labels.end());
      if (info.buckets == nullptr) {
        sink.Add(metric, views,
                 static_cast<double>(static_cast<int64_t>(slots.Sum(0))) / info.units_per_exposed);
        continue;
      }
      std::vector<uint64_t> counts;
      for (size_t b = 0; b <= info.buckets->bounds.size(); ++b) counts.push_back(slots.Sum(1 + b));
      sink.Merge(metric, views, counts, static_cast<double>(slots.Sum(0)) / info.units_per_exposed);
    }
  }
  for (const auto& [id, collector] : collectors_) collector(sink);
  // The three series below are exempt from the limit, but are included in the count.
  const int64_t shown = sink.series_count_ + 3;
  const auto set = [&](Metric metric, int64_t value) {
    sink.families_[metric][{}].value = static_cast<double>(value);
  };
  set(Metric::kMetricsSeries, shown);
  set(Metric::kMetricsSeriesMax, series_max_);
  set(Metric::kMetricsSeriesRefused,
      refused_.fetch_add(sink.refused_count_, std::memory_order_relaxed) + sink.refused_count_);
  std::vector<MetricFamily> families;
  for (auto& [metric, samples] : sink.families_) {
    MetricFamily& family = families.emplace_back();
    family.info = &InfoOf(metric);
    for (auto& [labels, sample] : samples) family.samples.push_back(std::move(sample));
  }
  return families;
}

double Metrics::Value(Metric metric, std::vector<std::string> labels) {
  for (const MetricFamily& family : Collect()) {
    if (family.info->id != metric) continue;
    for (const MetricSample& sample : family.samples) {
      if (sample.labels != labels) continue;
      if (family.info->buckets == nullptr) return sample.value;
      uint64_t count = 0;
      for (const uint64_t n : sample.counts) count += n;
      return static_cast<double>(count);
    }
  }
  return 0;
}

}  // namespace tessera
