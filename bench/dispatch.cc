// Measures the latency of a dispatch. A dispatch here is the round trip of a one-op execute with
// its result, embedded and over loopback gRPC. The round trip over gRPC is compared in the same run
// with that of a gRPC relay between as many processes (relay.h).
//
//   bench-dispatch [--rounds N] [--iterations N] [--jax PYTHON [--plugin]] [--json] [--smoke]
//                  [--bin-dir DIR]
//
// With --jax the embedded round trip is compared with jax.jit and block_until_ready in that Python.
// JAX runs on XLA's CPU and, with --plugin, also on an embedded Tessera in the same process. With
// --embedded only the embedded round trip is measured, for several numbers of devices and sizes.
//
// The cases are interleaved, round by round, so that other load on the machine affects all of them.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "bench/compared.h"
#include "bench/flags.h"
#include "bench/process.h"
#include "bench/relay.h"
#include "bench/samples.h"
#include "client/tessera.h"
#include "grpcpp/grpcpp.h"

namespace tessera::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(30);
constexpr int64_t kElements = 16;  // f32 numbers in the array; the relay forwards as many bytes, 64
constexpr int kCallers = 8;        // threads that call at once in the concurrent cases
// The names of the calls in bench/dispatch_jax.py.
constexpr char kOnCpu[] = "x + x", kOnPlugin[] = "x + x, plugin";

struct Flags {
  int rounds = 20;
  int iterations = 200;  // calls of each case in a round
  bool json = false;
  bool smoke = false;
  bool only_service = false;  // measures the service alone, so that it can be profiled
  bool embedded = false;
  bool plugin = false;  // JAX also runs on the plugin; needs `jax`
  std::string jax;      // a Python that has JAX, or "" to leave JAX out
  std::string bin_dir = OwnFolder();
};

// The processes of Tessera and of the relay. They are destroyed in reverse order.
struct Cluster {
  Process coordinator, worker, relay_a, relay_b;
  std::string coordinator_address, relay_address;
};

absl::StatusOr<std::string> ReadLineAfter(Process& process, const std::string& prefix) {
  TESSERA_ASSIGN_OR_RETURN(std::string line, process.ReadLine(kStartLimit));
  if (line.compare(0, prefix.size(), prefix) != 0)
    return absl::InternalError(absl::StrCat("expected '", prefix, "...' but got '", line, "'"));
  return line.substr(prefix.size());
}

absl::StatusOr<Cluster> StartProcesses(const Flags& flags) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  TESSERA_ASSIGN_OR_RETURN(
      Process coordinator,
      Process::Start({flags.bin_dir + "/tessera-coordinator", "--listen", "127.0.0.1:0"}));
  TESSERA_ASSIGN_OR_RETURN(const std::string address, ReadLineAfter(coordinator, "listening on "));
  TESSERA_ASSIGN_OR_RETURN(
      Process worker, Process::Start({flags.bin_dir + "/tessera-worker", "--coordinator", address,
                                      "--name", "w0", "--devices", "1"}));
  TESSERA_ASSIGN_OR_RETURN(Process relay_a, Process::Start({self, "--relay-a"}));
  TESSERA_ASSIGN_OR_RETURN(const std::string relay, ReadLineAfter(relay_a, ""));
  TESSERA_ASSIGN_OR_RETURN(Process relay_b, Process::Start({self, "--relay-b", relay}));
  TESSERA_RETURN_IF_ERROR(ReadLineAfter(relay_a, "ready").status());
  return Cluster{std::move(coordinator), std::move(worker), std::move(relay_a),
                 std::move(relay_b),     address,           relay};
}

