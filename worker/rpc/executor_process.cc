// The process of an executor, which the daemon's Supervisor starts through worker/main.cc. It
// connects the Executor with the coordinator, the data port, its peers and its daemon. The process
// ends when its daemon closes the socket or dies, so that no executor outlives its daemon. It tells
// the coordinator so on its own stream, because the coordinator takes the end of a daemon's
// connection for no proof that the executor is gone (docs/decisions/0037).
#include "worker/rpc/executor_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/dump_folder.h"
#include "base/flight_recorder.h"
#include "base/frames.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/process_report.h"
#include "ir/serial/worker.h"
#include "tessera/v1/worker.pb.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/device/device_backend.h"
#include "worker/device/plugin.h"
#include "worker/rpc/coordinator_stream.h"
#include "worker/rpc/data_server.h"
#include "worker/rpc/grpc_peer_reader.h"
#include "worker/runtime/executor.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kDeviceLostExitStatus = 4;

constexpr absl::Duration kLastReportsWait = absl::Seconds(1);
// How long the process of an executor may outlive its daemon to tell the coordinator that it ends.
constexpr absl::Duration kFarewellWait = absl::Milliseconds(500);

// Makes the backend for the process's devices: CPU devices in this process, or one GPU through the
// device plugin. The GPU backend is told what to do if its device is lost, since only a new process
// can open the device again.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const ExecutorProcessOptions& options, DumpFolder* dump, LongSteps* long_steps,
    MetricsPage* metrics, std::function<void(const absl::Status&)> on_fatal) {
  if (options.gpu.empty()) {
    std::unique_ptr<Backend> cpu =
        MakeCpuBackend({.num_devices = options.num_devices,
                        .memory_bytes = options.memory_bytes,
                        .codegen = options.codegen,
                        .kernels = options.compile_always ? CpuBackendOptions::Kernels::kAlways
                                                          : CpuBackendOptions::Kernels::kAuto,
                        .long_steps = long_steps,
                        .dump = dump});
    const HostLimits limits = ProcessLimits();
    TESSERA_LOG(INFO) << "CPU devices" << Field("worker", options.worker)
                      << Field("devices", cpu->num_devices())
                      << Field("memory_bytes", cpu->memory_bytes()) << Field("cores", limits.cores)
                      << Field("limit_bytes", limits.memory_bytes);
    return cpu;
  }
  TESSERA_ASSIGN_OR_RETURN(const device::FoundDevice found,
                           device::FindDevice(options.cuda_plugin, options.gpu));
  device::DeviceBackendOptions device_options;
  device_options.ordinal = found.ordinal;
  device_options.memory_bytes = options.memory_bytes;
  device_options.collective_timeout = options.collective_timeout;
  device_options.opening_timeout = options.communicator_timeout;
  device_options.allow_tf32 = options.cuda_tf32;
  device_options.codegen = options.codegen;
  device_options.long_steps = long_steps;
  device_options.dump = dump;
  if (metrics != nullptr)
    device_options.on_abort = [abort_seconds =
                                   metrics->histogram(Metric::kCollectiveAbort, {"abort"})](
                                  absl::Duration time) { abort_seconds.Observe(time); };
  device_options.on_fatal = std::move(on_fatal);
  return device::MakeDeviceBackend(found.api, device_options);
}

// Returns the options of the children that evaluate long host steps. CPU devices share the cores; a
// GPU's host steps use all of them.
EvalChildOptions EvalChildOptionsFor(const ExecutorProcessOptions& options) {
  EvalChildOptions child = options.eval_child;
  child.num_threads = std::max(ProcessLimits().cores / std::max(options.num_devices, 1), 1);
  return child;
}

// The parts of an executor process, in the order in which they are made.
class ExecutorProcess {
 public:
  explicit ExecutorProcess(const ExecutorProcessOptions& options)
      : options_(options),
        dump_(options.dump),
        eval_children_(EvalChildOptionsFor(options)),
        in_flight_page_(options.in_flight_fd, options.num_devices) {}

