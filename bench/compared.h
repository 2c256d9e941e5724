// Times calls of Tessera and the same calls in JAX. The two sides take turns, so that other load on
// the machine affects both. JAX runs in a child process. Thread-compatible.
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

// A script of bench/ that runs in a child process. It names calls of JAX, and bench/served_jax.py
// makes and times them when the methods below ask for it.
class JaxScript {
 public:
  // Runs the script with the given Python, and waits until the script says that it is ready. By
  // then most scripts have compiled their calls.
  static absl::StatusOr<JaxScript> Start(const std::string& python, const std::string& script,
                                         const std::vector<std::string>& args);
  // Makes the call `name` `count` times, waits each time for the result, and adds the time of each
  // to `times`, in microseconds.
  absl::Status Measure(const std::string& name, int count, Samples* times);
  // Makes the call `name` `count` times and only then waits for the results. Adds to `times` the
  // mean time until a call returned, in microseconds.
  absl::Status MeasureEnqueued(const std::string& name, int count, Samples* times);
  // Makes the call `name` once. Fails unless the numbers of its results, one result after the
  // other, are `results`. Differences that the rounding of the dtypes explains are allowed.
  absl::Status Check(const std::string& name, const std::vector<double>& results);

 private:
  explicit JaxScript(Process process) : process_(std::move(process)) {}
  absl::Status Ask(const std::string& command, const std::string& name, int count, Samples* times);

  Process process_;
};

// Adds the times of `count` calls of `call` to `ours`, and the times of as many calls in JAX to
// `theirs`. If `jax` is null, only `call` is measured.
absl::Status MeasureInTurn(const std::string& name, int count, const std::function<void()>& call,
                           JaxScript* jax, Samples* ours, Samples* theirs);

}  // namespace tessera::bench
