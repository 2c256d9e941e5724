// The daemon of a worker: applies the decisions of worker/daemon/core.h. worker/main.cc starts it.
// Supervisors run the executor processes, one thread keeps the connection to the coordinator, and
// all of these threads post events to the Driver, which calls Apply here for each effect.
#include "worker/rpc/worker_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/address.h"
#include "base/build.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/flight_recorder.h"
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
#include "worker/daemon/core.h"
#include "worker/daemon/device_monitor.h"
#include "worker/daemon/driver.h"
#include "worker/daemon/gpu_choice.h"
#include "worker/daemon/listen.h"
#include "worker/daemon/supervisor.h"
#include "worker/rpc/inquiries.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kPortStride = 2;  // distance between the ports of two executors of a worker
// This timeout is long, because GPU drivers start slowly.
constexpr absl::Duration kListGpusTimeout = absl::Seconds(20);
// A reading of a GPU that is older than this is not sent to the coordinator.
constexpr absl::Duration kReadingIsCurrent = absl::Seconds(10);
constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

using daemon::LossCause;
using Infos = std::vector<api::ExecutorInfo>;  // per executor

// The names of LossCause, in its order. kStopped has none, because the worker ends after it.
constexpr const char* kRestartCauses[] = {"exit",         "signal", "not_ready", "protocol",
                                          "disconnected", "stuck",  kOtherLabel};
static_assert(std::size(kRestartCauses) == static_cast<size_t>(LossCause::kStopped));

// Returns the info of an ExecutorReady, or nullopt if the message is another one.
std::optional<api::ExecutorInfo> ParseReady(const std::string& message) {
  v1::Envelope envelope;
  if (!envelope.ParseFromString(message)) return std::nullopt;
  const absl::StatusOr<api::Report> report = ir::serial::ReadReport(envelope);
  const auto* ready = report.ok() ? std::get_if<api::ExecutorReady>(&report->body) : nullptr;
  return ready == nullptr ? std::nullopt : std::optional(ready->info);
}

// Returns a number at which another daemon, earlier or later, is very unlikely to begin. A double
// can represent it exactly.
uint64_t RandomIncarnation() {
  std::random_device random;
  return uint64_t{random() & 0x7fffffff} << 21;
}

// Carries out the decisions that worker/daemon/core.h makes.
class Daemon final : public WorkerDaemon {
 public:
  // The listening sockets of one executor.
  struct Ports {
    Listener data, peer;
  };

