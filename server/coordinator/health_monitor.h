// Monitors the coordinator's health: pings its scheduler, runs canaries through it as the tenant
// "system", and reports the verdict (server/health/health.h).
//
// Owns one thread. No call of a client waits for that thread. Canaries are programs of a few bytes,
// and run only on idle devices. Thread-safe. The coordinator, the clock and the metrics outlive the
// monitor. Stop, or the destructor, ends the thread within about a second, and must be called
// before the coordinator stops.
#pragma once
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "server/coordinator/coordinator.h"
#include "server/health/health.h"

namespace tessera::server {

class HealthMonitor {
 public:
  // Called on this object's thread with the first verdict and whenever it changes.
  using OnChangeFn = std::function<void(const health::Verdict&)>;

  // `metrics` may be null. Canaries run every `config.interval`.
  static std::unique_ptr<HealthMonitor> Start(const health::Config& config,
                                              Coordinator* coordinator, const Clock* clock,
                                              Metrics* metrics, OnChangeFn on_change);
  virtual ~HealthMonitor() = default;

  virtual health::Verdict LastVerdict() const = 0;
  // Ends the thread. From then on all three checks fail with Reason::kStopping.
  virtual void Stop() = 0;
};

// Return the program of a canary over `devices` devices, and its expected results. For tests.
absl::StatusOr<ir::Program> CanaryProgram(health::CanaryKind kind, int64_t devices);
std::vector<int32_t> CanaryValues(health::CanaryKind kind, int64_t devices);

}  // namespace tessera::server
