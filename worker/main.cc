// tessera-worker: the daemon of a worker, or, with --executor, one of its executor processes.
//
//   tessera-worker --coordinator 127.0.0.1:8470 --name w0              its GPUs, or a CPU device
//   tessera-worker --coordinator 127.0.0.1:8470 --name w0 --devices 4  four CPU devices
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/flight_recorder.h"
#include "base/host_limits.h"
#include "base/keepalive.h"
#include "base/locks.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/metrics_http.h"
#include "base/options.h"
#include "base/pki.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "base/token_file.h"
#include "base/words.h"
#include "ir/serial/process_report.h"
#include "worker/codegen/compile_child.h"
#include "worker/codegen/device_code.h"
#include "worker/codegen/host_code.h"
#include "worker/cpu/eval_child.h"
#include "worker/daemon/listen.h"
#include "worker/device/monitor_process.h"
#include "worker/files/folder.h"
#include "worker/rpc/data_metrics.h"
#include "worker/rpc/executor_process.h"
#include "worker/rpc/worker_daemon.h"

namespace tessera::worker {
namespace {

constexpr char kUsage[] =
    R"(usage: tessera-worker --coordinator HOST:PORT --name NAME [--gpus N | all | LIST | --devices N]

  --coordinator HOST:PORT      Where the coordinator listens.
  --name NAME                  Unique in the cluster, stable over restarts.
  --host NAME                  The machine, as placement and errors know it (its host name).
  --gpus N | all | LIST        GPUs of this worker, each with an executor of its own: the first N,
                               all, or those in a list of indices, ids (GPU-...) and ids of MIG
                               devices (MIG-...); device=2 is the one with index 2. Without it and
                               without --devices: all that there are, or else one CPU device.
  --devices N                  CPU devices of this worker, and no GPUs.
  --device-memory-bytes N      Memory of each device. 0 takes nine tenths of a GPU's memory, or
                               shares four fifths of what the machine and the control groups of this
                               process allow evenly among the CPU devices (0).
  --data-listen HOST:PORT      Address of the data port, where clients write and read arrays
                               (127.0.0.1:8471, or any port if it is taken).
  --peer-listen HOST:PORT      Address of the peer port, where other executors connect for
                               collectives (127.0.0.1:8472, or any port if it is taken).
  --advertise-client HOST[:PORT]  Address by which clients reach the data port (--data-listen).
  --advertise-peer HOST[:PORT]    Address by which executors reach the peer port (--peer-listen). If
                               the data port listens on every address, they reach it by this HOST.
                               Executor i of a worker adds 2 i to each of these ports.
  --registered-file PATH       Written when the coordinator has accepted this worker.

Exit codes: 0 after a signal to stop; 2 after an error that would occur at the next start, too: a
wrong option, a port that is taken, or a name or credential that the coordinator refuses.

)";

constexpr char kMetricsListen[] = "127.0.0.1:9471";
constexpr int kAnswerFd = 3;  // where a child that lists or monitors GPUs writes
constexpr absl::Duration kMonitorInterval = absl::Seconds(1);

struct Flags {
  bool executor = false, list_gpus = false;
  std::string monitored_gpus;  // ids of GPUs, separated by commas
  std::string registered_file;
  rpc::WorkerDaemonOptions daemon;
  rpc::ExecutorProcessOptions process;