  // `gpus` are the ids of the GPUs, one per executor. If it is empty, the worker has CPU devices.
  Daemon(const WorkerDaemonOptions& options, std::vector<std::string> gpus,
         std::vector<Ports> ports, std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        gpus_(std::move(gpus)),
        credentials_(std::move(credentials)),
        ports_(std::move(ports)),
        driver_(
            StartConfig(ports_.size()),
            [this](const daemon::Effect& effect) {
              std::visit([this](const auto& e) { Apply(e); }, effect);
            },
            [this] { return LinkIsIdle(); }),
        inquiries_(
            options_.name, num_executors(),
            [this](int32_t e, const std::string& message) {
              return supervisors_[e]->SendToCurrent(message);
            },
            options_.sources,
            [this](int32_t e, size_t entries_max) {
              return flight_recorders_[e]->Format(entries_max);
            },
            [this](const v1::InquiryAnswer& answer) { SendAnswer(answer); }) {
    for (int32_t e = 0; e < num_executors(); ++e) {
      SupervisorOptions supervisor_options;
      supervisor_options.executor = e;
      supervisor_options.binary = options_.binary;
      supervisor_options.title = absl::StrCat("tessera-executor ", options_.name, "/", e);
      supervisor_options.args = [this, e](uint64_t incarnation) {
        return ExecutorArgs(e, incarnation);
      };
      metrics_pages_.push_back(std::make_unique<MetricsPage>(num_devices()));
      flight_recorders_.push_back(std::make_unique<FlightRecorder>());
      supervisor_options.fds = {ports_[e].data.fd.get(), ports_[e].peer.fd.get(),
                                metrics_pages_[e]->fd(), flight_recorders_[e]->fd()};
      supervisor_options.num_devices = num_devices();
      supervisor_options.parse_ready = [this, e](const std::string& message) {
        auto info = ParseReady(message);
        if (info) inquiries_.SendLogLevel(e);
        return info;
      };
      supervisor_options.take_answer = [this, e](const std::string& message) {
        return inquiries_.TakeAnswer(e, message);
      };
      supervisor_options.post = [this](daemon::Event event) { driver_.Post(std::move(event)); };
      supervisors_.push_back(std::make_unique<Supervisor>(std::move(supervisor_options)));
    }
    if (!gpus_.empty()) StartMonitor();
    thread_ = std::thread([this] { RunLinks(); });
    driver_.Start();
  }
  // Call once the daemon is made, since the collector may be called at once.
  void RegisterMetrics() {
    if (options_.metrics == nullptr) return;
    // The counters exist from the beginning, so that the first restart shows as an increase.
    for (const char* cause : kRestartCauses) {
      options_.metrics->counter(Metric::kExecutorRestarts, {options_.name, cause});
    }
    collector_ = options_.metrics->AddCollector([this](SampleSink& sink) { Collect(sink); });
  }

  ~Daemon() override {
    if (options_.metrics != nullptr) options_.metrics->RemoveCollector(collector_);
    driver_.End();
    {
      absl::MutexLock lock(&mu_);
      ended_ = true;
    }
    thread_.join();
    inquiries_.Stop();
    monitor_.reset();
    for (const auto& supervisor : supervisors_) supervisor->Stop();
  }

  std::string data_endpoint() const override { return data_endpoint(0); }
  std::string data_address() const override { return ports_[0].data.endpoint(); }
  std::string peer_address() const override { return ports_[0].peer.endpoint(); }
  int executor_pid(int executor) const override { return supervisors_[executor]->pid(); }

 private:
  static daemon::Config StartConfig(size_t num_executors) {
    daemon::Config config;
    for (size_t e = 0; e < num_executors; ++e) config.incarnations.push_back(RandomIncarnation());
    return config;
  }
  int32_t num_executors() const { return static_cast<int32_t>(ports_.size()); }
  int num_devices() const { return gpus_.empty() ? options_.num_devices : 1; }
  std::string data_endpoint(int32_t executor) const {
    return ports_[executor].data.AdvertisedEndpoint(
        AddToPort(options_.advertise_client, kPortStride * executor));
  }

  // Returns the data endpoint for other executors. Clients may need another one, for example a port
  // that a container publishes on its host.
  std::string peer_data_endpoint(int32_t executor) const {
    const Listener& data = ports_[executor].data;
    const absl::string_view host = WithoutPort(options_.advertise_peer);
    return host.empty() || !data.listens_everywhere() ? data_endpoint(executor)
                                                      : absl::StrCat(host, ":", data.port);
  }

  void StartMonitor() {
    for (int32_t e = 0; e < num_executors(); ++e)
      TESSERA_LOG(INFO) << "GPU" << Field("worker", options_.name) << Field("device", e)
                        << Field("id", gpus_[e]);
    DeviceMonitorOptions monitor;
    monitor.binary = options_.binary;
    monitor.args = {"--monitor-gpus=" + absl::StrJoin(gpus_, ","),
                    "--cuda-plugin=" + options_.cuda_plugin};
    monitor.num_devices = num_executors();
    monitor.worker = options_.name;
    monitor.on_error = [this](int32_t device, int64_t xid) {
      if (options_.metrics == nullptr) return;
      options_.metrics
          ->counter(Metric::kGpuXidErrors, {options_.name, absl::StrCat(device), absl::StrCat(xid)})
          .Add();
    };
    monitor_started_ = SteadyNow();
    monitor_ = std::make_unique<DeviceMonitor>(std::move(monitor));
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
        "--gpu=" + (gpus_.empty() ? "" : gpus_[executor]),
        "--cuda-plugin=" + options_.cuda_plugin,
        absl::StrCat("--devices=", num_devices()),
        absl::StrCat("--device-memory-bytes=", options_.memory_bytes),
        "--data-endpoint=" + data_endpoint(executor),
        "--peer-endpoint=" + ports_[executor].peer.AdvertisedEndpoint(
                                 AddToPort(options_.advertise_peer, kPortStride * executor)),
        "--peer-data-endpoint=" + peer_data_endpoint(executor),
        absl::StrCat("--collective-timeout-ms=",
                     absl::ToInt64Milliseconds(options_.collective_timeout))};
    args.insert(args.end(), options_.executor_flags.begin(), options_.executor_flags.end());
    return args;
  }

