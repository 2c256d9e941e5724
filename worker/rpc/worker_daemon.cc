#include "worker/rpc/worker_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics_page.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "ir/api/ticket.h"
#include "ir/serial/grpc_status.h"
#include "ir/serial/probe.h"
#include "ir/serial/status.h"
#include "ir/serial/worker.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/daemon/listen.h"
#include "worker/daemon/supervisor.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kGpusMax = 64;
constexpr int kPortStride = 2;  // between the ports of a worker's executors
constexpr absl::Duration kCountGpusTimeout = absl::Seconds(20);  // drivers start slowly
constexpr absl::Duration kReconnectMin = absl::Milliseconds(50);
constexpr absl::Duration kReconnectMax = absl::Seconds(2);
constexpr absl::Duration kHeartbeatMin = absl::Milliseconds(10);
constexpr absl::Duration kProbeLimit = absl::Seconds(1);
// Beyond the time in which a coordinator notices that a worker of the same name is gone.
constexpr std::chrono::seconds kNameTakenPatience(5);

// Whether a registration that ended so will end so again. A name may be that of our own past,
// which the coordinator has not noticed the end of.
bool NoTryEndsBetter(const absl::Status& end, bool may_be_ours) {
  if (ReasonOf(end).empty() || IsRetryable(end)) return false;
  switch (KindOf(end)) {
    case ErrorKind::kTlsMismatch:
      return true;
    case ErrorKind::kAlreadyExists:
      return !may_be_ours;
    default:
      break;
  }
  switch (end.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

using Infos = std::vector<api::ExecutorInfo>;  // per executor

constexpr char kNotOurs[] = "killed: it does not speak our protocol";

// Names of LossCause, in its order, without kStopped, after which the worker ends.
constexpr const char* kRestartCauses[] = {"exit",         "signal", "not_ready", "protocol",
                                          "disconnected", "stuck",  kOtherLabel};
static_assert(std::size(kRestartCauses) == static_cast<size_t>(LossCause::kStopped));

class Daemon final : public WorkerDaemon {
 public:
  // The listening sockets of one executor.
  struct Ports {
    Listener data, peer;
  };

  Daemon(const WorkerDaemonOptions& options, std::vector<Ports> ports,
         std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        credentials_(std::move(credentials)),
        ports_(std::move(ports)),
        ready_(ports_.size()) {
    // Callbacks wait for mu_ until the pointers are there.
    absl::MutexLock lock(&mu_);
    for (int32_t e = 0; e < num_executors(); ++e) {
      SupervisorOptions supervised;
      supervised.binary = options_.binary;
      supervised.title = absl::StrCat("tessera-executor ", options_.name, "/", e);
      supervised.args = [this, e](uint64_t incarnation) { return ExecutorArgs(e, incarnation); };
      pages_.push_back(std::make_unique<MetricsPage>(num_devices()));
      supervised.fds = {ports_[e].data.fd.get(), ports_[e].peer.fd.get(), pages_[e]->fd()};
      supervised.num_devices = num_devices();
      Supervisor::Callbacks callbacks;
      callbacks.on_ready = [this, e](uint64_t i, std::string m) { OnReady(e, i, m); };
      callbacks.on_lost = [this, e](uint64_t i, ProcessLoss loss) { OnLost(e, i, loss); };
      executors_.push_back(
          std::make_unique<Supervisor>(std::move(supervised), std::move(callbacks)));
    }
    thread_ = std::thread([this] { Run(); });
  }
  // Once it is made; the collector may be asked at once.
  void ShowMetrics() {
    if (options_.metrics == nullptr) return;
    // There from the beginning, so that the first is an increase.
    for (const char* cause : kRestartCauses) {
      options_.metrics->counter(Metric::kExecutorRestarts, {options_.name, cause});
    }
    collector_ = options_.metrics->AddCollector([this](SampleSink& sink) { Collect(sink); });
  }

  ~Daemon() override {
    if (options_.metrics != nullptr) options_.metrics->RemoveCollector(collector_);
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
      if (link_ != nullptr) link_->Cancel();
    }
    thread_.join();
    for (const auto& executor : executors_) executor->Stop();
  }

  std::string data_endpoint() const override { return data_endpoint(0); }
  std::string data_address() const override { return ports_[0].data.endpoint(); }
  std::string peer_address() const override { return ports_[0].peer.endpoint(); }
  int executor_pid(int executor) const override { return executors_[executor]->pid(); }

 private:
  int32_t num_executors() const { return static_cast<int32_t>(ports_.size()); }
  int num_devices() const { return options_.num_gpus > 0 ? 1 : options_.num_devices; }
  std::string data_endpoint(int32_t executor) const {
    return ports_[executor].data.AdvertisedAs(
        PortPlus(options_.advertise_client, kPortStride * executor));
  }

  // Clients may come by another way than executors do: through a port that a container publishes on
  // its host, say.
  std::string peer_data_endpoint(int32_t executor) const {
    const Listener& data = ports_[executor].data;
    const absl::string_view host = WithoutPort(options_.advertise_peer);
    return host.empty() || !data.everywhere() ? data_endpoint(executor)
                                              : absl::StrCat(host, ":", data.port);
  }

  std::vector<std::string> ExecutorArgs(int32_t executor, uint64_t incarnation) const {
    std::vector<std::string> args = {
        "--executor",
        absl::StrCat("--parent=", getpid()),
        "--coordinator=" + options_.coordinator.address,
        "--name=" + options_.name,
        "--host=" + options_.host,
        absl::StrCat("--index=", executor),
        absl::StrCat("--incarnation=", incarnation),
        absl::StrCat("--gpu=", options_.num_gpus > 0 ? executor : -1),
        "--cuda-plugin=" + options_.cuda_plugin,
        absl::StrCat("--devices=", num_devices()),
        absl::StrCat("--device-memory-bytes=", options_.memory_bytes),
        "--data-endpoint=" + data_endpoint(executor),
        "--peer-endpoint=" + ports_[executor].peer.AdvertisedAs(
                                 PortPlus(options_.advertise_peer, kPortStride * executor)),
        "--peer-data-endpoint=" + peer_data_endpoint(executor),
        absl::StrCat("--collective-timeout-ms=",
                     absl::ToInt64Milliseconds(options_.collective_timeout))};
    args.insert(args.end(), options_.executor_flags.begin(), options_.executor_flags.end());
    return args;
  }

  // ---- On the supervisors' threads. ----
  void OnReady(int32_t executor, uint64_t incarnation, const std::string& message)
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    v1::Envelope envelope;
    absl::StatusOr<api::Report> report = absl::UnknownError("");
    if (envelope.ParseFromString(message)) report = ir::serial::ReadReport(envelope);
    const auto* ready = report.ok() ? std::get_if<api::ExecutorReady>(&report->body) : nullptr;
    if (ready == nullptr)
      return executors_[executor]->Kill(incarnation, LossCause::kProtocol, kNotOurs);
    ready_[executor] = ready->info;
    if (!registered_) return;
    executors_[executor]->Send(incarnation, WelcomeTo(executor, incarnation));
    Report(std::move(envelope));
  }

  void OnLost(int32_t executor, uint64_t incarnation, const ProcessLoss& loss)
      ABSL_LOCKS_EXCLUDED(mu_) {
    TESSERA_LOG(WARNING) << "executor lost" << Field("worker", options_.name)
                         << Field("executor", absl::StrCat(options_.name, "/", executor))
                         << Field("incarnation", incarnation) << Field("why", loss.reason)
                         << Field("launch", loss.in_flight.launch)
                         << Field("op", loss.in_flight.op);
    // Before the next process, which comes when we have returned.
    pages_[executor]->ResetGauges();
    if (options_.metrics != nullptr && loss.cause != LossCause::kStopped) {
      const char* const cause = kRestartCauses[static_cast<size_t>(loss.cause)];
      options_.metrics->counter(Metric::kExecutorRestarts, {options_.name, cause}).Add();
    }
    absl::MutexLock lock(&mu_);
    ready_[executor].reset();
    if (!registered_ || !loss.was_ready) return;
    Report(ir::serial::ToEnvelope(
        api::Report{executor, incarnation,
                    api::ExecutorLost{loss.reason, loss.in_flight.launch, loss.in_flight.op}}));
  }
  void Report(v1::Envelope report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    report.set_epoch(welcome_.epoch);
    link_->Send(std::move(report));
  }

  // ---- Metrics. ----
  void Collect(SampleSink& sink) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<bool> up;
    {
      absl::MutexLock lock(&mu_);
      for (const auto& info : ready_) up.push_back(info.has_value());
    }
    for (int32_t e = 0; e < num_executors(); ++e) {
      pages_[e]->Collect(sink, options_.name, e * num_devices());
      for (int d = 0; d < num_devices(); ++d) {
        sink.Add(Metric::kExecutorUp, {options_.name, absl::StrCat(e * num_devices() + d)},
                 up[e] ? 1 : 0);
      }
    }
  }
  // Since what the executor's devices run last went on; of the one that has stood longest.
  absl::Duration ProgressAge(int32_t executor) {
    absl::Duration oldest;
    for (int d = 0; d < num_devices(); ++d) {
      oldest =
          std::max(oldest, pages_[executor]->age_gauge(Metric::kDeviceProgressAge, {}, d).Age());
    }
    return oldest;
  }

  // ---- The coordinator. ----
  void Run() {
    NameThread("coordinator");
    absl::Duration backoff = kReconnectMin;
    bool ever_registered = false;
    const auto start = std::chrono::steady_clock::now();
    const auto stub =
        v1::WorkerService::NewStub(CoordinatorChannel(options_.coordinator, credentials_));
    while (true) {
      Infos infos;
      if (!AwaitReady(&infos)) return;
      absl::Status end;
      const bool was_registered = Session(*stub, infos, &end);
      ever_registered |= was_registered;
      if (!was_registered && !ever_registered) end = WhyRefused(end);
      const bool young = std::chrono::steady_clock::now() - start < kNameTakenPatience;
      if (!was_registered && NoTryEndsBetter(end, ever_registered || young)) {
        TESSERA_LOG(ERROR) << "the coordinator will not take this worker"
                           << Field("worker", options_.name)
                           << Field("coordinator", options_.coordinator.address)
                           << Field("why", end.message());
        if (options_.on_refused) options_.on_refused(end);
        return;
      }
      if (was_registered) backoff = kReconnectMin;
      absl::MutexLock lock(&mu_);
      // The coordinator counts the arrays as lost; so must we. What is not ready yet has none.
      for (int32_t e = 0; was_registered && e < num_executors(); ++e) {
        if (!ready_[e]) continue;
        executors_[e]->Kill(ready_[e]->incarnation, LossCause::kDisconnected,
                            "killed: its daemon's connection to the coordinator ended");
        ready_[e].reset();
      }
      const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping), backoff)) return;
      backoff = std::min(2 * backoff, kReconnectMax);
    }
  }

  // Waits until every executor is ready, which is when the worker is.
  bool AwaitReady(Infos* infos) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return stopping_ || std::all_of(ready_.begin(), ready_.end(),
                                      [](const auto& info) { return info.has_value(); });
    };
    mu_.Await(absl::Condition(&ready));
    if (stopping_) return false;
    for (const auto& info : ready_) infos->push_back(*info);
    return true;
  }
  bool Runs(int32_t executor, uint64_t incarnation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ready_[executor] && ready_[executor]->incarnation == incarnation;
  }
  // The coordinator's welcome for one process, with the key of that alone.
  std::string WelcomeTo(int32_t executor, uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    api::Welcome welcome = welcome_;
    welcome.ticket_key = api::ExecutorTicketKey(welcome_.ticket_key, executor, incarnation);
    welcome.clock = SteadyNow() + clock_ahead_;
    return ir::serial::ToEnvelope(welcome).SerializeAsString();
  }

  // How a connection ended that was none: TLS_MISMATCH where the coordinator speaks otherwise.
  absl::Status WhyRefused(const absl::Status& end) const {
    if (!ir::serial::NeverConnected(std::string(end.message()))) return end;
    const ir::serial::Speaks speaks = ir::serial::Probe(options_.coordinator.address, kProbeLimit);
    const bool tls = options_.coordinator.tls.enabled();
    const auto because = [&](absl::string_view why) {
      return MakeError(ErrorKind::kTlsMismatch,
                       absl::StrCat("the coordinator at ", options_.coordinator.address, why));
    };
    if (!tls && speaks == ir::serial::Speaks::kTls)
      return because(
          " speaks TLS, and this worker plain text; join it with `tessera join`, or give "
          "--tls-cert-file, --tls-key-file and --tls-ca-file");
    if (tls && speaks == ir::serial::Speaks::kPlainText)
      return because(
          " speaks plain text, and this worker TLS; start the coordinator with certificates, or "
          "this worker without --tls-ca-file");
    if (tls && speaks == ir::serial::Speaks::kTls &&
        !ir::serial::Answers(options_.coordinator.address, credentials_, kProbeLimit))
      return because(
          ": its certificate does not come from the authority in --tls-ca-file, or does not name "
          "this address");
    return end;
  }

  // One connection, from registration to its end, which is `end`. Whether the coordinator took us.
  bool Session(v1::WorkerService::Stub& stub, const Infos& infos, absl::Status* end)
      ABSL_LOCKS_EXCLUDED(mu_) {
    bool welcomed = false;  // of the thread that brings commands; ours once the link has ended
    uint64_t epoch = 0;     // as welcomed
    const auto connect = [&stub](grpc::ClientContext* context, Link* link) {
      stub.async()->Connect(context, link);
    };
    Link link(connect, options_.coordinator.token, [&](const v1::Envelope& command) {
      if (welcomed) {
        if (command.epoch() == epoch) KillIfTold(command);
      } else if (absl::StatusOr<api::Welcome> welcome = ir::serial::ReadWelcome(command);
                 welcome.ok()) {
        welcomed = true;
        epoch = welcome->epoch;
        Begin(*std::move(welcome), infos);
        if (options_.on_registered) options_.on_registered();
      } else {
        absl::MutexLock lock(&mu_);
        if (link_ != nullptr) link_->Cancel();
      }
    });
    {
      absl::MutexLock lock(&mu_);
      if (stopping_) link.Cancel();
      link_ = &link;
    }
    link.Send(ir::serial::ToEnvelope(api::Registration{.worker = options_.name,
                                                       .host = options_.host,
                                                       .opset = ir::kOpset,
                                                       .executors = infos,
                                                       .host_memory_bytes = CpuMemoryBytes()}));
    absl::Duration interval;
    do {
      absl::MutexLock lock(&mu_);
      interval = heartbeat_;
      // Behind a write that is stuck it would only queue.
      if (registered_ && link.idle()) Report(ir::serial::ToEnvelope({0, 0, Beat()}));
    } while (!link.AwaitEnd(interval));
    *end = ir::serial::FromGrpc(link.end());
    TESSERA_LOG(WARNING) << "connection to the coordinator ended" << Field("worker", options_.name)
                         << Field("coordinator", options_.coordinator.address)
                         << Field("registered", welcomed) << Field("why", *end);
    absl::MutexLock lock(&mu_);
    link_ = nullptr;
    registered_ = false;
    return welcomed;
  }

  // The only command for the daemon itself; the others go to the executors.
  void KillIfTold(const v1::Envelope& command) {
    const absl::StatusOr<api::Command> read = ir::serial::ReadCommand(command);
    const auto* kill = read.ok() ? std::get_if<api::KillExecutor>(&*read) : nullptr;
    if (kill == nullptr || command.executor() < 0 || command.executor() >= num_executors()) return;
    executors_[command.executor()]->Kill(command.incarnation(), LossCause::kStuck, kill->reason);
  }
  api::Heartbeat Beat() {
    api::Heartbeat beat;
    for (int32_t e = 0; e < num_executors(); ++e) {
      const InFlightOp in_flight = executors_[e]->in_flight();
      beat.executors.push_back({.executor = e,
                                .progress_age = ProgressAge(e),
                                .silence = executors_[e]->silence(),
                                .launch = in_flight.launch,
                                .op = in_flight.op,
                                .waiting = in_flight.waiting});
    }
    return beat;
  }

  // The session has begun, but for executors that were registered and are gone by now: what happens
  // from here on is reported.
  void Begin(api::Welcome welcome, const Infos& infos) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    heartbeat_ = std::max(welcome.heartbeat, kHeartbeatMin);
    clock_ahead_ = welcome.clock - SteadyNow();
    welcome_ = std::move(welcome);
    registered_ = true;
    for (int32_t e = 0; e < num_executors(); ++e) {
      const bool same = Runs(e, infos[e].incarnation);
      if (!same) {
        Report(ir::serial::ToEnvelope(api::Report{
            e, infos[e].incarnation, api::ExecutorLost{"it ended during registration", 0, ""}}));
      }
      if (!ready_[e]) continue;
      const uint64_t incarnation = ready_[e]->incarnation;
      executors_[e]->Send(incarnation, WelcomeTo(e, incarnation));
      if (same) continue;
      Report(ir::serial::ToEnvelope(api::Report{e, incarnation, api::ExecutorReady{*ready_[e]}}));
    }
  }

  const WorkerDaemonOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;  // towards the coordinator
  const std::vector<Ports> ports_;                               // per executor
  std::vector<std::unique_ptr<MetricsPage>> pages_;              // per executor; as executors_
  std::vector<std::unique_ptr<Supervisor>> executors_;           // set before any callback gets on
  int64_t collector_ = 0;

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::optional<api::ExecutorInfo>> ready_ ABSL_GUARDED_BY(mu_);  // per executor
  bool registered_ ABSL_GUARDED_BY(mu_) = false;
  api::Welcome welcome_ ABSL_GUARDED_BY(mu_);        // for executors that come later
  absl::Duration clock_ahead_ ABSL_GUARDED_BY(mu_);  // the coordinator's clock, of ours
  absl::Duration heartbeat_ ABSL_GUARDED_BY(mu_) = absl::Milliseconds(300);
  Link* link_ ABSL_GUARDED_BY(mu_) = nullptr;  // there while registered_
  std::thread thread_;
};

