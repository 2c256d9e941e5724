// Measures the time to record metrics: our counters and histograms are compared with
// prometheus-cpp's in the same run, on one thread and on all cores.
//
//   bench-metrics --benchmark_min_time=0.5
#include "base/metrics.h"

#include <benchmark/benchmark.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <algorithm>
#include <string>
#include <thread>

#include "absl/time/time.h"

namespace tessera {
namespace {

Metrics& TheMetrics() {
  static auto* const metrics = new Metrics;
  return *metrics;
}

// Returns the next value of a sequence that visits all buckets.
uint64_t NextUnits(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 32;
}

void OurCounter(benchmark::State& state) {
  static const Counter counter =
      TheMetrics().counter(Metric::kOperationsSubmitted, {"a", "execute"});
  for (auto _ : state) counter.Add();
}
void TheirCounter(benchmark::State& state) {
  static auto* const counter = new prometheus::Counter;
  for (auto _ : state) counter->Increment();
}
void OurHistogram(benchmark::State& state) {
  static const Histogram histogram = TheMetrics().histogram(Metric::kSchedulerCycle);
  uint64_t random = 1;
  for (auto _ : state) histogram.Observe(NextUnits(random));
}
void TheirHistogram(benchmark::State& state) {
  static auto* const histogram =
      new prometheus::Histogram(InfoOf(Metric::kSchedulerCycle).buckets->bounds);
  uint64_t random = 1;
  for (auto _ : state) histogram->Observe(static_cast<double>(NextUnits(random)) * 1e-9);
}
// Measures one collection of 1,000 series.
void OurScrape(benchmark::State& state) {
  static auto* const metrics = [] {
    auto* const made = new Metrics;
    for (int t = 0; t < 200; ++t) {
      const std::string tenant = "t" + std::to_string(t);
      for (const char* kind : {"compile", "execute", "copy", "checkpoint", "other"})
        made->counter(Metric::kOperationsSubmitted, {tenant, kind}).Add();
    }
    return made;
  }();
  for (auto _ : state) benchmark::DoNotOptimize(metrics->Collect());
}

const int kThreads = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));

BENCHMARK(OurCounter);
BENCHMARK(TheirCounter);
BENCHMARK(OurHistogram);
BENCHMARK(TheirHistogram);
BENCHMARK(OurCounter)->Threads(kThreads)->UseRealTime();
BENCHMARK(TheirCounter)->Threads(kThreads)->UseRealTime();
BENCHMARK(OurHistogram)->Threads(kThreads)->UseRealTime();
BENCHMARK(TheirHistogram)->Threads(kThreads)->UseRealTime();
BENCHMARK(OurScrape);

}  // namespace
}  // namespace tessera

BENCHMARK_MAIN();
