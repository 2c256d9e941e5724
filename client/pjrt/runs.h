// The queue of a client's runs. A thread of the queue requests the runs from the service in their
// order, so that the framework's thread goes on while the arguments of the runs are put. A thread
// that needs the result of a run calls DoWaitingJobs, which does the waiting jobs on that thread.
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
  // The second part of a job. It runs when the next job may already begin, because it may call the
  // framework, which may call the plugin.
  using FollowUp = absl::AnyInvocable<void()>;
  // The first part of a job; it returns the second part. The first parts of two jobs never overlap.
  using Job = absl::AnyInvocable<FollowUp()>;

  RunQueue() = default;
  RunQueue(const RunQueue&) = delete;
  RunQueue& operator=(const RunQueue&) = delete;
  // Does the jobs that wait, and stops the thread.
  ~RunQueue();

  // Adds a job, which is done after all earlier ones. If too many jobs wait, the caller waits, too,
  // or does some of them itself.
  void Push(Job job) ABSL_LOCKS_EXCLUDED(mu_, job_mu_);
  // Does the jobs that wait, on this thread. Returns when all jobs so far have been done. A job
  // must not call it.
  void DoWaitingJobs() ABSL_LOCKS_EXCLUDED(mu_, job_mu_);

 private:
  void RunThread() ABSL_LOCKS_EXCLUDED(mu_, job_mu_);
  // Does the next job that waits. Returns false if no job waits.
  bool DoNextJob() ABSL_LOCKS_EXCLUDED(mu_, job_mu_);

  absl::Mutex job_mu_ ABSL_ACQUIRED_BEFORE(mu_);  // held while a job is taken and done
  absl::Mutex mu_;
  std::deque<Job> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<size_t> num_waiting_ = 0;      // size of waiting_, for reads without the lock
  std::thread thread_ ABSL_GUARDED_BY(mu_);  // started with the first job
};

}  // namespace tessera::pjrt
