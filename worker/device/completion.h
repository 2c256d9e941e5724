// Notices that work on a device has ended: one thread that looks at events, as no interface of the
// device tells of an end that is an error.
//
// Work is watched in lanes: the work of a lane ends in the order in which it was added, and only
// its oldest is looked at. Thread-safe. Callbacks run on the thread, without a lock, and must not
// block. While anything is watched the thread looks every few microseconds at first, then more
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
  // Looks; true once it has ended, and whoever waited has been told. Called until then.
  virtual bool Look(absl::Time now) = 0;
};

class Completion {
 public:
  explicit Completion(int num_lanes);
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  // What has not ended is dropped: nobody is told.
  ~Completion();

  void Add(int lane, std::unique_ptr<Watched> work) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();
  // Looks at the oldest of each lane; whether any has ended.
  bool LookAtAll();

  absl::Mutex mu_;
  std::vector<std::deque<std::unique_ptr<Watched>>> lanes_ ABSL_GUARDED_BY(mu_);
  int64_t watched_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker::device
