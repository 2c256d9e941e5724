#include "server/health_keeper.h"

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

// How often the scheduler is polled, and the timeout of a poll.
constexpr absl::Duration kTick = absl::Milliseconds(250);
constexpr absl::Duration kProbeEvery = absl::Seconds(1);
// The first run of a canary on an executor compiles it.
constexpr absl::Duration kCompileMax = absl::Seconds(30);
constexpr int64_t kInlineBytes = 4096;

constexpr char kKernel[] = R"(mesh (d=$n)
func canary() -> (s32[$n]) {
  %0 = manual_computation() {check_vma=true, in_specs=specs[], manual_axes=["d"], out_specs=specs[P('d')]} : s32[$n] with
    func body() -> (s32[1]{V:d}) mesh (d=$n:manual) {
      %0 = axis_index() {axes=["d"]} : s32[]{V:d}
      %1 = add(%0, %0) : s32[]{V:d}
      %2 = broadcast_in_dim(%1) {broadcast_dimensions=[], shape=[1]} : s32[1]{V:d}
      return %2
    }
  return %0
}
)";
constexpr char kCollective[] = R"(mesh (d=$n)
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

class Keeper final : public HealthKeeper {
 public:
  Keeper(const health::Config& config, Coordinator* coordinator, const Clock* clock,
         Metrics* metrics, OnChange on_change)
      : config_(config),
        coordinator_(coordinator),
        clock_(clock),
        metrics_(metrics),
        on_change_(std::move(on_change)),
        health_(config) {
    if (metrics_ != nullptr) {
      lag_ = metrics_->histogram(Metric::kEventloopLag, {"scheduler"});
      for (const CanaryKind kind : {CanaryKind::kKernel, CanaryKind::kCollective})
        seconds_[kind] = metrics_->histogram(Metric::kCanarySeconds, {NameOf(kind)});
      collector_ = metrics_->AddCollector([this](SampleSink& sink) { Collect(sink); });
    }
    {
      // Grace for the first reply.
      absl::MutexLock lock(&mu_);
      health_.LoopAnswered(clock_->Now());
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~Keeper() override { Stop(); }

  health::Verdict Last() const override ABSL_LOCKS_EXCLUDED(mu_) {
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
  // Results of callbacks, which may come after the keeper is destroyed.
  struct Inbox {
    absl::Mutex mu;
    bool answered ABSL_GUARDED_BY(mu) = false;
    absl::Time answered_at ABSL_GUARDED_BY(mu);
    absl::StatusOr<core::ClusterReading> reading ABSL_GUARDED_BY(mu) = absl::UnknownError("");
    struct Ended {
      uint64_t canary = 0;
      CanaryResult result = CanaryResult::kOk;
      std::string why;
      absl::Duration time;
    };
    std::deque<Ended> ended ABSL_GUARDED_BY(mu);
    bool news() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return answered || !ended.empty(); }
  };

  bool stopping() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return stopping_;
  }

  void Run() {
    NameThread("health");
    absl::Time asked = absl::InfinitePast(), told = absl::InfinitePast();
    bool waiting = false;
    while (!stopping()) {
      if (!waiting && clock_->Now() - asked >= kTick) {
        asked = told = clock_->Now();
        waiting = true;
        Ask();
      }
      {
        absl::MutexLock lock(&inbox_->mu);
        const auto news = [&]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(inbox_->mu) { return inbox_->news(); };
        inbox_->mu.AwaitWithTimeout(absl::Condition(&news), kTick);
      }
      const absl::Time now = clock_->Now();
      if (TakeAnswer(asked)) {
        waiting = false;
      } else if (waiting && now - told >= kProbeEvery) {
        // The request has waited this long already.
        lag_.Observe(now - asked);
        told = now;
      }
      TakeEnds(now);
      std::vector<Canary> due;
      {
        absl::MutexLock lock(&mu_);
        due = health_.Due(now);
      }
      for (const Canary& canary : due) Send(canary);
      Evaluate(now);
    }
    {
      absl::MutexLock lock(&mu_);
      health_.Stop();
    }
    Evaluate(clock_->Now());
  }

  void Ask() {
    scheduler::ReadTelemetry read;
    read.caller = SystemCaller();
    read.part = scheduler::ReadTelemetry::kWorkers;
    coordinator_->Ask<core::ClusterReading>(
        std::move(read),
        [inbox = inbox_, clock = clock_](absl::StatusOr<core::ClusterReading> reading) {
          absl::MutexLock lock(&inbox->mu);
          inbox->answered = true;
          inbox->answered_at = clock->Now();
          inbox->reading = std::move(reading);
        });
  }

  // Returns whether there was a reply.
  bool TakeAnswer(absl::Time asked) {
    absl::Time when;
    absl::StatusOr<core::ClusterReading> reading = absl::UnknownError("");
    {
      absl::MutexLock lock(&inbox_->mu);
      if (!std::exchange(inbox_->answered, false)) return false;
      when = inbox_->answered_at;
      reading = std::move(inbox_->reading);
    }
    if (when - last_lag_ >= kProbeEvery) {
      lag_.Observe(when - asked);
      last_lag_ = when;
    }
    // The only errors are those of a coordinator that is full or stopping.
    if (!reading.ok()) return true;
    absl::MutexLock state(&mu_);
    health_.LoopAnswered(when);
    health_.Read(reading->executors, when);
    return true;
  }

  void TakeEnds(absl::Time now) {
    std::deque<Inbox::Ended> ended;
    {
      absl::MutexLock lock(&inbox_->mu);
      ended.swap(inbox_->ended);
    }
    for (const Inbox::Ended& end : ended) {
      const CanaryKind kind = kinds_.at(end.canary);
      kinds_.erase(end.canary);
      if (end.result == CanaryResult::kOk) seconds_[kind].Observe(end.time);
      if (metrics_ != nullptr)
        metrics_->counter(Metric::kCanaries, {NameOf(kind), NameOf(end.result)}).Add();
      absl::MutexLock state(&mu_);
      health_.End(end.canary, end.result, end.why, now);
    }
  }

  // Compiles the canary, which is a cache hit after the first time, runs it, and checks its
  // results.
  void Send(const Canary& canary) {
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
      absl::MutexLock lock(&results_->mu);
      release.swap(results_->arrays);
    }
    const auto run = [coordinator = coordinator_, clock = clock_, timeout = config_.timeout, end,
                      results = results_, kind = canary.kind, count,
                      release](absl::StatusOr<api::CompileReply> compiled) {
      if (!compiled.ok()) {
        return end(ResultOf(compiled.status()), std::string(compiled.status().message()), {});
      }
      api::ExecuteRequest execute;
      execute.executable = compiled->executable;
      execute.deadline = timeout;
      execute.release = release;
      execute.inline_bytes_max = kInlineBytes;
      const absl::Time began = clock->Now();
      coordinator->ExecuteToEndAsync(
          SystemCaller(), std::move(execute),
          [results](const absl::StatusOr<api::ExecuteReply>& accepted) {
            if (!accepted.ok()) return;
            absl::MutexLock lock(&results->mu);
            results->arrays.insert(results->arrays.end(), accepted->outputs.begin(),
                                   accepted->outputs.end());
          },
          [=](absl::StatusOr<api::Completion> ended) {
            const absl::Duration time = clock->Now() - began;
            const absl::Status error = ended.ok() ? ended->operation.error : ended.status();
            if (!error.ok()) return end(ResultOf(error), std::string(error.message()), time);
            if (ended->operation.state != api::OperationState::kDone) {
              return end(CanaryResult::kTimeout, "it has not ended", time);
            }
            const std::string wrong = Wrong(*ended, CanaryValues(kind, count));
            end(wrong.empty() ? CanaryResult::kOk : CanaryResult::kWrong, wrong, time);
          });
    };
    CompileBounded(std::move(compile), run);
  }

