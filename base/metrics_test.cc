// Proves that metrics add up over threads, processes and devices, that labels and series are
// bounded, and that the HTTP server serves them. No daemon is started; one test kills a child
// process that has written into shared memory.
#include "base/metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/metrics_http.h"
#include "base/metrics_page.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Returns the samples of one family; none if the family does not exist.
std::vector<MetricSample> SamplesOf(Metrics& metrics, Metric metric) {
  for (MetricFamily& family : metrics.Collect()) {
    if (family.info->id == metric) return std::move(family.samples);
  }
  return {};
}

TEST(MetricsTable, NamesSayTypeAndUnitAndAreUnique) {
  std::set<std::string> names;
  for (const MetricInfo& info : AllMetrics()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(std::regex_match(info.name, std::regex("(tessera|process)_[a-z_]+"))) << info.name;
    EXPECT_EQ(info.type == MetricType::kCounter, absl::EndsWith(info.name, "_total")) << info.name;
    if (info.type == MetricType::kHistogram) {
      EXPECT_TRUE(absl::EndsWith(info.name, "_seconds")) << info.name;
    }
    EXPECT_TRUE(absl::EndsWith(info.help, ".")) << info.name;
    for (const LabelInfo& label : info.labels) {
      for (const char* forbidden : {"session", "array", "operation", "hash", "client"}) {
        EXPECT_NE(label.name, forbidden) << info.name;
      }
    }
  }
}

TEST(Metrics, CountersAddUpOverThreads) {
  Metrics metrics;
  const Counter counter = metrics.counter(Metric::kOperationsSubmitted, {"acme", "execute"});
  constexpr int kThreads = 20, kAdds = 1000;  // more threads than stripes
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kAdds; ++i) counter.Add();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"acme", "execute"}), kThreads * kAdds);
  // Asking for the same labels again gives the same series.
  metrics.counter(Metric::kOperationsSubmitted, {"acme", "execute"}).Add(5);
  EXPECT_EQ(counter.value(), kThreads * kAdds + 5);
}

TEST(Metrics, GaugesGoDownOnOtherThreads) {
  Metrics metrics;
  const UpDownCounter gauge = metrics.up_down_counter(Metric::kRpcInFlight, {"S", "M"});
  gauge.Add(3);
  std::thread([&] { gauge.Add(-2); }).join();
  EXPECT_EQ(metrics.Value(Metric::kRpcInFlight, {"S", "M"}), 1);
}

TEST(Metrics, AValueEqualToABoundFallsIntoItsBucket) {
  Metrics metrics;
  const Histogram histogram = metrics.histogram(Metric::kSchedulerCycle);
  histogram.Observe(absl::Microseconds(100));  // the first bound itself
  histogram.Observe(absl::Microseconds(101));
  histogram.Observe(absl::Seconds(10));
  histogram.Observe(absl::Seconds(11));
  histogram.Observe(absl::Seconds(-1));  // as if a clock had gone back
  const std::vector<MetricSample> samples = SamplesOf(metrics, Metric::kSchedulerCycle);
  ASSERT_EQ(samples.size(), 1u);
  const std::vector<uint64_t>& counts = samples[0].counts;
  ASSERT_EQ(counts.size(), 17u);
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[1], 1u);
  EXPECT_EQ(counts[15], 1u);
  EXPECT_EQ(counts[16], 1u);
  EXPECT_NEAR(samples[0].sum, 21.000201, 1e-9);
}

TEST(Metrics, DefaultConstructedMetricsRecordNothing) {
  Counter().Add(1);
  Histogram().Observe(absl::Seconds(1));
}

TEST(Metrics, TenantsBeyondTheBoundCountAsOther) {
  Metrics metrics;
  for (int t = 0; t < 300; ++t) {
    const std::string tenant = absl::StrCat("t", t);
    metrics.counter(Metric::kOperationsSubmitted, {tenant, "execute"}).Add();
  }
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"t199", "execute"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"t200", "execute"}), 0);
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"other", "execute"}), 100);
  // The bound applies to the label's domain, so a tenant beyond it counts as "other" in every
  // metric.
  const int64_t id = metrics.AddCollector([](SampleSink& sink) {
    sink.Add(Metric::kQueueDepth, {"t250", "normal"}, 7);
  });
  EXPECT_EQ(metrics.Value(Metric::kQueueDepth, {"other", "normal"}), 7);
  metrics.RemoveCollector(id);
}

