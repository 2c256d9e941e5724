// Measures how long programs take from their C++ to machine code, on an embedded cluster of one
// device, compared with the same programs in JAX on the same cores.
//
//   bench-compile [--only WORD] [--rounds N] [--smoke] [--jax PYTHON]
//
// The time of a compilation is the time of a jitted function's first call, less the time of a call
// after the function was compiled. Each first call has its own session, and no machine code is
// cached on disk. JAX is timed in the same way after jax.clear_caches(). Tessera and JAX take
// turns, round by round, and the last result of each program is compared with JAX's once. A second
// table says where the time goes. For it, each stage of the compilation is called by itself:
//
//   trace     from the C++ function to a program, transforms included
//   plan      from the program to the program of one device
//   lower     from the device's program to steps and kernels
//   code      from the kernels to loaded machine code, by LLVM
//   load      loading the machine code from a cache on disk, in place of `code`
#include <stdlib.h>
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
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/compared.h"
#include "bench/flags.h"
#include "bench/gpt_state.h"
#include "bench/samples.h"
#include "client/tessera.h"
#include "examples/gpt_model.h"
#include "server/planner/planner.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::bench {
namespace {

// JAX compiles chains of up to this many ops. It would take minutes for a longer chain.
constexpr int64_t kChainInJax = 2'000;

struct Flags {
  std::vector<int64_t> chains = {200, 2'000, 20'000};
  int64_t layers = 12;
  std::string only;  // only rows whose name contains this word
  int rounds = 3;
  std::string jax;
};

struct Stages {
  Samples trace, plan, lower, lower_and_code, lower_and_load;
};

// The time that a call took, and the processor time that this process used meanwhile.
struct CallTime {
  absl::Duration wall, cpu;
};

struct Row {
  std::string name;  // the row's name in bench/compile_jax.py
  bool in_jax;
  // Jits the function anew in a new session, calls it `calls` times, and returns the times.
  std::function<std::vector<CallTime>(int calls)> call;
  std::function<std::vector<double>()> last_result;
  std::function<ir::Program()> trace;
  int64_t ops = 0;  // number of ops in the device's program
  Samples ours = {}, jax = {}, our_cpu = {}, jax_cpu = {};
  Stages stages = {};
};

Array Integers(uint32_t salt, int64_t limit, const ir::Dims& shape) {
  return put(IntegersOnHost(salt, limit, shape));
}

absl::Duration ProcessorTime() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  return absl::DurationFromTimeval(used.ru_utime) + absl::DurationFromTimeval(used.ru_stime);
}

// ---- Programs. ----------------------------------------------------------------------------------

constexpr int64_t kElements = 1024;

std::vector<Array> Functions(const Array& x) {
  return {
      lax::exp(x),      lax::expm1(x),        lax::exp2(x),      lax::log(x),    lax::log1p(x),
      lax::sin(x),      lax::cos(x),          lax::tan(x),       lax::sqrt(x),   lax::rsqrt(x),
      lax::cbrt(x),     lax::erf(x),          lax::erf_inv(x),   lax::erfc(x),   lax::asin(x),
      lax::acos(x),     lax::atan(x),         lax::sinh(x),      lax::cosh(x),   lax::asinh(x),
      lax::atanh(x),    lax::tanh(x),         lax::acosh(x + 1), lax::lgamma(x), lax::digamma(x),
      lax::logistic(x), lax::atan2(x, x + 1), lax::pow(x, x),    gelu(x),        silu(x)};
}

// Returns 30 functions of bf16 numbers and the same 30 functions of f32 numbers.
std::vector<Array> SixtyFunctions(const Array& x, const Array& narrow) {
  std::vector<Array> all = Functions(narrow);
  for (const Array& f : Functions(x)) all.push_back(f);
  return all;
}

Array SinesAndProducts(const Array& x) {
  Array y = x;
  for (int i = 0; i < 30; ++i) y = lax::sin(y) * x;
  return y;
}

// Returns the gradient of a block that consists of a norm and a softmax.
Array NormAndSoftmax(const Array& x, const Array& w, const Array& v) {
  const auto loss = [&](const Array& x) {
    const Array centred = x - mean(x, 1, /*keepdims=*/true);
    const Array y = centred * lax::rsqrt(mean(square(centred), 1, true) + 1e-5) * w;
    return sum(softmax(y) * v);
  };
  return grad(loss)(x);
}

// Does a slice, a sort, a gather and a scatter 15 times, each time with another size.
Array GathersScattersSorts(const Array& x, const Array& ids) {
  Array y = x;
  for (int64_t i = 0; i < 15; ++i) {
    const int64_t n = kElements - 16 * (i + 1);
    const Array at = ids[Slice{0, n}];
    y = take(sort(y), at);
    y = y.at(at).add(y);
  }
  return y;
}

