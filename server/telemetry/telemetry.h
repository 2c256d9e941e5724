// The coordinator's metrics. Counters and histograms come from the scheduler's notes; gauges are
// read from the scheduler at each scrape.
//
// Thread-safe. `metrics` outlives a Telemetry, and the Telemetry outlives the coordinator that it
// observes. GaugeReader exports the gauges, and must be destroyed before the coordinator.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/metrics.h"
#include "server/core/telemetry.h"
#include "server/telemetry/incidents.h"
#include "server/telemetry/top_programs.h"

namespace tessera::server::telemetry {

class Telemetry final : public core::Observer {
 public:
  explicit Telemetry(Metrics* metrics);
  ~Telemetry() override;

  void OnNote(const core::Note& note) override;
  void OnStep(absl::Duration time, bool execute) override;
  void OnPlan(absl::Duration time, bool ok) override;

  const TopPrograms& top_programs() const { return top_; }

 private:
  // The metrics of one tenant's operations of one kind on one kind of device.
  struct TenantMetrics {
    Counter submitted, ok;
    Histogram queue, execute, end_to_end;
  };
  TenantMetrics& MetricsOf(const std::string& tenant, api::OperationKind kind,
                           const std::string& device_kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void On(const core::OperationSubmitted& note);
  void On(const core::OperationEnded& note);
  void On(const core::CacheLookup& note);
  void On(const core::ArraysLost& note);
  void On(const core::LeaseExpired& note);
  void On(const core::ExecutorsNotAdopted& note);
  void On(const core::PlanTooLarge& note);
  void On(const core::CancelDone& note);
  void On(const core::SessionEnded& note);
  void On(const core::Incident& note);

  Metrics* const metrics_;
  const Histogram cycle_, dispatch_, plan_ok_, plan_error_;
  const std::array<Counter, 3> cache_;
  TopPrograms top_;
  Incidents incidents_;
  int64_t collector_ = 0;
  absl::Mutex mu_;
  std::map<std::string, TenantMetrics> tenants_
      ABSL_GUARDED_BY(mu_);  // key: tenant, kind of operation and kind of device
};

// Exports gauges that are read from the scheduler at every scrape. If the scheduler does not reply
// within `wait_max`, the scrape has no gauges from it. The gauges of arrays are read in several
// parts if there are many arrays, so that no part holds up the scheduler for long.
class GaugeReader {
 public:
  using Callback = std::function<void(absl::StatusOr<core::ClusterReading>)>;
  // Requests the part that begins at `first_array`. With 0 it requests the first part, which also
  // has everything but arrays. May call back on any thread, at once, or after the reader is
  // destroyed.
  using ReadFn = std::function<void(uint64_t first_array, Callback callback)>;

  GaugeReader(Metrics* metrics, ReadFn read, uint64_t epoch,
              absl::Duration wait_max = absl::Seconds(1));
  ~GaugeReader();

 private:
  void Collect(SampleSink& sink) const;

  Metrics* const metrics_;
  const ReadFn read_;
  const uint64_t epoch_;
  const absl::Duration wait_max_;
  int64_t collector_ = 0;
};

}  // namespace tessera::server::telemetry
