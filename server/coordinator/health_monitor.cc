// The thread behind HealthMonitor. main.cc starts it; it feeds readings of the scheduler and
// results of canaries into the state machine of server/health, and tells main.cc of each new
// verdict. Load balancers read the verdict by the health RPC, and alerts read it from the metrics.
#include "server/coordinator/health_monitor.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "ir/text.h"

namespace tessera::server {
namespace {

using health::Canary;
using health::CanaryKind;
using health::CanaryResult;

// How often the scheduler is polled, and how often the metric of its lag is recorded.
constexpr absl::Duration kPollInterval = absl::Milliseconds(250);
constexpr absl::Duration kLagInterval = absl::Seconds(1);
// The longest time to compile a canary, which happens before its first run on an executor.
constexpr absl::Duration kCompileMax = absl::Seconds(30);
constexpr int64_t kInlineBytes = 4096;

// The kernel canary returns kFirstValue + i on device i. Memory that the kernel has not written is
// unlikely to hold such a value.
constexpr int32_t kFirstValue = 0x5a5a5a5a;
constexpr char kKernelProgram[] = R"(mesh (d=$n)
func canary() -> (s32[$n]) {
  %0 = manual_computation() {check_vma=true, in_specs=specs[], manual_axes=["d"], out_specs=specs[P('d')]} : s32[$n] with
    func body() -> (s32[1]{V:d}) mesh (d=$n:manual) {
      %0 = axis_index() {axes=["d"]} : s32[]{V:d}
      %1 = constant() {value=dense<s32[]: $first>} : s32[]
      %2 = pvary(%1) {axes=["d"]} : s32[]{V:d}
      %3 = add(%0, %2) : s32[]{V:d}
      %4 = broadcast_in_dim(%3) {broadcast_dimensions=[], shape=[1]} : s32[1]{V:d}
      return %4
    }
  return %0
}
)";
constexpr char kCollectiveProgram[] = R"(mesh (d=$n)
func canary() -> (s32[1]) {
  %0 = manual_computation() {check_vma=true, in_specs=specs[], manual_axes=["d"], out_specs=specs[P()]} : s32[1] with
    func body() -> (s32[1]) mesh (d=$n:manual) {
      %0 = axis_index() {axes=["d"]} : s32[]{V:d}
      %1 = broadcast_in_dim(%0) {broadcast_dimensions=[], shape=[1]} : s32[1]{V:d}
      %2 = psum(%1) {axes=["d"]} : s32[1]
      return %2
    }
  return %0
}
)";

core::Caller SystemCaller() {
  return {.tenant = core::kSystemTenant, .role = core::Role::kAdmin, .token_name = ""};
}

class MonitorThread final : public HealthMonitor {
 public:
  MonitorThread(const health::Config& config, Coordinator* coordinator, const Clock* clock,
                Metrics* metrics, OnChangeFn on_change)
      : config_(config),
        coordinator_(coordinator),
        clock_(clock),
        metrics_(metrics),
        on_change_(std::move(on_change)),
        health_(config) {
    if (metrics_ != nullptr) {
      lag_ = metrics_->histogram(Metric::kEventloopLag, {"scheduler"});
      for (const CanaryKind kind : {CanaryKind::kKernel, CanaryKind::kCollective})
        canary_seconds_[kind] = metrics_->histogram(Metric::kCanarySeconds, {NameOf(kind)});
      collector_ = metrics_->AddCollector([this](SampleSink& sink) { Collect(sink); });
    }
    {
      // Lets the timeout of the scheduler's first reply begin now.
      absl::MutexLock lock(&mu_);
      health_.RecordLoopReply(clock_->Now());
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~MonitorThread() override { Stop(); }

  health::Verdict LastVerdict() const override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return verdict_.value_or(health::Verdict{
        {health::Reason::kNoSuccessYet, "just started"}, {}, {health::Reason::kNoSuccessYet, ""}});
  }

  void Stop() override ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    if (thread_.joinable()) thread_.join();
    if (metrics_ != nullptr) metrics_->RemoveCollector(std::exchange(collector_, -1));
  }

