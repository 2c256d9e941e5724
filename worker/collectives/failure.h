// Stores the first failure of a communicator, and the first failure of each launch on it.
//
// A failed launch does not affect the others: their calls go on. The failures of the last
// kLaunchesKept failed launches are stored. An executor queues fewer launches than that, so a
// failure is dropped only when no frame of its launch is in flight any more.
//
// Owned by the communicator, which adds its listeners before any other thread may call Set. All
// other functions may be called by any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

class FailureLatch {
 public:
  static constexpr size_t kLaunchesKept = 1 << 16;
  // Where the failure of a launch was detected: on this executor, or by a peer.
  enum class From : uint8_t { kHere, kPeer };

  // `listener` runs once, after the first Set, on the thread that called Set and under no lock.
  void AddListener(std::function<void()> listener) { listeners_.push_back(std::move(listener)); }
  // `listener` runs once for each launch that fails before the communicator does, after the first
  // SetLaunchFailure of the launch, on the thread that called it and under no lock.
  void AddLaunchListener(std::function<void(uint64_t launch, From from)> listener) {
    launch_listeners_.push_back(std::move(listener));
  }

  // Stores `status`, which must be an error, if no error is stored yet.
  void Set(absl::Status status) {
    {
      absl::MutexLock lock(&mu_);
      if (!first_.ok()) return;
      first_ = std::move(status);
      failed_.store(true, std::memory_order_release);
      any_failed_.store(true, std::memory_order_release);
    }
    for (const auto& listener : listeners_) listener();
  }
  // Stores `status`, unless an error of this launch or of the communicator is stored already.
  void SetLaunchFailure(uint64_t launch, absl::Status status, From from) {
    {
      absl::MutexLock lock(&mu_);
      if (!first_.ok() || !launches_.emplace(launch, std::move(status)).second) return;
      order_.push_back(launch);
      if (order_.size() > kLaunchesKept) {
        launches_.erase(order_.front());
        order_.pop_front();
      }
      any_failed_.store(true, std::memory_order_release);
    }
    for (const auto& listener : launch_listeners_) listener(launch, from);
  }

  // Returns whether the communicator has failed.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Returns the failure of the communicator, or OK if it has not failed.
  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return first_;
  }

  // Returns the error with which calls of the launch end: the error of the launch or, if it has
  // none, the error of the communicator. Returns OK if neither has failed.
  absl::Status status(uint64_t launch) const {
    if (!any_failed_.load(std::memory_order_acquire)) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    const auto it = launches_.find(launch);
    return it == launches_.end() ? first_ : it->second;
  }
  bool failed(uint64_t launch) const {
    if (!any_failed_.load(std::memory_order_acquire)) return false;
    absl::MutexLock lock(&mu_);
    return !first_.ok() || launches_.count(launch) > 0;
  }
  // Returns the failure of the launch, or OK if it has not failed, even if the communicator has.
  absl::Status launch_failure(uint64_t launch) const {
    if (!any_failed_.load(std::memory_order_acquire)) return absl::OkStatus();
    absl::MutexLock lock(&mu_);
    const auto it = launches_.find(launch);
    return it == launches_.end() ? absl::OkStatus() : it->second;
  }

 private:
  std::vector<std::function<void()>> listeners_;  // immutable once other threads may call Set
  // immutable once other threads may call Set
  std::vector<std::function<void(uint64_t, From)>> launch_listeners_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> any_failed_{false};  // whether the communicator or any launch has failed
  mutable absl::Mutex mu_;
  absl::Status first_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, absl::Status> launches_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> order_ ABSL_GUARDED_BY(mu_);  // the keys of launches_, oldest first
};

}  // namespace tessera::worker