  // ---- The effects of a step. ----
  static void RecordStep(std::string_view what, int32_t executor = 0, uint64_t incarnation = 0,
                         uint64_t epoch = 0) {
    RecordFlight(FlightKind::kDaemonStep, what, static_cast<uint64_t>(executor), incarnation,
                 epoch);
  }
  void Apply(const daemon::StartChild& e) {
    RecordStep("starts a process", e.executor, e.incarnation);
    supervisors_[e.executor]->Start(e.incarnation);
  }
  void Apply(const daemon::KillChild& e) {
    RecordStep("kills a process", e.executor, e.incarnation);
    supervisors_[e.executor]->Kill(e.incarnation);
  }
  void Apply(const daemon::CloseChildInput& e) {
    RecordStep("stops a process", e.executor, e.incarnation);
    supervisors_[e.executor]->CloseInput(e.incarnation);
  }
  void Apply(const daemon::PingChild& e) { supervisors_[e.executor]->Send(e.incarnation, ""); }
  void Apply(const daemon::WelcomeChild& e) {
    api::Welcome welcome = e.welcome;
    welcome.ticket_key = api::ExecutorTicketKey(welcome.ticket_key, e.executor, e.incarnation);
    supervisors_[e.executor]->Send(e.incarnation,
                                   ir::serial::ToEnvelope(welcome).SerializeAsString());
  }
  void Apply(const daemon::Connect& e) ABSL_LOCKS_EXCLUDED(mu_) {
    RecordStep("connects");
    absl::MutexLock lock(&mu_);
    infos_to_register_ = e.executors;
    cancelled_ = false;
  }
  void Apply(const daemon::CancelLink& /*effect*/) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
    }
    if (const std::shared_ptr<Link> link = CurrentLink()) link->Cancel();
  }
  void Apply(const daemon::SendReport& e) { Send(e.epoch, ir::serial::ToEnvelope(e.report)); }
  void Apply(const daemon::SendHeartbeat& e) {
    api::Heartbeat heartbeat;
    for (int32_t x = 0; x < num_executors(); ++x) {
      const InFlightOp in_flight = supervisors_[x]->in_flight();
      heartbeat.executors.push_back({.executor = x,
                                     .progress_age = ProgressAge(x),
                                     .silence = e.silence[x],
                                     .launch = in_flight.launch,
                                     .op = in_flight.op,
                                     .waiting = in_flight.waiting});
      if (monitor_ != nullptr) AddDeviceState(x, &heartbeat.executors.back());
    }
    Send(e.epoch, ir::serial::ToEnvelope({0, 0, std::move(heartbeat)}));
  }
  void Apply(const daemon::ChildLost& e) {
    RecordStep(absl::StrCat("a process ended: ", e.loss.reason), e.executor, e.incarnation);
    if (e.loss.cause != LossCause::kStopped) WriteFlightRecorder(e.executor);
    TESSERA_LOG(WARNING) << "executor lost" << Field("worker", options_.name)
                         << Field("executor", absl::StrCat(options_.name, "/", e.executor))
                         << Field("incarnation", e.incarnation) << Field("why", e.loss.reason)
                         << Field("launch", e.loss.in_flight.launch)
                         << Field("op", e.loss.in_flight.op);
    // The gauges are reset before the next process starts, which a later effect does.
    metrics_pages_[e.executor]->ResetGauges();
    if (options_.metrics == nullptr || e.loss.cause == LossCause::kStopped) return;
    const char* const cause = kRestartCauses[static_cast<size_t>(e.loss.cause)];
    options_.metrics->counter(Metric::kExecutorRestarts, {options_.name, cause}).Add();
  }
  // Writes the flight recorder to a file, so that it can be read why the process ended. The file of
  // the previous process is kept beside it.
  void WriteFlightRecorder(int32_t executor) {
    if (options_.flight_folder.empty()) return;
    const std::string path =
        absl::StrCat(options_.flight_folder, "/flight-", options_.name, "-", executor, ".txt");
    if (const absl::Status status = flight_recorders_[executor]->WriteFile(path); !status.ok())
      TESSERA_LOG(WARNING) << "no flight recorder of the executor"
                           << Field("why", status.message());
  }
  void Apply(const daemon::KillPostponed& e) {
    RecordStep(absl::StrCat("postpones: ", e.reason), e.executor, e.incarnation);
    TESSERA_LOG(WARNING) << "the executor is not killed: it answers, and has not been told yet to "
                            "end its work"
                         << Field("worker", options_.name)
                         << Field("executor", absl::StrCat(options_.name, "/", e.executor))
                         << Field("incarnation", e.incarnation) << Field("why", e.reason);
  }
  void Apply(const daemon::Registered& /*effect*/) {
    RecordStep("is registered", 0, 0, epoch_);
    if (options_.on_registered) options_.on_registered();
  }
  void Apply(const daemon::RefusedStale& e) {
    RecordStep("refuses an earlier coordinator", 0, 0, e.epoch);
    TESSERA_LOG(WARNING) << "refused a coordinator that is not the one of this worker"
                         << Field("worker", options_.name)
                         << Field("coordinator", options_.coordinator.address)
                         << Field("epoch", e.epoch) << Field("serves", e.newest);
    if (options_.metrics != nullptr)
      options_.metrics->counter(Metric::kStaleWelcomes, {options_.name}).Add();
  }
  void Apply(const daemon::Refused& e) {
    RecordStep(absl::StrCat("is refused: ", ToAbsl(ReasonOf(e.why))));
    TESSERA_LOG(ERROR) << "the coordinator will not take this worker"
                       << Field("worker", options_.name)
                       << Field("coordinator", options_.coordinator.address)
                       << Field("why", e.why.message());
    if (options_.on_refused) options_.on_refused(e.why);
  }
  void Apply(const daemon::SetTimer& /*effect*/) {}  // the driver handles it
  void Apply(const daemon::Stopped& /*effect*/) {}   // the driver handles it

  std::shared_ptr<Link> CurrentLink() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return link_;
  }
  bool LinkIsIdle() {
    const std::shared_ptr<Link> link = CurrentLink();
    return link != nullptr && link->idle();
  }
  void SendAnswer(const v1::InquiryAnswer& answer) {
    v1::Envelope envelope;
    envelope.set_kind(v1::MESSAGE_KIND_INQUIRY_ANSWER);
    answer.SerializeToString(envelope.mutable_body());
    Send(epoch_, std::move(envelope));
  }
  void Send(uint64_t epoch, v1::Envelope report) {
    if (report.kind() != v1::MESSAGE_KIND_HEARTBEAT)
      RecordFlight(FlightKind::kDaemonReport, ShortName(report.kind()),
                   static_cast<uint64_t>(report.executor()), report.launch(), epoch);
    TESSERA_VLOG << "report" << Field("worker", options_.name)
                 << Field("kind", v1::MessageKind_Name(report.kind()))
                 << Field("executor", report.executor());
    report.set_epoch(epoch);
    if (const std::shared_ptr<Link> link = CurrentLink()) link->Send(std::move(report));
  }

  // ---- Metrics. ----
  void Collect(SampleSink& sink) {
    CollectReadings(sink);
    for (int32_t e = 0; e < num_executors(); ++e) {
      metrics_pages_[e]->Collect(sink, options_.name, e * num_devices());
      const bool up = driver_.ready(e);
      for (int d = 0; d < num_devices(); ++d) {
        sink.Add(Metric::kExecutorUp, {options_.name, absl::StrCat(e * num_devices() + d)},
                 up ? 1 : 0);
      }
    }
  }
  // Adds the figures that the monitor knows. A figure that is unknown has no series.
  void CollectReadings(SampleSink& sink) {
    for (int32_t e = 0; monitor_ != nullptr && e < num_executors(); ++e) {
      const DeviceMonitor::DeviceState state = monitor_->state(e);
      const std::string device = absl::StrCat(e);
      const auto add = [&](Metric metric, std::string_view label, double value) {
        if (value < 0) return;
        std::vector<std::string_view> labels = {options_.name, device};
        if (!label.empty()) labels.push_back(label);
        sink.Add(metric, labels, value);
      };
      // The age of a GPU that was never read grows, too, so that the alert on it fires.
      add(Metric::kGpuReadingAge, "",
          absl::ToDoubleSeconds(SteadyNow() - std::max(state.read_at, monitor_started_)));
#define TESSERA_READING(field, metric, label) add(Metric::k##metric, label, state.reading.field);
#include "worker/device/readings.def"
    }
  }
  // Adds what operators see of the device in lists.
  void AddDeviceState(int32_t executor, api::Heartbeat::Executor* seen) {
    const DeviceMonitor::DeviceState state = monitor_->state(executor);
    seen->fault = state.fault;
    if (SteadyNow() - state.read_at > kReadingIsCurrent) return;
    const tessera_device_reading& r = state.reading;
    seen->gpu =
        api::GpuReading{.utilization = r.utilization,
                        .memory_used_bytes = r.memory_used_bytes,
                        .memory_others_bytes = r.memory_others_bytes,
                        .power_watts = r.power_watts,
                        .temperature_celsius = r.temperature_celsius,
                        .throttled = r.throttled_by_power > 0 || r.throttled_by_temperature > 0 ||
                                     r.throttled_by_power_brake > 0 || r.throttled_by_hardware > 0};
  }
  // The time since the executor's devices last made progress. It is the time of the device that has
  // stood still longest.
  absl::Duration ProgressAge(int32_t executor) {
    absl::Duration oldest;
    for (int d = 0; d < num_devices(); ++d) {
      oldest = std::max(
          oldest, metrics_pages_[executor]->age_gauge(Metric::kDeviceProgressAge, {}, d).Age());
    }
    return oldest;
  }

  // ---- The coordinator. ----
  void RunLinks() {
    NameThread("coordinator");
    const auto stub =
        v1::WorkerService::NewStub(CoordinatorChannel(options_.coordinator, credentials_));
    bool ever_welcomed = false;
    while (const std::optional<Infos> infos = AwaitConnect()) {
      absl::Status end = RunLink(*stub, *infos, &ever_welcomed);
      // ExplainEnd opens connections of its own, so it runs before the state machine hears of the
      // end and may connect again.
      if (!ever_welcomed) end = ExplainEnd(end);
      driver_.Post(daemon::LinkEnded{std::move(end)});
    }
  }
  // Returns the executors to register next, or nullopt at the end.
  std::optional<Infos> AwaitConnect() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return ended_ || infos_to_register_;
    };
    mu_.Await(absl::Condition(&told));
    return std::exchange(infos_to_register_, std::nullopt);
  }

  // Explains the end of a connection that was never made: TLS_MISMATCH if the coordinator does not
  // speak as this worker does.
  absl::Status ExplainEnd(const absl::Status& end) const {
    if (!ir::serial::NeverConnected(std::string(end.message()))) return end;
    const ir::serial::ServerProtocol protocol =
        ir::serial::Probe(options_.coordinator.address, kProbeTimeout);
    const bool tls = options_.coordinator.tls.enabled();
    const auto because = [&](absl::string_view why) {
      return MakeError(ErrorKind::kTlsMismatch,
                       absl::StrCat("the coordinator at ", options_.coordinator.address, why));
    };
    if (!tls && protocol == ir::serial::ServerProtocol::kTls)
      return because(
          " speaks TLS, and this worker plain text; join it with `tessera join`, or give "
          "--tls-cert-file, --tls-key-file and --tls-ca-file");
    if (tls && protocol == ir::serial::ServerProtocol::kPlainText)
      return because(
          " speaks plain text, and this worker TLS; start the coordinator with certificates, or "
          "this worker without --tls-ca-file");
    if (tls && protocol == ir::serial::ServerProtocol::kTls &&
        !ir::serial::GrpcServerAnswers(options_.coordinator.address, credentials_, kProbeTimeout))
      return because(
          ": its certificate does not come from the authority in --tls-ca-file, or does not name "
          "this address");
    return end;
  }

  // Runs one connection, from registration to its end. Sets `ever_welcomed` if the coordinator
  // accepted the worker.
  absl::Status RunLink(v1::WorkerService::Stub& stub, const Infos& infos, bool* ever_welcomed)
      ABSL_LOCKS_EXCLUDED(mu_) {
    // Used by the thread that brings commands, and by this one after the link has ended.
    bool welcomed = false;
    const auto connect = [&stub](grpc::ClientContext* context, Link* link) {
      stub.async()->Connect(context, link);
    };
    const auto link = std::make_shared<Link>(
        connect, options_.coordinator.token, [&](const v1::Envelope& message) {
          if (welcomed) return OnCommand(message);
          absl::StatusOr<api::Welcome> welcome = ir::serial::ReadWelcome(message);
          welcomed = welcome.ok();
          if (welcomed) epoch_ = welcome->epoch;
          RecordFlight(FlightKind::kDaemonStep, welcomed ? "is welcome" : "no welcome", 0, 0,
                       epoch_);
          driver_.Post(daemon::Welcomed{std::move(welcome)});
        });
    bool cancelled = false;
    {
      absl::MutexLock lock(&mu_);
      cancelled = cancelled_;
      link_ = link;
    }
    if (cancelled) link->Cancel();
    link->Send(ir::serial::ToEnvelope(api::Registration{.worker = options_.name,
                                                        .host = options_.host,
                                                        .opset = ir::kOpset,
                                                        .executors = infos,
                                                        .host_memory_bytes = CpuMemoryBytes(),
                                                        .build = ThisBuild()}));
    link->AwaitEnd(absl::InfiniteDuration());
    const absl::Status end = ir::serial::FromGrpc(link->final_status());
    if (welcomed || last_end_ != end)
      RecordFlight(FlightKind::kDaemonStep,
                   absl::StrCat("the connection ended: ", ToAbsl(ReasonOf(end))), 0, 0, epoch_);
    // Attempts that end in the same way are logged only once.
    if (welcomed || std::exchange(last_end_, end) != end)
      TESSERA_LOG(WARNING) << "connection to the coordinator ended"
                           << Field("worker", options_.name)
                           << Field("coordinator", options_.coordinator.address)
                           << Field("registered", welcomed) << Field("why", end);
    *ever_welcomed |= welcomed;
    absl::MutexLock lock(&mu_);
    link_ = nullptr;
    return end;
  }

  absl::Duration ToldFor(int32_t executor) {
    if (executor < 0 || executor >= num_executors()) return absl::ZeroDuration();
    const int64_t told = supervisors_[executor]->told_ns();
    return told == 0 ? absl::ZeroDuration() : absl::Nanoseconds(AgeGauge::Now() - told);
  }
  // Handles the few messages for the daemon itself: the command to kill an executor, and inquiries.
  void OnCommand(const v1::Envelope& message) {
    RecordFlight(FlightKind::kDaemonCommand, ShortName(message.kind()),
                 static_cast<uint64_t>(message.executor()), message.launch(), message.epoch());
    TESSERA_VLOG << "command" << Field("worker", options_.name)
                 << Field("kind", v1::MessageKind_Name(message.kind()))
                 << Field("executor", message.executor());
    v1::Inquiry inquiry;
    if (message.kind() == v1::MESSAGE_KIND_INQUIRY) {
      if (message.epoch() == epoch_ && inquiry.ParseFromString(message.body()))
        inquiries_.Enqueue(std::move(inquiry));
      return;
    }
    const absl::StatusOr<api::Command> command = ir::serial::ReadCommand(message);
    const auto* kill = command.ok() ? std::get_if<api::KillExecutor>(&*command) : nullptr;
    if (kill == nullptr) return;
    driver_.Post(daemon::KillRequested{.epoch = message.epoch(),
                                       .executor = message.executor(),
                                       .incarnation = message.incarnation(),
                                       .reason = kill->reason,
                                       .if_told = kill->if_told,
                                       .told_for = ToldFor(message.executor())});
  }

  const WorkerDaemonOptions options_;
  const std::vector<std::string> gpus_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;  // for the coordinator
  const std::vector<Ports> ports_;                               // per executor
  // Per executor, set before any step. A flight recorder is kept over the executor's processes.
  std::vector<std::unique_ptr<MetricsPage>> metrics_pages_;
  std::vector<std::unique_ptr<FlightRecorder>> flight_recorders_;
  std::vector<std::unique_ptr<Supervisor>> supervisors_;
  absl::Time monitor_started_;
  std::unique_ptr<DeviceMonitor> monitor_;  // null if the worker has no GPUs; set before any step
  int64_t collector_ = 0;
  daemon::Driver driver_;
  std::atomic<uint64_t> epoch_{0};  // epoch of the last Welcome
  Inquiries inquiries_;

  absl::Mutex mu_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mu_);  // kept until it has ended
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;      // applies to that link, or to the next one
  std::optional<Infos> infos_to_register_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status last_end_;  // end of the last attempt to register; used by the thread only
  std::thread thread_;
};

