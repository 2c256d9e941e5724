// Calls of ours beside the same calls in JAX, in turns, so that other load on the machine affects
// both. Thread-compatible; JAX runs in a child process.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/process.h"
#include "bench/samples.h"

namespace tessera::bench {

// A script of bench/ whose calls are served by bench/served_jax.py.
class Jax {
 public:
  // Runs it in this Python, and waits until it has compiled its calls.
  static absl::StatusOr<Jax> Start(const std::string& python, const std::string& script,
                                   const std::vector<std::string>& args);
  // Adds to `times` those of `count` calls, one after the other, in microseconds.
  absl::Status Measure(const std::string& name, int count, Samples* times);
  // Adds the mean time of `count` calls, none of which is waited for before all are made.
  absl::Status MeasureEnqueued(const std::string& name, int count, Samples* times);
  // Fails unless the call's results are these numbers, all results one after the other, but for
  // what dtypes round.
  absl::Status Check(const std::string& name, const std::vector<double>& results);

 private:
  explicit Jax(Process process) : process_(std::move(process)) {}
  absl::Status Ask(const std::string& what, const std::string& name, int count, Samples* times);

  Process process_;
};

// Adds to `ours` the times of `count` calls, and to `theirs` JAX's; null: ours alone.
absl::Status MeasureInTurn(const std::string& name, int count, const std::function<void()>& call,
                           Jax* jax, Samples* ours, Samples* theirs);

}  // namespace tessera::bench
