// The handlers of ProgramService: uploads, compilation, explanations and runs. Programs are read on
// threads of their own (program_source.h; for RunProgram, on the threads of its pool), never on
// gRPC's or the scheduler's threads. Runs over streams are in executions.cc.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/api/crc32c.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/source.h"
#include "ir/text.h"
#include "server/coordinator/bound_service.h"
#include "server/core/plan_time.h"
#include "server/rpc/handlers.h"
#include "server/rpc/paging.h"
#include "server/rpc/program_source.h"
#include "server/rpc/run_program.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;
using rpc::FromProto;
using rpc::ToProto;

// Returns whether the error says nothing about the program itself: there was no time to read it, or
// the server stops.
bool IsUnrelatedToProgram(const absl::Status& error) {
  if (error.ok()) return false;
  const ErrorKind kind = KindOf(error);
  return kind == ErrorKind::kDeadlineExceeded || kind == ErrorKind::kServerStopping;
}

// Fills in everything but ops and text, and returns the program.
absl::StatusOr<ir::Program> FillSignature(const CallBase& call, const scheduler::ProgramInfo& info,
                                          absl::Time deadline, v1::UploadedProgram* out) {
  out->set_format(ToProto(info.format));
  out->set_name(absl::StrCat("tenants/", call.caller().tenant, "/programs/", info.sha256));
  out->set_sha256(info.sha256);
  out->set_size_bytes(static_cast<int64_t>(info.bytes->size()));
  TESSERA_ASSIGN_OR_RETURN(ir::Program program, ReadSource(call, SourceOf(info), deadline));
  out->set_opset(program.opset);
  for (int i = 0; i < program.entry->num_params; ++i)
    out->add_params(program.entry->types[i].ToString());
  for (const ir::Type& type : program.entry->result_types()) out->add_results(type.ToString());
  *out->mutable_mesh() = ToProto(program.mesh());
  return program;
}

// ---- Uploaded programs. -------------------------------------------------------------------------
using UploadCall = CallRef<v1::UploadProgramRequest, v1::UploadProgramResponse>;

absl::Status CheckUpload(const CallBase& call, const scheduler::ProgramInfo& upload,
                         absl::Time deadline) {
  if (Sha256Hex(*upload.bytes) != upload.sha256)
    return MakeError(
        ErrorKind::kChecksumMismatch,
        "upload: all bytes have arrived, but their SHA-256 is not the one given; send them again");
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ReadSource(call, SourceOf(upload), deadline));
  return ir::Verify(program, call.coordinator()->limits());
}

// Fills in the response of GetProgram.
absl::Status FillProgram(Call<v1::GetProgramRequest, v1::UploadedProgram>& call,
                         const scheduler::ProgramInfo& info, absl::Time deadline,
                         v1::UploadedProgram* out) {
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, FillSignature(call, info, deadline, out));
  *out->mutable_ops() = ir::serial::Inspect(program).ops();
  if (call.request().with_text()) out->set_text(ir::PrintProgram(program));
  return absl::OkStatus();
}

void AnswerUpload(const UploadCall& call,
                  const absl::StatusOr<scheduler::UploadProgress>& progress) {
  if (progress.ok()) {
    const std::string& sha256 = call->request().sha256();
    call->response().set_name(
        absl::StrCat("tenants/", call->caller().tenant, "/programs/", sha256));
    call->response().set_committed_bytes(progress->committed_bytes);
    call->response().set_complete(progress->complete);
  }
  call->Finish(progress.status());
}

// Called when all bytes of an upload have come: reads the program, and tells the scheduler to keep
// or to drop it. If there is no time to read the program now, the next UploadProgram call with this
// hash does so.
void KeepIfProgram(const UploadCall& call, const scheduler::ProgramInfo& upload) {
  RunOnDecoder(*call, [call, upload](const absl::StatusOr<absl::Time>& deadline) {
    if (!deadline.ok()) return AnswerUpload(call, deadline.status());
    const absl::Status checked = CheckUpload(*call, upload, *deadline);
    if (IsUnrelatedToProgram(checked)) return AnswerUpload(call, checked);
    call->coordinator()->Post<scheduler::UploadProgress>(
        scheduler::KeepProgram{call->identity(), upload.sha256, checked},
        [call](const auto& progress) { AnswerUpload(call, progress); });
  });
}

}  // namespace

