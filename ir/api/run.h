// A program run from values to values: compiled, its inputs put, executed, its results read. The
// server does so for RunProgram, the command line for `tessera run`.
//
// Blocks; any thread.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "ir/array.h"

namespace tessera::api {

// What a caller decides; functions may be null.
struct RunOptions {
  absl::Time until = absl::InfiniteFuture();  // of SteadyNow; then DEADLINE_EXCEEDED
  bool keep = false;                          // results stay on the devices; else all is deleted
  bool fetch = true;                          // results are read
  // Carries out the step that `what` names, "compile", "input 0" or "result 1", or gives it up with
  // an error. The step may go on after that: it uses the service and what it owns.
  std::function<absl::Status(const std::string& what, const std::function<absl::Status()>& step)>
      carry_out = nullptr;
  // Called before inputs are put.
  std::function<void(const CompileReply& plan)> on_plan = nullptr;
  // Waits until the operation has ended, and returns its error.
  std::function<absl::Status(uint64_t operation)> await = nullptr;
};

struct RunResult {
  CompileReply plan;
  ExecuteReply run;
  std::vector<ir::Array> values;  // if they are fetched
};

// Requires: one input per parameter, of its type.
absl::StatusOr<RunResult> RunProgram(Service& service, const CompileRequest& program,
                                     const std::vector<ir::Array>& inputs,
                                     const RunOptions& options);

}  // namespace tessera::api
