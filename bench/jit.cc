// Measures what a program pays for using Tessera from Python. It times a training step of the GPT
// of examples/gpt_model.cc in two ways: written in JAX and called through @client.jit (with
// --plugin, by JAX itself), and written with the C++ SDK. Both run on one coordinator and two
// workers, each of which has half of the batch.
//
//   bench-jit --python PYTHON [--client DIR | --plugin] [--rounds N] [--steps N] [--layers N]
//             [--batch N] [--explain] [--bin-dir DIR]
//
// The Python needs jax, grpcio, protobuf and NumPy; for the plugin it needs jax alone. DIR of
// --client holds the package tessera as the target python_client lays it out. The Python side and
// the C++ side take turns, round by round. Both trainings begin with the same numbers, so that
// after the last round their losses must agree.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/gpt_state.h"
#include "bench/process.h"
#include "bench/samples.h"
#include "client/tessera.h"

namespace tessera::bench {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(60);
constexpr absl::Duration kReplyTimeout = absl::Seconds(300);
// How far the losses after all steps may differ, relative to their size. They differ because the
// two programs add numbers in different orders.
constexpr double kLossTolerance = 1e-3;

struct Flags {
  std::string python, client, bin_dir = OwnFolder();
  int rounds = 10;
  int steps = 20;  // steps of each way in a round
  int64_t layers = 2, batch = 16;
  bool plugin = false;
  bool explain = false;

  // Returns the path through which JAX reaches Tessera: the folder of the package `tessera`, or the
  // plugin's shared object.
  std::string tessera_path() const {
    return plugin ? bin_dir + "/../lib/pjrt_plugin_tessera.so" : client;
  }
};

// The ways to take steps, under the names that bench/jit_jax.py uses.
constexpr const char* kWays[] = {"read", "unread", "fed"};
constexpr const char* kWayNames[] = {"loss of every step read", "no loss read",
                                     "a new batch put, loss read"};

// The times of the steps that one side took in one way, and the processor time that the client used
// for all these steps together.
struct StepTimes {
  Samples us;
  double wall_us = 0, cpu_us = 0;

  void Add(const std::vector<double>& times, double cpu) {
    for (const double t : times) {
      us.AddValue(t);
      wall_us += t;
    }
    cpu_us += cpu;
  }
  void Add(const StepTimes& other) {
    us.Add(other.us);
    wall_us += other.wall_us;
    cpu_us += other.cpu_us;
  }
  double busy_share() const { return cpu_us / wall_us; }
};

struct Cluster {
  Process coordinator;
  std::vector<Process> workers;
  std::string address;
};

absl::StatusOr<Cluster> StartCluster(const Flags& flags) {
  TESSERA_ASSIGN_OR_RETURN(Process coordinator,
                           Process::Start({flags.bin_dir + "/tessera-coordinator", "--listen",
                                           "127.0.0.1:0", "--metrics-listen", "off"}));
  TESSERA_ASSIGN_OR_RETURN(const std::string line, coordinator.ReadLine(kStartLimit));
  constexpr char kListening[] = "listening on ";
  if (!absl::StartsWith(line, kListening))
    return absl::InternalError(absl::StrCat("the coordinator printed '", line, "'"));
  Cluster cluster{std::move(coordinator), {}, line.substr(sizeof(kListening) - 1)};
  for (const char* name : {"w0", "w1"}) {
    TESSERA_ASSIGN_OR_RETURN(
        Process worker,
        Process::Start({flags.bin_dir + "/tessera-worker", "--coordinator", cluster.address,
                        "--name", name, "--devices", "1", "--data-listen", "127.0.0.1:0",
                        "--peer-listen", "127.0.0.1:0", "--metrics-listen", "off"}));
    cluster.workers.push_back(std::move(worker));
  }
  return cluster;
}

double ProcessorUs() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return absl::ToDoubleMicroseconds(absl::DurationFromTimeval(used.ru_utime) +
                                    absl::DurationFromTimeval(used.ru_stime));
}
double TimeUs(const std::function<void()>& f) {
  const absl::Time begin = absl::Now();
  f();
  return absl::ToDoubleMicroseconds(absl::Now() - begin);
}