void UploadProgram(const UploadCall& call) {
  const v1::UploadProgramRequest& q = call->request();
  if (!q.data().empty() && api::Crc32c(0, q.data().data(), q.data().size()) != q.crc32c())
    return call->Finish(MakeError(ErrorKind::kChecksumMismatch,
                                  absl::StrCat("upload: the chunk at ", q.offset(),
                                               " does not match its crc32c; send it again")));
  const absl::StatusOr<scheduler::ProgramFormat> format = FromProto(q.format());
  if (!format.ok()) return call->Finish(Annotate(format.status(), "upload"));
  call->coordinator()->Post<scheduler::UploadProgress>(
      scheduler::UploadProgram{call->identity(), q.sha256(), *format, q.size_bytes(), q.offset(),
                               q.data()},
      [call](const absl::StatusOr<scheduler::UploadProgress>& progress) {
        if (!progress.ok() || !progress->unchecked) return AnswerUpload(call, progress);
        KeepIfProgram(call, *progress->unchecked);
      });
}

void GetProgram(const CallRef<v1::GetProgramRequest, v1::UploadedProgram>& call) {
  FindUpload(
      call, call->request().sha256(), [call](const absl::StatusOr<scheduler::ProgramInfo>& found) {
        if (!found.ok()) return call->Finish(found.status());
        RunOnDecoder(*call, [call, found = *found](const absl::StatusOr<absl::Time>& deadline) {
          call->Finish(deadline.ok() ? FillProgram(*call, found, *deadline, &call->response())
                                     : deadline.status());
        });
      });
}

void ListPrograms(const CallRef<v1::ListProgramsRequest, v1::ListProgramsResponse>& call) {
  using Programs = scheduler::Page<scheduler::ProgramInfo>;
  scheduler::ListPrograms event{call->identity(), {}};
  const std::string scope = absl::StrCat("programs|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  call->coordinator()->Post<Programs>(std::move(event), [call, scope](
                                                            const absl::StatusOr<Programs>& page) {
    if (!page.ok()) return call->Finish(page.status());
    if (page->has_more)
      call->response().set_next_page_token(PageToken(scope, page->items.back().sha256));
    RunOnDecoder(*call, [call, programs = page->items](const absl::StatusOr<absl::Time>& deadline) {
      if (deadline.ok()) {
        for (const scheduler::ProgramInfo& program : programs) {
          v1::UploadedProgram& out = *call->response().add_programs();
          const absl::Status read = FillSignature(*call, program, *deadline, &out).status();
          if (IsUnrelatedToProgram(read)) return call->Finish(read);
          out.set_problem(std::string(read.message()));
        }
      }
      call->Finish(deadline.status());
    });
  });
}

void DeleteProgram(const CallRef<v1::DeleteProgramRequest, v1::DeleteProgramResponse>& call) {
  AnswerEmpty(call, scheduler::DeleteProgram{call->identity(), call->request().sha256()});
}

// ---- Compile. -----------------------------------------------------------------------------------
// Like AnswerWith, but adds the last run to the explanation first (core::AddLastRun). This takes a
// while for a large program, and the callback runs on the scheduler's thread. Therefore one of the
// threads that read programs does it.
template <class Q, class R, class Fill>
std::function<void(absl::StatusOr<core::CompileReply>)> AnswerWithPlan(const CallRef<Q, R>& call,
                                                                       Fill fill) {
  return [call, answer = AnswerWith<core::CompileReply>(call, std::move(fill))](
             absl::StatusOr<core::CompileReply> reply) {
    if (!reply.ok() || reply->last_run == absl::ZeroDuration()) return answer(std::move(reply));
    RunOnDecoder(*call, [answer, reply = *std::move(reply)](
                            const absl::StatusOr<absl::Time>& deadline) mutable {
      if (!deadline.ok()) return answer(deadline.status());
      core::AddLastRun(&reply);
      answer(std::move(reply));
    });
  };
}

