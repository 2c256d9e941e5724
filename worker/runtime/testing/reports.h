// For tests: plays the coordinator, which gets the reports of an executor.
#pragma once
#include <algorithm>
#include <deque>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"

namespace tessera::worker {

// Thread-safe.
class Reports {
 public:
  void Add(api::ReportBody body) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    reports_.push_back(std::move(body));
  }
  // Takes the first report of type T that has not been taken yet, and waits for it. Returns
  // DEADLINE_EXCEEDED if none comes within a minute.
  template <class T>
  absl::StatusOr<T> Next() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto found = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::find_if(reports_.begin(), reports_.end(),
                          [](const auto& r) { return std::holds_alternative<T>(r); });
    };
    const auto there = [&]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return found() != reports_.end(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(60)))
      return absl::DeadlineExceededError("no such report came");
    const auto it = found();
    T taken = std::get<T>(std::move(*it));
    reports_.erase(it);
    return taken;
  }

 private:
  absl::Mutex mu_;
  std::deque<api::ReportBody> reports_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
