#include "worker/rpc/executor_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/worker.h"
#include "tessera/v1/worker.pb.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/daemon/child_process.h"
#include "worker/daemon/frames.h"
#include "worker/rpc/data_server.h"
#include "worker/rpc/grpc_peer_reader.h"
#include "worker/runtime/executor.h"

namespace tessera::worker::rpc {
namespace {

// The way up to the daemon.
class Uplink {
 public:
  Uplink(int fd, int32_t executor, uint64_t incarnation)
      : fd_(fd), executor_(executor), incarnation_(incarnation) {}

  void Report(api::ReportBody body) ABSL_LOCKS_EXCLUDED(mu_) {
    const std::string message =
        ir::serial::ToProto(api::Report{executor_, incarnation_, std::move(body)})
            .SerializeAsString();
    absl::MutexLock lock(&mu_);
    // The daemon always reads; once it is gone, so are we.
    static_cast<void>(WriteFrame(fd_, message));
  }

 private:
  const int fd_;
  const int32_t executor_;
  const uint64_t incarnation_;
  absl::Mutex mu_;
};

void Obey(const std::string& message, Executor& executor, DataServer& data, Uplink& uplink) {
  v1::WorkerCommand proto;
  if (!proto.ParseFromString(message)) {
    TESSERA_LOG(ERROR) << "a command does not decode" << Field("bytes", message.size());
    return;
  }
  if (proto.has_welcome()) return data.SetTicketKey(proto.welcome().ticket_key());
  absl::StatusOr<api::Command> command = ir::serial::FromProto(proto);
  if (command.ok()) return executor.Send(*std::move(command));
  if (proto.has_load_program()) {
    return uplink.Report(
        api::ProgramLoaded{proto.load_program().executable(), command.status(), 0});
  }
  if (proto.has_launch()) {
    return uplink.Report(api::LaunchFailed{proto.launch().launch(), command.status()});
  }
  if (proto.has_transfer()) {
    return uplink.Report(api::LaunchFailed{proto.transfer().launch(), command.status()});
  }
  if (proto.has_write_buffer()) {
    return uplink.Report(api::BufferWritten{proto.write_buffer().array(),
                                            proto.write_buffer().device(), command.status()});
  }
  TESSERA_LOG(ERROR) << "a command does not read" << Field("why", command.status());
}

}  // namespace

int RunExecutorProcess(const ExecutorProcessOptions& options) {
  DieWithParent(options.parent);
  for (const int fd :
       {options.control_fd, options.in_flight_fd, options.data_fd, options.peer_fd}) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  InFlightPage page(options.in_flight_fd, options.num_devices);
  const std::unique_ptr<PeerReader> peers = MakeGrpcPeerReader();
  Uplink uplink(options.control_fd, options.index, options.incarnation);
  ExecutorOptions executor_options;
  executor_options.worker = options.worker;
  executor_options.host = options.host;
  executor_options.index = options.index;
  executor_options.incarnation = options.incarnation;
  executor_options.data_endpoint = options.data_endpoint;
  executor_options.peer_endpoint = options.peer_endpoint;
  executor_options.peer_listen_fd = options.peer_fd;
  executor_options.collective_timeout = options.collective_timeout;
  executor_options.queue_bound = options.queue_bound;
  executor_options.in_flight = &page;
  executor_options.peers = peers.get();
  Executor executor(
      std::move(executor_options),
      MakeCpuBackend({.num_devices = options.num_devices, .memory_bytes = options.memory_bytes}),
      [&uplink](api::ReportBody body) { uplink.Report(std::move(body)); });
  executor.OnDrained([&options] { shutdown(options.control_fd, SHUT_RD); });
  const std::unique_ptr<DataServer> data =
      DataServer::Start({.listen_fd = options.data_fd}, &executor);
  uplink.Report(api::ExecutorReady{executor.info()});
  TESSERA_LOG(INFO) << "executor ready" << Field("worker", options.worker)
                    << Field("index", options.index) << Field("incarnation", options.incarnation);
  while (const std::optional<std::string> message = ReadFrame(options.control_fd)) {
    Obey(*message, executor, *data, uplink);
  }
  StopLogging();
  // Nobody is left to tell, and the kernel frees faster than destructors.
  _exit(0);
}

}  // namespace tessera::worker::rpc
