// ProgramService: programs uploaded, explained, compiled and run.
#pragma once
#include <vector>

#include "server/coordinator.h"
#include "server/rpc/call.h"
#include "server/rpc/run_program.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator outlives it.
class ProgramService {
 public:
  explicit ProgramService(Coordinator* coordinator);
  std::vector<Row> Rows();

 private:
  template <class Q, class R>
  using CallRef = std::shared_ptr<Call<Q, R>>;
  void UploadProgram(const CallRef<v1::UploadProgramRequest, v1::UploadProgramResponse>& call);
  void GetProgram(const CallRef<v1::GetProgramRequest, v1::UploadedProgram>& call);
  void ListPrograms(const CallRef<v1::ListProgramsRequest, v1::ListProgramsResponse>& call);
  void DeleteProgram(const CallRef<v1::DeleteProgramRequest, v1::DeleteProgramResponse>& call);
  void ExplainProgram(const CallRef<v1::ExplainProgramRequest, v1::ExplainProgramResponse>& call);
  void CompileProgram(const CallRef<v1::CompileProgramRequest, v1::CompileProgramResponse>& call);
  void ExecuteProgram(const CallRef<v1::ExecuteProgramRequest, v1::ExecuteProgramResponse>& call);
  grpc::ServerWriteReactor<v1::ExecuteProgramEvent>* ExecuteAndWatch(
      StreamCall<v1::ExecuteProgramRequest, v1::ExecuteProgramEvent> call);
  void RunProgram(const CallRef<v1::RunProgramRequest, v1::RunProgramResponse>& call);

  // The program that is given in one of the ways: message, text, hash of an upload.
  absl::StatusOr<ir::Program> ProgramOf(const core::Caller& caller, const v1::Program* program,
                                        const std::string& text, const std::string& sha256) const;

  Coordinator* const coordinator_;
  RunPool pool_;
};

}  // namespace tessera::server::rpc
