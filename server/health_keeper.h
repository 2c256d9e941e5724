// Keeps the coordinator's health: asks its loop whether it answers, runs canaries through its own
// scheduler as the tenant "system", and says how it judges (server/health/health.h).
//
// Owns one thread; nothing here blocks a user's call. Canaries are programs of a few bytes, and go
// to devices that have nothing to do. Thread-safe. The coordinator, the clock and the metrics
// outlive it; Stop, or the destructor, ends the thread within about a second, and must come before
// the coordinator stops.
#pragma once
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "server/coordinator.h"
#include "server/health/health.h"

namespace tessera::server {

class HealthKeeper {
 public:
  // `on_change` is told the first verdict and every other one, on the keeper's thread.
  using OnChange = std::function<void(const health::Verdict&)>;

  // `metrics` may be null. With canaries every `config.interval`.
  static std::unique_ptr<HealthKeeper> Start(const health::Config& config, Coordinator* coordinator,
                                             const Clock* clock, Metrics* metrics,
                                             OnChange on_change);
  virtual ~HealthKeeper() = default;

  virtual health::Verdict Last() const = 0;
  // The verdict becomes that it stops.
  virtual void Stop() = 0;
};

// What canaries run, for tests: over `devices` devices, and the values that must come out.
absl::StatusOr<ir::Program> CanaryProgram(health::CanaryKind kind, int64_t devices);
std::vector<int32_t> CanaryValues(health::CanaryKind kind, int64_t devices);

}  // namespace tessera::server
