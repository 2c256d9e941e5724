// Reads uploaded programs of every form, and describes them. The server's jail (a process for
// untrusted bytes, docs/decisions/0019) calls it for requests that carry a text, an artifact or a
// message.
#include "ir/serial/source.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "ir/serial/program.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/text.h"

namespace tessera::ir::serial {
namespace {

using Form = api::ProgramSource::Form;

absl::StatusOr<stablehlo::Artifact> ReadArtifact(std::string_view bytes) {
  return stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

void AddValues(const std::vector<stablehlo::ValueInfo>& values,
               google::protobuf::RepeatedPtrField<v1::ProgramValue>* out) {
  for (const stablehlo::ValueInfo& value : values) {
    v1::ProgramValue& to = *out->Add();
    to.set_type(value.type);
    to.set_name(value.name);
    to.set_sharding(value.sharding);
  }
}

v1::InspectProgramResponse ToProto(const stablehlo::Inspection& inspection) {
  v1::InspectProgramResponse out;
  out.set_name(inspection.name);
  out.set_producer(inspection.producer);
  out.set_stablehlo_version(inspection.version);
  AddValues(inspection.main.params, out.mutable_params());
  AddValues(inspection.main.results, out.mutable_results());
  out.mutable_ops()->insert(inspection.ops.begin(), inspection.ops.end());
  out.mutable_lacking()->insert(inspection.lacking.begin(), inspection.lacking.end());
  for (const auto& [name, mesh] : inspection.meshes) {
    v1::ProgramMesh& to = *out.add_meshes();
    to.set_name(name);
    *to.mutable_mesh() = serial::ToProto(mesh);
  }
  return out;
}

}  // namespace

absl::StatusOr<Program> ReadSource(const api::ProgramSource& source, const Limits& limits) {
  switch (source.form) {
    case Form::kText: {
      if (const size_t at = FirstInvalidUtf8(source.bytes); at != source.bytes.size())
        return MakeError(ErrorKind::kMalformedProgram,
                         absl::StrCat("program text: byte ", at, " is not UTF-8"));
      return ParseProgram(std::string(source.bytes), limits);
    }
    case Form::kStablehlo: {
      TESSERA_ASSIGN_OR_RETURN(const stablehlo::Artifact artifact, ReadArtifact(source.bytes));
      return stablehlo::ImportProgram(artifact);
    }
    case Form::kMessage:
      break;
  }
  v1::Program proto;
  if (!proto.ParseFromArray(source.bytes.data(), static_cast<int>(source.bytes.size())))
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat("upload: the ", source.bytes.size(), " bytes are not a ",
                                  v1::Program::descriptor()->full_name()));
  return FromProto(proto, limits);
}

v1::InspectProgramResponse Inspect(const Program& program) {
  return ToProto(stablehlo::Inspect(program));
}

absl::StatusOr<v1::InspectProgramResponse> InspectSource(const api::ProgramSource& source,
                                                         const Limits& limits) {
  if (source.form != Form::kStablehlo) {
    TESSERA_ASSIGN_OR_RETURN(const Program program, ReadSource(source, limits));
    TESSERA_RETURN_IF_ERROR(Verify(program, limits));
    return Inspect(program);
  }
  TESSERA_ASSIGN_OR_RETURN(const stablehlo::Artifact artifact, ReadArtifact(source.bytes));
  v1::InspectProgramResponse out = ToProto(stablehlo::Inspect(artifact));
  out.set_format(v1::PROGRAM_FORMAT_STABLEHLO);
  const absl::StatusOr<Program> program = stablehlo::ImportProgram(artifact);
  const absl::Status status = program.ok() ? Verify(*program, limits) : program.status();
  out.set_problem(AsUtf8(ToStd(status.message())));
  return out;
}

}  // namespace tessera::ir::serial