Array Chain(const Array& x, int64_t ops) {
  Array y = x;
  for (int64_t i = 0; i < ops; ++i) {
    const int64_t kind = i % 10;
    y = kind == 9 ? lax::tanh(y) : kind % 2 == 0 ? y * x : y + x;
  }
  return y;
}

// ---- Rows. --------------------------------------------------------------------------------------

class Table {
 public:
  explicit Table(const Flags& flags) : flags_(flags) {
    Add("60 functions", SixtyFunctions, [] {
      return std::tuple(Numbers(1, {kElements}, 0.1, 0.9),
                        Numbers(1, {kElements}, 0.1, 0.9, kBF16));
    });
    Add("60 sines and products", SinesAndProducts,
        [] { return std::tuple(Numbers(1, {kElements})); });
    Add("norm, softmax, gradient", NormAndSoftmax, [] {
      return std::tuple(Numbers(1, {128, 256}), Numbers(2, {256}), Numbers(3, {128, 256}));
    });
    Add("60 gathers, scatters, sorts", GathersScattersSorts, [] {
      return std::tuple(Numbers(1, {kElements}), Integers(2, kElements / 2, {kElements}));
    });
    for (const int64_t ops : flags.chains)
      Add(
          absl::StrCat("chain of ", ops), [ops](const Array& x) { return Chain(x, ops); },
          [] { return std::tuple(Numbers(1, {kElements})); }, ops <= kChainInJax);
    Add(absl::StrCat("step of a GPT of ", flags.layers), examples::Step, [layers = flags.layers] {
      return std::tuple(GptState(layers),
                        Integers(1000, examples::kVocabulary, {2, examples::kLength + 1}),
                        random::key(1));
    });
  }
  std::vector<Row> Take() && { return std::move(rows_); }

 private:
  // Adds a row for the function `f`, unless --only excludes it. `make_args` makes the arguments and
  // is called in the session that runs the row, because an array belongs to a session. Each
  // measurement jits `f` again in a new session, so that no earlier compilation is found.
  template <class F, class MakeArgs>
  void Add(const std::string& name, F f, MakeArgs make_args, bool in_jax = true) {
    if (!absl::StrContains(name, flags_.only)) return;
    Row row;
    row.name = name;
    row.in_jax = in_jax;
    const auto await_all = [](const auto& results) {
      std::vector<Array> leaves = flatten(results).leaves;
      for (const Array& leaf : leaves) leaf.wait();
      return leaves;
    };
    row.call = [=](int calls) {
      Session::SetDefault(Session::Embedded({.devices = 1}));
      const auto args = make_args();
      await_all(args);
      const auto run = jit(f);
      std::vector<CallTime> times;
      for (int i = 0; i < calls; ++i) {
        const absl::Time begin = absl::Now();
        const absl::Duration cpu = ProcessorTime();
        await_all(std::apply(run, args));
        times.push_back({absl::Now() - begin, ProcessorTime() - cpu});
      }
      return times;
    };
    row.last_result = [=] {
      Session::SetDefault(Session::Embedded({.devices = 1}));
      return await_all(std::apply(jit(f), make_args())).back().template get<double>();
    };
    row.trace = [=] {
      return std::apply([&](const auto&... args) { return trace(f, args...).program; },
                        make_args());
    };
    rows_.push_back(std::move(row));
  }

  const Flags& flags_;
  std::vector<Row> rows_;
};

// ---- Measuring. ---------------------------------------------------------------------------------

// Adds the times of calls[0], less those of the faster of calls[1] and calls[2], which find the
// function compiled.
void AddCompileTime(const std::vector<CallTime>& calls, Samples* wall, Samples* cpu) {
  wall->Add(calls[0].wall - std::min(calls[1].wall, calls[2].wall));
  cpu->Add(calls[0].cpu - std::min(calls[1].cpu, calls[2].cpu));
}

// Calls `f`, adds the time that it takes to `to`, and returns its result.
template <class F>
auto MeasureCall(Samples* to, const F& f) {
  const absl::Time begin = absl::Now();
  auto result = f();
  to->Add(absl::Now() - begin);
  return result;
}

