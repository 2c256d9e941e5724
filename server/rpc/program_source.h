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
#include "ir/text.h"
#include "ir/verify.h"
#include "server/rpc/call.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

// A program's bytes as a program, not verified yet. Errors: MALFORMED_PROGRAM, LIMIT_EXCEEDED,
// UNKNOWN_OP, NOT_IMPLEMENTED and those of ops' rules.
absl::StatusOr<ir::Program> ReadProgram(std::string_view bytes, scheduler::ProgramFormat format,
                                        const ir::Limits& limits);

// VALUE_ERROR for a number that is none of ProgramFormat.
absl::StatusOr<scheduler::ProgramFormat> FromProto(v1::ProgramFormat format);
v1::ProgramFormat ToProto(scheduler::ProgramFormat format);

// Calls `read` on one of the threads that read programs; with the error for which it is not to be
// read, if there is one.
void OnDecoder(const CallBase& call, std::function<void(absl::Status)> read);

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

// The request's program, read on this thread.
template <class Request>
absl::StatusOr<ir::Program> ReadProgram(const Coordinator& coordinator, const Request& request,
                                        const scheduler::ProgramInfo& upload) {
  if (upload.bytes != nullptr)
    return ReadProgram(*upload.bytes, upload.format, coordinator.limits());
  const bool is_message = request.has_program();
  const std::string& bytes = request.text().empty() ? request.stablehlo() : request.text();
  TESSERA_RETURN_IF_ERROR(
      CheckProgramSize(coordinator, is_message ? request.program().ByteSizeLong() : bytes.size()));
  if (is_message) return ir::serial::FromProto(request.program(), coordinator.limits());
  if (!request.text().empty()) return ir::ParseProgram(bytes, coordinator.limits());
  return ReadProgram(bytes, scheduler::ProgramFormat::kStablehlo, coordinator.limits());
}

// Calls `then` with the request's program. One that comes as bytes is read by OnDecoder.
template <class Q, class R>
void WithProgram(const CallRef<Q, R>& call, std::function<void(absl::StatusOr<ir::Program>)> then) {
  WithUpload(call, [call, then = std::move(then)](absl::StatusOr<scheduler::ProgramInfo> upload) {
    if (!upload.ok()) return then(upload.status());
    const auto read = [call, then, upload = *std::move(upload)](absl::Status ready) {
      if (!ready.ok()) return then(std::move(ready));
      then(ReadProgram(*call->coordinator(), call->request(), upload));
    };
    const bool is_quick = call->request().has_program() || !call->request().text().empty();
    if (is_quick) return read(absl::OkStatus());
    OnDecoder(*call, read);
  });
}

}  // namespace tessera::server::rpc
