// Estimates the speed of the links from the collectives of real launches. MeteredCollectives
// (worker/runtime/metered_collectives.cc) records each exchange, and the executor sends the changes
// to the coordinator, whose planner uses them as costs.
#include "worker/telemetry/link_meter.h"

#include <algorithm>
#include <cmath>

namespace tessera::worker {
namespace {

constexpr double kSmallBytes = 4 << 10, kLargeBytes = 256 << 10;
constexpr double kRaiseFactorMax = 1.01, kRelativeChangeMin = 0.1;

// Updates an estimate with one sample: a faster sample replaces it, and a slower one raises it by
// at most a hundredth.
void UpdateEstimate(double* estimate, double sample) {
  *estimate = *estimate == 0 ? sample : std::min(sample, *estimate * kRaiseFactorMax);
}

bool HasChanged(double estimate, double reported) {
  return std::abs(estimate - reported) > kRelativeChangeMin * reported;
}

}  // namespace

void LinkMeter::Record(bool between_executors, double bytes_sent, double rounds,
                       absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  const bool is_small = bytes_sent <= kSmallBytes;
  if (seconds <= 0 || rounds <= 0 || (!is_small && bytes_sent < kLargeBytes)) return;
  if (!mu_.TryLock()) return;
  Link& link = links_[between_executors];
  if (is_small) {
    UpdateEstimate(&link.latency_s, seconds / rounds);
  } else {
    UpdateEstimate(&link.s_per_byte, seconds / bytes_sent);
  }
  mu_.Unlock();
  recorded_.store(true, std::memory_order_release);
}

std::vector<api::LinkSpeed> LinkMeter::TakeChanges() {
  std::vector<api::LinkSpeed> changes;
  if (!recorded_.load(std::memory_order_relaxed)) return changes;
  absl::MutexLock lock(&mu_);
  recorded_.store(false, std::memory_order_relaxed);
  for (const bool between_executors : {false, true}) {
    Link& link = links_[between_executors];
    if (!HasChanged(link.latency_s, link.reported_latency_s) &&
        !HasChanged(link.s_per_byte, link.reported_s_per_byte))
      continue;
    link.reported_latency_s = link.latency_s;
    link.reported_s_per_byte = link.s_per_byte;
    changes.push_back(
        {between_executors, link.s_per_byte > 0 ? 1 / link.s_per_byte : 0, link.latency_s});
  }
  return changes;
}

}  // namespace tessera::worker
