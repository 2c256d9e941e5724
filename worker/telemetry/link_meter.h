// What the exchanges of an executor's devices say of its links: the latency of small ones and the
// bandwidth of large ones, among its devices and with other executors.
//
// Of the ranks of an exchange the last to come waits for nobody, and the others wait for it, often
// for much longer than the exchange takes. So a figure is that of the fastest call, and grows by a
// hundredth with each slower one. Thread-safe; a sample that would wait for another thread is
// dropped.
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
  // An exchange took `time` in so many rounds, and sent so many bytes from this device.
  void Record(bool between_executors, double bytes_sent, double rounds, absl::Duration time)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What is known of links of which a figure has changed by over a tenth since they were returned
  // last.
  std::vector<api::LinkSpeed> TakeChanges() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Link {
    double latency_s = 0, s_per_byte = 0;  // 0: unknown
    double told_latency_s = 0, told_s_per_byte = 0;
  };
  std::atomic<bool> recorded_ = false;  // since the last TakeChanges
  absl::Mutex mu_;
  std::array<Link, 2> links_ ABSL_GUARDED_BY(mu_);  // by between_executors
};

}  // namespace tessera::worker