  // "" stands for the default: the well-known ports or, if they are taken, any ports.
  Flags() { daemon.data_listen = daemon.peer_listen = ""; }
};

template <class T>
std::function<bool(const std::string&)> NumberParser(T* into) {
  return [into](const std::string& text) { return absl::SimpleAtoi(text, into); };
}
std::function<bool(const std::string&)> TextParser(std::string* into) {
  return [into](const std::string& text) {
    *into = text;
    return true;
  };
}

// Parses the flags that are not in the table of options, as `--flag=value` or `--flag value`.
absl::StatusOr<Flags> ParseFlags(const std::vector<std::string>& args) {
  Flags flags;
  int64_t memory_bytes = 0;
  int devices = -1;
  std::string gpus;
  const std::map<std::string, std::function<bool(const std::string&)>> table = {
      {"coordinator", TextParser(&flags.daemon.coordinator.address)},
      {"name", TextParser(&flags.daemon.name)},
      {"host", TextParser(&flags.daemon.host)},
      {"devices", NumberParser(&devices)},
      {"gpus", TextParser(&gpus)},
      {"device-memory-bytes", NumberParser(&memory_bytes)},
      {"data-listen", TextParser(&flags.daemon.data_listen)},
      {"peer-listen", TextParser(&flags.daemon.peer_listen)},
      {"advertise-client", TextParser(&flags.daemon.advertise_client)},
      {"advertise-peer", TextParser(&flags.daemon.advertise_peer)},
      {"registered-file", TextParser(&flags.registered_file)},
      // The flags below are passed by a daemon to its executors.
      {"parent", NumberParser(&flags.process.parent)},
      {"index", NumberParser(&flags.process.index)},
      {"gpu", TextParser(&flags.process.gpu)},
      {"incarnation", NumberParser(&flags.process.incarnation)},
      {"data-endpoint", TextParser(&flags.process.data_endpoint)},
      {"peer-endpoint", TextParser(&flags.process.peer_endpoint)},
      {"peer-data-endpoint", TextParser(&flags.process.peer_data_endpoint)},
      {"monitor-gpus", TextParser(&flags.monitored_gpus)},
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--executor" || args[i] == "--list-gpus") {
      (args[i] == "--executor" ? flags.executor : flags.list_gpus) = true;
      continue;
    }
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    const auto row = name.substr(0, 2) == "--" ? table.find(name.substr(2)) : table.end();
    if (row == table.end()) {
      std::vector<std::string> known = OptionFlags();
      for (const auto& [flag, read] : table) known.push_back("--" + flag);
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("unknown argument '", args[i], "'", DidYouMean(name, known)));
    }
    const bool separate = equals == std::string::npos;
    if (separate && i + 1 == args.size()) {
      return MakeError(ErrorKind::kValueError, absl::StrCat(name, " wants a value"));
    }
    const std::string value = separate ? args[++i] : args[i].substr(equals + 1);
    if (!row->second(value)) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat(name, " is '", value, "'; expected a number"));
    }
  }
  if (flags.daemon.host.empty()) {
    char host[256] = "localhost";
    gethostname(host, sizeof(host) - 1);
    flags.daemon.host = host;
  }
  if (devices >= 0 && !gpus.empty() && gpus != "0") {
    return MakeError(ErrorKind::kValueError,
                     "--gpus and --devices exclude each other; a worker's devices are of one kind");
  }
  flags.daemon.num_devices = flags.process.num_devices = devices < 0 ? 1 : devices;
  flags.daemon.gpus = gpus.empty() && devices >= 0 ? "0" : gpus;
  flags.daemon.memory_bytes = flags.process.memory_bytes = memory_bytes;
  flags.process.worker = flags.daemon.name;
  flags.process.host = flags.daemon.host;
  return flags;
}

// Returns an error if plain text would be reachable from other machines, unless the options ask for
// it.
absl::Status CheckListeners(const rpc::WorkerDaemonOptions& daemon, const Options& options) {
  if (options.insecure || !options.tls_cert_file.empty()) return absl::OkStatus();
  for (const std::string* address : {&daemon.data_listen, &daemon.peer_listen}) {
    if (address->empty() || IsLoopback(*address)) continue;
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("listen: ", *address,
                                  " is reachable from other machines and this worker has no "
                                  "certificate; listen on 127.0.0.1, give --tls-cert-file, "
                                  "--tls-key-file and --tls-ca-file, or say --insecure"));
  }
  return absl::OkStatus();
}

// Copies the executor's part of the table of options, and reads and checks its certificates.
absl::Status ReadExecutorOptions(const Options& options, rpc::ExecutorProcessOptions* process) {
  process->read_timeout = absl::Milliseconds(options.read_idle_ms);
  process->uploads = {.idle_timeout = absl::Milliseconds(options.upload_idle_ms),
                      .resume_timeout = absl::Milliseconds(options.upload_keep_ms)};
  process->keepalive = KeepaliveFrom(options);
  process->files_dir = options.files_dir;
  process->dump = options.dump;
  process->compile_jobs = static_cast<int>(options.compile_jobs);
  process->compile_always = options.compile_always;
  process->cuda_tf32 = options.cuda_tf32;
  if (options.tls_cert_file.empty()) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(process->certificates, ReadWholeFile(options.tls_cert_file));
  TESSERA_ASSIGN_OR_RETURN(process->key, ReadWholeFile(options.tls_key_file));
  TESSERA_ASSIGN_OR_RETURN(process->authorities, ReadWholeFile(options.tls_ca_file));
  TESSERA_RETURN_IF_ERROR(pki::CheckPair(process->certificates, process->key));
  return pki::CheckIssuedBy(process->certificates, process->authorities);
}