TEST(Metrics, AValueOutsideAClosedDomainCountsAsOther) {
  Metrics metrics;
  metrics.counter(Metric::kOperationsCompleted, {"a", "execute", "ok", "NO_SUCH_REASON"}).Add();
  metrics.counter(Metric::kOperationsCompleted, {"a", "execute", "error", "WORKER_LOST"}).Add();
  EXPECT_EQ(metrics.Value(Metric::kOperationsCompleted, {"a", "execute", "ok", "other"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kOperationsCompleted, {"a", "execute", "error", "WORKER_LOST"}),
            1);
}

TEST(Metrics, SeriesBeyondTheLimitAreRefusedAndCounted) {
  Metrics metrics(/*series_max=*/3);
  for (const char* tenant : {"a", "b", "c", "d", "e"}) {
    metrics.counter(Metric::kOperationsSubmitted, {tenant, "execute"}).Add();
  }
  metrics.counter(Metric::kOperationsSubmitted, {"a", "execute"}).Add();
  EXPECT_EQ(SamplesOf(metrics, Metric::kOperationsSubmitted).size(), 3u);
  EXPECT_EQ(metrics.Value(Metric::kOperationsSubmitted, {"a", "execute"}), 2);
  EXPECT_EQ(metrics.Value(Metric::kMetricsSeriesRefused), 2);
  EXPECT_EQ(metrics.Value(Metric::kMetricsSeriesMax), 3);
  // Collectors cannot exceed the limit either. The series that they add beyond the limit are left
  // out, and counted at each collection.
  metrics.AddCollector([](SampleSink& sink) { sink.Add(Metric::kThreads, {}, 1); });
  EXPECT_EQ(SamplesOf(metrics, Metric::kThreads).size(), 0u);
  EXPECT_EQ(metrics.Value(Metric::kMetricsSeriesRefused), 4);
}

TEST(Metrics, SeriesAreCounted) {
  Metrics metrics;
  metrics.counter(Metric::kOperationsSubmitted, {"a", "execute"});
  metrics.counter(Metric::kOperationsSubmitted, {"b", "execute"});
  int64_t shown = 0;
  double exposed = 0;
  for (const MetricFamily& family : metrics.Collect()) {
    shown += static_cast<int64_t>(family.samples.size());
    if (family.info->id == Metric::kMetricsSeries) exposed = family.samples[0].value;
  }
  EXPECT_EQ(exposed, shown);
}

TEST(Metrics, CollectorsRunAtEachCollectionUntilTheyAreRemoved) {
  Metrics metrics;
  double value = 1;
  const int64_t id = metrics.AddCollector([&](SampleSink& sink) {
    sink.Add(Metric::kSessions, {"a", "active"}, value);
  });
  EXPECT_EQ(metrics.Value(Metric::kSessions, {"a", "active"}), 1);
  value = 2;
  EXPECT_EQ(metrics.Value(Metric::kSessions, {"a", "active"}), 2);
  metrics.RemoveCollector(id);
  EXPECT_THAT(SamplesOf(metrics, Metric::kSessions), ::testing::IsEmpty());
}

TEST(Metrics, TheProcessHasMetrics) {
  Metrics metrics;
  metrics.AddCollector([](SampleSink& sink) { CollectProcess(sink, "1.2.3"); });
  EXPECT_GT(metrics.Value(Metric::kProcessResident), 1 << 20);
  EXPECT_GE(metrics.Value(Metric::kThreads), 1);
  EXPECT_GE(metrics.Value(Metric::kProcessFds), 3);
  EXPECT_NEAR(metrics.Value(Metric::kProcessStart),
              absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()), 3600);
  const std::vector<MetricSample> build = SamplesOf(metrics, Metric::kBuildInfo);
  ASSERT_EQ(build.size(), 1u);
  EXPECT_EQ(build[0].labels[3], "1.2.3");
}

// ---- Pages. -------------------------------------------------------------------------------------