  // Makes the parts. Returns VALUE_ERROR and the like, for example if the certificates do not match
  // or a device does not open.
  absl::Status Start() {
    // The executor also works without this page; only its metrics are missing then.
    auto metrics = MetricsPage::Map(options_.metrics_fd, options_.num_devices);
    if (metrics.ok()) {
      metrics_ = *std::move(metrics);
    } else {
      TESSERA_LOG(ERROR) << "no metrics" << Field("worker", options_.worker)
                         << Field("index", options_.index)
                         << Field("why", metrics.status().message());
    }
    TESSERA_ASSIGN_OR_RETURN(const auto credentials, CoordinatorCredentials(options_.coordinator));
    if (metrics_ != nullptr) stale_commands_ = metrics_->counter(Metric::kStaleCommands);
    coordinator_stream_ = std::make_unique<CoordinatorStream>(
        CoordinatorStream::Options{options_.coordinator, options_.worker, options_.index,
                                   options_.incarnation},
        credentials,
        CoordinatorStream::Hooks{
            .carry_out = [this](api::Command command) { executor_->Send(std::move(command)); },
            .list_arrays = [this] { return executor_->Arrays(); },
            .on_stale = [this] { stale_commands_.Add(); }});
    peer_reader_ = MakeGrpcPeerReader(options_.authorities);
    ExecutorOptions executor_options = MakeExecutorOptions();
    if (!options_.certificates.empty()) {
      TESSERA_ASSIGN_OR_RETURN(
          executor_options.tls,
          MakeTlsContext(options_.certificates, options_.key, options_.authorities));
    }
    // The loss of a device ends the process, by ending its socket.
    TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                             MakeBackend(options_, &dump_, &eval_children_, metrics_.get(),
                                         [this](const absl::Status&) { Stop(&device_lost_); }));
    executor_ = std::make_unique<Executor>(
        std::move(executor_options), std::move(backend),
        [this](api::ReportBody body) { coordinator_stream_->Report(std::move(body)); });
    executor_->OnDrained(
        [this] { coordinator_stream_->CallOnceSent([this] { Stop(&drained_); }); });
    data_server_ = DataServer::Start({.listen_fd = options_.data_fd,
                                      .uploads = options_.uploads,
                                      .read_timeout = options_.read_timeout,
                                      .keepalive = options_.keepalive,
                                      .certificates = options_.certificates,
                                      .key = options_.key,
                                      .metrics = metrics_.get()},
                                     executor_.get());
    started_ = true;
    SendToDaemon(ir::serial::ToEnvelope(
                     {options_.index, options_.incarnation, api::ExecutorReady{executor_->info()}})
                     .SerializeAsString());
    return absl::OkStatus();
  }

  // The daemon's process has ended. Called on a thread of its own, so that a command that hangs
  // does not hold up the end.
  [[noreturn]] void EndWithDaemon() {
    if (started_) SayFarewell();
    _exit(1);
  }

  // Serves until the end, and returns the exit status.
  int Serve() {
    FrameReader frames(options_.control_fd);
    while (const std::optional<std::string> message = frames.Next()) {
      if (!message->empty()) {
        HandleMessage(*message);
        continue;
      }
      // The reply must not come before the current command is carried out, because it says that
      // commands are being carried out.
      coordinator_stream_->AwaitCommand();
      SendToDaemon("");
    }
    // If the device is lost, the launches that it was running are reported with the reason, before
    // the daemon reports that the process has ended.
    if (device_lost_) executor_->WaitUntilIdle(SteadyNow() + kLastReportsWait);
    if (device_lost_ || drained_) {
      coordinator_stream_->Finish(kLastReportsWait);
    } else {
      SayFarewell();
    }
    return device_lost_ ? kDeviceLostExitStatus : 0;
  }

 private:
  ExecutorOptions MakeExecutorOptions() {
    ExecutorOptions executor_options;
    executor_options.worker = options_.worker;
    executor_options.host = options_.host;
    executor_options.index = options_.index;
    executor_options.incarnation = options_.incarnation;
    executor_options.data_endpoint = options_.data_endpoint;
    executor_options.peer_endpoint = options_.peer_endpoint;
    executor_options.peer_data_endpoint = options_.peer_data_endpoint;
    executor_options.peer_listen_fd = options_.peer_fd;
    executor_options.collective_timeout = options_.collective_timeout;
    executor_options.queue_bound = options_.queue_bound;
    executor_options.compile_jobs = options_.compile_jobs;
    executor_options.files_dir = options_.files_dir;
    executor_options.in_flight = &in_flight_page_;
    executor_options.peer_reader = peer_reader_.get();
    executor_options.metrics = metrics_.get();
    return executor_options;
  }
  void SayFarewell() {
    absl::call_once(farewell_, [this] {
      coordinator_stream_->SayFarewell("its daemon has ended", kFarewellWait);
    });
  }
  // The daemon always reads. If it is gone, this process ends, too.
  void SendToDaemon(const std::string& message) {
    static_cast<void>(WriteFrame(options_.control_fd, message));
  }
  void Stop(std::atomic<bool>* reason_flag) {
    *reason_flag = true;
    shutdown(options_.control_fd, SHUT_RD);
  }
  // Handles a message of the daemon: a Welcome or an Inquiry.
  void HandleMessage(const std::string& message) {
    v1::Envelope envelope;
    v1::Inquiry inquiry;
    if (envelope.ParseFromString(message) && envelope.kind() == v1::MESSAGE_KIND_INQUIRY &&
        inquiry.ParseFromString(envelope.body()))
      return Answer(inquiry);
    const absl::StatusOr<api::Welcome> welcome = ir::serial::ReadWelcome(envelope);
    if (!welcome.ok()) {
      TESSERA_LOG(ERROR) << "the daemon's message cannot be parsed"
                         << Field("why", welcome.status());
      return;
    }
    data_server_->SetTicketKey(welcome->ticket_key, welcome->clock - SteadyNow());
    coordinator_stream_->Attach(*welcome);
  }

  void Answer(const v1::Inquiry& inquiry) {
    v1::InquiryAnswer answer;
    answer.set_id(inquiry.id());
    ir::serial::AnswerInquiry(inquiry, options_.sources, answer.add_processes());
    v1::Envelope envelope;
    envelope.set_kind(v1::MESSAGE_KIND_INQUIRY_ANSWER);
    answer.SerializeToString(envelope.mutable_body());
    SendToDaemon(envelope.SerializeAsString());
  }

  const ExecutorProcessOptions& options_;
  DumpFolder dump_;
  EvalChildren eval_children_;
  InFlightPage in_flight_page_;
  std::unique_ptr<MetricsPage> metrics_;
  std::unique_ptr<CoordinatorStream> coordinator_stream_;
  std::unique_ptr<PeerReader> peer_reader_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<DataServer> data_server_;
  Counter stale_commands_;
  // The reason why this side has shut the socket down.
  std::atomic<bool> device_lost_{false}, drained_{false};
  std::atomic<bool> started_{false};  // whether Start has made all parts
  absl::once_flag farewell_;
};

}  // namespace