// Lists the GPUs in a child process, because a daemon holds no state of a GPU's driver, and chooses
// those of the worker. If `options` name no GPUs, it is no error that there are none.
absl::StatusOr<std::vector<std::string>> FindGpus(const WorkerDaemonOptions& options) {
  if (options.gpus == "0") return std::vector<std::string>();
  const absl::StatusOr<std::string> answer = RunAndCapture(
      options.binary, {"--list-gpus", "--cuda-plugin=" + options.cuda_plugin}, kListGpusTimeout);
  std::vector<std::string> present;
  std::string why;
  if (!answer.ok()) {
    why = std::string(answer.status().message());
  } else if (absl::StartsWith(*answer, "! ")) {
    why = answer->substr(2);
  } else {
    present = absl::StrSplit(*answer, '\n', absl::SkipEmpty());
  }
  if (options.gpus.empty() && present.empty()) {
    TESSERA_LOG(INFO) << "no GPUs; using CPU devices" << Field("worker", options.name)
                      << Field("why", why);
    return present;
  }
  return daemon::ChooseGpus(options.gpus.empty() ? daemon::kAllGpus : options.gpus, present, why);
}

absl::StatusOr<Listener> ListenerFor(const std::string& address, int well_known, int executor,
                                     bool reserve) {
  const auto take = reserve ? Reserve : Listen;
  if (!address.empty()) return take(AddToPort(address, kPortStride * executor));
  absl::StatusOr<Listener> listener =
      take(absl::StrCat("127.0.0.1:", well_known + kPortStride * executor));
  if (KindOf(listener.status()) == ErrorKind::kAlreadyExists) listener = take("127.0.0.1:0");
  return listener;
}

}  // namespace

