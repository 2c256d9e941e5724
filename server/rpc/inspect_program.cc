// InspectProgram: what a program is, also one that this server cannot run.
#include <utility>

#include "absl/strings/str_cat.h"
#include "ir/serial/program.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "server/rpc/handlers.h"
#include "server/rpc/program_source.h"

namespace tessera::server::rpc {
namespace {

using InspectCall = CallRef<v1::InspectProgramRequest, v1::InspectProgramResponse>;

void AddValues(const std::vector<ir::stablehlo::ValueInfo>& values,
               google::protobuf::RepeatedPtrField<v1::ProgramValue>* out) {
  for (const ir::stablehlo::ValueInfo& value : values) {
    v1::ProgramValue& to = *out->Add();
    to.set_type(value.type);
    to.set_name(value.name);
    to.set_sharding(value.sharding);
  }
}

void Fill(const ir::stablehlo::Inspection& found, v1::InspectProgramResponse* out) {
  out->set_name(found.name);
  out->set_producer(found.producer);
  out->set_stablehlo_version(found.version);
  AddValues(found.main.params, out->mutable_params());
  AddValues(found.main.results, out->mutable_results());
  out->mutable_ops()->insert(found.ops.begin(), found.ops.end());
  out->mutable_lacking()->insert(found.lacking.begin(), found.lacking.end());
  for (const auto& [name, mesh] : found.meshes) {
    v1::ProgramMesh& to = *out->add_meshes();
    to.set_name(name);
    *to.mutable_mesh() = ir::serial::ToProto(mesh);
  }
}

absl::Status DescribeArtifact(std::string_view bytes, const ir::Limits& limits,
                              v1::InspectProgramResponse* out) {
  namespace stablehlo = ir::stablehlo;
  TESSERA_ASSIGN_OR_RETURN(
      const stablehlo::Artifact artifact,
      stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  Fill(stablehlo::Inspect(artifact), out);
  out->set_format(v1::PROGRAM_FORMAT_STABLEHLO);
  const absl::StatusOr<ir::Program> program = stablehlo::ImportProgram(artifact);
  const absl::Status usable = program.ok() ? ir::Verify(*program, limits) : program.status();
  out->set_problem(std::string(usable.message()));
  return absl::OkStatus();
}

absl::Status Describe(const InspectCall& call, const scheduler::ProgramInfo& upload) {
  const Coordinator& coordinator = *call->coordinator();
  const bool is_upload = upload.bytes != nullptr;
  const std::string& bytes = is_upload ? *upload.bytes : call->request().stablehlo();
  TESSERA_RETURN_IF_ERROR(CheckProgramSize(coordinator, bytes.size()));
  const bool is_artifact =
      is_upload ? upload.format == scheduler::ProgramFormat::kStablehlo : !bytes.empty();
  if (is_artifact) return DescribeArtifact(bytes, coordinator.limits(), &call->response());
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program,
                           ReadProgram(coordinator, call->request(), upload));
  TESSERA_RETURN_IF_ERROR(ir::Verify(program, coordinator.limits()));
  Fill(ir::stablehlo::Inspect(program), &call->response());
  return absl::OkStatus();
}

}  // namespace

void InspectProgram(const InspectCall& call) {
  WithUpload(call, [call](const absl::StatusOr<scheduler::ProgramInfo>& upload) {
    if (!upload.ok()) return call->Finish(upload.status());
    OnDecoder(*call, [call, upload = *upload](absl::Status ready) {
      if (ready.ok()) ready = Describe(call, upload);
      call->Finish(ready);
    });
  });
}

}  // namespace tessera::server::rpc