// Times each stage of the row's compilation by calling it directly. Lowering is timed with a
// backend that interprets its kernels and therefore generates no code. The backends with which code
// generation and loading are timed lower the same program first, and Print subtracts the time of
// lowering. The untimed compilation fills the cache on disk, from which the next one loads.
absl::Status MeasureStages(Row* row) {
  using worker::CpuBackendOptions;
  Session::SetDefault(Session::Embedded({.devices = 1}));
  server::core::PlanRequest request;
  request.program = MeasureCall(&row->stages.trace, row->trace);
  request.cluster.devices = {{0, "cpu", "", "", 0}};
  request.options.explain = false;
  TESSERA_ASSIGN_OR_RETURN(const server::core::Plan plan, MeasureCall(&row->stages.plan, [&] {
                             return server::planner::MakePlan(request);
                           }));
  row->ops = static_cast<int64_t>(plan.device_program->ops.size());
  ir::Program program;
  program.entry = plan.device_program;
  const auto compile = [&](Samples* to, CpuBackendOptions options) {
    const std::unique_ptr<worker::Backend> backend = worker::MakeCpuBackend(options);
    return MeasureCall(to, [&] { return backend->Compile(program); }).status();
  };
  using Kernels = CpuBackendOptions::Kernels;
  TESSERA_RETURN_IF_ERROR(compile(&row->stages.lower, {.kernels = Kernels::kInterpreted}));
  Samples unused;
  TESSERA_RETURN_IF_ERROR(compile(&row->stages.lower_and_code, {.kernels = Kernels::kAlways}));
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / absl::StrCat("tessera-bench-code-", getpid());
  CpuBackendOptions cached{.kernels = Kernels::kAlways};
  cached.codegen.cache_dir = folder.string();
  absl::Status status = compile(&unused, cached);
  if (status.ok()) status = compile(&row->stages.lower_and_load, cached);
  std::filesystem::remove_all(folder);
  return status;
}

double FastestMs(const Samples& us) { return us.Quantile(0) * 1e-3; }

void Print(const std::vector<Row>& rows) {
  std::printf("%-28s %6s %9s %9s %9s %9s %6s %6s\n", "program", "ops", "ms", "cpu", "JAX: ms",
              "cpu", "ratio", "cpu");
  for (const Row& row : rows) {
    std::printf("%-28s %6d %9.1f %9.1f", row.name.c_str(), static_cast<int>(row.ops),
                FastestMs(row.ours), FastestMs(row.our_cpu));
    if (row.jax.size() > 0)
      std::printf(" %9.1f %9.1f %6.2f %6.2f", FastestMs(row.jax), FastestMs(row.jax_cpu),
                  FastestMs(row.ours) / FastestMs(row.jax),
                  FastestMs(row.our_cpu) / FastestMs(row.jax_cpu));
    std::printf("\n");
  }
  std::printf("\n%-28s %9s %9s %9s %9s %9s\n", "where: ms", "trace", "plan", "lower", "code",
              "load");
  for (const Row& row : rows) {
    const Stages& s = row.stages;
    std::printf("%-28s %9.1f %9.1f %9.1f %9.1f %9.1f\n", row.name.c_str(), FastestMs(s.trace),
                FastestMs(s.plan), FastestMs(s.lower),
                FastestMs(s.lower_and_code) - FastestMs(s.lower),
                FastestMs(s.lower_and_load) - FastestMs(s.lower));
  }
}

// Measures all rows and prints both tables. With --jax each row's result is checked against JAX's
// before anything is timed, because a fast wrong program is worth nothing. The rows take turns
// within a round, so that other load on the machine affects all of them.
absl::Status Run(const Flags& flags) {
  std::vector<Row> rows = Table(flags).Take();
  std::optional<JaxScript> jax;
  if (!flags.jax.empty()) {
    std::vector<std::string> args = {absl::StrCat(flags.layers)};
    for (const Row& row : rows)
      if (row.in_jax) args.push_back(row.name);
    TESSERA_ASSIGN_OR_RETURN(JaxScript started,
                             JaxScript::Start(flags.jax, "compile_jax.py", args));
    jax.emplace(std::move(started));
    for (const Row& row : rows)
      if (row.in_jax) TESSERA_RETURN_IF_ERROR(jax->Check(row.name, row.last_result()));
  }
  for (int round = 0; round < flags.rounds; ++round) {
    for (Row& row : rows) {
      AddCompileTime(row.call(3), &row.ours, &row.our_cpu);
      if (jax && row.in_jax) {
        TESSERA_RETURN_IF_ERROR(jax->Measure(row.name, 1, &row.jax));
        TESSERA_RETURN_IF_ERROR(jax->Measure(row.name + ", cpu", 1, &row.jax_cpu));
      }
      TESSERA_RETURN_IF_ERROR(MeasureStages(&row));
    }
  }
  Session::SetDefault(nullptr);
  Print(rows);
  return absl::OkStatus();
}

// Reads the flags and runs the benchmark. Returns 2 if a flag is wrong and 1 if the benchmark
// fails. It unsets the variables that name a user's cache folder, since machine code from an
// earlier run would hide the time of compilation.
int Main(int argc, char** argv) {
  Flags flags;
  FlagParser parser("bench-compile", "Measures how long programs take from their C++ to code.");
  parser.AddText("--only", "WORD", &flags.only, "measures only the rows with this word");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags.chains = {200};
        flags.layers = 1;
        flags.rounds = 1;
      },
      "runs short, as a test");
  parser.AddText("--jax", "PYTHON", &flags.jax, "compares with JAX under this Python");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  // Without these variables an embedded cluster keeps no code on disk.
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  const absl::Status status = Run(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
