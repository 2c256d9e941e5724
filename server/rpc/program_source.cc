// Reads programs for the handlers of ProgramService: in a jailed process if the server has a reader
// (core::ProgramReader), otherwise in this process.
#include "server/rpc/program_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "ir/serial/source.h"
#include "server/rpc/run_program.h"

namespace tessera::server::rpc {
namespace {

// Returns how long a call waits for one of the threads that read programs.
absl::Duration DecoderWait(const CallBase& call) {
  return std::min(call.WaitTime(/*given=*/false, {}), call.coordinator()->config().result_wait_max);
}

}  // namespace

api::ProgramSource SourceOf(const scheduler::ProgramInfo& upload) {
  using Form = api::ProgramSource::Form;
  const bool is_artifact = upload.format == scheduler::ProgramFormat::kStablehlo;
  return {is_artifact ? Form::kStablehlo : Form::kMessage, *upload.bytes};
}

absl::StatusOr<ir::Program> ReadSource(const CallBase& call, const api::ProgramSource& source,
                                       absl::Time deadline) {
  core::ProgramReader* const reader = call.context().reader;
  if (reader == nullptr) return ir::serial::ReadSource(source, call.coordinator()->limits());
  return reader->Read(call.caller().tenant, source, deadline);
}

absl::StatusOr<v1::InspectProgramResponse> InspectSource(const CallBase& call,
                                                         const api::ProgramSource& source,
                                                         absl::Time deadline) {
  core::ProgramReader* const reader = call.context().reader;
  if (reader == nullptr) return ir::serial::InspectSource(source, call.coordinator()->limits());
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes,
                           reader->Inspect(call.caller().tenant, source, deadline));
  v1::InspectProgramResponse found;
  if (!found.ParseFromString(bytes))
    return MakeError(ErrorKind::kInternal,
                     "inspect: the process for programs sent a reply that is not a valid message");
  return found;
}

absl::StatusOr<scheduler::ProgramFormat> FromProto(v1::ProgramFormat format) {
  switch (format) {
    case v1::PROGRAM_FORMAT_TESSERA:
      return scheduler::ProgramFormat::kTessera;
    case v1::PROGRAM_FORMAT_STABLEHLO:
      return scheduler::ProgramFormat::kStablehlo;
    default:
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("format: this server knows no format with number ", static_cast<int>(format),
                       "; give PROGRAM_FORMAT_TESSERA or PROGRAM_FORMAT_STABLEHLO"));
  }
}

v1::ProgramFormat ToProto(scheduler::ProgramFormat format) {
  return format == scheduler::ProgramFormat::kStablehlo ? v1::PROGRAM_FORMAT_STABLEHLO
                                                        : v1::PROGRAM_FORMAT_TESSERA;
}

void RunOnDecoder(const CallBase& call, std::function<void(absl::StatusOr<absl::Time>)> read) {
  call.context().decoders->Submit(
      DecoderWait(call), call.caller().tenant, call.request_bytes(),
      [read = std::move(read)](const absl::StatusOr<absl::Duration>& left) {
        if (!left.ok()) return read(left.status());
        read(SteadyNow() + *left);
      });
}

absl::Status CheckProgramSize(const Coordinator& coordinator, size_t bytes) {
  const int64_t bytes_max = coordinator.options().max_program_bytes;
  if (static_cast<int64_t>(bytes) <= bytes_max) return absl::OkStatus();
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat("the program has ", bytes, " bytes, at most ", bytes_max,
                                " are accepted (max_program_bytes)"));
}

}  // namespace tessera::server::rpc