  // `then` is called once: by the coordinator, or at the timeout.
  void CompileBounded(api::CompileRequest compile,
                      std::function<void(absl::StatusOr<api::CompileReply>)> then) {
    struct Once {
      std::atomic<bool> done{false};
    };
    auto once = std::make_shared<Once>();
    const absl::Duration bound =
        std::max(config_.timeout, std::min(kCompileMax, 5 * config_.timeout));
    bounds_.push_back(
        {clock_->Now() + bound, [once, then, bound] {
           if (once->done.exchange(true)) return;
           then(MakeError(ErrorKind::kDeadlineExceeded, absl::StrCat("it was not compiled within ",
                                                                     absl::FormatDuration(bound))));
         }});
    coordinator_->CompileAsync(SystemCaller(), std::move(compile),
                               [once, then](absl::StatusOr<api::CompileReply> compiled) {
                                 if (!once->done.exchange(true)) then(std::move(compiled));
                               });
  }

  static CanaryResult ResultOf(const absl::Status& error) {
    switch (KindOf(error)) {
      case ErrorKind::kDeadlineExceeded:
      case ErrorKind::kCollectiveTimeout:
        return CanaryResult::kTimeout;
      case ErrorKind::kQueueFull:
        return CanaryResult::kSkipped;
      default:
        return CanaryResult::kError;
    }
  }

