#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
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

// Fills in everything but ops and text.
void FillSignature(const std::string& tenant, const std::string& sha256, int64_t size,
                   const ir::Program& program, v1::UploadedProgram* out) {
  out->set_name(absl::StrCat("tenants/", tenant, "/programs/", sha256));
  out->set_sha256(sha256);
  out->set_size_bytes(size);
  out->set_opset(program.opset);
  for (int i = 0; i < program.entry->num_params; ++i)
    out->add_params(program.entry->types[i].ToString());
  for (const ir::Type& type : program.entry->result_types()) out->add_results(type.ToString());
  *out->mutable_mesh() = ToProto(program.mesh());
}

// The request's program, which is a message, a text, or the hash of an upload.
template <class Request>
absl::StatusOr<ir::Program> ProgramOf(const CallBase& call, const Request& request) {
  Coordinator* const coordinator = call.coordinator();
  const v1::Program* const program = request.has_program() ? &request.program() : nullptr;
  const std::string& text = request.text();
  std::string sha256;
  if constexpr (requires { request.program_sha256(); }) sha256 = request.program_sha256();
  const int64_t bytes_max = coordinator->options().max_program_bytes;
  const int ways = (program != nullptr ? 1 : 0) + (text.empty() ? 0 : 1) + (sha256.empty() ? 0 : 1);
  if (ways != 1)
    return MakeError(ErrorKind::kMalformedProgram,
                     ways == 0 ? "there is no program; give it as a message, as text or by the "
                                 "hash of an upload"
                               : "the program is given in several ways; give it in one");
  if (!sha256.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const store::ProgramStore::Bytes bytes,
                             coordinator->programs().Find(call.caller().tenant, sha256));
    return ParseBytes(*bytes, coordinator->limits());
  }
  const auto size =
      static_cast<int64_t>(program == nullptr ? text.size() : program->ByteSizeLong());
  if (size > bytes_max)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("the program has ", size, " bytes, at most ", bytes_max,
                                  " are accepted (max_program_bytes)"));
  if (program == nullptr) return ir::ParseProgram(text, coordinator->limits());
  return FromProto(*program, coordinator->limits());
}

}  // namespace

// ---- Uploaded programs. -------------------------------------------------------------------------
void UploadProgram(const CallRef<v1::UploadProgramRequest, v1::UploadProgramResponse>& call) {
  const v1::UploadProgramRequest& q = call->request();
  const std::string& tenant = call->caller().tenant;
  Coordinator* const coordinator = call->coordinator();
  const auto progress = coordinator->programs().Upload(
      tenant, {q.sha256(), q.size_bytes(), q.offset(), q.data(), q.crc32c()},
      coordinator->clock()->Now(), [coordinator](std::string_view bytes) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const ir::Program program,
                                 ParseBytes(bytes, coordinator->limits()));
        return ir::Verify(program, coordinator->limits());
      });
  if (progress.ok()) {
    call->response().set_name(absl::StrCat("tenants/", tenant, "/programs/", q.sha256()));
    call->response().set_committed_bytes(progress->committed_bytes);
    call->response().set_complete(progress->complete);
  }
  call->Finish(progress.status());
}

void GetProgram(const CallRef<v1::GetProgramRequest, v1::UploadedProgram>& call) {
  const v1::GetProgramRequest& q = call->request();
  const std::string& tenant = call->caller().tenant;
  const auto bytes = call->coordinator()->programs().Find(tenant, q.sha256());
  if (!bytes.ok()) return call->Finish(bytes.status());
  const absl::StatusOr<ir::Program> program = ParseBytes(**bytes, call->coordinator()->limits());
  if (!program.ok()) return call->Finish(program.status());
  v1::UploadedProgram& out = call->response();
  FillSignature(tenant, q.sha256(), static_cast<int64_t>((*bytes)->size()), *program, &out);
  CountOps(*program->entry, out.mutable_ops());
  if (q.with_text()) out.set_text(ir::PrintProgram(*program));
  call->Finish(absl::OkStatus());
}

void ListPrograms(const CallRef<v1::ListProgramsRequest, v1::ListProgramsResponse>& call) {
  const std::string& tenant = call->caller().tenant;
  scheduler::PageRequest<std::string> page;
  const std::string scope = absl::StrCat("programs|", tenant);
  if (absl::Status s = ReadPage(scope, call->request(), &page); !s.ok()) return call->Finish(s);
  const scheduler::Config& config = call->coordinator()->config();
  const auto size = static_cast<size_t>(page.size == 0 ? config.page_size
                                                       : std::min(page.size, config.page_size_max));
  std::vector<store::ProgramStore::Listed> listed =
      call->coordinator()->programs().List(tenant, page.after, size + 1);
  const bool more = listed.size() > size;
  if (more) listed.pop_back();
  for (const auto& [sha256, bytes] : listed) {
    const absl::StatusOr<ir::Program> program = ParseBytes(*bytes, call->coordinator()->limits());
    if (!program.ok()) return call->Finish(program.status());
    FillSignature(tenant, sha256, static_cast<int64_t>(bytes->size()), *program,
                  call->response().add_programs());
  }
  if (more) call->response().set_next_page_token(PageToken(scope, listed.back().sha256));
  call->Finish(absl::OkStatus());
}

void DeleteProgram(const CallRef<v1::DeleteProgramRequest, v1::DeleteProgramResponse>& call) {
  call->Finish(
      call->coordinator()->programs().Delete(call->caller().tenant, call->request().sha256()));
}

// ---- Compile. -----------------------------------------------------------------------------------
void CompileProgram(const CallRef<v1::CompileProgramRequest, v1::CompileProgramResponse>& call) {
  const v1::CompileProgramRequest& q = call->request();
  absl::StatusOr<ir::Program> program = ProgramOf(*call, q);
  if (!program.ok()) return call->Finish(Annotate(program.status(), "compile"));
  absl::StatusOr<api::CompileRequest> body =
      ir::serial::CompileRequestOf(q, *std::move(program), call->coordinator()->limits());
  if (!body.ok()) return call->Finish(body.status());
  call->coordinator()->CompileAsync(
      call->caller(), *std::move(body),
      AnswerWith<api::CompileReply>(call, [](const auto& r, auto* out) { *out = ToProto(r); }));
}

void ExplainProgram(const CallRef<v1::ExplainProgramRequest, v1::ExplainProgramResponse>& call) {
  const v1::ExplainProgramRequest& q = call->request();
  absl::StatusOr<ir::Program> program = ProgramOf(*call, q);
  if (!program.ok()) return call->Finish(Annotate(program.status(), "explain"));
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
    absl::StatusOr<ir::Program> program = ProgramOf(*call, request);
    if (request.source_case() == v1::RunProgramRequest::kText && request.text().empty())
      program = ir::ParseProgram("", call->coordinator()->limits());
    if (!program.ok()) return call->Finish(program.status());
    const std::unique_ptr<api::Service> service =
        MakeBoundService(call->coordinator(), call->caller(), /*session=*/0,
                         call->coordinator()->clock()->Now() + *left);
    call->Finish(RunOne(*service, *std::move(program), request, &call->response(), *left));
  });
}

}  // namespace tessera::server::rpc
