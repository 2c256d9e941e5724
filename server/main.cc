// tessera-coordinator: the coordinator as a program. It opens the state, starts the jail, the
// coordinator, the gRPC server, the metrics listener and the health monitor, and stops them when
// SIGTERM or SIGINT arrives.
//
//   tessera-coordinator --listen 127.0.0.1:0 --port-file /run/tessera/address
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/dump_folder.h"
#include "base/file.h"
#include "base/flight_recorder.h"
#include "base/host_limits.h"
#include "base/locks.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/metrics_http.h"
#include "base/options.h"
#include "base/status.h"
#include "base/words.h"
#include "server/admission/admission.h"
#include "server/auth/tokens.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/health_monitor.h"
#include "server/core/plan_dump.h"
#include "server/jail/jailed_reader.h"
#include "server/planner/planner.h"
#include "server/rows/rows.h"
#include "server/rpc/gate.h"
#include "server/rpc/rpc_metrics.h"
#include "server/rpc/server.h"
#include "server/store/sqlite_store.h"
#include "server/telemetry/telemetry.h"

namespace tessera::server {
namespace {

constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
constexpr char kMetricsListen[] = "127.0.0.1:9470";
// A plan with its explanation is several times as large as its program.
constexpr size_t kJailReplyBytesMax = size_t{512} << 20;
// How often a coordinator that waits for room on the disk logs that it waits.
constexpr absl::Duration kFullDiskLogInterval = absl::Seconds(10);

// Writes atomically, so that a reader never sees a part of the address.
absl::Status WriteAddress(const std::string& path, const std::string& address) {
  const int error =
      TryReplaceFile(path, address + "\n", {.access = FileAccess::kByUmask, .is_durable = false});
  if (error == 0) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("port-file: cannot write ", path, ": ", std::strerror(error)));
}

// Opens the store with the state of earlier runs of the coordinator. Without a folder there is no
// such state: the first id is random, and the epoch is the time of the wall clock, so that it is
// greater than the epochs of earlier runs. Workers that have seen this epoch refuse the commands of
// earlier epochs.
absl::StatusOr<std::unique_ptr<store::Store>> OpenStore(const Options& options) {
  if (!options.state_dir.empty()) {
    store::SqliteOptions sqlite;
    sqlite.folder = options.state_dir;
    sqlite.build = std::string(absl::StripAsciiWhitespace(VersionText("tessera-coordinator")));
    sqlite.retry = absl::Milliseconds(options.store_retry_ms);
    sqlite.row_of_executor = rows::RowOf;
    return store::SqliteStore::Open(std::move(sqlite));
  }
  std::random_device random;
  const auto random64 = [&random] { return uint64_t{random()} << 32 | random(); };
  const absl::Time now = absl::Now();
  core::Life life = core::RandomLife(static_cast<uint64_t>(absl::ToUnixMicros(now)), random64());
  life.state_began = now;
  return std::make_unique<store::MemoryStore>(life);
}

// Waits for a stop signal. Returns 0 if none came within the bound.
int AwaitSignal(const sigset_t& signals, absl::Duration bound) {
  const timespec wait = absl::ToTimespec(bound);
  return std::max(sigtimedwait(&signals, nullptr, &wait), 0);
}

// Calls OpenStore again and again while the disk is full, so that the coordinator starts by itself
// when the disk has room. Any other error is returned at once: most do not pass by themselves
// (STORE_FAILED can mean that the folder's permissions or its file system are wrong, or that the
// disk cannot be read). Returns null if a stop signal came.
absl::StatusOr<std::unique_ptr<store::Store>> OpenStoreOnceDiskHasRoom(const Options& options,
                                                                       const sigset_t& signals) {
  absl::Time last_logged = absl::InfinitePast();
  while (true) {
    absl::StatusOr<std::unique_ptr<store::Store>> store = OpenStore(options);
    if (store.ok() || KindOf(store.status()) != ErrorKind::kDiskFull) {
      if (store.ok() && last_logged != absl::InfinitePast())
        TESSERA_LOG(INFO) << "the disk that holds the state has room again";
      return store;
    }
    if (const absl::Time now = SteadyNow(); now >= last_logged + kFullDiskLogInterval) {
      last_logged = now;
      TESSERA_LOG(WARNING) << "coordinator waits until the disk that holds the state has room"
                           << Field("reason", ReasonOf(store.status()))
                           << Field("why", store.status().message());
    }
    if (const int signal = AwaitSignal(signals, absl::Milliseconds(options.store_retry_ms))) {
      TESSERA_LOG(INFO) << "coordinator stops" << Field("signal", signal);
      return nullptr;
    }
  }
}

absl::StatusOr<Durability> DurabilityOf(const store::Store& store) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<core::Row> rows, store.Load());
  Durability durability;
  TESSERA_ASSIGN_OR_RETURN(durability.restored, rows::Decode(rows));
  durability.encode = rows::Encode;
  durability.on_fenced = [] {
    TESSERA_LOG(ERROR) << "another coordinator has taken over; this one stops";
    kill(getpid(), SIGTERM);
  };
  return durability;
}

