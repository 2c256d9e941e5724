#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/api/crc32c.h"
#include "ir/op_def.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/text.h"
#include "server/bound_service.h"
#include "server/rpc/handlers.h"
#include "server/rpc/paging.h"
#include "server/rpc/run_program.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;

// Parses an uploaded program.
absl::StatusOr<ir::Program> ParseBytes(std::string_view bytes, const ir::Limits& limits) {
  v1::Program proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat("upload: its ", bytes.size(), " bytes are no ",
                                  v1::Program::descriptor()->full_name()));
  return FromProto(proto, limits);
}

void CountOps(const ir::Function& f, google::protobuf::Map<std::string, int64_t>* ops) {
  for (const ir::Op& op : f.ops) {
    ++(*ops)[std::string(op.def->name)];
    for (const ir::FunctionRef& region : op.regions) CountOps(*region, ops);
  }
}

// Fills in everything but ops and text; returns the program.
absl::StatusOr<ir::Program> FillSignature(const CallBase& call, const scheduler::ProgramInfo& info,
                                          v1::UploadedProgram* out) {
  TESSERA_ASSIGN_OR_RETURN(ir::Program program,
                           ParseBytes(*info.bytes, call.coordinator()->limits()));
  out->set_name(absl::StrCat("tenants/", call.caller().tenant, "/programs/", info.sha256));
  out->set_sha256(info.sha256);
  out->set_size_bytes(static_cast<int64_t>(info.bytes->size()));
  out->set_opset(program.opset);
  for (int i = 0; i < program.entry->num_params; ++i)
    out->add_params(program.entry->types[i].ToString());
  for (const ir::Type& type : program.entry->result_types()) out->add_results(type.ToString());
  *out->mutable_mesh() = ToProto(program.mesh());
  return program;
}

// The hash of the upload that is the request's program; empty: none.
template <class Request>
std::string HashIn(const Request& request) {
  if constexpr (requires { request.program_sha256(); }) return request.program_sha256();
  return "";
}

// The request's program, which must be in it: as a message or as text.
template <class Request>
absl::StatusOr<ir::Program> ProgramIn(const Coordinator& coordinator, const Request& request) {
  const v1::Program* const program = request.has_program() ? &request.program() : nullptr;
  const std::string& text = request.text();
  const int64_t bytes_max = coordinator.options().max_program_bytes;
  const auto size =
      static_cast<int64_t>(program == nullptr ? text.size() : program->ByteSizeLong());
  if (size > bytes_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("the program has ", size, " bytes, at most ", bytes_max,
                                  " are accepted (max_program_bytes)"));
  if (program == nullptr) return ir::ParseProgram(text, coordinator.limits());
  return FromProto(*program, coordinator.limits());
}

// The program of a request is a message, a text, or the hash of an upload.
template <class Request>
absl::Status CheckOneProgram(const Request& request) {
  const int ways = (request.has_program() ? 1 : 0) + (request.text().empty() ? 0 : 1) +
                   (HashIn(request).empty() ? 0 : 1);
  if (ways == 1) return absl::OkStatus();
  return MakeError(ErrorKind::kMalformedProgram,
                   ways == 0 ? "there is no program; give it as a message, as text or by the "
                               "hash of an upload"
                             : "the program is given in several ways; give it in one");
}

// How long a call waits for one of the threads that read programs.
absl::Duration DecoderWait(const CallBase& call) {
  return std::min(call.Wait(/*given=*/false, {}), call.coordinator()->config().result_wait_max);
}

// Calls `read` on one of the threads that read programs, as reading a large one takes seconds; with
// the error for which it is not to be read, if there is one.
void OnDecoder(const CallBase& call, std::function<void(absl::Status)> read) {
  call.context().decoders->Run(
      DecoderWait(call), [read = std::move(read)](const absl::StatusOr<absl::Duration>& left) {
        read(left.status());
      });
}

