// The first failure of a communicator, kept for everybody.
//
// Owned by the communicator, which adds its listeners before any other thread may call Set. Any
// thread may call the rest.
#ifndef TESSERA_WORKER_COLLECTIVES_FAILURE_H_
#define TESSERA_WORKER_COLLECTIVES_FAILURE_H_

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

class FailureLatch {
 public:
  // `listener` runs once, after the first Set, on its thread and under no lock.
  void AddListener(std::function<void()> listener) { listeners_.push_back(std::move(listener)); }

  // Keeps `status`, an error, if it is the first.
  void Set(absl::Status status) {
    {
      absl::MutexLock lock(&mu_);
      if (!first_.ok()) return;
      first_ = std::move(status);
      failed_.store(true, std::memory_order_release);
    }
    for (const auto& listener : listeners_) listener();
  }

  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // Ok until failed() is true.
  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return first_;
  }

 private:
  std::vector<std::function<void()>> listeners_;  // Immutable once threads run.
  std::atomic<bool> failed_{false};
  mutable absl::Mutex mu_;
  absl::Status first_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker

#endif  // TESSERA_WORKER_COLLECTIVES_FAILURE_H_
