// A worker for tests. It has one executor, and the reference evaluator stands in for the executor's
// devices.  There is no connection: the coordinator calls it directly, and it carries out each
// command on the caller's thread.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ir/api/worker_link.h"

namespace tessera::server {

// Thread-safe.  `events` outlives the worker.
class ReferenceWorker : public api::WorkerLink,
                        public std::enable_shared_from_this<ReferenceWorker> {
 public:
  ReferenceWorker(api::WorkerEvents* events, std::string name, int num_devices)
      : events_(events), name_(std::move(name)), num_devices_(num_devices) {}

  // Registers with the next incarnation and empty memory.
  void Start();
  // LoseExecutor lets the executor die; RestoreExecutor brings it back with the next incarnation.
  void LoseExecutor(const std::string& reason);
  void RestoreExecutor();
  // While `hold` is set, launches and the commands ordered after them are queued and do not run, so
  // that a test can act before they run.
  void HoldLaunches(bool hold);

  void Send(int32_t executor, uint64_t incarnation, api::Command command) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Close(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the reason with which the coordinator has closed the link, or OK if it is open.
  absl::Status close_reason() ABSL_LOCKS_EXCLUDED(mu_);
  int64_t num_buffers() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::pair<uint64_t, int32_t>;
  void CarryOut(int32_t executor, uint64_t incarnation, api::Command command)
      ABSL_LOCKS_EXCLUDED(mu_);
  void QueueReport(api::ReportBody body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the queued reports. Holds no lock meanwhile, because the coordinator may answer a report
  // with commands at once.
  void SendReports() ABSL_LOCKS_EXCLUDED(mu_);
  void Run(const api::Launch& launch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Carries out a command that has a place in the order: a Launch, Transfer or DeleteBuffers.
  void RunInOrder(const api::Command& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run(const api::Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  api::ExecutorInfo DescribeExecutor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  api::WorkerEvents* const events_;
  const std::string name_;
  const int num_devices_;

  absl::Mutex mu_;
  uint64_t registration_id_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 0;
  bool alive_ ABSL_GUARDED_BY(mu_) = false;
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status close_reason_ ABSL_GUARDED_BY(mu_);
  std::map<Key, ir::Array> buffers_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, api::LoadProgram> programs_ ABSL_GUARDED_BY(mu_);
  std::vector<api::Command> held_ ABSL_GUARDED_BY(mu_);
  std::deque<api::Report> reports_ ABSL_GUARDED_BY(mu_);
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace tessera::server
