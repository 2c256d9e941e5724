#include "worker/rpc/executor_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/frames.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/worker.h"
#include "tessera/v1/worker.pb.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/device/device_backend.h"
#include "worker/device/plugin.h"
#include "worker/rpc/data_server.h"
#include "worker/rpc/grpc_peer_reader.h"
#include "worker/runtime/executor.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kDeviceLostExit = 4;

// The way up to the daemon.
class Uplink {
 public:
  Uplink(int fd, int32_t executor, uint64_t incarnation)
      : fd_(fd), executor_(executor), incarnation_(incarnation) {}

  void Report(api::ReportBody body) ABSL_LOCKS_EXCLUDED(mu_) {
    const std::string message =
        ir::serial::ToEnvelope(api::Report{executor_, incarnation_, std::move(body)})
            .SerializeAsString();
    Write(message);
  }
  // That this process takes its commands.
  void Answer() ABSL_LOCKS_EXCLUDED(mu_) { Write(""); }

 private:
  void Write(const std::string& message) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    // The daemon always reads; once it is gone, so are we.
    static_cast<void>(WriteFrame(fd_, message));
  }

  const int fd_;
  const int32_t executor_;
  const uint64_t incarnation_;
  absl::Mutex mu_;
};

void CarryOut(const std::string& message, Executor& executor, DataServer& data, Uplink& uplink) {
  v1::Envelope envelope;
  if (!envelope.ParseFromString(message)) {
    TESSERA_LOG(ERROR) << "a command does not decode" << Field("bytes", message.size());
    return;
  }
  if (envelope.kind() == v1::MESSAGE_KIND_WELCOME) {
    const absl::StatusOr<api::Welcome> welcome = ir::serial::ReadWelcome(envelope);
    if (welcome.ok()) data.SetTicketKey(welcome->ticket_key, welcome->clock - SteadyNow());
    return;
  }
  absl::StatusOr<api::Command> command = ir::serial::ReadCommand(envelope);
  if (command.ok()) return executor.Send(*std::move(command));
  TESSERA_LOG(ERROR) << "a command does not read" << Field("why", command.status());
  if (auto answer = ir::serial::AnswerUnread(envelope, command.status())) {
    uplink.Report(*std::move(answer));
  }
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    const ExecutorProcessOptions& options, std::function<void(const absl::Status&)> on_fatal) {
  if (options.gpu < 0) {
    std::unique_ptr<Backend> cpu = MakeCpuBackend({.num_devices = options.num_devices,
                                                   .memory_bytes = options.memory_bytes,
                                                   .codegen = options.codegen});
    const HostLimits limits = ProcessLimits();
    TESSERA_LOG(INFO) << "CPU devices" << Field("worker", options.worker)
                      << Field("devices", cpu->num_devices())
                      << Field("memory_bytes", cpu->memory_bytes()) << Field("cores", limits.cores)
                      << Field("limit_bytes", limits.memory_bytes);
    return cpu;
  }
  TESSERA_ASSIGN_OR_RETURN(const tessera_device_api* const api,
                           device::LoadDevicePlugin(options.cuda_plugin));
  device::DeviceBackendOptions device;
  device.ordinal = options.gpu;
  device.memory_bytes = options.memory_bytes;
  device.collective_timeout = options.collective_timeout;
  device.codegen = options.codegen;
  device.on_fatal = std::move(on_fatal);
  return device::MakeDeviceBackend(api, device);
}

}  // namespace

int CountGpus(const std::string& cuda_plugin) {
  constexpr int kAnswerFd = 3;
  const absl::StatusOr<const tessera_device_api*> api = device::LoadDevicePlugin(cuda_plugin);
  int32_t count = 0;
  std::string answer(api.status().message());
  if (api.ok()) {
    answer = (*api)->device_count(&count) == TESSERA_OK ? absl::StrCat(count)
                                                        : std::string((*api)->error_text());
  }
  return write(kAnswerFd, answer.data(), answer.size()) < 0 ? 1 : 0;
}