absl::Status StartLog(const Options& options) {
  LogOptions log;
  TESSERA_ASSIGN_OR_RETURN(log.level, ParseLogLevel(options.log_level));
  TESSERA_ASSIGN_OR_RETURN(log.format, ParseLogFormat(options.log_format));
  log.file = options.log_file;
  return StartLogging(log);
}

// Blocks SIGTERM and SIGINT in this thread and in the threads that it starts.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

rpc::ServeOptions ServeOptionsOf(const Options& options, const telemetry::Telemetry* telemetry,
                                 const Clock* clock) {
  rpc::ServeOptions serve;
  serve.listen = options.listen;
  serve.insecure = options.insecure;
  serve.tls = {options.tls_cert_file, options.tls_key_file, options.tls_ca_file};
  serve.ca_key_file = options.ca_key_file;
  serve.top_programs = [telemetry, clock](const core::Caller& caller) {
    const bool all = caller.role == core::Role::kOperator || caller.role == core::Role::kAdmin;
    return telemetry->top_programs().List(
        [&caller](const std::string& tenant) { return caller.MayRead(tenant); },
        /*with_others=*/all, clock->Now());
  };
  const bool canaries = options.canary_interval_ms > 0;
  serve.health = {.live = true, .ready = !canaries, .progressing = !canaries};
  return serve;
}

// Starts the jail and checks that jailed processes work on this system. A coordinator whose jail
// does not work must not start: its error names the option that turns the jail off.
absl::StatusOr<std::unique_ptr<jail::JailedReader>> MakeJail(const Options& options,
                                                             Metrics* metrics) {
  jail::PoolOptions pool;
  pool.process.binary = "/proc/self/exe";
  pool.process.args = {jail::kJailFlag};
  pool.process.title = "tessera-jail";
  pool.process.memory_bytes_max = options.jail_memory_bytes_max;
  pool.process.reply_bytes_max = kJailReplyBytesMax;
  pool.timeout = absl::Milliseconds(options.jail_timeout_ms);
  constexpr const char* kCauses[] = {"crash", "memory", "cpu", "wall"};
  std::vector<Counter> ends;
  for (const char* const cause : kCauses)
    ends.push_back(metrics->counter(Metric::kJailEnds, {cause}));
  pool.on_end = [ends](JailEnd::Cause cause) {
    if (const auto at = static_cast<size_t>(cause); at < ends.size()) ends[at].Add();
  };
  auto jailed = std::make_unique<jail::JailedReader>(std::move(pool), admission::LimitsOf(options));
  const absl::Status status = jailed->Check();
  if (status.ok()) return jailed;
  return MakeError(ErrorKind::kInternal,
                   absl::StrCat(status.message(),
                                "; if every client is trusted, --jail=false reads programs in the "
                                "coordinator's own process"));
}

