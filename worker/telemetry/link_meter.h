// Measures an executor's links by the exchanges of its devices: the latency by small exchanges, and
// the bandwidth by large ones. Links among the executor's own devices and links to other executors
// are measured separately.
//
// The rank that comes last to an exchange waits for nobody, but the others wait for it, often for
// much longer than the exchange takes. Each estimate is therefore the time of the fastest exchange
// so far; to follow changes, each slower exchange raises it by at most a hundredth. Thread-safe. A
// sample is dropped if recording it would have to wait for another thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"

namespace tessera::worker {

class LinkMeter {
 public:
  // Records an exchange that took `time`, and for which this device sent `bytes_sent`. An exchange
  // takes the latency of the link `rounds` times.
  void Record(bool between_executors, double bytes_sent, double rounds, absl::Duration time)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the links whose latency or bandwidth has changed by more than a tenth since this
  // function last returned them.
  std::vector<api::LinkSpeed> TakeChanges() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Link {
    double latency_s = 0, s_per_byte = 0;                    // 0 if unknown
    double reported_latency_s = 0, reported_s_per_byte = 0;  // as TakeChanges returned them last
  };
  // Whether an exchange was recorded since the last TakeChanges.
  std::atomic<bool> recorded_ = false;
  absl::Mutex mu_;
  std::array<Link, 2> links_ ABSL_GUARDED_BY(mu_);  // by between_executors
};

}  // namespace tessera::worker
