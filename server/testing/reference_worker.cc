// The worker that tests of the coordinator, the RPCs and the health monitor use. The scheduler's
// driver calls Send; the worker carries the command out and reports to the coordinator.
#include "server/testing/reference_worker.h"

#include "base/log.h"
#include "base/status.h"
#include "ir/eval/eval.h"
#include "ir/strided.h"

namespace tessera::server {

void ReferenceWorker::Start() {
  api::Registration registration;
  registration.worker = name_;
  registration.host = "here";
  {
    absl::MutexLock lock(&mu_);
    ++incarnation_;
    alive_ = true;
    close_reason_ = absl::OkStatus();
    buffers_.clear();
    programs_.clear();
    registration.executors = {DescribeExecutor()};
    // Reports wait until the registration id is known.
    sending_ = true;
  }
  absl::StatusOr<api::Welcome> welcome = events_->Register(registration, shared_from_this());
  TESSERA_CHECK_OK(welcome);
  {
    absl::MutexLock lock(&mu_);
    registration_id_ = welcome->registration_id;
    sending_ = false;
  }
  SendReports();
}

api::ExecutorInfo ReferenceWorker::DescribeExecutor() {
  api::ExecutorInfo info;
  info.incarnation = incarnation_;
  info.device_kind = "cpu";
  info.num_devices = num_devices_;
  return info;
}

void ReferenceWorker::LoseExecutor(const std::string& reason) {
  {
    absl::MutexLock lock(&mu_);
    alive_ = false;
    uint64_t launch = 0;
    for (const api::Command& c : held_)
      if (const auto* l = std::get_if<api::Launch>(&c); l != nullptr && launch == 0)
        launch = l->launch;
    held_.clear();
    buffers_.clear();
    programs_.clear();
    QueueReport(api::ExecutorLost{reason, launch, ""});
  }
  SendReports();
}

void ReferenceWorker::RestoreExecutor() {
  {
    absl::MutexLock lock(&mu_);
    ++incarnation_;
    alive_ = true;
    QueueReport(api::ExecutorReady{DescribeExecutor()});
  }
  SendReports();
}

void ReferenceWorker::HoldLaunches(bool hold) {
  {
    absl::MutexLock lock(&mu_);
    hold_ = hold;
    if (hold) return;
    for (const api::Command& command : held_) RunInOrder(command);
    held_.clear();
  }
  SendReports();
}

void ReferenceWorker::QueueReport(api::ReportBody body) {
  reports_.push_back({0, incarnation_, std::move(body)});
}

void ReferenceWorker::SendReports() {
  while (true) {
    uint64_t registration_id = 0;
    api::Report report;
    {
      absl::MutexLock lock(&mu_);
      // If a call is already sending (perhaps this thread's, further up the stack), it goes on
      // until no report is left.
      if (sending_ || reports_.empty()) return;
      sending_ = true;
      registration_id = registration_id_;
      report = std::move(reports_.front());
      reports_.pop_front();
    }
    events_->OnReport(registration_id, std::move(report));
    absl::MutexLock lock(&mu_);
    sending_ = false;
  }
}

void ReferenceWorker::Close(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  close_reason_ = why;
  alive_ = false;
}
absl::Status ReferenceWorker::close_reason() {
  absl::MutexLock lock(&mu_);
  return close_reason_;
}
int64_t ReferenceWorker::num_buffers() {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(buffers_.size());
}

void ReferenceWorker::Send(int32_t executor, uint64_t incarnation, api::Command command) {
  CarryOut(executor, incarnation, std::move(command));
  SendReports();
}

// Carries out one command, unless it is for another incarnation. Commands about single buffers and
// programs run at once, as on a real executor; ordered commands run at once too, or wait while
// launches are held. Reports are only queued here, because they must be sent without the lock.
void ReferenceWorker::CarryOut(int32_t executor, uint64_t incarnation, api::Command command) {
  absl::MutexLock lock(&mu_);
  if (executor != 0 || incarnation != incarnation_ || !alive_) return;
  if (auto* load = std::get_if<api::LoadProgram>(&command)) {
    const uint64_t id = load->executable;
    programs_[id] = std::move(*load);
    QueueReport(api::ProgramLoaded{id, absl::OkStatus(), 0});
  } else if (auto* unload = std::get_if<api::UnloadPrograms>(&command)) {
    for (uint64_t id : unload->executables) programs_.erase(id);
  } else if (auto* write = std::get_if<api::WriteBuffer>(&command)) {
    buffers_[{write->array, write->device}] = write->value;
    QueueReport(api::BufferWritten{write->array, write->device, absl::OkStatus()});
  } else if (auto* read = std::get_if<api::ReadBuffer>(&command)) {
    api::BufferRead reply;
    reply.request = read->request;
    const auto it = buffers_.find({read->array, read->device});
    if (it == buffers_.end()) {
      reply.value = MakeError(ErrorKind::kArrayDeleted, "no such buffer");
    } else {
      reply.value = it->second;
    }
    QueueReport(std::move(reply));
  } else if (auto* cancel = std::get_if<api::CancelLaunch>(&command)) {
    for (auto it = held_.begin(); it != held_.end(); ++it)
      if (const auto* launch = std::get_if<api::Launch>(&*it);
          launch != nullptr && launch->launch == cancel->launch) {
        held_.erase(it);
        QueueReport(api::LaunchFailed{cancel->launch, cancel->why});
        break;
      }
  } else if (hold_) {
    held_.push_back(std::move(command));
  } else {
    RunInOrder(command);
  }
}

void ReferenceWorker::RunInOrder(const api::Command& command) {
  if (const auto* launch = std::get_if<api::Launch>(&command)) {
    Run(*launch);
  } else if (const auto* transfer = std::get_if<api::Transfer>(&command)) {
    Run(*transfer);
  } else if (const auto* deletes = std::get_if<api::DeleteBuffers>(&command)) {
    for (uint64_t array : deletes->arrays)
      for (int d = 0; d < num_devices_; ++d) buffers_.erase({array, d});
  }
}

// Runs the program on the local devices with the reference evaluator, which takes all devices'
// shards together, so that collectives need no threads. Donated arguments are freed only after the
// run has succeeded.
void ReferenceWorker::Run(const api::Launch& launch) {
  const auto program = programs_.find(launch.executable);
  if (program == programs_.end())
    return QueueReport(
        api::LaunchFailed{launch.launch, absl::InternalError("program is not loaded")});
  const auto local = program->second.LocalDevices();
  std::vector<int64_t> devices;
  std::vector<ir::Shards> args(launch.args.size());
  for (const auto& [coordinate, device] : local) {
    devices.push_back(coordinate);
    for (size_t a = 0; a < launch.args.size(); ++a) {
      const auto it = buffers_.find({launch.args[a], device});
      if (it == buffers_.end())
        return QueueReport(
            api::LaunchFailed{launch.launch, absl::InternalError("an argument is gone")});
      args[a].push_back(it->second);
    }
  }
  ir::Evaluator evaluator;
  auto results = evaluator.RunOnDevices(devices, *program->second.program.entry, std::move(args));
  if (!results.ok()) return QueueReport(api::LaunchFailed{launch.launch, results.status()});
  for (size_t r = 0; r < launch.results.size(); ++r)
    for (size_t k = 0; k < local.size(); ++k)
      buffers_[{launch.results[r], local[k].second}] = (*results)[r][k];
  for (size_t a = 0; a < launch.donate.size(); ++a)
    if (launch.donate[a])
      for (const auto& [coordinate, device] : local) buffers_.erase({launch.args[a], device});
  api::LaunchDone done{launch.launch, absl::Microseconds(1), {}};
  for (const auto& [result, device] : launch.inline_results) {
    const uint64_t array = launch.results[result];
    done.inline_results.push_back({array, device, buffers_.at({array, device})});
  }
  QueueReport(std::move(done));
}

void ReferenceWorker::Run(const api::Transfer& transfer) {
  for (const api::Transfer::Shard& shard : transfer.shards) {
    ir::Array out(transfer.dtype, transfer.local_shape);
    for (const api::Transfer::Piece& p : shard.pieces) {
      const auto it = buffers_.find({p.source, p.source_device});
      if (!p.local || it == buffers_.end())
        return QueueReport(
            api::LaunchFailed{transfer.launch, absl::InternalError("a source is gone")});
      ir::WriteBlock(&out, p.dest_starts, ir::SliceBlock(it->second, p.source_starts, p.shape));
    }
    buffers_[{transfer.result, shard.device}] = std::move(out);
  }
  QueueReport(api::LaunchDone{transfer.launch, absl::Microseconds(1)});
}

}  // namespace tessera::server