// Reads the credentials with which the daemon and its executors prove their identity to the
// coordinator.
absl::Status ReadCredentials(const Options& options, rpc::CoordinatorAccess* coordinator) {
  coordinator->insecure = options.insecure;
  if (!options.tls_ca_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(coordinator->tls.authority, ReadWholeFile(options.tls_ca_file));
    if (const auto authority = pki::Describe(coordinator->tls.authority); !authority.ok())
      return Annotate(authority.status(), options.tls_ca_file);
  }
  if (!options.tls_cert_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(coordinator->tls.certificates, ReadWholeFile(options.tls_cert_file));
    TESSERA_ASSIGN_OR_RETURN(coordinator->tls.key, ReadWholeFile(options.tls_key_file));
  }
  if (!options.token_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadWholeFile(options.token_file));
    coordinator->token = std::string(absl::StripAsciiWhitespace(token));
    TESSERA_RETURN_IF_ERROR(ParseToken(coordinator->token).status());
  }
  return absl::OkStatus();
}

// Writes the file of ports, whole or not at all, as the coordinator does. The first line is the
// address for clients, and the second one is for peers.
absl::Status WritePorts(const std::string& path, const rpc::WorkerDaemon& daemon) {
  if (path.empty()) return absl::OkStatus();
  return ReplaceFile(path, absl::StrCat(daemon.data_address(), "\n", daemon.peer_address(), "\n"),
                     /*is_private=*/false);
}

// Runs the daemon until a signal or a permanent refusal by the coordinator. The refusal comes on
// another thread, which stores it and sends SIGTERM, so that only one place waits and one place
// ends the daemon. The ports and metrics are served, and their files written, only once the daemon
// has its ports.
absl::Status RunDaemon(rpc::WorkerDaemonOptions options, const std::string& registered_file,
                       const Options& common_options) {
  Metrics metrics(common_options.metrics_series_max);
  metrics.AddCollector([](SampleSink& sink) { CollectProcess(sink, rpc::GrpcVersion()); });
  options.metrics = &metrics;
  options.sources.metrics = [&metrics] { return MetricsText(&metrics); };
  // The refusal outlives the daemon, whose thread writes it.
  struct {
    absl::Mutex mu;
    absl::Status why;
  } refusal;
  options.on_refused = [&refusal](const absl::Status& why) {
    absl::MutexLock lock(&refusal.mu);
    refusal.why = why;
    kill(getpid(), SIGTERM);  // ends the sigwait below
  };
  if (!registered_file.empty()) {
    options.on_registered = [&registered_file] {
      const absl::Status status = ReplaceFile(registered_file, "", /*is_private=*/false);
      if (!status.ok()) TESSERA_LOG(WARNING) << "no registered-file" << Field("why", status);
    };
  }
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::WorkerDaemon> daemon,
                           rpc::WorkerDaemon::Start(options));
  TESSERA_RETURN_IF_ERROR(WritePorts(common_options.port_file, *daemon));
  TESSERA_ASSIGN_OR_RETURN(
      const std::unique_ptr<MetricsServer> metrics_server,
      MetricsServer::StartForDaemon(common_options.metrics_listen, kMetricsListen,
                                    common_options.metrics_port_file, &metrics));
  TESSERA_LOG(INFO) << "worker serves" << Field("worker", options.name)
                    << Field("data", daemon->data_endpoint())
                    << Field("coordinator", options.coordinator.address);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
  {
    absl::MutexLock lock(&refusal.mu);
    if (!refusal.why.ok()) return refusal.why;
  }
  TESSERA_LOG(INFO) << "worker stops" << Field("worker", options.name) << Field("signal", signal);
  return absl::OkStatus();
}

// Copies the options that the daemon and its executors share, and those that only one of them has.
void ApplyOptions(const Options& options, Flags* flags) {
  const absl::Duration timeout = absl::Milliseconds(options.collective_timeout_ms);
  flags->daemon.coordinator.link_timeout = absl::Milliseconds(options.link_timeout_ms);
  flags->daemon.collective_timeout = flags->process.collective_timeout = timeout;
  flags->process.communicator_timeout = absl::Milliseconds(options.communicator_timeout_ms);
  // An executor's bound is twice the coordinator's, so that the coordinator's bound is met first.
  flags->process.queue_bound = 2 * options.queue_bound;
  flags->process.cuda_plugin = flags->daemon.cuda_plugin = options.cuda_plugin;
  flags->process.codegen = codegen::HostCompilerOptionsFrom(options);
  flags->process.codegen.compile_binary = "/proc/self/exe";
  flags->process.codegen.compile_args = {codegen::kCompileChildFlag};
  flags->process.eval_child.binary = "/proc/self/exe";
  flags->process.eval_child.args = {kEvalChildFlag};
  flags->daemon.executor_flags = FlagsFor(options, ProcessEnv());
  flags->daemon.data_tls = !options.tls_cert_file.empty();
}