// Connects this process with its flight recorder. The process also works without one.
static void MapFlightRecorder(int flight_fd) {
  auto recorder = FlightRecorder::Map(flight_fd);
  if (!recorder.ok()) {
    TESSERA_LOG(ERROR) << "no flight recorder" << Field("why", recorder.status().message());
    return;
  }
  SetFlightRecorder(recorder->release());
  WriteFlightOnSignals("");
  RecordFlight(FlightKind::kProcess, "begins", static_cast<uint64_t>(getpid()));
}

int RunExecutorProcess(const ExecutorProcessOptions& options) {
  ExecutorProcess process(options);
  WatchParent(options.parent, [&process] { process.EndWithDaemon(); });
  for (const int fd : {options.control_fd, options.in_flight_fd, options.data_fd, options.peer_fd,
                       options.metrics_fd, options.flight_fd}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  MapFlightRecorder(options.flight_fd);
  int exit_status = 1;
  if (const absl::Status status = process.Start(); status.ok()) {
    TESSERA_LOG(INFO) << "executor ready" << Field("worker", options.worker)
                      << Field("index", options.index) << Field("incarnation", options.incarnation);
    exit_status = process.Serve();
  } else {
    TESSERA_LOG(ERROR) << "the executor does not start" << Field("worker", options.worker)
                       << Field("index", options.index) << Field("why", status.message());
  }
  StopLogging();
  // No peer waits for this process any more, and the kernel frees its memory faster than
  // destructors.
  _exit(exit_status);
}

}  // namespace tessera::worker::rpc
