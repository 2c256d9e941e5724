// Reads the program of a request. The request may give it as a message, as text, as an artifact or
// by the hash of an upload.  Reading may take seconds, so it runs on threads of its own (the
// decoders).
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

// Convert the format of a program. FromProto returns VALUE_ERROR for a number that is not in
// v1::ProgramFormat.
absl::StatusOr<scheduler::ProgramFormat> FromProto(v1::ProgramFormat format);
v1::ProgramFormat ToProto(scheduler::ProgramFormat format);

// Calls `read` on one of the threads that read programs. Passes `read` the time by which it must be
// done (a time of SteadyNow()), or the error because of which the call gets no thread.
void RunOnDecoder(const CallBase& call, std::function<void(absl::StatusOr<absl::Time>)> read);

// Returns the bytes of an upload as a source. The upload must outlive the source.
api::ProgramSource SourceOf(const scheduler::ProgramInfo& upload);
// ReadSource reads a program and InspectSource describes it, on this thread, by the server's reader
// if it has one. ReadSource does not verify the program.
absl::StatusOr<ir::Program> ReadSource(const CallBase& call, const api::ProgramSource& source,
                                       absl::Time deadline);
absl::StatusOr<v1::InspectProgramResponse> InspectSource(const CallBase& call,
                                                         const api::ProgramSource& source,
                                                         absl::Time deadline);

// Finds an upload of the caller's tenant by its hash, and calls `then` with it.
template <class Q, class R>
void FindUpload(const CallRef<Q, R>& call, const std::string& sha256,
                std::function<void(absl::StatusOr<scheduler::ProgramInfo>)> then) {
  call->coordinator()->template Post<scheduler::ProgramInfo>(
      scheduler::GetProgram{call->identity(), sha256}, std::move(then));
}

// Returns LIMIT_EXCEEDED for a program with more bytes than max_program_bytes.
absl::Status CheckProgramSize(const Coordinator& coordinator, size_t bytes);

// Checks that the request gives the program in exactly one way.
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

// Calls `then` with the upload that the request names. The upload has no bytes if the request
// itself contains the program. Calls CheckOneProgram first.
template <class Q, class R>
void WithUpload(const CallRef<Q, R>& call,
                std::function<void(absl::StatusOr<scheduler::ProgramInfo>)> then) {
  if (absl::Status s = CheckOneProgram(call->request()); !s.ok()) return then(std::move(s));
  const std::string& sha256 = call->request().program_sha256();
  if (sha256.empty()) return then(scheduler::ProgramInfo());
  FindUpload(call, sha256, std::move(then));
}

// Reads the request's program on this thread. The program is not verified yet.
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

// Reads the request's program on one of the threads that read programs, and calls `then` there.
template <class Q, class R>
void WithProgram(const CallRef<Q, R>& call, std::function<void(absl::StatusOr<ir::Program>)> then) {
  WithUpload(call, [call, then = std::move(then)](absl::StatusOr<scheduler::ProgramInfo> upload) {
    if (!upload.ok()) return then(upload.status());
    RunOnDecoder(*call,
                 [call, then, upload = *std::move(upload)](absl::StatusOr<absl::Time> deadline) {
                   if (!deadline.ok()) return then(deadline.status());
                   then(ReadProgram(*call, call->request(), upload, *deadline));
                 });
  });
}

}  // namespace tessera::server::rpc