  // What is wrong with the values, or "".
  static std::string Wrong(const api::Completion& ended, const std::vector<int32_t>& expected) {
    // Too many devices for inline results: its success has to suffice.
    if (ended.results.empty() && expected.size() * sizeof(int32_t) > kInlineBytes) return "";
    if (ended.results.size() != 1) {
      return absl::StrCat(ended.results.size(), " results came, not 1");
    }
    const ir::Array& value = ended.results[0].second;
    if (value.dtype() != ir::DType::kS32 ||
        value.num_bytes() != static_cast<int64_t>(expected.size() * sizeof(int32_t)))
      return "the result has another type";
    const absl::Span<const int32_t> values = value.As<int32_t>();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (values[i] == expected[i]) continue;
      return absl::StrCat("element ", i, " is ", values[i], ", not ", expected[i]);
    }
    return "";
  }

  void Evaluate(absl::Time now) {
    while (!bounds_.empty() && bounds_.front().first <= now) {
      const auto bound = std::move(bounds_.front().second);
      bounds_.pop_front();
      bound();
    }
    health::Verdict verdict;
    bool changed = false;
    {
      absl::MutexLock lock(&mu_);
      verdict = health_.Evaluate(now);
      // Texts contain durations; a change of these alone is not reported.
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
      // Evaluated at the time of the call, so that a stuck thread here cannot report stale health.
      verdict = health_.Evaluate(now);
      ages = health_.Ages(now);
    }
    for (const auto& [name, check] : {std::pair("live", &verdict.live),
                                      {"ready", &verdict.ready},
                                      {"progressing", &verdict.progressing}}) {
      sink.Add(Metric::kHealth, {name, NameOf(check->reason)}, check->ok() ? 1 : 0);
    }
    // Without the loop's reply the executors are unknown.
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
  const OnChange on_change_;
  Histogram lag_;
  int64_t collector_ = -1;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  struct Results {
    absl::Mutex mu;
    std::vector<uint64_t> arrays ABSL_GUARDED_BY(mu);
  };
  const std::shared_ptr<Results> results_ = std::make_shared<Results>();

  // Used by the thread only.
  std::map<CanaryKind, Histogram> seconds_;
  std::map<uint64_t, CanaryKind> kinds_;  // of those that run
  std::deque<std::pair<absl::Time, std::function<void()>>> bounds_;
  absl::Time last_lag_ = absl::InfinitePast();

  mutable absl::Mutex mu_;
  health::Health health_ ABSL_GUARDED_BY(mu_);
  std::optional<health::Verdict> verdict_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<ir::Program> CanaryProgram(CanaryKind kind, int64_t devices) {
  return ir::ParseProgram(absl::StrReplaceAll(kind == CanaryKind::kKernel ? kKernel : kCollective,
                                              {{"$n", absl::StrCat(devices)}}));
}

std::vector<int32_t> CanaryValues(CanaryKind kind, int64_t devices) {
  const auto n = static_cast<int32_t>(devices);
  if (kind == CanaryKind::kCollective) return {n * (n - 1) / 2};
  std::vector<int32_t> values(devices);
  for (int32_t i = 0; i < n; ++i) values[i] = 2 * i;
  return values;
}

std::unique_ptr<HealthKeeper> HealthKeeper::Start(const health::Config& config,
                                                  Coordinator* coordinator, const Clock* clock,
                                                  Metrics* metrics, OnChange on_change) {
  return std::make_unique<Keeper>(config, coordinator, clock, metrics, std::move(on_change));
}

}  // namespace tessera::server