// The training by the C++ SDK.
class SdkTraining {
 public:
  explicit SdkTraining(const Flags& flags)
      : mesh_(make_mesh({2}, {"data"}, {AxisType::kAuto})),
        batch_(IntegersOnHost(1000, examples::kVocabulary, {flags.batch, examples::kLength + 1})),
        text_(put(batch_, mesh_, P("data"))),
        key_(put(random::key(1), mesh_, P())),
        state_(
            tree_map([&](const Array& a) { return put(a, mesh_, P()); }, GptState(flags.layers))) {}

  void Measure(const std::string& way, int steps, StepTimes* to) {
    const double cpu = ProcessorUs();
    std::vector<double> times;
    if (way == "unread") {
      const double total_us = TimeUs([&] {
        for (int i = 0; i < steps; ++i) Step(text_);
        loss_ = last_loss_.item<float>();
      });
      times.assign(steps, total_us / steps);
    } else {
      for (int i = 0; i < steps; ++i)
        times.push_back(TimeUs([&] {
          Step(way == "fed" ? put(batch_, mesh_, P("data")) : text_);
          loss_ = last_loss_.item<float>();
        }));
    }
    to->Add(times, ProcessorUs() - cpu);
  }
  double loss() const { return loss_; }
  std::string Explain() const { return explain(step_, state_, text_, key_); }

 private:
  void Step(const Array& text) {
    auto [next, loss] = step_(state_, text, key_);
    state_ = std::move(next);
    last_loss_ = std::move(loss);
  }

  const Mesh mesh_;
  const ir::Array batch_;
  const Array text_, key_;
  examples::State state_;
  Jitted<decltype(&examples::Step)> step_ = jit(
      &examples::Step, {.name = "train_step", .donate_argnums = {0}, .out_shardings = {P(), P()}});
  Array last_loss_;
  double loss_ = 0;
};

// The training by bench/jit_jax.py, which runs in a child process.
class PythonTraining {
 public:
  static absl::StatusOr<PythonTraining> Start(const Flags& flags, const std::string& address) {
    TESSERA_ASSIGN_OR_RETURN(
        Process process, Process::Start({flags.python, "-B", TESSERA_SOURCE_DIR "/bench/jit_jax.py",
                                         flags.tessera_path(), address, absl::StrCat(flags.layers),
                                         absl::StrCat(flags.batch)}));
    TESSERA_ASSIGN_OR_RETURN(const std::string line, process.ReadLine(kReplyTimeout));
    if (line != "ready")
      return absl::InternalError(absl::StrCat("bench/jit_jax.py printed '", line, "'"));
    return PythonTraining(std::move(process));
  }
  absl::Status Measure(const std::string& way, int steps, StepTimes* to) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<double> numbers, Ask(absl::StrCat(way, " ", steps)));
    if (numbers.size() < 3) return absl::InternalError("bench/jit_jax.py printed too little");
    loss_ = numbers[0];
    to->Add({numbers.begin() + 2, numbers.end()}, numbers[1]);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Explain() {
    TESSERA_RETURN_IF_ERROR(process_.WriteLine("explain 0"));
    std::string text;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(const std::string line, process_.ReadLine(kReplyTimeout));
      if (line == "end of plan") return text;
      absl::StrAppend(&text, line, "\n");
    }
  }
  double loss() const { return loss_; }

 private:
  explicit PythonTraining(Process process) : process_(std::move(process)) {}
  absl::StatusOr<std::vector<double>> Ask(const std::string& question) {
    TESSERA_RETURN_IF_ERROR(process_.WriteLine(question));
    TESSERA_ASSIGN_OR_RETURN(const std::string line, process_.ReadLine(kReplyTimeout));
    std::vector<double> numbers;
    for (const absl::string_view word : absl::StrSplit(line, ' '))
      if (!absl::SimpleAtod(word, &numbers.emplace_back()))
        return absl::InternalError(absl::StrCat("bench/jit_jax.py printed '", line, "'"));
    return numbers;
  }
  Process process_;
  double loss_ = 0;
};

const char* BuildType() {
#ifdef NDEBUG
  return "release";
#else
  return "with assertions";
#endif
}