 private:
  // Collects the results of callbacks. The monitor shares it with the callbacks, because a callback
  // may run after the monitor is destroyed.
  struct Inbox {
    absl::Mutex mu;
    bool replied ABSL_GUARDED_BY(mu) = false;
    absl::Time replied_at ABSL_GUARDED_BY(mu);
    absl::StatusOr<core::ClusterReading> reading ABSL_GUARDED_BY(mu) = absl::UnknownError("");
    struct CanaryEnd {
      uint64_t canary = 0;
      CanaryResult result = CanaryResult::kOk;
      std::string why;
      absl::Duration time;
    };
    std::deque<CanaryEnd> ended ABSL_GUARDED_BY(mu);
    // Result arrays of canaries, which the next canary deletes.
    std::vector<uint64_t> result_arrays ABSL_GUARDED_BY(mu);
    bool has_news() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return replied || !ended.empty(); }
  };

  bool stopping() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return stopping_;
  }

  // The thread's main function. Each round takes what callbacks have left in the inbox, sends the
  // canaries that are due, and evaluates the verdict. It never waits for a reply, so that a stuck
  // scheduler does not stop the evaluation that must report it.
  void Run() {
    NameThread("health");
    absl::Time requested_at = absl::InfinitePast(), lag_recorded_at = absl::InfinitePast();
    bool waiting = false;
    while (!stopping()) {
      if (!waiting && clock_->Now() - requested_at >= kPollInterval) {
        requested_at = lag_recorded_at = clock_->Now();
        waiting = true;
        RequestReading();
      }
      {
        absl::MutexLock lock(&inbox_->mu);
        const auto has_news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(inbox_->mu) {
          return inbox_->has_news();
        };
        inbox_->mu.AwaitWithTimeout(absl::Condition(&has_news), kPollInterval);
      }
      const absl::Time now = clock_->Now();
      if (TakeReading(requested_at)) {
        waiting = false;
      } else if (waiting && now - lag_recorded_at >= kLagInterval) {
        // Without a reply, records how long the request has waited so far.
        lag_.Observe(now - requested_at);
        lag_recorded_at = now;
      }
      TakeCanaryEnds(now);
      std::vector<Canary> due;
      {
        absl::MutexLock lock(&mu_);
        due = health_.TakeDue(now);
      }
      for (const Canary& canary : due) StartCanary(canary);
      Evaluate(now);
    }
    {
      absl::MutexLock lock(&mu_);
      health_.Stop();
    }
    Evaluate(clock_->Now());
  }

  void RequestReading() {
    scheduler::ReadTelemetry read;
    read.caller = SystemCaller();
    read.part = scheduler::ReadTelemetry::kWorkers;
    coordinator_->Post<core::ClusterReading>(
        std::move(read),
        [inbox = inbox_, clock = clock_](absl::StatusOr<core::ClusterReading> reading) {
          absl::MutexLock lock(&inbox->mu);
          inbox->replied = true;
          inbox->replied_at = clock->Now();
          inbox->reading = std::move(reading);
        });
  }

  // Passes the scheduler's reply to the state machine. Returns false if there is no reply yet.
  bool TakeReading(absl::Time requested_at) {
    absl::Time replied_at;
    absl::StatusOr<core::ClusterReading> reading = absl::UnknownError("");
    {
      absl::MutexLock lock(&inbox_->mu);
      if (!std::exchange(inbox_->replied, false)) return false;
      replied_at = inbox_->replied_at;
      reading = std::move(inbox_->reading);
    }
    if (replied_at - last_lag_at_ >= kLagInterval) {
      lag_.Observe(replied_at - requested_at);
      last_lag_at_ = replied_at;
    }
    // An error means that the coordinator's queue is full or that it is stopping. TakeReading still
    // returns true, but does not count the error as a sign of a working loop.
    if (!reading.ok()) return true;
    absl::MutexLock state(&mu_);
    health_.RecordLoopReply(replied_at);
    health_.RecordExecutors(reading->executors, replied_at);
    return true;
  }

  void TakeCanaryEnds(absl::Time now) {
    std::deque<Inbox::CanaryEnd> ended;
    {
      absl::MutexLock lock(&inbox_->mu);
      ended.swap(inbox_->ended);
    }
    for (const Inbox::CanaryEnd& end : ended) {
      const CanaryKind kind = kinds_.at(end.canary);
      kinds_.erase(end.canary);
      if (end.result == CanaryResult::kOk) canary_seconds_[kind].Observe(end.time);
      if (metrics_ != nullptr)
        metrics_->counter(Metric::kCanaries, {NameOf(kind), NameOf(end.result)}).Add();
      absl::MutexLock state(&mu_);
      health_.EndCanary(end.canary, end.result, end.why, now);
    }
  }

  // Compiles the canary, runs it and checks its results. After the first time the coordinator has
  // the compiled program in its cache. Everything happens in callbacks, which put the outcome into
  // the inbox, so that the thread does not wait for a device. The results of the previous canaries
  // are deleted with this run (`release`), which needs no call of its own.
  void StartCanary(const Canary& canary) {
    kinds_[canary.id] = canary.kind;
    const auto count = static_cast<int64_t>(canary.devices.size());
    auto end = [inbox = inbox_, id = canary.id](CanaryResult result, std::string why,
                                                absl::Duration time) {
      absl::MutexLock lock(&inbox->mu);
      inbox->ended.push_back({id, result, std::move(why), time});
    };
    absl::StatusOr<ir::Program> program = CanaryProgram(canary.kind, count);
    TESSERA_CHECK_OK(program) << NameOf(canary.kind) << " canary over " << count;
    api::CompileRequest compile;
    compile.program = *std::move(program);
    compile.devices = canary.devices;
    compile.name = absl::StrCat("canary_", NameOf(canary.kind));
    // Deletes the results of the previous run.
    std::vector<uint64_t> release;
    {
      absl::MutexLock lock(&inbox_->mu);
      release.swap(inbox_->result_arrays);
    }
    const auto on_compiled = [coordinator = coordinator_, clock = clock_, timeout = config_.timeout,
                              end, inbox = inbox_, kind = canary.kind, count,
                              release](absl::StatusOr<core::CompileReply> compiled) {
      if (!compiled.ok()) {
        return end(ResultOf(compiled.status()), std::string(compiled.status().message()), {});
      }
      api::ExecuteRequest execute;
      execute.executable = compiled->executable;
      execute.time_limit = timeout;
      execute.release = release;
      execute.inline_bytes_max = kInlineBytes;
      const absl::Time began = clock->Now();
      coordinator->ExecuteToEndAsync(
          {0, SystemCaller()}, std::move(execute),
          [inbox](const absl::StatusOr<api::ExecuteReply>& accepted) {
            if (!accepted.ok()) return;
            absl::MutexLock lock(&inbox->mu);
            inbox->result_arrays.insert(inbox->result_arrays.end(), accepted->outputs.begin(),
                                        accepted->outputs.end());
          },
          [=](absl::StatusOr<api::Completion> ended) {
            const absl::Duration time = clock->Now() - began;
            const absl::Status status = ended.ok() ? ended->operation.error : ended.status();
            if (!status.ok()) return end(ResultOf(status), std::string(status.message()), time);
            if (ended->operation.state != api::OperationState::kDone) {
              return end(CanaryResult::kTimeout, "it has not ended", time);
            }
            const std::string wrong = FindWrongResult(*ended, CanaryValues(kind, count));
            end(wrong.empty() ? CanaryResult::kOk : CanaryResult::kWrong, wrong, time);
          });
    };
    CompileWithTimeout(std::move(compile), on_compiled);
  }

  // Compiles the program and calls `then` once: with the coordinator's reply, or with
  // DEADLINE_EXCEEDED at the timeout.
  void CompileWithTimeout(api::CompileRequest compile,
                          std::function<void(absl::StatusOr<core::CompileReply>)> then) {
    auto called = std::make_shared<std::atomic<bool>>(false);
    const absl::Duration bound =
        std::max(config_.timeout, std::min(kCompileMax, 5 * config_.timeout));
    compile_timeouts_.push_back(
        {clock_->Now() + bound, [called, then, bound] {
           if (called->exchange(true)) return;
           then(MakeError(ErrorKind::kDeadlineExceeded, absl::StrCat("it was not compiled within ",
                                                                     absl::FormatDuration(bound))));
         }});
    coordinator_->CompileAsync(SystemCaller(), std::move(compile),
                               [called, then](absl::StatusOr<core::CompileReply> compiled) {
                                 if (!called->exchange(true)) then(std::move(compiled));
                               });
  }

  static CanaryResult ResultOf(const absl::Status& error) {
    const ErrorKind kind = KindOf(error);
    if (kind == ErrorKind::kQueueFull) return CanaryResult::kSkipped;
    return kind == ErrorKind::kDeadlineExceeded || kind == ErrorKind::kCollectiveTimeout
               ? CanaryResult::kTimeout
               : CanaryResult::kError;
  }

  // Returns what is wrong with the canary's results, or "" if they are right.
  static std::string FindWrongResult(const api::Completion& ended,
                                     const std::vector<int32_t>& expected) {
    // With this many devices the result is too large to come with the completion of the run
    // (inline_bytes_max), and its values are not checked.
    if (ended.results.empty() && expected.size() * sizeof(int32_t) > kInlineBytes) return "";
    if (ended.results.size() != 1) {
      return absl::StrCat(ended.results.size(), " results arrived, expected 1");
    }
    const ir::Array& value = ended.results[0].second;
    if (value.dtype() != ir::DType::kS32 ||
        value.num_bytes() != static_cast<int64_t>(expected.size() * sizeof(int32_t)))
      return "the result has the wrong type";
    const absl::Span<const int32_t> values = value.As<int32_t>();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (values[i] == expected[i]) continue;
      return absl::StrCat("element ", i, " is ", values[i], ", not ", expected[i]);
    }
    return "";
  }

  // Fires the timeouts that are due, evaluates the verdict, and logs and reports it if a reason has
  // changed. Calls on_change_ without the lock, because it may call LastVerdict.
  void Evaluate(absl::Time now) {
    while (!compile_timeouts_.empty() && compile_timeouts_.front().first <= now) {
      const auto on_timeout = std::move(compile_timeouts_.front().second);
      compile_timeouts_.pop_front();
      on_timeout();
    }
    health::Verdict verdict;
    bool changed = false;
    {
      absl::MutexLock lock(&mu_);
      verdict = health_.Evaluate(now);
      // Only a changed reason counts: the texts contain durations, which change all the time.
      changed = !verdict_ || verdict_->live.reason != verdict.live.reason ||
                verdict_->ready.reason != verdict.ready.reason ||
                verdict_->progressing.reason != verdict.progressing.reason;
      verdict_ = verdict;
    }
    if (!changed) return;
    const health::Check& check = verdict.progressing;
    if (check.ok()) {
      TESSERA_LOG(INFO) << "healthy";
    } else {
      TESSERA_LOG(WARNING) << "not healthy: " << check.text << Field("reason", NameOf(check.reason))
                           << Field("live", verdict.live.ok())
                           << Field("ready", verdict.ready.ok());
    }
    if (on_change_) on_change_(verdict);
  }

  void Collect(SampleSink& sink) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time now = clock_->Now();
    health::Verdict verdict;
    std::vector<health::SuccessAge> ages;
    {
      absl::MutexLock lock(&mu_);
      // Evaluates at the time of the scrape: if the monitor's own thread is stuck, the metrics
      // still show the present.
      verdict = health_.Evaluate(now);
      ages = health_.SuccessAges(now);
    }
    for (const auto& [name, check] : {std::pair("live", &verdict.live),
                                      {"ready", &verdict.ready},
                                      {"progressing", &verdict.progressing}}) {
      sink.Add(Metric::kHealth, {name, NameOf(check->reason)}, check->ok() ? 1 : 0);
    }
    // If the loop does not reply, the state of the executors is unknown.
    if (!verdict.live.ok() || config_.interval <= absl::ZeroDuration()) return;
    for (const health::SuccessAge& age : ages) {
      sink.Add(Metric::kCanaryAge, {age.worker, absl::StrCat(age.device), NameOf(age.kind)},
               absl::ToDoubleSeconds(age.age));
    }
  }

  const health::Config config_;
  Coordinator* const coordinator_;
  const Clock* const clock_;
  Metrics* const metrics_;
  const OnChangeFn on_change_;
  Histogram lag_;
  int64_t collector_ = -1;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();

  // The members below are used by the monitor's thread only.
  std::map<CanaryKind, Histogram> canary_seconds_;
  std::map<uint64_t, CanaryKind> kinds_;  // kind of each running canary, by its id
  std::deque<std::pair<absl::Time, std::function<void()>>> compile_timeouts_;
  absl::Time last_lag_at_ = absl::InfinitePast();

  mutable absl::Mutex mu_;
  health::Health health_ ABSL_GUARDED_BY(mu_);
  std::optional<health::Verdict> verdict_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<ir::Program> CanaryProgram(CanaryKind kind, int64_t devices) {
  return ir::ParseProgram(
      absl::StrReplaceAll(kind == CanaryKind::kKernel ? kKernelProgram : kCollectiveProgram,
                          {{"$n", absl::StrCat(devices)}, {"$first", absl::StrCat(kFirstValue)}}));
}

std::vector<int32_t> CanaryValues(CanaryKind kind, int64_t devices) {
  const auto n = static_cast<int32_t>(devices);
  if (kind == CanaryKind::kCollective) return {n * (n - 1) / 2};
  std::vector<int32_t> values(devices);
  for (int32_t i = 0; i < n; ++i) values[i] = kFirstValue + i;
  return values;
}

std::unique_ptr<HealthMonitor> HealthMonitor::Start(const health::Config& config,
                                                    Coordinator* coordinator, const Clock* clock,
                                                    Metrics* metrics, OnChangeFn on_change) {
  return std::make_unique<MonitorThread>(config, coordinator, clock, metrics, std::move(on_change));
}

}  // namespace tessera::server
