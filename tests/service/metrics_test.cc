// Tests the metrics that real daemons show to Prometheus under a small load, the health that they
// report when an executor hangs, and the lines of JSON logs.
#include "base/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "nlohmann/json.hpp"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kWorkers = 2, kDevices = 2;
constexpr absl::Duration kPatience = absl::Seconds(30);

// Polls only twenty times a second: every poll is a scrape, which costs the scraped daemons some
// work.
template <class F>
bool Eventually(F done, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  const absl::Notification never;
  while (!done()) {
    if (absl::Now() > end) return false;
    never.WaitForNotificationWithTimeout(absl::Milliseconds(50));
  }
  return true;
}

// Returns the body of http://`address`/metrics.
std::string Fetch(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  sockaddr_in server{};
  server.sin_family = AF_INET;
  int port = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &port)) return "";
  server.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, parts[0].c_str(), &server.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&server), sizeof(server)) == 0) {
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    static_cast<void>(!write(fd, request.data(), request.size()));
    pollfd readable{fd, POLLIN, 0};
    char buffer[16 << 10];
    while (poll(&readable, 1, 20'000) == 1) {
      const ssize_t got = read(fd, buffer, sizeof(buffer));
      if (got <= 0) break;
      reply.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  const size_t body = reply.find("\r\n\r\n");
  return body == std::string::npos ? "" : reply.substr(body + 4);
}

using Labels = std::map<std::string, std::string>;
struct Exposition {
  std::map<std::string, std::string> types;                 // types by the name of the family
  std::map<std::string, std::map<Labels, double>> samples;  // values by the name of the sample

  // Returns the sum of the samples that have these labels.
  double Sum(const std::string& name, const Labels& labels = {}) const {
    double sum = 0;
    const auto it = samples.find(name);
    if (it == samples.end()) return 0;
    for (const auto& sample : it->second) {
      const Labels& sample_labels = sample.first;
      const bool fits = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
        const auto l = sample_labels.find(label.first);
        return l != sample_labels.end() && l->second == label.second;
      });
      if (fits) sum += sample.second;
    }
    return sum;
  }
};