TEST(MetricsPage, ValuesOfAKilledProcessAreRead) {
  MetricsPage page(/*num_devices=*/3);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto mapped = MetricsPage::Map(page.fd(), 3);
    if (!mapped.ok()) _exit(1);
    (*mapped)->counter(Metric::kTransferBytes, {"put", "ticket"}).Add(1000);
    (*mapped)->up_down_counter(Metric::kDeviceMemory, {"reserved"}, 2).Add(77);
    (*mapped)->histogram(Metric::kCompileSeconds, {"cpu", "ok"}).Observe(absl::Milliseconds(5));
    (*mapped)->counter(Metric::kDeviceBusy, {}, 1).Add(absl::Seconds(3));
    static_cast<void>(!write(ready[1], "x", 1));
    pause();
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);

  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { page.Collect(sink, "w0", /*first_device=*/4); });
  EXPECT_EQ(metrics.Value(Metric::kTransferBytes, {"w0", "put", "ticket"}), 1000);
  EXPECT_EQ(metrics.Value(Metric::kDeviceMemory, {"w0", "6", "reserved"}), 77);
  EXPECT_EQ(metrics.Value(Metric::kDeviceMemory, {"w0", "5", "reserved"}), 0);
  EXPECT_EQ(metrics.Value(Metric::kCompileSeconds, {"w0", "cpu", "ok"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kDeviceBusy, {"w0", "5"}), 3);

  page.ResetGauges();
  EXPECT_EQ(metrics.Value(Metric::kDeviceMemory, {"w0", "6", "reserved"}), 0);
  EXPECT_EQ(metrics.Value(Metric::kTransferBytes, {"w0", "put", "ticket"}), 1000);
}

TEST(MetricsPage, PagesOfOneWorkerAddUp) {
  MetricsPage a(1), b(1);
  a.counter(Metric::kTransferBytes, {"put", "ticket"}).Add(1);
  b.counter(Metric::kTransferBytes, {"put", "ticket"}).Add(2);
  a.histogram(Metric::kDispatch, {"launch"}).Observe(absl::Milliseconds(1));
  b.histogram(Metric::kDispatch, {"launch"}).Observe(absl::Milliseconds(1));
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) {
    a.Collect(sink, "w", 0);
    b.Collect(sink, "w", 1);
  });
  EXPECT_EQ(metrics.Value(Metric::kTransferBytes, {"w", "put", "ticket"}), 3);
  EXPECT_EQ(metrics.Value(Metric::kDispatch, {"launch"}), 2);
}

TEST(MetricsPage, EverySeriesHasCellsOfItsOwn) {
  constexpr int kDevices = 2;
  MetricsPage page(kDevices);
  int64_t series = 0;
  for (const MetricInfo& info : AllMetrics()) {
    if (!info.in_executor() || info.type == MetricType::kHistogram ||
        info.LabelIndex("device") < 0 || info.id == Metric::kDeviceProgressAge) {
      continue;
    }
    const bool has_kind_label = info.labels.size() == 3;
    for (int d = 0; d < kDevices; ++d) {
      if (!has_kind_label) {
        page.counter(info.id, {}, d).Add(++series);
        continue;
      }
      for (const std::string& value : info.labels[2].domain->values) {
        page.counter(info.id, {value}, d).Add(++series);
      }
    }
  }
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { page.Collect(sink, "w", 0); });
  std::set<double> units;
  for (const MetricFamily& family : metrics.Collect()) {
    if (family.info->LabelIndex("device") < 0 || family.info->id == Metric::kDeviceProgressAge)
      continue;
    for (const MetricSample& sample : family.samples)
      units.insert(std::round(sample.value * family.info->units_per_exposed));
  }
  EXPECT_EQ(static_cast<int64_t>(units.size()), series) << absl::StrJoin(units, " ");
}

TEST(MetricsPage, AnAgeGrowsWithoutItsWriter) {
  MetricsPage page(1);
  const AgeGauge age = page.age_gauge(Metric::kDeviceProgressAge);
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { page.Collect(sink, "w", 0); });
  EXPECT_EQ(metrics.Value(Metric::kDeviceProgressAge, {"w", "0"}), 0);
  age.Set(AgeGauge::Now() - 5'000'000'000);
  EXPECT_GE(metrics.Value(Metric::kDeviceProgressAge, {"w", "0"}), 5);
  EXPECT_LT(metrics.Value(Metric::kDeviceProgressAge, {"w", "0"}), 60);
  page.ResetGauges();
  EXPECT_EQ(metrics.Value(Metric::kDeviceProgressAge, {"w", "0"}), 0);
}

