// Calls functions at points in time, on its own thread.
//
// Thread-safe. Functions run without a lock and must be short. After Cancel has returned, the
// function neither runs nor will run; a function must not call Cancel. The destructor drops
// functions that are not due.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker {

class Timer {
 public:
  using Id = std::pair<absl::Time, uint64_t>;

  Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer();

  Id CallAt(absl::Time time, std::function<void()> f) ABSL_LOCKS_EXCLUDED(mu_);
  void Cancel(const Id& id) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();

  absl::Mutex mu_;
  std::map<Id, std::function<void()>> pending_ ABSL_GUARDED_BY(mu_);
  uint64_t next_number_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t running_number_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  std::thread thread_;  // last, since it uses the members above
};

}  // namespace tessera::worker
