// The blocking work behind RunProgram, and the threads for it. The handler in program_service.cc
// submits RunOneProgram to a JobPool; reading programs and some inquiries use pools of the same
// class.
#include "server/rpc/run_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_limits.h"
#include "base/status.h"
#include "ir/api/run.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/json.h"

namespace tessera::server::rpc {
// Checks everything that can be checked before the program is compiled: the number of inputs, the
// JSON of each input, and whether the results have a JSON form. So a mistake costs no run. With
// validate_only the call ends with the types of the results. api::RunProgram deletes the arrays
// that it creates.
absl::Status RunOneProgram(api::Service& service, ir::Program program,
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
  if (request.validate_only()) {
    TESSERA_ASSIGN_OR_RETURN(const api::CompileReply plan, service.Compile(compile));
    for (const api::ArraySpec& spec : plan.out)
      response->add_types(ir::MakeType(spec.dtype, spec.shape).ToString());
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const api::RunResult result,
                           api::RunProgram(service, compile, inputs, {.deadline = until}));
  for (const ir::Array& value : result.values) {
    TESSERA_ASSIGN_OR_RETURN(*response->add_outputs(), JsonFromArray(value));
    response->add_types(ir::MakeType(value.dtype(), value.shape()).ToString());
  }
  return absl::OkStatus();
}

JobPool::JobPool(int threads, size_t jobs_max)
    : num_threads_(threads),
      jobs_max_(jobs_max),
      bytes_max_(static_cast<size_t>(ProcessLimits().memory_bytes / 8)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

JobPool::~JobPool() {
  std::deque<QueuedJob> left;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    left.swap(jobs_);
  }
  for (QueuedJob& queued : left) queued.job(scheduler::StoppingError());
  for (std::thread& t : threads_) t.join();
}

void JobPool::Submit(absl::Duration timeout, const std::string& tenant, size_t bytes, Job job) {
  std::string refusal;
  {
    absl::MutexLock lock(&mu_);
    if (jobs_.size() >= jobs_max_ || stopping_) {
      refusal =
          absl::StrCat(jobs_max_, " calls wait for a thread already; retry, and run programs by ",
                       "CompileProgram and ExecuteProgram");
    } else if (bytes_ > 0 && bytes_ + bytes > bytes_max_) {
      refusal = absl::StrCat("calls of ", bytes_, " bytes wait for a thread already; retry");
    } else {
      bytes_ += bytes;
      jobs_.push_back({SteadyNow() + timeout, tenant, bytes, std::move(job)});
      return;
    }
  }
  job(MakeError(ErrorKind::kQueueFull, "coordinator: " + refusal));
}

std::deque<JobPool::QueuedJob>::iterator JobPool::FindNext() {
  const bool last_thread = num_busy_ + 1 >= num_threads_ && num_threads_ > 1;
  auto next = jobs_.begin();
  while (next != jobs_.end() && last_thread && running_.count(next->tenant) > 0) ++next;
  return next;
}

// The main function of each thread. Takes the next job that may run, calls it, and then gives its
// bytes and its tenant's share back. The job is destroyed before that, because it holds the request
// whose bytes are counted.
void JobPool::Work() {
  while (true) {
    QueuedJob next;
    {
      absl::MutexLock lock(&mu_);
      auto can_take = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || FindNext() != jobs_.end();
      };
      mu_.Await(absl::Condition(&can_take));
      if (stopping_) return;
      const auto at = FindNext();
      next = std::move(*at);
      jobs_.erase(at);
      ++num_busy_;
      ++running_[next.tenant];
    }
    const absl::Duration left = next.deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      next.job(MakeError(ErrorKind::kDeadlineExceeded,
                         "coordinator: no thread became free before the call's deadline"));
    } else {
      next.job(left);
    }
    next.job = nullptr;
    absl::MutexLock lock(&mu_);
    --num_busy_;
    bytes_ -= next.bytes;
    if (--running_[next.tenant] == 0) running_.erase(next.tenant);
  }
}

}  // namespace tessera::server::rpc