// Checks the options, chooses the GPUs, binds the ports of all executors, and
// starts the daemon. The ports are bound before any process starts: they are part of the
// registration, belong to the worker for its whole life, and a port that is taken is an error of
// the start.
absl::StatusOr<std::unique_ptr<WorkerDaemon>> WorkerDaemon::Start(WorkerDaemonOptions options) {
  if (options.coordinator.address.empty() || options.name.empty()) {
    return MakeError(ErrorKind::kValueError,
                     "a worker needs --coordinator HOST:PORT and --name NAME");
  }
  if (const absl::Status status = CheckAddress(options.coordinator.address); !status.ok())
    return Annotate(status, "--coordinator");
  if (options.num_devices < 1 || options.num_devices > InFlightPage::kMaxDevices) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("--devices is ", options.num_devices, "; expected 1 to ",
                                  InFlightPage::kMaxDevices));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<std::string> gpus, FindGpus(options));
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                           CoordinatorCredentials(options.coordinator));
  std::vector<Daemon::Ports> ports;
  const int num_executors = std::max(static_cast<int>(gpus.size()), 1);
  for (int e = 0; e < num_executors; ++e) {
    TESSERA_ASSIGN_OR_RETURN(Listener data,
                             ListenerFor(options.data_listen, kDataPort, e, options.data_tls));
    TESSERA_ASSIGN_OR_RETURN(Listener peer,
                             ListenerFor(options.peer_listen, kPeerPort, e, /*reserve=*/false));
    ports.push_back({std::move(data), std::move(peer)});
  }
  auto daemon =
      std::make_unique<Daemon>(options, std::move(gpus), std::move(ports), std::move(credentials));
  daemon->RegisterMetrics();
  return daemon;
}

}  // namespace tessera::worker::rpc
