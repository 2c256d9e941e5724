// RunProgram: compile, upload, run and download in one call, with JSON values for small arrays.
#pragma once
#include <deque>
#include <functional>
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

// Runs one request for the caller of `service`; blocking.  `program` is the request's, parsed.
absl::Status RunOne(api::Service& service, ir::Program program,
                    const v1::RunProgramRequest& request, v1::RunProgramResponse* response,
                    absl::Duration timeout);

// A few threads for blocking jobs, and a bounded queue.  Thread-safe.  Every job is called once:
// with its remaining time, or with the error for which it does not run: QUEUE_FULL,
// DEADLINE_EXCEEDED, or, from the destructor, SERVER_STOPPING.
class RunPool {
 public:
  using Job = std::function<void(absl::StatusOr<absl::Duration> left)>;
  static constexpr int kThreads = 4;
  explicit RunPool(int threads = kThreads);
  ~RunPool();
  void Run(absl::Duration timeout, Job job) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    absl::Time until;
    Job job;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Waiting> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace tessera::server::rpc