int RunExecutorProcess(const ExecutorProcessOptions& options) {
  DieWithParent(options.parent);
  for (const int fd : {options.control_fd, options.in_flight_fd, options.data_fd, options.peer_fd,
                       options.metrics_fd}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  InFlightPage page(options.in_flight_fd, options.num_devices);
  // Without it, and so without metrics, it works as well.
  absl::StatusOr<std::unique_ptr<MetricsPage>> metrics =
      MetricsPage::Map(options.metrics_fd, options.num_devices);
  if (!metrics.ok()) {
    TESSERA_LOG(ERROR) << "no metrics" << Field("worker", options.worker)
                       << Field("index", options.index) << Field("why", metrics.status().message());
  }
  const std::unique_ptr<PeerReader> peers = MakeGrpcPeerReader(options.authorities);
  Uplink uplink(options.control_fd, options.index, options.incarnation);
  ExecutorOptions executor_options;
  executor_options.worker = options.worker;
  executor_options.host = options.host;
  executor_options.index = options.index;
  executor_options.incarnation = options.incarnation;
  executor_options.data_endpoint = options.data_endpoint;
  executor_options.peer_endpoint = options.peer_endpoint;
  executor_options.peer_data_endpoint = options.peer_data_endpoint;
  executor_options.peer_listen_fd = options.peer_fd;
  executor_options.collective_timeout = options.collective_timeout;
  executor_options.queue_bound = options.queue_bound;
  executor_options.compile_jobs = options.compile_jobs;
  executor_options.files_dir = options.files_dir;
  if (!options.certificates.empty()) {
    auto tls = MakeTlsContext(options.certificates, options.key, options.authorities);
    TESSERA_CHECK(tls.ok()) << tls.status();  // They were checked by whoever read them.
    executor_options.tls = *std::move(tls);
  }
  executor_options.in_flight = &page;
  executor_options.peers = peers.get();
  executor_options.metrics = metrics.ok() ? metrics->get() : nullptr;
  // A device that is lost ends the process, by way of the end of its socket.
  std::atomic<bool> lost{false};
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      MakeBackend(options, [&lost, &options](const absl::Status&) {
        lost = true;
        shutdown(options.control_fd, SHUT_RD);
      });
  if (!backend.ok()) {
    TESSERA_LOG(ERROR) << "the executor's device does not open" << Field("worker", options.worker)
                       << Field("index", options.index) << Field("why", backend.status().message());
    StopLogging();
    _exit(1);
  }
  Executor executor(std::move(executor_options), *std::move(backend),
                    [&uplink](api::ReportBody body) { uplink.Report(std::move(body)); });
  executor.OnDrained([&options] { shutdown(options.control_fd, SHUT_RD); });
  const std::unique_ptr<DataServer> data =
      DataServer::Start({.listen_fd = options.data_fd,
                         .uploads = options.uploads,
                         .read_idle = options.read_idle,
                         .keepalive = options.keepalive,
                         .certificates = options.certificates,
                         .key = options.key,
                         .metrics = metrics.ok() ? metrics->get() : nullptr},
                        &executor);
  uplink.Report(api::ExecutorReady{executor.info()});
  TESSERA_LOG(INFO) << "executor ready" << Field("worker", options.worker)
                    << Field("index", options.index) << Field("incarnation", options.incarnation);
  FrameReader commands(options.control_fd);
  while (const std::optional<std::string> message = commands.Next()) {
    if (message->empty()) {
      uplink.Answer();
    } else {
      CarryOut(*message, executor, *data, uplink);
    }
  }
  // Those who wait for what the device was doing are told why before the process is missed.
  constexpr absl::Duration kLastWords = absl::Seconds(1);
  if (lost) executor.WaitUntilIdle(SteadyNow() + kLastWords);
  StopLogging();
  // Nobody is left to tell, and the kernel frees faster than destructors.
  _exit(lost ? kDeviceLostExit : 0);
}

}  // namespace tessera::worker::rpc