ir::serial::ProcessSources SourcesOf(const Options& options) {
  return {.build = VersionText("tessera-worker"),
          .options = FlagsFor(options, [](const std::string&) { return std::nullopt; }),
          .started = SteadyNow()};
}

// Parses the command line and runs one of six things: the compiler of an executor, its evaluator
// of long host steps, the list or the monitor of GPUs, an executor, or the daemon. The daemon also
// reads the executor's files and certificates once, so that a mistake is reported by its own exit
// instead of by the exit of every executor. A mistake in the options exits with status 2, because
// another start would fail in the same way.
int Main(int argc, char** argv) {
  const auto complain = [](const absl::Status& status) {
    std::cerr << "tessera-worker: " << status.message() << "; --help lists the options\n";
    return 2;
  };
  // With this flag the process only compiles for an executor.
  if (argc == 2 && std::string(argv[1]) == codegen::kCompileChildFlag)
    return codegen::RunCompileChild(codegen::CompileDeviceImage);
  // With this flag the process only evaluates long host steps for an executor.
  if (argc == 3 && std::string(argv[1]) == kEvalChildFlag) return RunEvalChild(argv[2]);
  const absl::StatusOr<ParsedOptions> parsed =
      ParseOptions(std::vector<std::string>(argv + 1, argv + argc), ProcessEnv());
  if (!parsed.ok()) return complain(parsed.status());
  if (parsed->version) {
    std::cout << VersionText("tessera-worker");
    return 0;
  }
  if (parsed->help) {
    std::cout << kUsage << OptionsHelp();
    return 0;
  }
  absl::StatusOr<Flags> flags = ParseFlags(parsed->rest);
  if (!flags.ok()) return complain(flags.status());
  // Thread names are short, so this is a shortened title. Threads without a name of their own
  // inherit it.
  if (flags->executor) NameThread("tessera-exec");
  const Options& options = parsed->options;
  const absl::StatusOr<LogLevel> level = ParseLogLevel(options.log_level);
  if (!level.ok()) return complain(level.status());
  ApplyOptions(options, &*flags);
  signal(SIGPIPE, SIG_IGN);
  RaiseFileLimit();
  if (!flags->executor) {
    // The signals are blocked before any thread starts, so that sigwait gets them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  }
  LogOptions log;
  log.level = *level;
  const absl::StatusOr<LogFormat> format = ParseLogFormat(options.log_format);
  if (!format.ok()) return complain(format.status());
  log.format = *format;
  log.file = options.log_file;
  if (const absl::Status status = StartLogging(log); !status.ok()) return complain(status);
  flags->daemon.sources = flags->process.sources = SourcesOf(options);
  // CUDA then counts GPUs as nvidia-smi does, and not by their speed.
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
  if (flags->list_gpus) return device::ListDevices(options.cuda_plugin, kAnswerFd);
  if (!flags->monitored_gpus.empty())
    return device::MonitorDevices(options.cuda_plugin, absl::StrSplit(flags->monitored_gpus, ','),
                                  kMonitorInterval, kAnswerFd);
  if (flags->executor) {
    flags->process.coordinator = flags->daemon.coordinator;
    absl::Status status = ReadExecutorOptions(options, &flags->process);
    status.Update(ReadCredentials(options, &flags->process.coordinator));
    return status.ok() ? rpc::RunExecutorProcess(flags->process) : complain(status);
  }
  flags->daemon.flight_folder = FlightFolder(options);
  StartFlightRecorder(flags->daemon.flight_folder, "worker-" + flags->daemon.name);
  rpc::ExecutorProcessOptions unused;  // a mistake is reported here, and not by every executor
  absl::Status status = ReadExecutorOptions(options, &unused);
  if (!options.files_dir.empty()) {
    status.Update(files::FilesRoot(options.files_dir).Identity().status());
  }
  status.Update(CheckListeners(flags->daemon, options));
  status.Update(ReadCredentials(options, &flags->daemon.coordinator));
  if (status.ok()) status = RunDaemon(flags->daemon, flags->registered_file, options);
  StopLogging();
  if (status.ok()) return 0;
  // The status is 2 also if the coordinator has refused the worker and a retry would not help.
  std::cerr << "tessera-worker: " << status.message() << "\n";
  return 2;
}

}  // namespace
}  // namespace tessera::worker

int main(int argc, char** argv) {
  tessera::DisableDeadlockDetectionInRelease();
  return tessera::worker::Main(argc, argv);
}
