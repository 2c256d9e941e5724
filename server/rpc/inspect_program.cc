// The handler of InspectProgram. It describes a program, even one that this server cannot run. The
// description of an artifact also says why the server would refuse it. A program that the request
// contains as a message or as text must verify.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/serial/source.h"
#include "ir/verify.h"
#include "server/rpc/handlers.h"
#include "server/rpc/program_source.h"

namespace tessera::server::rpc {
namespace {

using InspectCall = CallRef<v1::InspectProgramRequest, v1::InspectProgramResponse>;

absl::Status Describe(const InspectCall& call, const scheduler::ProgramInfo& upload,
                      absl::Time deadline) {
  const bool is_upload = upload.bytes != nullptr;
  const v1::InspectProgramRequest& q = call->request();
  if (is_upload || !q.stablehlo().empty()) {
    const api::ProgramSource source =
        is_upload ? SourceOf(upload)
                  : api::ProgramSource{api::ProgramSource::Form::kStablehlo, q.stablehlo()};
    TESSERA_RETURN_IF_ERROR(CheckProgramSize(*call->coordinator(), source.bytes.size()));
    TESSERA_ASSIGN_OR_RETURN(call->response(), InspectSource(*call, source, deadline));
    return absl::OkStatus();
  }
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ReadProgram(*call, q, upload, deadline));
  TESSERA_RETURN_IF_ERROR(ir::Verify(program, call->coordinator()->limits()));
  call->response() = ir::serial::Inspect(program);
  return absl::OkStatus();
}

}  // namespace

void InspectProgram(const InspectCall& call) {
  WithUpload(call, [call](const absl::StatusOr<scheduler::ProgramInfo>& upload) {
    if (!upload.ok()) return call->Finish(upload.status());
    RunOnDecoder(*call, [call, upload = *upload](const absl::StatusOr<absl::Time>& deadline) {
      call->Finish(deadline.ok() ? Describe(call, upload, *deadline) : deadline.status());
    });
  });
}

}  // namespace tessera::server::rpc
