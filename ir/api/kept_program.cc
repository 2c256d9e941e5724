// Brings executables back. Session::Run calls Replace when the service refuses a run with
// PROGRAM_NOT_FOUND, and client/remote/runs_ahead.cc does so for runs that were sent ahead.
#include "ir/api/kept_program.h"

#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::api {
namespace {

// Returns the index of the first spec that differs, or -1.
int FirstDifference(const std::vector<ArraySpec>& a, const std::vector<ArraySpec>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (i >= b.size() || a[i].dtype != b[i].dtype || a[i].shape != b[i].shape ||
        !(a[i].placement == b[i].placement))
      return static_cast<int>(i);
  }
  return a.size() == b.size() ? -1 : static_cast<int>(a.size());
}

// Returns the request with the devices that the service chose for `reply`, because arrays were
// placed on them.
CompileRequest WithDevices(CompileRequest request, const CompileReply& reply) {
  request.explain = false;
  if (!request.devices.empty() || !request.mesh.empty()) return request;
  request.devices = reply.devices;
  for (const auto* specs : {&reply.in, &reply.out})
    if (request.devices.empty() && !specs->empty())
      request.devices = specs->front().placement.devices;
  return request;
}

}  // namespace

KeptProgram::KeptProgram(CompileRequest request, const CompileReply& reply)
    : request_(WithDevices(std::move(request), reply)),
      in_(reply.in),
      out_(reply.out),
      executable_(reply.executable) {}

uint64_t KeptProgram::executable() const {
  absl::MutexLock lock(&mu_);
  return executable_;
}

// One thread compiles, and the threads that come meanwhile wait for its outcome. If that thread
// gave up at its own deadline, one of the others tries again.
absl::StatusOr<uint64_t> KeptProgram::Replace(uint64_t lost, const CompileFn& compile,
                                              absl::Time deadline) {
  while (true) {
    std::shared_ptr<Attempt> attempt;
    {
      absl::MutexLock lock(&mu_);
      if (executable_ != lost) return executable_;
      if (attempt_ != nullptr) {
        attempt = attempt_;
        if (!mu_.AwaitWithTimeout(absl::Condition(&attempt->done), deadline - SteadyNow()))
          return MakeError(ErrorKind::kDeadlineExceeded,
                           absl::StrCat(request_.name,
                                        ": the deadline passed while the program "
                                        "was being compiled again"));
        const bool gave_up = !attempt->executable.ok() &&
                             KindOf(attempt->executable.status()) == ErrorKind::kDeadlineExceeded;
        if (gave_up && SteadyNow() < deadline) continue;
        return attempt->executable;
      }
      attempt = attempt_ = std::make_shared<Attempt>();
    }
    absl::StatusOr<uint64_t> made = CompileAgain(lost, compile, deadline);
    absl::MutexLock lock(&mu_);
    if (made.ok()) executable_ = *made;
    attempt->executable = made;
    attempt->done = true;
    attempt_ = nullptr;
    return made;
  }
}

absl::StatusOr<uint64_t> KeptProgram::CompileAgain(uint64_t lost, const CompileFn& compile,
                                                   absl::Time deadline) const {
  CompileRequest request = request_;
  if (deadline != absl::InfiniteFuture()) request.timeout = deadline - SteadyNow();
  const auto annotate = [&](const absl::Status& why) {
    return Annotate(why, absl::StrCat(request_.name, ": executable ", lost,
                                      " is gone, and its program was compiled again"));
  };
  absl::StatusOr<CompileReply> reply = compile(request);
  if (!reply.ok()) return annotate(reply.status());
  for (const auto& [what, before, now] :
       {std::tuple("argument ", &in_, &reply->in), std::tuple("result ", &out_, &reply->out)}) {
    if (const int i = FirstDifference(*before, *now); i >= 0)
      return annotate(MakeError(ErrorKind::kProgramNotFound,
                                absl::StrCat(what, i,
                                             " of the new executable lies elsewhere than "
                                             "before; trace and compile the function anew")));
  }
  TESSERA_VLOG << "executable compiled again" << Field("program", request_.name)
               << Field("lost", lost) << Field("executable", reply->executable);
  return reply->executable;
}

absl::Status KeptProgram::LostAgainError(uint64_t first, uint64_t lost) const {
  return MakeError(
      ErrorKind::kProgramNotFound,
      absl::StrCat(request_.name, ": executable ", first,
                   " was gone and its program was compiled "
                   "again, and the new executable ",
                   lost,
                   " was gone as well before it could run; "
                   "run fewer programs at a time, or raise the coordinator's executables_max"));
}

}  // namespace tessera::api
