// Notices that work on a device has ended: one thread that polls events, as the device's callbacks
// do not report work that ended in an error.
//
// Work is watched in queues: the work of a queue ends in the order in which it was added, so only
// its oldest is polled. Thread-safe. Callbacks run on the thread, without a lock, and must not
// block. While anything is watched the thread polls every few microseconds at first, then more
// rarely.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker::device {

// Something that ends.
class Watched {
 public:
  virtual ~Watched() = default;
  // Polls; true once the work has ended and its waiters have been told. Called until then.
  virtual bool Poll(absl::Time now) = 0;
};

class Completion {
 public:
  explicit Completion(int num_queues);
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  // Work that has not ended is dropped, without a call to its waiters.
  ~Completion();

  void Add(int queue, std::unique_ptr<Watched> work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();
  // Polls the oldest of each queue; whether any has ended.
  bool PollAll();

  absl::Mutex mu_;
  std::vector<std::deque<std::unique_ptr<Watched>>> queues_ ABSL_GUARDED_BY(mu_);
  int64_t watched_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker::device