// Parses Prometheus' text format. The test has a parser of its own, which notices a malformed line
// and a sample that occurs twice.
Exposition Parse(const std::string& text) {
  static const auto* const line_form =
      new std::regex(R"(^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$)");
  static const auto* const label_form = new std::regex(R"re(([a-z_]+)="((?:[^"\\]|\\.)*)")re");
  Exposition out;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (line.empty()) continue;
    if (line[0] == '#') {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      if (words.size() == 4 && words[1] == "TYPE") out.types[words[2]] = words[3];
      continue;
    }
    std::smatch match;
    EXPECT_TRUE(std::regex_match(line, match, *line_form)) << line;
    if (match.empty()) continue;
    Labels labels;
    const std::string inside = match[2];
    for (std::sregex_iterator it(inside.begin(), inside.end(), *label_form), end; it != end; ++it) {
      labels[(*it)[1]] = (*it)[2];
    }
    double value = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(absl::SimpleAtod(std::string(match[3]), &value)) << line;
    EXPECT_TRUE(out.samples[match[1]].emplace(labels, value).second) << "twice: " << line;
  }
  return out;
}

const MetricInfo* FindMetric(const std::string& name) {
  for (const MetricInfo& info : AllMetrics()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

// Expects that every family of metrics is in the metrics table, with the table's type and labels,
// and that the label values are in their closed sets.
void ExpectMatchesTheTable(const Exposition& exposition) {
  constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
  for (const auto& [family, type] : exposition.types) {
    if (absl::StartsWith(family, "exposer_")) continue;
    const MetricInfo* const info = FindMetric(family);
    ASSERT_NE(info, nullptr) << family;
    EXPECT_EQ(type, kTypes[static_cast<size_t>(info->type)]) << family;
    const bool histogram = info->type == MetricType::kHistogram;
    for (const auto& [labels, value] :
         exposition.samples.at(histogram ? family + "_bucket" : family)) {
      std::set<std::string> names, expected;
      for (const auto& [name, text] : labels) {
        names.insert(name);
        const int label_index = info->LabelIndex(name);
        if (label_index < 0) continue;
        const LabelDomain& domain = *info->labels[label_index].domain;
        EXPECT_TRUE(domain.open || domain.Find(text) >= 0) << family << " " << name << "=" << text;
      }
      for (const LabelInfo& label : info->labels) expected.insert(label.name);
      if (histogram) expected.insert("le");
      EXPECT_EQ(names, expected) << family;
      EXPECT_FALSE(std::isnan(value)) << family;
    }
  }
  for (const auto& [name, values] : exposition.samples) {
    if (absl::StartsWith(name, "exposer_")) continue;
    const std::string family = std::regex_replace(name, std::regex("_(bucket|sum|count)$"), "");
    EXPECT_TRUE(exposition.types.count(name) + exposition.types.count(family) > 0) << name;
  }
}

// Expects that the buckets of each histogram increase up to its count, and that its sum is at least
// the lower bound that follows from the buckets.
void ExpectHistogramsAreConsistent(const Exposition& exposition) {
  int histograms = 0;
  for (const auto& [family, type] : exposition.types) {
    if (type != "histogram") continue;
    const MetricInfo& info = *FindMetric(family);
    std::map<Labels, std::map<double, double>> series;
    for (const auto& [bucket, value] : exposition.samples.at(family + "_bucket")) {
      Labels labels = bucket;
      const std::string le = labels.at("le");
      double bound = std::numeric_limits<double>::infinity();
      if (le != "+Inf") {
        EXPECT_TRUE(absl::SimpleAtod(le, &bound)) << le;
      }
      labels.erase("le");
      series[labels][bound] = value;
    }
    for (const auto& [labels, buckets] : series) {
      ++histograms;
      ASSERT_EQ(buckets.size(), info.buckets->bounds.size() + 1) << family;
      double last_count = 0, sum_min = 0, last_bound = 0;
      for (const auto& [bound, count] : buckets) {
        EXPECT_GE(count, last_count) << family << " le=" << bound;
        sum_min += (count - last_count) * last_bound;
        last_count = count;
        last_bound = bound;
      }
      EXPECT_EQ(exposition.samples.at(family + "_count").at(labels), last_count) << family;
      EXPECT_GE(exposition.samples.at(family + "_sum").at(labels), 0.999 * sum_min) << family;
    }
  }
  EXPECT_GT(histograms, 0);
}

// Expects that no counter or histogram sample has fallen or disappeared.
void ExpectCountsDoNotFall(const Exposition& before, const Exposition& after) {
  for (const auto& [family, type] : before.types) {
    if (type != "counter" && type != "histogram") continue;
    if (absl::StartsWith(family, "exposer_")) continue;
    for (const char* suffix : {"", "_bucket", "_count", "_sum"}) {
      const auto it = before.samples.find(family + suffix);
      if (it == before.samples.end()) continue;
      for (const auto& [labels, value] : it->second) {
        const auto& now = after.samples.at(family + suffix);
        const auto later = now.find(labels);
        ASSERT_NE(later, now.end()) << family << suffix;
        EXPECT_GE(later->second, value) << family << suffix;
      }
    }
  }
}

class MetricsTest : public ::testing::Test {
 protected:
  // Starts the cluster and waits until canaries of both kinds (kernel and collective) have passed
  // on every executor, so that the tests begin with a healthy cluster.
  void Start(std::vector<std::string> flags = {}) {
    std::string folder = ::testing::TempDir() + "/tessera-metrics-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    ClusterOptions options;
    options.workers = kWorkers;
    options.devices_per_worker = kDevices;
    options.coordinator_flags = options.worker_flags = flags;
    options.coordinator_flags.push_back("--metrics-port-file=" + folder_ + "/coordinator");
    options.coordinator_flags.push_back("--canary-interval-ms=200");
    // A busy machine must not make a worker count as silent.
    options.coordinator_flags.push_back("--lease-ms=20000");
    options.worker_env = [this](int w) {
      return std::vector<std::string>{absl::StrCat("TESSERA_METRICS_PORT_FILE=", folder_, "/w", w)};
    };
    absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
    ASSERT_THAT(cluster, IsOk());
    cluster_ = *std::move(cluster);
    Session::SetDefault(cluster_->session());
    // Canaries of both kinds have passed on every executor.
    ASSERT_TRUE(Eventually(
        [&] {
          const Exposition c = Scrape("coordinator");
          const auto ages = c.samples.find("tessera_device_canary_age_seconds");
          return ages != c.samples.end() && ages->second.size() == 2 * kWorkers * kDevices &&
                 c.Sum("tessera_health", {{"check", "progressing"}, {"reason", "ok"}}) == 1 &&
                 c.Sum("tessera_device_canaries_total", {{"kind", "kernel"}, {"result", "ok"}}) >=
                     3 * kWorkers;
        },
        kPatience));
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_ != nullptr) std::cerr << cluster_->Logs();
    cluster_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Exposition Scrape(const std::string& who) const {
    std::string address;
    std::ifstream(folder_ + "/" + who) >> address;
    return Parse(Fetch(address));
  }
  // Waits until the sum of these samples, in the metrics of `who`, is at least `at_least`.
  bool AwaitSum(const std::string& name, const Labels& labels, double at_least,
                const std::string& who = "coordinator") const {
    return Eventually([&] { return Scrape(who).Sum(name, labels) >= at_least; }, kPatience);
  }

  // Runs a sum over both workers the given number of times.
  static void RunSums(int times) {
    const Mesh mesh = make_mesh({kWorkers * kDevices}, {"i"}, {AxisType::kAuto});
    const Array x = put(ir::Array::Of(kF32, {4}, std::vector<double>{1, 2, 3, 4}), mesh, P("i"));
    const auto total =
        jit(shard_map([](Array b) { return lax::psum(b, "i"); }, mesh, {P("i")}, P()));
    for (int i = 0; i < times; ++i) EXPECT_THAT(total(x).get<float>(), ElementsAre(10));
  }
  // Puts one megabyte and reads it back.
  static void PutAndGet() {
    const Mesh mesh = make_mesh({kWorkers * kDevices}, {"i"}, {AxisType::kAuto});
    const ir::Array value(kF32, {512, 512});
    EXPECT_EQ(put(value, mesh, P("i")).get<float>().size(), size_t{512} * 512);
  }

  std::string folder_;
  std::unique_ptr<Cluster> cluster_;
};

// Scrapes all daemons twice, with load before and in between, and compares both scrapes with the
// metrics table.
TEST_F(MetricsTest, DaemonsExposeTheTableAndCountsDoNotFall) {
  Start();
  RunSums(3);
  api::ExecuteRequest unknown;
  unknown.executable = 999'999'999;
  EXPECT_FALSE(cluster_->session()->service().Execute(unknown).ok());
  ASSERT_TRUE(
      AwaitSum("tessera_device_canaries_total", {{"kind", "collective"}, {"result", "ok"}}, 1));
  // A call is counted when it is over, which may be after its caller got the answer.
  ASSERT_TRUE(AwaitSum("tessera_rpc_duration_seconds_count",
                       {{"service", "tessera.v1.ProgramService"}, {"code", "NOT_FOUND"}}, 1));
  std::map<std::string, Exposition> before;
  for (const char* who : {"coordinator", "w0", "w1"}) {
    SCOPED_TRACE(who);
    before[who] = Scrape(who);
    ExpectMatchesTheTable(before[who]);
    ExpectHistogramsAreConsistent(before[who]);
  }
  const Exposition& c = before["coordinator"];
  EXPECT_EQ(c.Sum("tessera_workers", {{"state", "ready"}}), kWorkers);
  EXPECT_EQ(c.Sum("tessera_devices", {{"state", "ready"}}), kWorkers * kDevices);
  EXPECT_GE(c.Sum("tessera_operations_completed_total",
                  {{"tenant", "default"}, {"outcome", "ok"}, {"kind", "execute"}}),
            3);
  EXPECT_GE(c.Sum("tessera_operation_end_to_end_seconds_count", {{"tenant", "default"}}), 3);
  EXPECT_GE(c.Sum("tessera_rpc_in_flight", {{"service", "tessera.v1.WorkerService"}}), kWorkers);
  EXPECT_GE(c.Sum("tessera_plan_seconds_count", {{"outcome", "ok"}}), 1);
  EXPECT_GE(c.Sum("tessera_arrays", {{"tenant", "default"}, {"state", "ready"}}), 0);
  EXPECT_GT(c.Sum("tessera_scheduler_cycle_seconds_count"), 0);
  EXPECT_GT(c.Sum("tessera_coordinator_epoch"), 0);
  EXPECT_EQ(c.Sum("tessera_health", {{"check", "progressing"}, {"reason", "ok"}}), 1);
  EXPECT_GT(c.Sum("tessera_program_steps_total"), 0);
  EXPECT_GT(c.Sum("tessera_program_bytes_moved_total"), 0);
  EXPECT_GT(c.Sum("process_resident_memory_bytes"), 1 << 20);
  EXPECT_EQ(c.Sum("tessera_build_info"), 1);

  RunSums(3);
  PutAndGet();
  std::map<std::string, Exposition> after;
  for (const char* who : {"coordinator", "w0", "w1"}) {
    SCOPED_TRACE(who);
    after[who] = Scrape(who);
    ExpectMatchesTheTable(after[who]);
    ExpectCountsDoNotFall(before[who], after[who]);
  }
  EXPECT_GE(
      after["coordinator"].Sum("tessera_operations_submitted_total", {{"tenant", "default"}}),
      3 + before["coordinator"].Sum("tessera_operations_submitted_total", {{"tenant", "default"}}));
  for (const std::string who : {"w0", "w1"}) {
    SCOPED_TRACE(who);
    const Exposition& w = after[who];
    EXPECT_GE(w.Sum("tessera_transfer_bytes_total",
                    {{"worker", who}, {"direction", "put"}, {"path", "ticket"}}),
              1 << 19);
    EXPECT_GE(w.Sum("tessera_transfer_bytes_total", {{"direction", "get"}, {"path", "ticket"}}),
              1 << 19);
    EXPECT_GT(w.Sum("tessera_transfer_seconds_count", {{"direction", "put"}}), 0);
    EXPECT_GT(
        w.Sum("tessera_data_rpc_duration_seconds_count", {{"method", "Write"}, {"code", "OK"}}), 0);
    EXPECT_GT(
        w.Sum("tessera_collective_seconds_count", {{"kind", "all_reduce"}, {"backend", "tcp"}}), 0);
    EXPECT_GT(w.Sum("tessera_collective_bytes_total"), 0);
    EXPECT_GT(w.Sum("tessera_communicator_init_seconds_count"), 0);
    EXPECT_GT(w.Sum("tessera_compile_seconds_count", {{"platform", "cpu"}, {"result", "ok"}}), 0);
    EXPECT_GT(w.Sum("tessera_dispatch_seconds_count", {{"phase", "worker_queue"}}), 0);
    EXPECT_GT(w.Sum("tessera_device_busy_seconds_total"), 0);
    EXPECT_EQ(w.Sum("tessera_device_memory_bytes", {{"kind", "total"}}), kDevices * 67108864.0);
    EXPECT_GE(w.Sum("tessera_device_memory_peak_bytes"), 1 << 19);
    EXPECT_EQ(w.Sum("tessera_executor_up"), kDevices);
    EXPECT_EQ(w.Sum("tessera_executor_restarts_total"), 0);
  }
}

// Freezes one executor. Health must name the reason, and the daemon must still show its counts.
TEST_F(MetricsTest, AHungExecutorFailsHealthAndItsCountsAreStillRead) {
  // With these flags only canaries notice the executor that hangs, and nothing kills it.
  Start({"--canary-timeout-ms=1000", "--unresponsive-ms=60000", "--cancel-grace-ms=60000"});
  RunSums(1);
  ASSERT_TRUE(AwaitSum("tessera_health", {{"check", "progressing"}, {"reason", "ok"}}, 1));
  const int hung_pid = cluster_->executor_pid(1);
  ASSERT_GT(hung_pid, 0);
  ASSERT_EQ(kill(hung_pid, SIGSTOP), 0);
  const testing::Stopwatch watch;
  ASSERT_TRUE(Eventually(
      [&] {
        const Exposition c = Scrape("coordinator");
        return c.samples.count("tessera_health") > 0 &&
               c.samples.at("tessera_health")
                       .count({{"check", "progressing"}, {"reason", "kernel_canary"}}) > 0;
      },
      kPatience));
  // The canary's interval and timeout are 1.2 s. The rest allows for a busy machine.
  EXPECT_LT(watch.Unhindered(), absl::Seconds(15));
  // A reader of the metrics may see the failure a moment before the log line is written.
  EXPECT_TRUE(Eventually(
      [&] { return absl::StrContains(cluster_->Logs(), "executor w1/0 did not pass: timeout"); },
      kPatience));
  const Exposition c = Scrape("coordinator");
  EXPECT_EQ(c.Sum("tessera_health", {{"check", "live"}, {"reason", "ok"}}), 1);
  EXPECT_EQ(c.Sum("tessera_health", {{"check", "ready"}, {"reason", "ok"}}), 1);
  EXPECT_GE(c.Sum("tessera_device_canaries_total", {{"result", "timeout"}}), 1);
  // The other executors are healthy and continue their work; none waits for the one that hangs.
  EXPECT_GT(c.Sum("tessera_device_canary_age_seconds", {{"worker", "w1"}, {"kind", "kernel"}}),
            c.Sum("tessera_device_canary_age_seconds", {{"worker", "w0"}, {"kind", "kernel"}}));
  // The daemon of the executor that hangs still reads that executor's counts.
  const Exposition w = Scrape("w1");
  ExpectMatchesTheTable(w);
  EXPECT_GT(w.Sum("tessera_dispatch_seconds_count"), 0);
  EXPECT_EQ(w.Sum("tessera_executor_up"), kDevices);

  ASSERT_EQ(kill(hung_pid, SIGCONT), 0);
  EXPECT_TRUE(AwaitSum("tessera_health", {{"check", "progressing"}, {"reason", "ok"}}, 1));
}

TEST_F(MetricsTest, AnExecutorThatDiesIsCountedAndItsCountsAreKept) {
  Start();
  RunSums(1);
  const double bytes_put = [&] {
    PutAndGet();
    return Scrape("w0").Sum("tessera_transfer_bytes_total", {{"direction", "put"}});
  }();
  EXPECT_GE(bytes_put, 1 << 19);
  ASSERT_EQ(kill(cluster_->executor_pid(0), SIGKILL), 0);
  EXPECT_TRUE(AwaitSum("tessera_executor_restarts_total", {{"worker", "w0"}, {"cause", "signal"}},
                       1, "w0"));
  EXPECT_THAT(cluster_->AwaitHealthyDevices(kWorkers * kDevices, kPatience), IsOk());
  const Exposition w = Scrape("w0");
  EXPECT_GE(w.Sum("tessera_transfer_bytes_total", {{"direction", "put"}}), bytes_put);
  // The arrays that the process held are gone with it.
  EXPECT_LT(w.Sum("tessera_device_memory_bytes", {{"kind", "arrays"}}), 1 << 19);
  EXPECT_EQ(w.Sum("tessera_device_memory_bytes", {{"kind", "total"}}), kDevices * 67108864.0);
  EXPECT_TRUE(AwaitSum("tessera_health", {{"check", "progressing"}, {"reason", "ok"}}, 1));
}

// Every line of every daemon's log must be a JSON object with the common keys.
TEST_F(MetricsTest, EveryLogLineIsAJsonObject) {
  Start({"--log-format=json"});
  RunSums(1);
  ASSERT_EQ(kill(cluster_->executor_pid(0), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(cluster_->Logs(), "killed by signal 9"); },
                         kPatience));
  int lines = 0;
  bool lost = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(cluster_->Logs(), '\n'))) {
    // These lines separate the log files.
    if (line.empty() || absl::StartsWith(line, "---- ")) continue;
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << line;
    ++lines;
    for (const char* key : {"ts", "level", "msg", "site"}) {
      ASSERT_TRUE(json.contains(key) && json[key].is_string()) << line;
    }
    absl::Time when;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, json["ts"].get<std::string>(), &when, nullptr));
    EXPECT_LT(absl::AbsDuration(absl::Now() - when), absl::Hours(1)) << line;
    if (json["msg"] != "executor lost") continue;
    lost = true;
    EXPECT_EQ(json["worker"], "w0");
    EXPECT_EQ(json["executor"], "w0/0");
    EXPECT_THAT(json["why"].get<std::string>(), HasSubstr("signal 9"));
  }
  EXPECT_TRUE(lost);
  EXPECT_GT(lines, 5);
}

}  // namespace
}  // namespace tessera::service