void CompileProgram(const CallRef<v1::CompileProgramRequest, v1::CompileProgramResponse>& call) {
  WithProgram(call, [call](absl::StatusOr<ir::Program> program) {
    if (!program.ok()) return call->Finish(Annotate(program.status(), "compile"));
    absl::StatusOr<api::CompileRequest> compile_request = ir::serial::CompileRequestOf(
        call->request(), *std::move(program), call->coordinator()->limits());
    if (!compile_request.ok()) return call->Finish(compile_request.status());
    call->coordinator()->CompileAsync(
        call->caller(), *std::move(compile_request),
        AnswerWithPlan(call, [](const auto& r, auto* out) { *out = ToProto(r); }));
  });
}

void ExplainProgram(const CallRef<v1::ExplainProgramRequest, v1::ExplainProgramResponse>& call) {
  WithProgram(call, [call](absl::StatusOr<ir::Program> program) {
    if (!program.ok()) return call->Finish(Annotate(program.status(), "explain"));
    const v1::ExplainProgramRequest& q = call->request();
    api::CompileRequest compile_request;
    compile_request.program = *std::move(program);
    compile_request.devices.assign(q.devices().begin(), q.devices().end());
    compile_request.mesh = q.mesh();
    compile_request.device_memory_bytes = q.device_memory_bytes();
    compile_request.explain = true;
    compile_request.plan_only = true;
    call->coordinator()->CompileAsync(
        call->caller(), std::move(compile_request),
        AnswerWithPlan(call, [](const api::CompileReply& r, auto* out) {
          out->set_text(r.explain_text);
          out->set_json(r.explain_json);
          out->set_memory_bound_bytes(r.memory_bound_bytes);
          out->mutable_devices()->Assign(r.devices.begin(), r.devices.end());
          for (const api::PendingReason& reason : r.pending)
            *out->add_pending_reasons() = ToProto(reason);
        }));
  });
}

// ---- Run. ---------------------------------------------------------------------------------------
void ExecuteProgram(const CallRef<v1::ExecuteProgramRequest, v1::ExecuteProgramResponse>& call) {
  call->coordinator()->ExecuteAsync(
      call->identity(), FromProto(call->request()),
      AnswerWith<api::ExecuteReply>(call, [](const auto& r, auto* out) { *out = ToProto(r); }));
}

void RunProgram(const CallRef<v1::RunProgramRequest, v1::RunProgramResponse>& call) {
  WithUpload(call, [call](const absl::StatusOr<scheduler::ProgramInfo>& upload) {
    if (!upload.ok()) return call->Finish(upload.status());
    const v1::RunProgramRequest& q = call->request();
    const absl::Duration timeout = std::min(call->WaitTime(q.has_timeout(), q.timeout()),
                                            call->coordinator()->config().result_wait_max);
    call->context().run_pool->Submit(
        timeout, call->caller().tenant, call->request_bytes(),
        [call, upload = *upload](const absl::StatusOr<absl::Duration>& left) {
          if (!left.ok()) return call->Finish(left.status());
          const v1::RunProgramRequest& request = call->request();
          absl::StatusOr<ir::Program> program =
              ReadProgram(*call, request, upload, SteadyNow() + *left);
          if (!program.ok()) return call->Finish(program.status());
          const std::unique_ptr<api::Service> service =
              MakeBoundService(call->coordinator(), call->caller(), /*session=*/0,
                               call->coordinator()->clock()->Now() + *left);
          call->Finish(
              RunOneProgram(*service, *std::move(program), request, &call->response(), *left));
        });
  });
}

}  // namespace tessera::server::rpc
