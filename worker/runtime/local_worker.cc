// A worker inside the process of the coordinator, which embed/ starts. The coordinator calls the
// executor directly through the link, and the executor's reports are calls of WorkerEvents; a timer
// sends the heartbeats.
#include "worker/runtime/local_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "worker/telemetry/in_flight.h"

namespace tessera::worker {

// The coordinator's way to the executor. The coordinator may keep it longer than the worker lives.
class LocalWorker::Link : public api::WorkerLink {
 public:
  explicit Link(Executor* executor) : executor_(executor), incarnation_(executor->incarnation()) {}

  void Send(int32_t executor, uint64_t incarnation, api::Command command) override {
    absl::ReaderMutexLock lock(&mu_);
    if (executor_ == nullptr || executor != 0 || incarnation != incarnation_) return;
    executor_->Send(std::move(command));
  }
  bool SendForReport(int32_t executor, uint64_t incarnation, api::Command command,
                     api::Report* report) override {
    absl::ReaderMutexLock lock(&mu_);
    if (executor_ == nullptr || executor != 0 || incarnation != incarnation_) return false;
    report->executor = executor;
    report->incarnation = incarnation;
    return executor_->Send(std::move(command), &report->body);
  }
  void Cut() {
    absl::MutexLock lock(&mu_);
    executor_ = nullptr;
  }

 private:
  absl::Mutex mu_;
  Executor* executor_ ABSL_GUARDED_BY(mu_);
  const uint64_t incarnation_;
};

// Makes the executor and registers it. Commands may come, and be reported, before Register has
// returned the registration id, so OnReport waits until `registered_` is set.
absl::StatusOr<std::unique_ptr<LocalWorker>> LocalWorker::Start(const LocalWorkerOptions& options,
                                                                std::unique_ptr<Backend> backend,
                                                                api::WorkerEvents* events) {
  if (backend->num_devices() > InFlightPage::kMaxDevices) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("a worker has 1 to ", InFlightPage::kMaxDevices, " devices, not ",
                                  backend->num_devices()));
  }
  auto worker = std::unique_ptr<LocalWorker>(new LocalWorker(events));
  ExecutorOptions executor_options;
  executor_options.worker = options.name;
  executor_options.host = options.host;
  executor_options.collective_timeout = options.collective_timeout;
  executor_options.queue_bound = options.queue_bound;
  executor_options.files_dir = options.files_dir;
  worker->executor_ = std::make_unique<Executor>(
      std::move(executor_options), std::move(backend),
      [self = worker.get()](api::ReportBody body) { self->OnReport(std::move(body)); });
  worker->timer_ = std::make_unique<Timer>();
  worker->link_ = std::make_shared<Link>(worker->executor_.get());
  api::Registration registration;
  registration.worker = options.name;
  registration.host = options.host;
  registration.executors = {worker->executor_->info()};
  TESSERA_ASSIGN_OR_RETURN(api::Welcome welcome, events->Register(registration, worker->link_));
  absl::MutexLock lock(&worker->mu_);
  worker->welcome_ = std::move(welcome);
  worker->registered_ = true;
  worker->heartbeat_timer_ = worker->timer_->CallAt(
      SteadyNow() + worker->welcome_.heartbeat, [self = worker.get()] { self->SendHeartbeat(); });
  return worker;
}

LocalWorker::~LocalWorker() {
  if (link_ != nullptr) link_->Cut();
  bool registered = false;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    registered = registered_;
  }
  timer_.reset();
  if (registered) {
    events_->OnReport(welcome_.registration_id,
                      {executor_->index(), executor_->incarnation(),
                       api::ExecutorFarewell{"the embedded worker is stopping"}});
    events_->Disconnect(welcome_.registration_id,
                        MakeError(ErrorKind::kServerStopping, "the embedded worker is stopping"));
  }
}

// Commands may come, and be answered, before Register has returned.
void LocalWorker::OnReport(api::ReportBody body) {
  {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return registered_ || stopping_; };
    mu_.Await(absl::Condition(&ready));
    if (stopping_) return;
  }
  events_->OnReport(welcome_.registration_id,
                    {executor_->index(), executor_->incarnation(), std::move(body)});
}

void LocalWorker::SendHeartbeat() {
  events_->OnReport(welcome_.registration_id, {0, 0, api::Heartbeat{}});
  absl::MutexLock lock(&mu_);
  if (stopping_) return;
  heartbeat_timer_ = timer_->CallAt(SteadyNow() + welcome_.heartbeat, [this] { SendHeartbeat(); });
}

}  // namespace tessera::worker
