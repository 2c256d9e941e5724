// Turns the scheduler's notes into metrics. main.cc makes a Telemetry the coordinator's observer;
// the scheduler's driver calls it after each step. The metrics listener calls GaugeReader at each
// scrape.
#include "server/telemetry/telemetry.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/core/caller.h"

namespace tessera::server::telemetry {
namespace {

const char* OutcomeOf(const core::OperationEnded& note) {
  if (note.state == api::OperationState::kDone) return "ok";
  if (KindOf(note.error) == ErrorKind::kDeadlineExceeded) return "deadline";
  return note.state == api::OperationState::kCancelled ? "cancelled" : "error";
}

// Returns why a collective did not end, which it recognises by the text of the error.
const char* VerdictOf(const absl::Status& error) {
  if (absl::StrContains(error.message(), "not entered")) return "not_entered";
  return absl::StrContains(error.message(), " stood in it ") ? "in_kernel" : "peer_silent";
}

}  // namespace

Telemetry::Telemetry(Metrics* metrics)
    : metrics_(metrics),
      cycle_(metrics->histogram(Metric::kSchedulerCycle)),
      dispatch_(metrics->histogram(Metric::kDispatch, {"coordinator"})),
      plan_ok_(metrics->histogram(Metric::kPlan, {"ok"})),
      plan_error_(metrics->histogram(Metric::kPlan, {"error"})),
      cache_{metrics->counter(Metric::kCompileCacheRequests, {"hit"}),
             metrics->counter(Metric::kCompileCacheRequests, {"miss"}),
             metrics->counter(Metric::kCompileCacheRequests, {"coalesced"})} {
  // Counters on which alerts are defined are created here with 0. An alert looks at the increase of
  // a counter, and would miss the first event if the event created the counter.
  for (const std::string& verdict : InfoOf(Metric::kCollectiveStuck).labels[0].domain->values)
    metrics->counter(Metric::kCollectiveStuck, {verdict});
  for (const char* where : {"admission", "runtime"}) metrics->counter(Metric::kOom, {where, "cpu"});
  metrics->counter(Metric::kArrayLost, {"worker_lost"});
  for (const Metric refused : {Metric::kRpcRejected, Metric::kAuthFailures}) {
    for (const std::string& why : InfoOf(refused).labels[0].domain->values)
      metrics->counter(refused, {why});
  }
  for (const std::string& kind : InfoOf(Metric::kCanaries).labels[0].domain->values) {
    for (const std::string& result : InfoOf(Metric::kCanaries).labels[1].domain->values)
      metrics->counter(Metric::kCanaries, {kind, result});
  }
  collector_ = metrics->AddCollector([this](SampleSink& sink) { top_.Collect(sink); });
}

Telemetry::~Telemetry() { metrics_->RemoveCollector(collector_); }

void Telemetry::OnStep(absl::Duration time, bool execute) {
  cycle_.Observe(time);
  if (execute) dispatch_.Observe(time);
}

void Telemetry::OnPlan(absl::Duration time, bool ok) {
  (ok ? plan_ok_ : plan_error_).Observe(time);
}

void Telemetry::OnNote(const core::Note& note) {
  std::visit([this](const auto& n) { On(n); }, note);
}

Telemetry::TenantMetrics& Telemetry::MetricsOf(const std::string& tenant, api::OperationKind kind,
                                               const std::string& device_kind) {
  const auto [it, added] =
      tenants_.try_emplace(absl::StrCat(tenant, "|", static_cast<int>(kind), "|", device_kind));
  TenantMetrics& metrics = it->second;
  if (!added) return metrics;
  const char* const name = core::MetricLabelOf(kind);
  metrics.submitted = metrics_->counter(Metric::kOperationsSubmitted, {tenant, name});
  metrics.ok = metrics_->counter(Metric::kOperationsCompleted, {tenant, name, "ok", "OK"});
  metrics.queue = metrics_->histogram(Metric::kOperationQueue, {tenant, "normal"});
  metrics.end_to_end = metrics_->histogram(Metric::kOperationEndToEnd, {tenant, name});
  metrics.execute = metrics_->histogram(Metric::kOperationExecute,
                                        {tenant, device_kind.empty() ? kOtherLabel : device_kind});
  return metrics;
}

void Telemetry::On(const core::OperationSubmitted& note) {
  Counter submitted;
  {
    absl::MutexLock lock(&mu_);
    // The kind of device does not matter for this counter.
    submitted = MetricsOf(note.tenant, note.kind, "cpu").submitted;
  }
  submitted.Add();
}

// Counts the end of an operation and observes its times. Successes are frequent, so their counters
// and histograms are looked up once and kept (MetricsOf). For a failure the counter is looked up
// each time, because its labels include the reason. An operation that was never scheduled has no
// queue or run time. The programs of the tenant `system` are canaries and not users' programs, and
// stay out of the list of top programs.
void Telemetry::On(const core::OperationEnded& note) {
  TenantMetrics tenant;
  {
    absl::MutexLock lock(&mu_);
    tenant = MetricsOf(note.tenant, note.kind, note.device_kind);
  }
  const bool ok = note.state == api::OperationState::kDone;
  if (ok) {
    tenant.ok.Add();
  } else {
    metrics_
        ->counter(Metric::kOperationsCompleted, {note.tenant, core::MetricLabelOf(note.kind),
                                                 OutcomeOf(note), ReasonOf(note.error)})
        .Add();
  }
  const bool started = note.started < absl::InfiniteFuture();
  tenant.end_to_end.Observe(note.ended - note.created);
  if (started) {
    tenant.queue.Observe(note.started - note.created);
    tenant.execute.Observe(note.ended - note.started);
  }
  if (!ok) {
    const ErrorKind kind = KindOf(note.error);
    if (kind == ErrorKind::kCollectiveTimeout)
      metrics_->counter(Metric::kCollectiveStuck, {VerdictOf(note.error)}).Add();
    if (kind == ErrorKind::kOutOfMemory)
      metrics_->counter(Metric::kOom, {"runtime", note.device_kind}).Add();
  }
  if (note.tenant != core::kSystemTenant) top_.Add(note);
}

void Telemetry::On(const core::CacheLookup& note) { cache_[note.result].Add(); }

void Telemetry::On(const core::ArraysLost& note) {
  metrics_->counter(Metric::kArrayLost, {"worker_lost"}).Add(note.count);
}

void Telemetry::On(const core::LeaseExpired& note) {
  metrics_->counter(Metric::kWorkerLeaseExpired, {note.worker}).Add();
}

void Telemetry::On(const core::ExecutorsNotAdopted& note) {
  metrics_->counter(Metric::kExecutorsNotAdopted, {note.worker}).Add(note.count);
}

void Telemetry::On(const core::PlanTooLarge& note) {
  metrics_->counter(Metric::kOom, {"admission", note.device_kind}).Add();
}

void Telemetry::On(const core::CancelDone& note) {
  constexpr const char* kNames[] = {"not_started", "stopped", "completed"};
  metrics_->histogram(Metric::kCancelLatency, {kNames[note.result]}).Observe(note.latency);
}

void Telemetry::On(const core::SessionEnded& note) {
  metrics_->counter(Metric::kSessionEnd, {note.tenant, note.reason}).Add();
}

void Telemetry::On(const core::Incident& note) { incidents_.Log(note, SteadyNow()); }

// ---- Gauges. ------------------------------------------------------------------------------------

GaugeReader::GaugeReader(Metrics* metrics, ReadFn read, uint64_t epoch, absl::Duration wait_max)
    : metrics_(metrics), read_(std::move(read)), epoch_(epoch), wait_max_(wait_max) {
  collector_ = metrics->AddCollector([this](SampleSink& sink) { Collect(sink); });
}

GaugeReader::~GaugeReader() { metrics_->RemoveCollector(collector_); }

// Reads all parts from the scheduler before it exports anything. The wait is bounded for all parts
// together, because the scrape occupies a thread of the metrics listener.
void GaugeReader::Collect(SampleSink& sink) const {
  sink.Add(Metric::kCoordinatorEpoch, {}, static_cast<double>(epoch_));
  // The callback shares this state, because it may run after the timeout.
  struct Pending {
    absl::Mutex mu;
    std::optional<absl::StatusOr<core::ClusterReading>> reading ABSL_GUARDED_BY(mu);
  };
  const absl::Time until = SteadyNow() + wait_max_;
  std::vector<core::ClusterReading> parts;
  uint64_t next = 0;
  do {
    auto pending = std::make_shared<Pending>();
    read_(next, [pending](absl::StatusOr<core::ClusterReading> reading) {
      absl::MutexLock lock(&pending->mu);
      pending->reading = std::move(reading);
    });
    absl::MutexLock lock(&pending->mu);
    const auto arrived = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pending->mu) {
      return pending->reading.has_value();
    };
    // If a part is missing, none is exported: the gauges of arrays would be too small.
    if (!pending->mu.AwaitWithTimeout(absl::Condition(&arrived), until - SteadyNow())) return;
    if (!pending->reading->ok()) return;
    parts.push_back(**std::move(pending->reading));
    next = parts.back().next_array;
  } while (next != 0);
  for (const core::ClusterReading& part : parts) {
    for (const core::Reading& reading : part.readings) {
      const std::vector<std::string_view> labels(reading.labels.begin(), reading.labels.end());
      sink.Add(reading.metric, labels, reading.value);
      // Creates the counters on which alerts of a worker are defined with 0. See the constructor of
      // Telemetry.
      if (reading.metric == Metric::kWorkerHeartbeatAge)
        for (const Metric metric : {Metric::kWorkerLeaseExpired, Metric::kExecutorsNotAdopted})
          metrics_->counter(metric, {labels[0]});
    }
  }
}

}  // namespace tessera::server::telemetry
