// Logs incidents (losses, timeouts and rejections) for the operator. At most kLinesPerSecond lines
// per second are logged of each kind (core::Incident::what), so that a fault in thousands of runs
// does not fill the disk. The next line of that kind contains the number of incidents that were
// left out. Thread-safe.
#pragma once
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/core/telemetry.h"

namespace tessera::server::telemetry {

class Incidents {
 public:
  static constexpr int kLinesPerSecond = 20;

  // Logs the incident, unless too many of its kind were logged. `now` is read from a monotonic
  // clock.
  void Log(const core::Incident& incident, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The number of lines that may still be logged. It grows by kLinesPerSecond in each second, up to
  // kLinesPerSecond.
  struct Budget {
    double lines = kLinesPerSecond;
    absl::Time refilled_at;
    int64_t left_out = 0;
  };
  absl::Mutex mu_;
  std::map<std::string, Budget> budgets_ ABSL_GUARDED_BY(mu_);  // key: Incident::what
};

}  // namespace tessera::server::telemetry