absl::Status AwaitDevice(Session& session) {
  const absl::Time end = absl::Now() + kStartLimit;
  while (session.devices().empty()) {
    if (absl::Now() > end) return absl::DeadlineExceededError("the worker did not register");
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::OkStatus();
}

// One compiled op and its argument on a session.
class OneOp {
 public:
  explicit OneOp(std::shared_ptr<Session> session)
      : OneOp(*session, kElements, context_mesh(), {}) {}
  OneOp(Session& session, int64_t elements, const Mesh& mesh, const PartitionSpec& spec)
      : x_(session.Put(Ramp(elements), mesh, spec, Site::Here())) {
    RoundTrip();  // compiles
    CheckLast();
  }
  // Starts the op and returns its result, which may not be ready yet.
  Array Enqueue() const { return double_(x_); }
  void RunAndWait() const { Enqueue().wait(); }
  void RoundTrip() const { last_ = Enqueue().value(); }
  // Checks the last result, because a fast wrong result is worth nothing.
  void CheckLast() const { Check(last_); }

 private:
  static ir::Array Ramp(int64_t elements) {
    ir::Array a(DType::kF32, {elements});
    for (int64_t i = 0; i < elements; ++i) a.Set(i, static_cast<double>(i));
    return a;
  }
  static void Check(const ir::Array& got) {
    const int64_t elements = got.num_elements();
    for (int64_t i = 0; i < elements; ++i)
      TESSERA_CHECK_EQ(got.At(i), 2.0 * static_cast<double>(i));
  }

  Jitted<Array (*)(const Array&)> double_ = jit(+[](const Array& x) { return x + x; });
  Array x_;
  mutable ir::Array last_;
};

absl::Duration TimeOf(const std::function<void()>& f) {
  const absl::Time start = absl::Now();
  f();
  return absl::Now() - start;
}

// Starts `callers` threads that each call `f(caller)` `calls_each` times. Returns calls per second.
double RateOf(int callers, int calls_each, const std::function<void(int)>& f) {
  const absl::Duration took = TimeOf([&] {
    std::vector<std::thread> threads;
    for (int c = 0; c < callers; ++c)
      threads.emplace_back([&, c] {
        for (int i = 0; i < calls_each; ++i) f(c);
      });
    for (std::thread& t : threads) t.join();
  });
  return callers * calls_each / absl::ToDoubleSeconds(took);
}

struct Results {
  Samples embedded, service, relay;       // us per round trip, one call at a time
  Samples waited, jax;                    // us per call that waits but does not read the result
  Samples plugin;                         // like `jax`, on the plugin's device
  Samples jax_enqueued, plugin_enqueued;  // us per call when many are made before any wait
  std::vector<double> p50_ratios;         // service to relay, one ratio per round
  Samples service_rates, relay_rates;     // calls/s, several callers that wait for results
  Samples service_posted_rates, relay_posted_rates;  // calls/s, one caller that does not wait
};

// Starts the processes of both sides and measures all cases. Every round measures every case once,
// so that other load on the machine affects all of them. The service (Tessera over gRPC) and the
// relay alternate call by call, because docs/benchmarks.md sets an aim for the ratio of their
// times. The results of the last calls are checked at the end, outside the measured times.
absl::StatusOr<Results> Measure(const Flags& flags) {
  std::optional<JaxScript> jax;
  if (!flags.jax.empty()) {
    TESSERA_ASSIGN_OR_RETURN(
        JaxScript started,
        JaxScript::Start(flags.jax, "dispatch_jax.py",
                         {absl::StrCat(kElements),
                          flags.plugin ? flags.bin_dir + "/../lib/pjrt_plugin_tessera.so" : ""}));
    jax.emplace(std::move(started));
  }
  TESSERA_ASSIGN_OR_RETURN(Cluster cluster, StartProcesses(flags));
  const std::shared_ptr<Session> embedded = Session::Embedded({.devices = 1});
  const std::shared_ptr<Session> remote = Session::Connect(cluster.coordinator_address);
  TESSERA_RETURN_IF_ERROR(AwaitDevice(*remote));
  const OneOp embedded_op(embedded), remote_op(remote);
  std::vector<std::unique_ptr<OneOp>> caller_ops;
  for (int c = 0; c < kCallers; ++c) caller_ops.push_back(std::make_unique<OneOp>(remote));
  const std::unique_ptr<RelayClient> relay = RelayClient::Connect(cluster.relay_address);
  const std::string bytes(kElements * sizeof(float), 'x');
  const auto relay_trip = [&] { TESSERA_CHECK_OK(relay->RoundTrip(bytes)); };
  const auto service_trip = [&] { remote_op.RoundTrip(); };

  const int n = flags.iterations;
  for (int i = 0; i < n && i < 50; ++i) {  // warm-up
    embedded_op.RoundTrip();
    service_trip();
    relay_trip();
  }
  Results r;
  for (int round = 0; round < flags.rounds; ++round) {
    Samples service_times, relay_times;
    for (int i = 0; i < n && !flags.only_service; ++i)
      r.embedded.Add(TimeOf([&] { embedded_op.RoundTrip(); }));
    for (int i = 0; i < n && !flags.only_service; ++i)
      r.waited.Add(TimeOf([&] { embedded_op.RunAndWait(); }));
    if (jax) {
      TESSERA_RETURN_IF_ERROR(jax->Measure(kOnCpu, n, &r.jax));
      TESSERA_RETURN_IF_ERROR(jax->MeasureEnqueued(kOnCpu, n, &r.jax_enqueued));
    }
    if (jax && flags.plugin) {
      TESSERA_RETURN_IF_ERROR(jax->Measure(kOnPlugin, n, &r.plugin));
      TESSERA_RETURN_IF_ERROR(jax->MeasureEnqueued(kOnPlugin, n, &r.plugin_enqueued));
    }
    // These two alternate call by call, because the benchmark's aim is about their ratio.
    for (int i = 0; i < n; ++i) {
      service_times.Add(TimeOf(service_trip));
      if (!flags.only_service) relay_times.Add(TimeOf(relay_trip));
    }
    if (flags.only_service) relay_times.Add(absl::Microseconds(1));
    r.p50_ratios.push_back(service_times.Quantile(0.5) / relay_times.Quantile(0.5));
    r.service.Add(service_times);
    r.relay.Add(relay_times);
    if (flags.only_service) continue;
    const int calls_each = std::max(1, n / kCallers);
    r.service_rates.AddValue(
        RateOf(kCallers, calls_each, [&](int c) { caller_ops[c]->RoundTrip(); }));
    r.relay_rates.AddValue(RateOf(kCallers, calls_each, [&](int) { relay_trip(); }));
    r.service_posted_rates.AddValue(n / absl::ToDoubleSeconds(TimeOf([&] {
                                      Array last;
                                      for (int i = 0; i < n; ++i) last = remote_op.Enqueue();
                                      last.wait();
                                    })));
    r.relay_posted_rates.AddValue(n / absl::ToDoubleSeconds(TimeOf([&] {
                                    for (int i = 0; i < n; ++i)
                                      TESSERA_CHECK_OK(relay->Post(bytes));
                                    relay_trip();  // by its reply B has received all posts
                                  })));
  }
  embedded_op.CheckLast();
  remote_op.CheckLast();
  for (const auto& op : caller_ops) op->CheckLast();
  return r;
}

// Prints the times of the embedded round trip for several numbers of devices and sizes of the
// array, with and without reading the result.
void PrintEmbedded(const Flags& flags) {
  absl::PrintF("%-44s %9s %9s us, p50\n", "execute, embedded", "wait", "result");
  for (const int64_t devices : {1, 2, 4}) {
    const std::shared_ptr<Session> session =
        Session::Embedded({.devices = static_cast<int>(devices)});
    Session::SetDefault(session);
    const Mesh mesh = make_mesh({devices}, {"x"}, {AxisType::kAuto});
    for (const int64_t elements :
         {kElements, int64_t{1} << 10, int64_t{1} << 16, int64_t{1} << 20}) {
      const OneOp op(*session, elements, mesh, P("x"));
      Samples waited, read;
      for (int i = 0; i < flags.rounds * flags.iterations / 4; ++i) {
        waited.Add(TimeOf([&] { op.RunAndWait(); }));
        read.Add(TimeOf([&] { op.RoundTrip(); }));
      }
      op.CheckLast();
      absl::PrintF("f32[%d] over %d %-30s %9.1f %9.1f\n", elements, devices,
                   devices == 1 ? "device" : "devices", waited.Quantile(0.5), read.Quantile(0.5));
    }
  }
  Session::SetDefault(nullptr);
}

std::string BuildType() {
#ifdef NDEBUG
  return "release";
#else
  return "with assertions";
#endif
}

void PrintTimes(const char* name, const Samples& s) {
  absl::PrintF("%-44s %9.1f %9.1f %9.1f us\n", name, s.Quantile(0.5), s.Quantile(0.9),
               s.Quantile(0.99));
}

// Prints the results as a table for people. The rows of JAX and of the plugin appear only if they
// were measured.
void PrintText(const Flags& flags, const Results& r) {
  absl::PrintF("dispatch: %d cores, %s, gcc %s, gRPC %s, %d x %d round trips, f32[%d]\n",
               std::thread::hardware_concurrency(), BuildType(), __VERSION__, grpc::Version(),
               flags.rounds, flags.iterations, kElements);
  absl::PrintF("%-44s %9s %9s %9s\n", "round trip", "p50", "p90", "p99");
  PrintTimes("execute and result, embedded", r.embedded);
  PrintTimes("execute and wait, embedded", r.waited);
  if (r.jax.size() > 0) {
    PrintTimes("jax.jit and block_until_ready", r.jax);
    absl::PrintF("%-44s %9.2f\n", "ratio, embedded wait to JAX",
                 r.waited.Quantile(0.5) / r.jax.Quantile(0.5));
    PrintTimes("jax.jit without waiting", r.jax_enqueued);
  }
  if (r.plugin.size() > 0) {
    PrintTimes("the same on the plugin, waited for", r.plugin);
    PrintTimes("the same on the plugin, without waiting", r.plugin_enqueued);
    absl::PrintF("%-44s %9.2f %9s %9.2f\n", "ratios, plugin to JAX: waited, enqueued",
                 r.plugin.Quantile(0.5) / r.jax.Quantile(0.5), "",
                 r.plugin_enqueued.Quantile(0.5) / r.jax_enqueued.Quantile(0.5));
  }
  PrintTimes("execute and result, loopback gRPC", r.service);
  PrintTimes("relay of three processes", r.relay);
  absl::PrintF("%-44s %9.2f %9.2f %9.2f\n", "ratio, gRPC to relay",
               r.service.Quantile(0.5) / r.relay.Quantile(0.5),
               r.service.Quantile(0.9) / r.relay.Quantile(0.9),
               r.service.Quantile(0.99) / r.relay.Quantile(0.99));
  absl::PrintF("%-44s %9s\n", "rate, median of rounds", "calls/s");
  const auto rate = [](const char* name, const Samples& s) {
    absl::PrintF("%-44s %9.0f\n", name, s.Quantile(0.5));
  };
  rate("execute and result, 8 callers", r.service_rates);
  rate("relay, 8 callers", r.relay_rates);
  absl::PrintF("%-44s %9.2f\n", "ratio, 8 callers",
               r.relay_rates.Quantile(0.5) / r.service_rates.Quantile(0.5));
  rate("execute without waiting, 1 caller", r.service_posted_rates);
  rate("relay without waiting, 1 caller", r.relay_posted_rates);
  absl::PrintF("%-44s %9.2f\n", "ratio, posted",
               r.relay_posted_rates.Quantile(0.5) / r.service_posted_rates.Quantile(0.5));
}

void PrintJson(const Flags& flags, const Results& r) {
  const auto times = [](const char* name, const Samples& s) {
    return absl::StrFormat("\"%s\": {\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f}", name,
                           s.Quantile(0.5), s.Quantile(0.9), s.Quantile(0.99));
  };
  absl::PrintF(
      "{\"benchmark\": \"dispatch\", \"cores\": %d, \"build\": \"%s\", \"compiler\": "
      "\"%s\", \"grpc\": \"%s\", \"rounds\": %d, \"iterations\": %d,\n",
      std::thread::hardware_concurrency(), BuildType(), __VERSION__, grpc::Version(), flags.rounds,
      flags.iterations);
  absl::PrintF(" \"round_trip_us\": {%s, %s, %s},\n", times("embedded", r.embedded),
               times("grpc", r.service), times("relay", r.relay));
  if (r.jax.size() > 0)
    absl::PrintF(" \"embedded_us\": {%s, %s},\n", times("wait", r.waited), times("jax", r.jax));
  if (r.plugin.size() > 0)
    absl::PrintF(" \"plugin_us\": {%s, %s, %s},\n", times("wait", r.plugin),
                 times("enqueue", r.plugin_enqueued), times("jax_enqueue", r.jax_enqueued));
  absl::PrintF(" \"ratio_p50\": %.3f,\n", r.service.Quantile(0.5) / r.relay.Quantile(0.5));
  absl::PrintF(
      " \"calls_per_s\": {\"grpc_8_callers\": %.0f, \"relay_8_callers\": %.0f, "
      "\"grpc_posted\": %.0f, \"relay_posted\": %.0f}}\n",
      r.service_rates.Quantile(0.5), r.relay_rates.Quantile(0.5),
      r.service_posted_rates.Quantile(0.5), r.relay_posted_rates.Quantile(0.5));
}

// Reads the command line. Returns the exit status if the program has to end.
std::optional<int> ReadFlags(int argc, char** argv, Flags* flags) {
  FlagParser parser(
      "bench-dispatch",
      "Measures the latency of a one-op execute with its result, beside a gRPC relay.");
  parser.AddNumber("--rounds", &flags->rounds, "number of rounds");
  parser.AddNumber("--iterations", &flags->iterations, "calls of each case in a round");
  parser.AddText("--jax", "PYTHON", &flags->jax, "compares with JAX under this Python");
  parser.AddSwitch("--plugin", &flags->plugin,
                   "with --jax: compares with JAX on Tessera's plugin too");
  parser.AddSwitch("--embedded", &flags->embedded,
                   "measures only the embedded round trip, by devices and sizes");
  parser.AddSwitch("--only-service", &flags->only_service,
                   "measures only the service, so that it can be profiled");
  parser.AddSwitch("--json", &flags->json, "prints JSON");
  parser.AddAction(
      "--smoke",
      [flags] {
        flags->smoke = true;
        flags->rounds = 2;
        flags->iterations = 10;
      },
      "runs short, as a test");
  parser.AddText("--bin-dir", "DIR", &flags->bin_dir, "folder with the daemons");
  return parser.Parse(argc, argv);
}

// Reads the flags, measures and prints. The program also runs itself as the two processes of the
// relay, with --relay-a and --relay-b, which are therefore looked for first. Returns 2 if a flag is
// wrong and 1 if the benchmark fails.
int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 2 && mode == "--relay-a") return RunRelayA();
  if (argc == 3 && mode == "--relay-b") return RunRelayB(argv[2]);
  Flags flags;
  if (const std::optional<int> status = ReadFlags(argc, argv, &flags)) return *status;
  try {
    if (flags.embedded) {
      PrintEmbedded(flags);
      return 0;
    }
    const absl::StatusOr<Results> results = Measure(flags);
    if (!results.ok()) {
      std::cerr << "bench-dispatch: " << results.status() << "\n";
      return 1;
    }
    if (flags.only_service) {
      PrintTimes("execute and result, loopback gRPC", results->service);
    } else if (flags.json) {
      PrintJson(flags, *results);
    } else {
      PrintText(flags, *results);
    }
  } catch (const Error& e) {
    std::cerr << "bench-dispatch: " << e.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