// Runs the coordinator until a stop signal comes. Each part is created after the parts that it
// uses, so that destructors run in the right order on every return. The parts are stopped
// explicitly, in another order: first the work that would delay the answer to a pending call, then
// the coordinator, which answers all pending calls, then the store and the gRPC server. Every step
// of the stop has a bound.
absl::Status Run(const Options& options) {
  // Signals are blocked before any thread starts, so that sigwait below gets them.
  const sigset_t signals = BlockStopSignals();
  TESSERA_RETURN_IF_ERROR(StartLog(options));
  RaiseFileLimit();
  StartFlightRecorder(FlightFolder(options), "coordinator");

  RealClock clock;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<store::Store> store,
                           OpenStoreOnceDiskHasRoom(options, signals));
  if (store == nullptr) {
    StopLogging();
    return absl::OkStatus();
  }
  Metrics metrics(options.metrics_series_max);
  metrics.AddCollector([](SampleSink& sink) { CollectProcess(sink, rpc::GrpcVersion()); });
  telemetry::Telemetry telemetry(&metrics);
  TESSERA_ASSIGN_OR_RETURN(Durability durability, DurabilityOf(*store));
  std::unique_ptr<jail::JailedReader> jailed;
  core::PlanFn plan = planner::MakePlan;
  if (options.jail) {
    TESSERA_ASSIGN_OR_RETURN(jailed, MakeJail(options, &metrics));
    plan = [&jailed](const core::PlanRequest& request) { return jailed->Plan(request); };
  }
  DumpFolder dump(options.dump);
  plan = core::WithDump(std::move(plan), &dump);
  Coordinator coordinator(options, &clock, plan, store.get(), &telemetry,
                          /*tenant_folders=*/true, std::move(durability));
  const telemetry::GaugeReader gauges(
      &metrics,
      [&coordinator](uint64_t first_array, telemetry::GaugeReader::Callback callback) {
        scheduler::ReadTelemetry read;
        read.first_array = first_array;
        coordinator.Post<core::ClusterReading>(std::move(read), std::move(callback));
      },
      coordinator.epoch());
  std::unique_ptr<auth::Tokens> tokens;
  if (!options.tokens_file.empty()) {
    TESSERA_ASSIGN_OR_RETURN(tokens, auth::Tokens::Open(options.tokens_file));
  }
  rpc::Gate gate(&clock, {.tokens = tokens.get(),
                          .calls_per_second = options.rate_limit_per_second,
                          .calls_max = options.tenant_calls_max});
  rpc::ServeOptions serve = ServeOptionsOf(options, &telemetry, &clock);
  serve.gate = &gate;
  serve.reader = jailed.get();
  serve.sources = {.build = VersionText("tessera-coordinator"),
                   .options = FlagsFor(options, [](const std::string&) { return std::nullopt; }),
                   .started = SteadyNow(),
                   .metrics = [&metrics] { return MetricsText(&metrics); }};
  serve.metrics = &metrics;
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                           rpc::Serve(serve, &coordinator));
  TESSERA_LOG(INFO) << "coordinator serves" << Field("address", server->address());
  std::cout << "listening on " << server->address() << std::endl;
  if (!options.port_file.empty())
    TESSERA_RETURN_IF_ERROR(WriteAddress(options.port_file, server->address()));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics_server,
                           MetricsServer::StartForDaemon(options.metrics_listen, kMetricsListen,
                                                         options.metrics_port_file, &metrics));
  health::Config health;
  health.interval = absl::Milliseconds(options.canary_interval_ms);
  health.timeout = absl::Milliseconds(options.canary_timeout_ms);
  const std::unique_ptr<HealthMonitor> monitor = HealthMonitor::Start(
      health, &coordinator, &clock, &metrics, [&server](const health::Verdict& verdict) {
        server->SetHealth({.live = verdict.live.ok(),
                           .ready = verdict.ready.ok(),
                           .progressing = verdict.progressing.ok()});
      });

  int signal = 0;
  sigwait(&signals, &signal);
  TESSERA_LOG(INFO) << "coordinator stops" << Field("signal", signal);
  monitor->Stop();
  // Ends the jailed processes, because the steps below would have to wait for them.
  if (jailed != nullptr) jailed->Stop();
  // Fails pending requests with SERVER_STOPPING, so that the gRPC server need not wait for them
  // below.
  coordinator.Stop();
  const absl::Status kept = store->Flush(kShutdownGrace);
  if (!kept.ok())
    TESSERA_LOG(WARNING) << "the state is not durable" << Field("why", kept.message());
  server->Shutdown(kShutdownGrace);
  StopLogging();
  // The disk does not answer, so the store's thread cannot be joined, and the process exits at
  // once. Every operation that was reported to a client as done is already durable.
  if (!kept.ok()) _exit(EXIT_SUCCESS);
  return absl::OkStatus();
}

// Parses the command line and runs the coordinator, or prints the version, the help or an error.
// The binary is also the jailed process, so that both sides of the jail are of one build.
// Returns 2 for a wrong command line and 1 for a coordinator that could not run.
int Main(int argc, char** argv) {
  // With this flag, the process is a jailed process, which only reads and plans programs.
  if (argc == 2 && std::string(argv[1]) == jail::kJailFlag)
    return jail::RunJailedProcess(planner::MakePlan);
  absl::StatusOr<ParsedOptions> parsed =
      ParseOptions(std::vector<std::string>(argv + 1, argv + argc), ProcessEnv());
  if (parsed.ok() && !parsed->help && !parsed->rest.empty())
    parsed = MakeError(ErrorKind::kValueError,
                       absl::StrCat("unknown argument '", parsed->rest[0], "'",
                                    DidYouMean(parsed->rest[0].substr(0, parsed->rest[0].find('=')),
                                               OptionFlags()),
                                    "; --help lists the options"));
  if (!parsed.ok()) {
    std::cerr << "tessera-coordinator: " << parsed.status().message() << "\n";
    return 2;
  }
  if (parsed->version) {
    std::cout << VersionText("tessera-coordinator");
    return 0;
  }
  if (parsed->help) {
    std::cout << "usage: tessera-coordinator [--listen HOST:PORT] [--port-file FILE] ...\n\n"
              << OptionsHelp();
    return 0;
  }
  if (const absl::Status status = Run(parsed->options); !status.ok()) {
    std::cerr << "tessera-coordinator: " << status.message() << "\n";
    StopLogging();
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::server

int main(int argc, char** argv) {
  tessera::DisableDeadlockDetectionInRelease();
  return tessera::server::Main(argc, argv);
}
