// Measures what it costs that a long call of a library runs in a child process of its own
// (worker/cpu/eval_child.h). Each op is measured at the smallest size that is long, where the cost
// counts most.
//
//   bench-long-calls [--only WORD] [--rounds N] [--smoke]
//
// The same program runs on two backends in turns, one with children and one without, and the
// results are compared bit by bit. Times are processor times, of this process and of its child, and
// those of the call that took least; elapsed times would count the waits of a busy machine. Only
// the first call in a child, which also starts it, is given as an elapsed time.
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/locks.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "ir/builder.h"
#include "ir/eval/uninterrupted.h"
#include "ir/ops.h"
#include "worker/cpu/cpu_backend.h"
#include "worker/cpu/eval_child.h"

namespace tessera::bench {
namespace {

using ir::Array;
using ir::DType;
using ir::Value;

struct Flags {
  std::string only;  // only rows whose name contains this word
  int rounds = 7;
  bool smoke = false;
};

struct Row {
  const char* name;
  std::vector<Value> (*op)(Value x);  // x is a square matrix
};
const Row kRows[] = {
    {"cholesky", [](Value x) { return std::vector{ir::Cholesky(x, true)}; }},
    {"triangular_solve",
     [](Value x) { return std::vector{ir::TriangularSolve(x, x, {.lower = true})}; }},
    {"qr",
     [](Value x) {
       const auto [q, r] = ir::Qr(x);
       return std::vector{q, r};
     }},
    {"eigh",
     [](Value x) {
       const auto [v, w] = ir::Eigh(x);
       return std::vector{v, w};
     }},
    {"svd", [](Value x) { return ir::Svd(x, /*full_matrices=*/false, /*compute_uv=*/true); }},
    {"eig", [](Value x) { return ir::Eig(x); }},
};

ir::FunctionRef FunctionOf(const Row& row, int64_t n) {
  ir::Builder b({});
  return b.Build(row.op(b.Param(ir::MakeType(DType::kF32, {n, n}))));
}

// Returns the least number of rows, in steps, for which the op is long.
int64_t LeastLong(const Row& row) {
  constexpr int64_t kStep = 10;
  int64_t n = kStep;
  while (ir::UninterruptedOperations(*FunctionOf(row, n)) <=
         worker::program::kUninterruptedOperationsMax)
    n += kStep;
  return n;
}

// Returns numbers that look random, with a diagonal that makes the matrix positive definite.
Array Matrix(int64_t n) {
  Array a(DType::kF32, {n, n});
  float* const to = reinterpret_cast<float*>(a.MutableData());
  uint32_t seed = 1;
  for (int64_t i = 0; i < n * n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    to[i] = static_cast<float>(seed >> 8) * 0x1p-23F - 1;
  }
  for (int64_t i = 0; i < n; ++i) to[i * (n + 1)] = static_cast<float>(n);
  return a;
}

// A program on a backend.
class Side {
 public:
  Side(worker::LongSteps* long_steps, double operations_max, const ir::FunctionRef& f,
       const Array& in)
      : backend_(worker::MakeCpuBackend(
            {.uninterrupted_operations_max = operations_max, .long_steps = long_steps})) {
    ir::Program program;
    program.entry = f;
    executable_ = ValueOf(backend_->Compile(program));
    args_ = {ValueOf(backend_->FromHost(0, in))};
  }

  void Call() {
    worker::CancelToken cancel;
    worker::RunContext context;
    context.cancel = &cancel;
    results_ = ValueOf(backend_->Enqueue(*executable_, context, args_)).results;
  }

  bool HasSameResults(Side& other) {
    for (size_t r = 0; r < results_.size(); ++r) {
      const Array ours = ValueOf(backend_->ToHost(*results_[r])),
                  theirs = ValueOf(other.backend_->ToHost(*other.results_[r]));
      if (std::memcmp(ours.data(), theirs.data(), ours.num_bytes()) != 0) return false;
    }
    return true;
  }

  int64_t ResultBytes() const {
    int64_t bytes = 0;
    for (const auto& result : results_) bytes += result->num_bytes();
    return bytes;
  }

 private:
  template <class T>
  static T ValueOf(absl::StatusOr<T> value) {
    TESSERA_CHECK_OK(value);
    return *std::move(value);
  }

  const std::unique_ptr<worker::Backend> backend_;
  std::shared_ptr<const worker::Executable> executable_;
  std::vector<worker::DeviceBufferRef> args_;
  absl::InlinedVector<worker::DeviceBufferRef, 2> results_;
};

// Returns the processor time that this process and its child have used.
absl::Duration ProcessorTime() {
  const auto used = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return absl::DurationFromTimespec(time);
  };
  pid_t child = 0;
  std::ifstream(absl::StrCat("/proc/self/task/", getpid(), "/children")) >> child;
  clockid_t clock_of_child = 0;
  const bool has_child = child != 0 && clock_getcpuclockid(child, &clock_of_child) == 0;
  return used(CLOCK_PROCESS_CPUTIME_ID) + (has_child ? used(clock_of_child) : absl::ZeroDuration());
}

absl::Duration ProcessorTimeOf(Side& side) {
  const absl::Duration before = ProcessorTime();
  side.Call();
  return ProcessorTime() - before;
}

void Measure(const Row& row, const Flags& flags, worker::EvalChildren& children) {
  const int64_t n = flags.smoke ? 100 : LeastLong(row);
  const ir::FunctionRef f = FunctionOf(row, n);
  const Array in = Matrix(n);
  // In the smoke test small calls are long, too.
  const double operations_max = flags.smoke ? 0 : worker::program::kUninterruptedOperationsMax;
  Side child(&children, operations_max, f, in), here(nullptr, operations_max, f, in);
  const absl::Time start = SteadyNow();
  child.Call();
  const absl::Duration first = SteadyNow() - start;
  here.Call();
  TESSERA_CHECK(child.HasSameResults(here));
  Samples with, without;
  for (int i = 0; i < flags.rounds; ++i) {
    with.Add(ProcessorTimeOf(child));
    without.Add(ProcessorTimeOf(here));
  }
  std::printf("%-17s %6lld %9.1f %10.1f %10.1f %8.3f %10.1f\n", row.name, static_cast<long long>(n),
              static_cast<double>(in.num_bytes() + child.ResultBytes()) / 1e6,
              without.Quantile(0) / 1e3, with.Quantile(0) / 1e3,
              with.Quantile(0) / without.Quantile(0), absl::ToDoubleMilliseconds(first));
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  // This program is its own child.
  if (argc == 3 && std::string(argv[1]) == worker::kEvalChildFlag)
    return worker::RunEvalChild(argv[2]);
  Flags flags;
  FlagParser parser("bench-long-calls",
                    "Measures the cost of making long calls of libraries in child processes.");
  parser.AddText("--only", "WORD", &flags.only, "only rows whose name contains this word");
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddAction(
      "--smoke", [&] { flags.smoke = true, flags.rounds = 1; }, "small matrices, one round");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  std::printf("%-17s %6s %9s %10s %10s %8s %10s\n", "op", "rows", "MB", "here: ms", "child: ms",
              "ratio", "first: ms");
  for (const Row& row : kRows) {
    if (!absl::StrContains(row.name, flags.only)) continue;
    worker::EvalChildren children(
        {.binary = std::filesystem::read_symlink("/proc/self/exe").string(),
         .args = {worker::kEvalChildFlag}});
    Measure(row, flags, children);
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  tessera::DisableDeadlockDetectionInRelease();
  return tessera::bench::Main(argc, argv);
}
