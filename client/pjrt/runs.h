// The runs of a client, asked for in their order by a thread of their own: the framework's thread
// goes on while their arguments are put. Who needs to know what has come of them asks for those
// that wait itself.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"

namespace tessera::pjrt {

// Thread-safe.
class RunQueue {
 public:
  // Returns what is to be done when the next job may begin: it may call the framework, which may
  // call the plugin.
  using After = absl::AnyInvocable<void()>;
  using Job = absl::AnyInvocable<After()>;

  RunQueue() = default;
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;
  // Does what waits.
  ~RunQueue();

  // Has the job done after those before it. While too many wait the caller does, too, or helps.
  void Push(Job job) ABSL_LOCKS_EXCLUDED(mu_, doing_);
  // Returns when all jobs so far have been done. Not to be called by a job.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_, doing_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_, doing_);
  // Does the next job; false: there is none.
  bool DoNext() ABSL_LOCKS_EXCLUDED(mu_, doing_);

  absl::Mutex doing_ ABSL_ACQUIRED_BEFORE(mu_);  // held while a job is taken and done
  absl::Mutex mu_;
  std::deque<Job> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<size_t> num_waiting_ = 0;      // to look at without the lock
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // started with the first job
};

}  // namespace tessera::pjrt
