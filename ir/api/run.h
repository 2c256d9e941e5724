// Runs a program on host values: compiles it, puts its inputs, executes it and gets its results.
// The server uses it for RunProgram, the command line for `tessera run`. Blocking; thread-safe.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/array.h"

namespace tessera::api {

// The options of RunProgram. Every function may be null.
struct RunOptions {
  absl::Time deadline = absl::InfiniteFuture();  // a time of SteadyNow()
  bool keep = false;  // whether to leave the results on the devices instead of deleting them
  bool fetch = true;  // whether to read the results
  // Runs the step that `what` names ("compile", "input 0" or "result 1"), or abandons it with an
  // error. An abandoned step may still be running: it uses only the service and data of its own.
  std::function<absl::Status(const std::string& what, const std::function<absl::Status()>& step)>
      carry_out = nullptr;
  // Called before the inputs are put.
  std::function<void(const CompileReply& plan)> on_plan = nullptr;
  // Waits until the operation has ended, and returns its error.
  std::function<absl::Status(uint64_t operation)> await = nullptr;
};

struct RunResult {
  CompileReply plan;
  ExecuteReply run;
  std::vector<ir::Array> values;  // empty if `fetch` is false
};

// Requires: there is one input for each parameter, of its type.
absl::StatusOr<RunResult> RunProgram(Service& service, const CompileRequest& program,
                                     const std::vector<ir::Array>& inputs,
                                     const RunOptions& options);

}  // namespace tessera::api
