// The sequence of service calls that runs a program once: compile, put, execute, wait, get. It is
// shared by the server's RunProgram and by the command line, so both clean up in the same way.
#include "ir/api/run.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"

namespace tessera::api {
namespace {

// Time beyond the deadline for the reply to arrive.
constexpr absl::Duration kGrace = absl::Seconds(1);

// Deletes the arrays that were added to it when it goes out of scope.
class ScopedArrays {
 public:
  explicit ScopedArrays(Service& service) : service_(service) {}
  ScopedArrays(const ScopedArrays&) = delete;
  ~ScopedArrays() {
    if (!arrays_.empty()) service_.Delete(arrays_).IgnoreError();
  }
  void Add(uint64_t array) { arrays_.push_back(array); }

 private:
  Service& service_;
  std::vector<uint64_t> arrays_;
};

template <class T>
absl::StatusOr<T> CarryOut(const RunOptions& options, const std::string& what,
                           const std::function<absl::StatusOr<T>()>& step) {
  if (!options.carry_out) return step();
  const auto result = std::make_shared<absl::StatusOr<T>>(absl::UnknownError("not run"));
  TESSERA_RETURN_IF_ERROR(options.carry_out(what, [result, step] {
    *result = step();
    return result->status();
  }));
  return *std::move(result);
}

absl::Status Await(Service& service, uint64_t operation, absl::Duration left) {
  TESSERA_ASSIGN_OR_RETURN(const Operation ended, service.WaitOperation(operation, left + kGrace));
  return ended.error;
}

}  // namespace

// Runs the five steps in order and stops at the first error. Uploads count against the deadline;
// what is left of it becomes the time limit of the run. A fetch gets at least kGrace, so that a run
// that ended in time can still deliver. Arrays are deleted on every way out; results are spared
// only if `keep` is set.
absl::StatusOr<RunResult> RunProgram(Service& service, const CompileRequest& program,
                                     const std::vector<ir::Array>& inputs,
                                     const RunOptions& options) {
  RunResult out;
  TESSERA_ASSIGN_OR_RETURN(
      out.plan, CarryOut<CompileReply>(options, "compile",
                                       [&service, program] { return service.Compile(program); }));
  if (options.on_plan) options.on_plan(out.plan);
  ScopedArrays arrays(service);
  ExecuteRequest execute;
  execute.executable = out.plan.executable;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(
        const uint64_t array,
        CarryOut<uint64_t>(options, absl::StrCat("input ", i),
                           [&service, input = inputs[i], placement = out.plan.in[i].placement] {
                             return service.Put(input, placement);
                           }));
    arrays.Add(array);
    execute.args.push_back(array);
  }
  const absl::Duration left = options.deadline - SteadyNow();
  if (left <= absl::ZeroDuration()) {
    return MakeError(ErrorKind::kDeadlineExceeded,
                     "run: no time is left after compiling and uploading");
  }
  execute.time_limit = left;
  TESSERA_ASSIGN_OR_RETURN(out.run, service.Execute(execute));
  if (!options.keep)
    for (uint64_t output : out.run.outputs) arrays.Add(output);
  TESSERA_RETURN_IF_ERROR(options.await ? options.await(out.run.operation)
                                        : Await(service, out.run.operation, left));
  for (size_t i = 0; options.fetch && i < out.run.outputs.size(); ++i) {
    const absl::Duration rest = std::max(options.deadline - SteadyNow(), kGrace);
    TESSERA_ASSIGN_OR_RETURN(ir::Array value,
                             CarryOut<ir::Array>(options, absl::StrCat("result ", i),
                                                 [&service, id = out.run.outputs[i], rest] {
                                                   return service.Get(id, rest);
                                                 }));
    out.values.push_back(std::move(value));
  }
  return out;
}

}  // namespace tessera::api