// Calls `then` with the bytes of an upload.
template <class Q, class R>
void FindUpload(const CallRef<Q, R>& call, const std::string& sha256,
                std::function<void(absl::StatusOr<scheduler::ProgramInfo>)> then) {
  call->coordinator()->template Post<scheduler::ProgramInfo>(
      scheduler::GetProgram{call->asker(), sha256}, std::move(then));
}

// Calls `then` with the request's program.
template <class Q, class R>
void WithProgram(const CallRef<Q, R>& call, std::function<void(absl::StatusOr<ir::Program>)> then) {
  const std::string sha256 = HashIn(call->request());
  if (absl::Status s = CheckOneProgram(call->request()); !s.ok()) return then(std::move(s));
  if (sha256.empty()) return then(ProgramIn(*call->coordinator(), call->request()));
  FindUpload(call, sha256,
             [call, then = std::move(then)](absl::StatusOr<scheduler::ProgramInfo> found) {
               if (!found.ok()) return then(found.status());
               OnDecoder(*call, [call, then, bytes = found->bytes](absl::Status ready) {
                 if (!ready.ok()) return then(std::move(ready));
                 then(ParseBytes(*bytes, call->coordinator()->limits()));
               });
             });
}

// ---- Uploaded programs. -------------------------------------------------------------------------
using UploadCall = CallRef<v1::UploadProgramRequest, v1::UploadProgramResponse>;

absl::Status CheckUpload(const std::string& sha256, const std::string& bytes,
                         const ir::Limits& limits) {
  if (Sha256Hex(bytes) != sha256)
    return MakeError(ErrorKind::kChecksumMismatch,
                     "upload: all bytes are there and their SHA-256 is another; send them again");
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ParseBytes(bytes, limits));
  return ir::Verify(program, limits);
}

// Fills in what GetProgram tells.
absl::Status FillProgram(Call<v1::GetProgramRequest, v1::UploadedProgram>& call,
                         const scheduler::ProgramInfo& info, v1::UploadedProgram* out) {
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, FillSignature(call, info, out));
  CountOps(*program.entry, out->mutable_ops());
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

