// The cancellation flag of a launch. It is set once, together with the reason why the launch ends.
//
// Kernels poll the flag between ops and at the back-edges of loops. Blocking code registers a
// listener that wakes it. Thread-safe. Listeners run on the thread that cancels, without a lock,
// and must neither block nor destroy the token.
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
  // Cancels the launch. Only the first reason is kept. Returns true if this was the first.
  bool Cancel(absl::Status why) ABSL_LOCKS_EXCLUDED(mu_);

  bool cancelled() const { return word_.load(std::memory_order_acquire) != 0; }
  // Returns OK until the launch is cancelled, and then the reason.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // The flag that compiled code polls; it is not zero once the launch is cancelled.
  const std::atomic<uint32_t>* word() const { return &word_; }

  // Calls `listener` when the launch is cancelled, or at once if it already is. Returns an id for
  // RemoveListener, which waits for a call that is under way.
  int64_t AddListener(std::function<void()> listener) const ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveListener(int64_t id) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::atomic<uint32_t> word_{0};
  mutable absl::Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  bool calling_ ABSL_GUARDED_BY(mu_) = false;
  // A launch that only polls the token may also listen to it.
  mutable int64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  mutable std::map<int64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker
