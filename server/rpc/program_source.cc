#include "server/rpc/program_source.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ir/stablehlo/import.h"
#include "server/rpc/run_program.h"

namespace tessera::server::rpc {
namespace {

absl::StatusOr<ir::Program> ReadMessage(std::string_view bytes, const ir::Limits& limits) {
  v1::Program proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat("upload: its ", bytes.size(), " bytes are no ",
                                  v1::Program::descriptor()->full_name()));
  return ir::serial::FromProto(proto, limits);
}

absl::StatusOr<ir::Program> ReadArtifact(std::string_view bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const ir::stablehlo::Artifact artifact,
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return ir::stablehlo::ImportProgram(artifact);
}

// How long a call waits for one of the threads that read programs.
absl::Duration DecoderWait(const CallBase& call) {
  return std::min(call.Wait(/*given=*/false, {}), call.coordinator()->config().result_wait_max);
}

}  // namespace

absl::StatusOr<ir::Program> ReadProgram(std::string_view bytes, scheduler::ProgramFormat format,
                                        const ir::Limits& limits) {
  return format == scheduler::ProgramFormat::kStablehlo ? ReadArtifact(bytes)
                                                        : ReadMessage(bytes, limits);
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
          absl::StrCat("format: this server knows none of the number ", static_cast<int>(format),
                       "; give PROGRAM_FORMAT_TESSERA or PROGRAM_FORMAT_STABLEHLO"));
  }
}

v1::ProgramFormat ToProto(scheduler::ProgramFormat format) {
  return format == scheduler::ProgramFormat::kStablehlo ? v1::PROGRAM_FORMAT_STABLEHLO
                                                        : v1::PROGRAM_FORMAT_TESSERA;
}

void OnDecoder(const CallBase& call, std::function<void(absl::Status)> read) {
  call.context().decoders->Run(
      DecoderWait(call), [read = std::move(read)](const absl::StatusOr<absl::Duration>& left) {
        read(left.status());
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