// All bytes are there. If they cannot be read now, the next call of the upload does.
void KeepIfProgram(const UploadCall& call, const scheduler::ProgramBytes& bytes) {
  OnDecoder(*call, [call, bytes](absl::Status ready) {
    if (!ready.ok()) return AnswerUpload(call, std::move(ready));
    const std::string& sha256 = call->request().sha256();
    call->coordinator()->Post<scheduler::UploadProgress>(
        scheduler::KeepProgram{call->asker(), sha256,
                               CheckUpload(sha256, *bytes, call->coordinator()->limits())},
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
  call->coordinator()->Post<scheduler::UploadProgress>(
      scheduler::UploadProgram{call->asker(), q.sha256(), q.size_bytes(), q.offset(), q.data()},
      [call](const absl::StatusOr<scheduler::UploadProgress>& progress) {
        if (!progress.ok() || progress->unchecked == nullptr) return AnswerUpload(call, progress);
        KeepIfProgram(call, progress->unchecked);
      });
}

void GetProgram(const CallRef<v1::GetProgramRequest, v1::UploadedProgram>& call) {
  FindUpload(call, call->request().sha256(),
             [call](const absl::StatusOr<scheduler::ProgramInfo>& found) {
               if (!found.ok()) return call->Finish(found.status());
               OnDecoder(*call, [call, found = *found](absl::Status ready) {
                 if (ready.ok()) ready = FillProgram(*call, found, &call->response());
                 call->Finish(ready);
               });
             });
}

void ListPrograms(const CallRef<v1::ListProgramsRequest, v1::ListProgramsResponse>& call) {
  using Programs = scheduler::Page<scheduler::ProgramInfo>;
  scheduler::ListPrograms event{call->asker(), {}};
  const std::string scope = absl::StrCat("programs|", call->caller().tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  const auto fill = [call](const std::vector<scheduler::ProgramInfo>& programs) -> absl::Status {
    for (const scheduler::ProgramInfo& program : programs)
      TESSERA_RETURN_IF_ERROR(
          FillSignature(*call, program, call->response().add_programs()).status());
    return absl::OkStatus();
  };
  call->coordinator()->Post<Programs>(
      std::move(event), [call, scope, fill](const absl::StatusOr<Programs>& page) {
        if (!page.ok()) return call->Finish(page.status());
        if (page->more)
          call->response().set_next_page_token(PageToken(scope, page->items.back().sha256));
        OnDecoder(*call, [call, fill, programs = page->items](absl::Status ready) {
          if (ready.ok()) ready = fill(programs);
          call->Finish(ready);
        });
      });
}

void DeleteProgram(const CallRef<v1::DeleteProgramRequest, v1::DeleteProgramResponse>& call) {
  AnswerDone(call, scheduler::DeleteProgram{call->asker(), call->request().sha256()});
}

// ---- Compile. -----------------------------------------------------------------------------------
void CompileProgram(const CallRef<v1::CompileProgramRequest, v1::CompileProgramResponse>& call) {
  WithProgram(call, [call](absl::StatusOr<ir::Program> program) {
    if (!program.ok()) return call->Finish(Annotate(program.status(), "compile"));
    absl::StatusOr<api::CompileRequest> body = ir::serial::CompileRequestOf(
        call->request(), *std::move(program), call->coordinator()->limits());
    if (!body.ok()) return call->Finish(body.status());
    call->coordinator()->CompileAsync(
        call->caller(), *std::move(body),
        AnswerWith<api::CompileReply>(call, [](const auto& r, auto* out) { *out = ToProto(r); }));
  });
}

void ExplainProgram(const CallRef<v1::ExplainProgramRequest, v1::ExplainProgramResponse>& call) {
  WithProgram(call, [call](absl::StatusOr<ir::Program> program) {
    if (!program.ok()) return call->Finish(Annotate(program.status(), "explain"));
    const v1::ExplainProgramRequest& q = call->request();
    api::CompileRequest body;
    body.program = *std::move(program);
    body.devices.assign(q.devices().begin(), q.devices().end());
    body.mesh = q.mesh();
    body.device_memory_bytes = q.device_memory_bytes();
    body.explain = true;
    body.plan_only = true;
    call->coordinator()->CompileAsync(
        call->caller(), std::move(body),
        AnswerWith<api::CompileReply>(call, [](const api::CompileReply& r, auto* out) {
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
      call->asker(), FromProto(call->request()),
      AnswerWith<api::ExecuteReply>(call, [](const auto& r, auto* out) { *out = ToProto(r); }));
}

void RunProgram(const CallRef<v1::RunProgramRequest, v1::RunProgramResponse>& call) {
  const v1::RunProgramRequest& q = call->request();
  const absl::Duration timeout = std::min(call->Wait(q.has_timeout(), q.timeout()),
                                          call->coordinator()->config().result_wait_max);
  call->context().pool->Run(timeout, [call](const absl::StatusOr<absl::Duration>& left) {
    if (!left.ok()) return call->Finish(left.status());
    const v1::RunProgramRequest& request = call->request();
    if (request.source_case() == v1::RunProgramRequest::SOURCE_NOT_SET)
      return call->Finish(CheckOneProgram(request));
    absl::StatusOr<ir::Program> program = ProgramIn(*call->coordinator(), request);
    if (!program.ok()) return call->Finish(program.status());
    const std::unique_ptr<api::Service> service =
        MakeBoundService(call->coordinator(), call->caller(), /*session=*/0,
                         call->coordinator()->clock()->Now() + *left);
    call->Finish(RunOne(*service, *std::move(program), request, &call->response(), *left));
  });
}

}  // namespace tessera::server::rpc
