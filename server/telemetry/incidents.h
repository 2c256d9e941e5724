// Logs incidents for the operator: each loss, timeout and rejection once. At most kLinesPerSecond
// lines of one kind are logged, so that a fault in thousands of runs does not fill the disk. The
// next line of that kind contains the number of incidents that were left out. Thread-safe.
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
  void Write(const core::Incident& incident, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Budget {
    double lines = kLinesPerSecond;
    absl::Time refilled;
    int64_t left_out = 0;
  };
  absl::Mutex mu_;
  std::map<std::string, Budget> budgets_ ABSL_GUARDED_BY(mu_);  // key: Incident::what
};

}  // namespace tessera::server::telemetry