// Asked of a child, since a daemon holds no state of a GPU's driver. Fewer than `wanted` is an
// error; of kAllGpus none is none.
absl::StatusOr<int> GpusHere(const WorkerDaemonOptions& options, int wanted) {
  const absl::StatusOr<std::string> answer = RunAndCapture(
      options.binary, {"--count-gpus", "--cuda-plugin=" + options.cuda_plugin}, kCountGpusTimeout);
  int count = 0;
  std::string why;
  if (!answer.ok()) {
    why = std::string(answer.status().message());
  } else if (!absl::SimpleAtoi(*answer, &count) || count < 0 || count > kGpusMax) {
    count = 0;
    why = *answer;
  }
  if (count < wanted) {
    return MakeError(ErrorKind::kNotEnoughDevices,
                     absl::StrCat("--gpus is ", wanted, "; this machine has ", count,
                                  why.empty() ? "" : ": ", why));
  }
  if (count == 0) {
    TESSERA_LOG(INFO) << "no GPUs; using CPU devices" << Field("worker", options.name)
                      << Field("why", why);
  }
  return count;
}

absl::StatusOr<Listener> ListenerFor(const std::string& given, int well_known, int executor,
                                     bool reserve) {
  const auto take = reserve ? Reserve : Listen;
  if (!given.empty()) return take(PortPlus(given, kPortStride * executor));
  absl::StatusOr<Listener> listener =
      take(absl::StrCat("127.0.0.1:", well_known + kPortStride * executor));
  if (KindOf(listener.status()) == ErrorKind::kAlreadyExists) listener = take("127.0.0.1:0");
  return listener;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerDaemon>> WorkerDaemon::Start(WorkerDaemonOptions options) {
  if (options.coordinator.address.empty() || options.name.empty()) {
    return MakeError(ErrorKind::kValueError,
                     "a worker needs --coordinator HOST:PORT and --name NAME");
  }
  if (const absl::Status usable = CheckAddress(options.coordinator.address); !usable.ok())
    return Annotate(usable, "--coordinator");
  if (options.num_gpus < kAllGpus || options.num_gpus > kGpusMax) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("--gpus is ", options.num_gpus, "; expected 0 to ", kGpusMax));
  }
  if (options.num_devices < 1 || options.num_devices > InFlightPage::kMaxDevices) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("--devices is ", options.num_devices, "; expected 1 to ",
                                  InFlightPage::kMaxDevices));
  }
  const int wanted = options.num_gpus;
  if (wanted != 0) {
    TESSERA_ASSIGN_OR_RETURN(const int here, GpusHere(options, wanted));
    if (wanted == kAllGpus) options.num_gpus = here;
  }
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                           CoordinatorCredentials(options.coordinator));
  std::vector<Daemon::Ports> ports;
  for (int e = 0; e < std::max(options.num_gpus, 1); ++e) {
    TESSERA_ASSIGN_OR_RETURN(Listener data,
                             ListenerFor(options.data_listen, kDataPort, e, options.data_tls));
    TESSERA_ASSIGN_OR_RETURN(Listener peer,
                             ListenerFor(options.peer_listen, kPeerPort, e, /*reserve=*/false));
    ports.push_back({std::move(data), std::move(peer)});
  }
  auto daemon = std::make_unique<Daemon>(options, std::move(ports), std::move(credentials));
  daemon->ShowMetrics();
  return daemon;
}

}  // namespace tessera::worker::rpc
