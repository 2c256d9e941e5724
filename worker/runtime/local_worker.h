// A worker inside this process: one executor that the coordinator reaches by direct calls.
//
// embed/ starts it. It registers in Start and keeps its lease until it is destroyed. The events
// object outlives it. Send is thread-safe and does not block.
#pragma once
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ir/api/worker_link.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/timer.h"

namespace tessera::worker {

struct LocalWorkerOptions {
  std::string name = "local";
  std::string host = "localhost";
  absl::Duration collective_timeout = absl::Seconds(5);
  int64_t queue_bound = 2048;
  std::string files_dir;  // the folder of saved arrays; if empty, none may be saved or loaded
};

class LocalWorker {
 public:
  // Registers the worker with `events`. Returns the error of the registration, if there is one.
  static absl::StatusOr<std::unique_ptr<LocalWorker>> Start(const LocalWorkerOptions& options,
                                                            std::unique_ptr<Backend> backend,
                                                            api::WorkerEvents* events);
  // Deregisters the worker, and then ends its running work.
  ~LocalWorker();

  Executor& executor() { return *executor_; }

 private:
  class Link;

  explicit LocalWorker(api::WorkerEvents* events) : events_(events) {}
  void OnReport(api::ReportBody body);
  void SendHeartbeat();

  api::WorkerEvents* const events_;
  api::Welcome welcome_;  // set before the first command can come
  absl::Mutex mu_;
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Timer::Id heartbeat_timer_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Link> link_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Timer> timer_;
};

}  // namespace tessera::worker
