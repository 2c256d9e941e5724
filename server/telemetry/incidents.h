// Logs incidents for the operator: each loss, timeout and rejection once. Of one kind at most
// kLinesPerSecond are logged, so that a fault in thousands of runs does not fill the disk; the next
// line has the number of those left out. Thread-safe.
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

  // `now`: of a monotonic clock.
  void Write(const core::Incident& incident, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Budget {
    double lines = kLinesPerSecond;
    absl::Time refilled;
    int64_t left_out = 0;
  };
  absl::Mutex mu_;
  std::map<std::string, Budget> budgets_ ABSL_GUARDED_BY(mu_);  // by Incident::what
};

}  // namespace tessera::server::telemetry
