// The program of a request, however it is given: as a message, as text, as an artifact or by the
// hash of an upload.  Reading one takes up to seconds, which the threads for it spend.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "ir/program.h"
#include "ir/serial/program.h"
#include "server/rpc/call.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

// VALUE_ERROR for a number that is none of ProgramFormat.
absl::StatusOr<scheduler::ProgramFormat> FromProto(v1::ProgramFormat format);
v1::ProgramFormat ToProto(scheduler::ProgramFormat format);

// Calls `read` on one of the threads that read programs: with the end, by SteadyNow(), of the time
// that the call has, or with the error for which it is not to be read.
void OnDecoder(const CallBase& call, std::function<void(absl::StatusOr<absl::Time>)> read);

// The bytes of an upload.
api::ProgramSource SourceOf(const scheduler::ProgramInfo& upload);
// The program, not verified yet; read on this thread, by the caller's reader.
absl::StatusOr<ir::Program> ReadSource(const CallBase& call, const api::ProgramSource& source,
                                       absl::Time deadline);
absl::StatusOr<v1::InspectProgramResponse> InspectSource(const CallBase& call,
                                                         const api::ProgramSource& source,
                                                         absl::Time deadline);

// Calls `then` with the bytes of an upload.
template <class Q, class R>
void FindUpload(const CallRef<Q, R>& call, const std::string& sha256,
                std::function<void(absl::StatusOr<scheduler::ProgramInfo>)> then) {
  call->coordinator()->template Post<scheduler::ProgramInfo>(
      scheduler::GetProgram{call->asker(), sha256}, std::move(then));
}

// LIMIT_EXCEEDED for a program of more bytes than max_program_bytes.
absl::Status CheckProgramSize(const Coordinator& coordinator, size_t bytes);

// The program is given in exactly one way.
template <class Request>
absl::Status CheckOneProgram(const Request& request) {
  const int ways = (request.has_program() ? 1 : 0) + (request.text().empty() ? 0 : 1) +
                   (request.program_sha256().empty() ? 0 : 1) +
                   (request.stablehlo().empty() ? 0 : 1);
  if (ways == 1) return absl::OkStatus();
  return MakeError(ErrorKind::kMalformedProgram,
                   ways == 0 ? "there is no program; give it as a message, as text, as a "
                               "StableHLO artifact or by the hash of an upload"
                             : "the program is given in several ways; give it in one");
}

// Calls `then` with the upload that the request names; without bytes if the program itself is in
// the request. Requires: CheckOneProgram.
template <class Q, class R>
void WithUpload(const CallRef<Q, R>& call,
                std::function<void(absl::StatusOr<scheduler::ProgramInfo>)> then) {
  if (absl::Status s = CheckOneProgram(call->request()); !s.ok()) return then(std::move(s));
  const std::string& sha256 = call->request().program_sha256();
  if (sha256.empty()) return then(scheduler::ProgramInfo());
  FindUpload(call, sha256, std::move(then));
}

// The request's program, not verified yet, read on this thread.
template <class Request>
absl::StatusOr<ir::Program> ReadProgram(const CallBase& call, const Request& request,
                                        const scheduler::ProgramInfo& upload, absl::Time deadline) {
  if (upload.bytes != nullptr) return ReadSource(call, SourceOf(upload), deadline);
  using Form = api::ProgramSource::Form;
  const bool is_message = request.has_program(), is_text = !request.text().empty();
  const std::string& bytes = is_text ? request.text() : request.stablehlo();
  const Coordinator& coordinator = *call.coordinator();
  TESSERA_RETURN_IF_ERROR(
      CheckProgramSize(coordinator, is_message ? request.program().ByteSizeLong() : bytes.size()));
  if (!is_message)
    return ReadSource(call, {is_text ? Form::kText : Form::kStablehlo, bytes}, deadline);
  if (call.context().reader == nullptr)
    return ir::serial::FromProto(request.program(), coordinator.limits());
  return ReadSource(call, {Form::kMessage, request.program().SerializeAsString()}, deadline);
}

// Calls `then` with the request's program, on one of the threads that read programs.
template <class Q, class R>
void WithProgram(const CallRef<Q, R>& call, std::function<void(absl::StatusOr<ir::Program>)> then) {
  WithUpload(call, [call, then = std::move(then)](absl::StatusOr<scheduler::ProgramInfo> upload) {
    if (!upload.ok()) return then(upload.status());
    OnDecoder(*call,
              [call, then, upload = *std::move(upload)](absl::StatusOr<absl::Time> deadline) {
                if (!deadline.ok()) return then(deadline.status());
                then(ReadProgram(*call, call->request(), upload, *deadline));
              });
  });
}

}  // namespace tessera::server::rpc