// Starts a cluster, trains on both sides and prints the table. The two sides take turns within a
// round, so that other load on the machine affects both. The first round only warms up. The table
// shows the ratio of the medians over all rounds, and the median of the rounds' own ratios. Fails
// if the losses do not agree at the end.
absl::Status Run(const Flags& flags) {
  TESSERA_ASSIGN_OR_RETURN(const Cluster cluster, StartCluster(flags));
  ConnectOptions connect;
  connect.min_devices = 2;
  Session::SetDefault(Session::Connect(cluster.address, connect));
  SdkTraining sdk(flags);
  TESSERA_ASSIGN_OR_RETURN(PythonTraining python, PythonTraining::Start(flags, cluster.address));
  if (flags.explain) {
    TESSERA_ASSIGN_OR_RETURN(const std::string plan, python.Explain());
    std::printf("%s\n%s\n", sdk.Explain().c_str(), plan.c_str());
  }
  constexpr size_t kNumWays = std::size(kWays);
  StepTimes ours[kNumWays], theirs[kNumWays];
  std::vector<double> ratios[kNumWays];  // JAX's median to the SDK's, one ratio per round
  for (int round = -1; round < flags.rounds; ++round) {
    for (size_t w = 0; w < kNumWays; ++w) {
      const bool warm_up = round < 0;
      StepTimes sdk_times, python_times;
      sdk.Measure(kWays[w], warm_up ? 2 : flags.steps, &sdk_times);
      TESSERA_RETURN_IF_ERROR(python.Measure(kWays[w], warm_up ? 2 : flags.steps, &python_times));
      if (warm_up) continue;
      ratios[w].push_back(python_times.us.Quantile(0.5) / sdk_times.us.Quantile(0.5));
      ours[w].Add(sdk_times);
      theirs[w].Add(python_times);
    }
  }
  Session::SetDefault(nullptr);
  std::printf("a step of a GPT of %d layers on %d texts, two workers (%s), %d x %d steps\n",
              static_cast<int>(flags.layers), static_cast<int>(flags.batch), BuildType(),
              flags.rounds, flags.steps);
  std::printf("%-28s %9s %9s %9s %9s %9s %7s %14s\n", "ms", "SDK p50", "p90", "JAX p50", "p90",
              "ratio", "rounds'", "busy: SDK, JAX");
  for (size_t w = 0; w < kNumWays; ++w) {
    const auto ms = [](const StepTimes& m, double q) { return m.us.Quantile(q) * 1e-3; };
    std::sort(ratios[w].begin(), ratios[w].end());
    std::printf("%-28s %9.2f %9.2f %9.2f %9.2f %9.3f %7.3f %6.0f%% %5.0f%%\n", kWayNames[w],
                ms(ours[w], 0.5), ms(ours[w], 0.9), ms(theirs[w], 0.5), ms(theirs[w], 0.9),
                ms(theirs[w], 0.5) / ms(ours[w], 0.5), ratios[w][ratios[w].size() / 2],
                100 * ours[w].busy_share(), 100 * theirs[w].busy_share());
  }
  std::printf("losses after the last step: %.6f by the SDK, %.6f by JAX, %s\n", sdk.loss(),
              python.loss(), flags.plugin ? "itself" : "through @client.jit");
  if (!(std::abs(sdk.loss() - python.loss()) <= kLossTolerance * std::abs(sdk.loss())))
    return absl::InternalError("the two trainings have not computed the same");
  return absl::OkStatus();
}

// Reads the flags and runs the benchmark. Returns 2 if a flag is wrong or --python is missing, and
// 1 if the benchmark fails. The SDK reports errors as exceptions and the child processes report
// them as statuses, hence both are printed here.
int Main(int argc, char** argv) {
  Flags flags;
  flags.client = flags.bin_dir + "/../python";
  FlagParser parser("bench-jit", "Measures what a program pays for using Tessera from Python.");
  parser.AddText("--python", "PYTHON", &flags.python, "the Python with JAX that takes the steps");
  parser.SetRequired("--python");
  parser.AddText("--client", "DIR", &flags.client, "folder with the package tessera");
  parser.AddSwitch("--plugin", &flags.plugin,
                   "JAX uses Tessera by its plugin, without the package");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddNumber("--steps", &flags.steps, "steps of each kind in a round");
  parser.AddNumber("--layers", &flags.layers, "layers of the GPT");
  parser.AddNumber("--batch", &flags.batch, "sequences in a batch");
  parser.AddSwitch("--explain", &flags.explain, "prints the plans of both steps");
  parser.AddText("--bin-dir", "DIR", &flags.bin_dir, "folder with the daemons");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  try {
    const absl::Status status = Run(flags);
    if (!status.ok()) std::cerr << "bench-jit: " << status << "\n";
    return status.ok() ? 0 : 1;
  } catch (const Error& e) {
    std::cerr << "bench-jit: " << e.what() << "\n";
    return 1;
  }
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
