// Times calls of Tessera and the same calls in JAX, in turns, so that other load on the machine
// affects both. JAX runs in a child process. Thread-compatible.
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

// A running script of bench/. The script makes its calls through bench/served_jax.py.
class Jax {
 public:
  // Runs the script with the given Python, and waits until the script says that it is ready. By
  // then most scripts have compiled their calls.
  static absl::StatusOr<Jax> Start(const std::string& python, const std::string& script,
                                   const std::vector<std::string>& args);
  // Makes `count` calls one after the other, and adds the time of each in microseconds to `times`.
  absl::Status Measure(const std::string& name, int count, Samples* times);
  // Makes `count` calls, then waits for their results, and adds the mean time to make a call.
  absl::Status MeasureEnqueued(const std::string& name, int count, Samples* times);
  // Fails unless the call's results, all in one list, are these numbers. Differences that the
  // rounding of the dtypes explains are allowed.
  absl::Status Check(const std::string& name, const std::vector<double>& results);

 private:
  explicit Jax(Process process) : process_(std::move(process)) {}
  absl::Status Ask(const std::string& what, const std::string& name, int count, Samples* times);

  Process process_;
};

// Adds the times of `count` calls of `call` to `ours`, and the times of as many calls in JAX to
// `theirs`. If `jax` is null, only `call` is measured.
absl::Status MeasureInTurn(const std::string& name, int count, const std::function<void()>& call,
                           Jax* jax, Samples* ours, Samples* theirs);

}  // namespace tessera::bench
