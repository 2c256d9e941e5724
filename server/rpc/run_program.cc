#include "server/rpc/run_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "server/rpc/json.h"

namespace tessera::server::rpc {
namespace {

constexpr int kThreads = 4;
constexpr size_t kJobsMax = 64;

// Deletes arrays when it goes.
class Cleanup {
 public:
  explicit Cleanup(api::Service& service) : service_(service) {}
  ~Cleanup() {
    if (!arrays_.empty()) (void)service_.Delete(arrays_);
  }
  void Add(uint64_t array) { arrays_.push_back(array); }

 private:
  api::Service& service_;
  std::vector<uint64_t> arrays_;
};

}  // namespace

absl::Status RunOne(api::Service& service, ir::Program program,
                    const v1::RunProgramRequest& request, v1::RunProgramResponse* response,
                    absl::Duration timeout) {
  const absl::Time until = SteadyNow() + timeout;
  api::CompileRequest compile;
  compile.program = std::move(program);
  compile.devices.assign(request.devices().begin(), request.devices().end());
  compile.mesh = request.mesh();
  compile.plan_only = request.validate_only();
  compile.name = compile.program.entry->name;
  const int params = compile.program.entry->num_params;
  if (request.inputs_size() != params)
    return MakeError(ErrorKind::kTypeError,
                     absl::StrCat("run: the program takes ", params, " arguments but got ",
                                  request.inputs_size()));
  for (const ir::Type& type : compile.program.entry->result_types()) {
    TESSERA_RETURN_IF_ERROR(CheckJsonDType(type.dtype));
    TESSERA_RETURN_IF_ERROR(CheckJsonSize(type));
  }
  std::vector<ir::Array> inputs;
  for (int i = 0; i < params; ++i) {
    const ir::Type& type = compile.program.entry->types[i];
    auto input = ArrayFromJson(request.inputs(i), type.dtype, type.shape);
    if (!input.ok())
      return Annotate(input.status(), "run: " + ir::ArgumentText(compile.program, i));
    inputs.push_back(*std::move(input));
  }
  TESSERA_ASSIGN_OR_RETURN(const api::CompileReply executable, service.Compile(compile));
  if (request.validate_only()) {
    for (const api::ArraySpec& spec : executable.out)
      response->add_types(ir::MakeType(spec.dtype, spec.shape).ToString());
    return absl::OkStatus();
  }
  Cleanup cleanup(service);
  api::ExecuteRequest execute;
  execute.executable = executable.executable;
  for (int i = 0; i < params; ++i) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, service.Put(inputs[i], executable.in[i].placement));
    cleanup.Add(id);
    execute.args.push_back(id);
  }
  const absl::Duration left = until - SteadyNow();
  if (left <= absl::ZeroDuration())
    return MakeError(ErrorKind::kDeadlineExceeded,
                     "run: compiling and uploading took all the time");
  execute.deadline = left;
  TESSERA_ASSIGN_OR_RETURN(const api::ExecuteReply run, service.Execute(execute));
  for (uint64_t output : run.outputs) cleanup.Add(output);
  TESSERA_ASSIGN_OR_RETURN(const api::Operation ended,
                           service.WaitOperation(run.operation, left + absl::Seconds(1)));
  TESSERA_RETURN_IF_ERROR(ended.error);
  for (uint64_t output : run.outputs) {
    TESSERA_ASSIGN_OR_RETURN(const ir::Array value,
                             service.Get(output, std::max(until - SteadyNow(), absl::Seconds(1))));
    TESSERA_ASSIGN_OR_RETURN(*response->add_outputs(), JsonFromArray(value));
    response->add_types(ir::MakeType(value.dtype(), value.shape()).ToString());
  }
  return absl::OkStatus();
}

RunPool::RunPool() {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
}

RunPool::~RunPool() {
  std::deque<Waiting> left;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    left.swap(jobs_);
  }
  for (Waiting& waiting : left)
    waiting.job(
        MakeError(ErrorKind::kServerStopping, "the coordinator is shutting down; retry later"));
  for (std::thread& t : threads_) t.join();
}

void RunPool::Run(absl::Duration timeout, Job job) {
  {
    absl::MutexLock lock(&mu_);
    if (jobs_.size() < kJobsMax && !stopping_) {
      jobs_.push_back({SteadyNow() + timeout, std::move(job)});
      return;
    }
  }
  job(MakeError(ErrorKind::kQueueFull,
                absl::StrCat("run: ", kJobsMax,
                             " calls wait already; retry, or use CompileProgram "
                             "and ExecuteProgram")));
}

void RunPool::Work() {
  while (true) {
    Waiting next;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || !jobs_.empty(); };
      mu_.Await(absl::Condition(&work));
      if (stopping_) return;
      next = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const absl::Duration left = next.until - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      next.job(MakeError(ErrorKind::kDeadlineExceeded, "run: it waited for a thread all the time"));
    } else {
      next.job(left);
    }
  }
}

}  // namespace tessera::server::rpc
