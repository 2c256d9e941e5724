// The work of the method RunProgram: compiles a program, uploads its inputs, runs it and downloads
// its results in one call, with JSON values for small arrays. JobPool has the threads for it.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/program.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

// Runs the program of one request by `service`, and blocks until the run has ended. `program` is
// the program that was read from the request.
absl::Status RunOneProgram(api::Service& service, ir::Program program,
                           const v1::RunProgramRequest& request, v1::RunProgramResponse* response,
                           absl::Duration timeout);

// A few threads for blocking jobs, with a bounded queue. Thread-safe. Every job is called once,
// with its remaining time or with the error because of which it does not run: QUEUE_FULL,
// DEADLINE_EXCEEDED or, from the destructor, SERVER_STOPPING. Jobs run in their order, with one
// exception: the last free thread only takes a job of a tenant that has no job running, so that no
// tenant keeps all threads. The requests of all jobs that wait or run may together take an eighth
// of the process's memory; beyond that a job gets QUEUE_FULL. A job that is alone may be larger.
class JobPool {
 public:
  using Job = std::function<void(absl::StatusOr<absl::Duration> left)>;
  static constexpr int kThreads = 5;
  static constexpr size_t kJobsMax = 64;
  explicit JobPool(int threads = kThreads, size_t jobs_max = kJobsMax);
  ~JobPool();
  // Queues the job. `bytes` is the size of the request that the job holds.
  void Submit(absl::Duration timeout, const std::string& tenant, size_t bytes, Job job)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct QueuedJob {
    absl::Time deadline;
    std::string tenant;
    size_t bytes = 0;
    Job job;
  };
  // Returns the next job that may run now, or end() if there is none.
  std::deque<QueuedJob>::iterator FindNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  const int num_threads_;
  const size_t jobs_max_, bytes_max_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int num_busy_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;                    // size of the requests of all jobs
  std::map<std::string, int> running_ ABSL_GUARDED_BY(mu_);  // running jobs of each tenant, never 0
  std::deque<QueuedJob> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace tessera::server::rpc
