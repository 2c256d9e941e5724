// The cancellation flag of a launch: set once, with the reason for which the launch will end.
//
// Kernels poll the flag between ops and at loop back-edges; blocking code registers a listener that
// wakes it. Thread-safe. Listeners run on the thread that cancels, without a lock, and must
// neither block nor destroy the token.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

class CancelToken {
 public:
  // The first reason is kept. Returns true if this was the first.
  bool Cancel(absl::Status why) ABSL_LOCKS_EXCLUDED(mu_);

  bool cancelled() const { return word_.load(std::memory_order_acquire) != 0; }
  // OK until cancelled.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // The flag that compiled code polls: not zero once cancelled.
  const std::atomic<uint32_t>* word() const { return &word_; }

  // Calls `listener` when cancelled; at once if that has happened. Returns an id for Remove, which
  // waits for a call that is under way.
  int64_t AddListener(std::function<void()> listener) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveListener(int64_t id) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<uint32_t> word_{0};
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool calling_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<int64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
