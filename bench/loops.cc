// Measures loops whose iterations do little work, so that the time shows what an iteration costs in
// addition to its work. The loops are jitted programs on an embedded cluster, and are compared with
// the same programs in JAX.
//
//   bench-loops [--length N] [--rounds N] [--calls N] [--smoke] [--jax PYTHON]
//
// A call runs one loop of N iterations and waits for its results. The loops take turns within each
// round, and for each loop so do Tessera and JAX, so that other load on the machine affects all of
// them. The ratio compares the fastest calls.
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/locks.h"
#include "base/log.h"
#include "base/status.h"
#include "bench/compared.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "client/tessera.h"

namespace tessera::bench {
namespace {

constexpr int64_t kRows = 32;  // iterations of the inner loop in the nested loops

struct Flags {
  int64_t length = 1000;
  int rounds = 10;
  int calls = 50;  // calls of each loop in a round
  std::string jax;
};

struct Loop {
  std::string name;  // the loop's name in bench/loops_jax.py
  std::function<void()> call;
  Samples ours = {}, jax = {};
};

// Returns the numbers that `ramp` in bench/loops_jax.py returns.
Array Ramp(const ir::Dims& shape, const Mesh& mesh, const PartitionSpec& spec) {
  ir::Array a(DType::kF32, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i)
    a.Set(i, static_cast<double>(i * 7 % 61) * 0.01 - 0.3);
  return put(a, mesh, spec);
}
Array Ramp(const ir::Dims& shape) { return Ramp(shape, context_mesh(), P()); }

// Returns an orthogonal matrix. Repeated products with it neither grow nor vanish.
Array Mirror(int64_t n) {
  const Array v = Ramp({n});
  return eye(n) - 2 * (reshape(v, {n, 1}) * v) / dot(v, v);
}

// Returns a function that calls the jitted `f` with these arguments and waits for its results.
template <class F, class... Args>
std::function<void()> CallOf(F f, Args... args) {
  return [run = jit(std::move(f)), args...] {
    for (const Array& result : flatten(run(args...)).leaves) result.wait();
  };
}

std::function<void()> VectorLoop(int64_t length) {
  return CallOf(
      [](const Array& c, const Array& xs) {
        return scan(
            [](const Array& c, const Array& x) {
              const Array next = c * 0.5 + x;
              return std::pair(next, next);
            },
            c, xs);
      },
      Ramp({16}), Ramp({length, 16}));
}

std::function<void()> RnnLoop(int64_t length) {
  return CallOf(
      [](const Array& h, const Array& xs, const Array& u, const Array& w, const Array& b) {
        const auto cell = [&](const Array& h, const Array& x) {
          return std::pair(tanh(matmul(x, u) + matmul(h, w) + b), None);
        };
        return scan(cell, h, xs).first;
      },
      Ramp({16, 64}), Ramp({length, 16, 32}), Ramp({32, 64}), Ramp({64, 64}), Ramp({64}));
}

std::function<void()> ProductLoop(int64_t length) {
  return CallOf(
      [length](const Array& x, const Array& w) {
        const auto body = [&](const Array& x, NoneType) { return std::pair(matmul(x, w), None); };
        return scan(body, x, None, {.length = length}).first;
      },
      Ramp({32, 32}), Mirror(32));
}

std::function<void()> NestedLoops(int64_t length) {
  return CallOf(
      [](const Array& c, const Array& xs) {
        const auto inner = [](const Array& c, const Array& x) {
          return std::pair(Array(c * 0.5 + x), None);
        };
        const auto outer = [&](const Array& c, const Array& rows) {
          const Array next = scan(inner, c, rows).first;
          return std::pair(next, next);
        };
        return scan(outer, c, xs);
      },
      Ramp({16}), Ramp({length / kRows, kRows, 16}));
}

std::function<void()> WhileLoop(int64_t length) {
  return CallOf(
      [](const Array& x, const Array& limit) {
        using Carry = std::pair<Array, Array>;
        return while_loop(
            [&](const Carry& c) {
              return logical_and(lax::lt(c.first, limit), lax::lt(max(c.second), 1e6));
            },
            [](const Carry& c) { return Carry(c.first + 1, c.second * 0.5 + 1.0); },
            Carry(zeros({}, DType::kS32), x));
      },
      Ramp({16}), put(ir::Array::ScalarInt(DType::kS32, length)));
}

std::function<void()> PsumLoop(int64_t length) {
  const Mesh mesh = make_mesh({2}, {"i"}, {AxisType::kAuto});
  return CallOf(shard_map(
                    [](const Array& c, const Array& xs) {
                      const auto body = [](const Array& c, const Array& x) {
                        const Array sum = lax::psum(c * 0.25 + x, "i");
                        return std::pair(lax::pcast(sum, "i", "varying"), None);
                      };
                      return scan(body, c, xs).first;
                    },
                    mesh, {P("i"), P(None, "i")}, P("i")),
                Ramp({32}, mesh, P("i")), Ramp({length, 32}, mesh, P(None, "i")));
}

// Compiles all loops, measures them in turns with JAX if --jax is given, and prints a row for each.
// The results are not compared with JAX's; only the times are.
absl::Status Run(const Flags& flags) {
  std::optional<JaxScript> jax;
  if (!flags.jax.empty()) {
    TESSERA_ASSIGN_OR_RETURN(JaxScript started, JaxScript::Start(flags.jax, "loops_jax.py",
                                                                 {absl::StrCat(flags.length)}));
    jax.emplace(std::move(started));
  }
  std::vector<Loop> loops = {
      {"f32[16]", VectorLoop(flags.length)},  {"rnn", RnnLoop(flags.length)},
      {"product", ProductLoop(flags.length)}, {"nested", NestedLoops(flags.length)},
      {"while", WhileLoop(flags.length)},     {"psum", PsumLoop(flags.length)},
  };
  for (Loop& loop : loops) loop.call();  // compiles
  for (int round = 0; round < flags.rounds; ++round) {
    for (Loop& loop : loops)
      TESSERA_RETURN_IF_ERROR(MeasureInTurn(loop.name, flags.calls, loop.call,
                                            jax ? &*jax : nullptr, &loop.ours, &loop.jax));
  }
  for (const Loop& loop : loops) {
    const double us = loop.ours.Quantile(0);
    std::printf("%-8s %10.1f us, p50 %10.1f", loop.name.c_str(), us, loop.ours.Quantile(0.5));
    if (jax)
      std::printf(", JAX %10.1f us, p50 %10.1f, ratio %.2f", loop.jax.Quantile(0),
                  loop.jax.Quantile(0.5), us / loop.jax.Quantile(0));
    std::printf("\n");
  }
  return absl::OkStatus();
}

// Reads the flags and runs the benchmark. Returns 2 if a flag is wrong and 1 if the benchmark
// fails. It switches the detection of deadlocks off first, because that would slow down every lock
// in a build with assertions.
int Main(int argc, char** argv) {
  DisableDeadlockDetection();
  Flags flags;
  FlagParser parser("bench-loops", "Measures loops whose iterations do little work.");
  parser.AddNumber("--length", &flags.length, "iterations of a loop", {.least = kRows});
  parser.AddNumber("--rounds", &flags.rounds, "number of rounds");
  parser.AddNumber("--calls", &flags.calls, "calls of each loop in a round");
  parser.AddAction(
      "--smoke",
      [&flags] {
        flags.length = 2 * kRows;
        flags.rounds = flags.calls = 1;
      },
      "runs short, as a test");
  parser.AddText("--jax", "PYTHON", &flags.jax, "compares with JAX under this Python");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  const absl::Status status = Run(flags);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