TEST(MetricsPage, AGaugeHoldsTheValueThatWasSetLast) {
  MetricsPage page(1);
  const Gauge level = page.gauge(Metric::kCollectiveBandwidth, {"all_reduce", "1Mi"});
  level.Set(10);
  std::thread([&] { level.Set(7); }).join();
  Metrics metrics;
  metrics.AddCollector([&](SampleSink& sink) { page.Collect(sink, "w", 0); });
  EXPECT_EQ(metrics.Value(Metric::kCollectiveBandwidth, {"w", "all_reduce", "1Mi"}), 7);
}

TEST(MetricsPage, APageOfAnotherSizeIsNotMapped) {
  MetricsPage page(2);
  EXPECT_EQ(ReasonOf(MetricsPage::Map(page.fd(), 3).status()), "VALUE_ERROR");
  EXPECT_EQ(ReasonOf(MetricsPage::Map(STDIN_FILENO, 2).status()), "VALUE_ERROR");
}

// ---- HTTP. --------------------------------------------------------------------------------------

int Dial(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts[1], &port));
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, parts[0].c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

std::string Get(const std::string& address, const std::string& path = "/metrics") {
  const int fd = Dial(address);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string reply;
  pollfd readable{fd, POLLIN, 0};
  char buffer[4096];
  while (poll(&readable, 1, 20'000) == 1) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    reply.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return reply;
}

TEST(MetricsServer, ServesTheTextFormat) {
  Metrics metrics;
  metrics.counter(Metric::kOperationsSubmitted, {"a\"b", "execute"}).Add(3);
  const Histogram histogram = metrics.histogram(Metric::kSchedulerCycle);
  for (int i = 0; i < 10; ++i) histogram.Observe(absl::Milliseconds(i));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", &metrics));
  const std::string reply = Get(server->address());
  EXPECT_THAT(reply, HasSubstr("200 OK"));
  EXPECT_THAT(Get(server->address(), "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(Get(server->address(), "/elsewhere"), HasSubstr("404"));
  EXPECT_THAT(reply, HasSubstr("# TYPE tessera_operations_submitted_total counter\n"));
  EXPECT_THAT(reply, HasSubstr("tessera_operations_submitted_total{tenant=\"a\\\"b\",kind="
                               "\"execute\"} 3\n"));
  EXPECT_THAT(reply, HasSubstr("# TYPE tessera_scheduler_cycle_seconds histogram\n"));
  EXPECT_THAT(reply, HasSubstr("tessera_scheduler_cycle_seconds_bucket{le=\"+Inf\"} 10\n"));
  EXPECT_THAT(reply, HasSubstr("tessera_scheduler_cycle_seconds_count 10\n"));
  EXPECT_THAT(reply, HasSubstr("tessera_scheduler_cycle_seconds_bucket{le=\"0.001\"} 2\n"));
}

TEST(MetricsServer, AClientThatNeverReadsDoesNotStopTheNext) {
  Metrics metrics;
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", &metrics));
  const int silent = Dial(server->address());
  EXPECT_THAT(Get(server->address()), HasSubstr("tessera_metrics_series"));
  close(silent);
}

TEST(MetricsServer, ATakenPortIsAnErrorUnlessItIsTheDefault) {
  Metrics metrics;
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, MetricsServer::Start("127.0.0.1:0", &metrics));
  EXPECT_EQ(MetricsServer::Start(first->address(), &metrics).status().code(),
            absl::StatusCode::kUnavailable);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto second,
                               MetricsServer::StartForDaemon("", first->address(), "", &metrics));
  EXPECT_NE(second->address(), first->address());
  EXPECT_FALSE(MetricsServer::StartForDaemon(first->address(), "127.0.0.1:0", "", &metrics).ok());
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto none,
                               MetricsServer::StartForDaemon("off", "127.0.0.1:0", "", &metrics));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(ReasonOf(MetricsServer::Start("localhost", &metrics).status()), "VALUE_ERROR");
}

}  // namespace
}  // namespace tessera
