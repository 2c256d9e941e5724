// The services of clients over gRPC: decode, call the coordinator, encode.  No request holds a
// thread while it waits, but for RunProgram, which has a few threads of its own.
#pragma once
#include <memory>

#include "ir/verify.h"
#include "server/coordinator.h"
#include "server/rpc/run_program.h"
#include "tessera/v1/array.grpc.pb.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/operation.grpc.pb.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::server::rpc {

// Thread-safe; the coordinator outlives them.
class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  explicit ClusterService(Coordinator* coordinator) : coordinator_(coordinator) {}
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const v1::GetCapabilitiesRequest* request,
                                            v1::GetCapabilitiesResponse* response) override;

 private:
  Coordinator* const coordinator_;
};

class ArrayService final : public v1::ArrayService::CallbackService {
 public:
  explicit ArrayService(Coordinator* coordinator);
  grpc::ServerUnaryReactor* CreateArray(grpc::CallbackServerContext* context,
                                        const v1::CreateArrayRequest* request,
                                        v1::CreateArrayResponse* response) override;
  grpc::ServerUnaryReactor* GetArray(grpc::CallbackServerContext* context,
                                     const v1::GetArrayRequest* request,
                                     v1::Array* response) override;
  grpc::ServerUnaryReactor* CreateReadTickets(grpc::CallbackServerContext* context,
                                              const v1::CreateReadTicketsRequest* request,
                                              v1::CreateReadTicketsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteArrays(grpc::CallbackServerContext* context,
                                         const v1::DeleteArraysRequest* request,
                                         v1::DeleteArraysResponse* response) override;

 private:
  Coordinator* const coordinator_;
};

// The calls that carry programs decode themselves: gRPC answers bytes that do not decode with an
// UNIMPLEMENTED that says nothing.
using ProgramServiceBase = v1::ProgramService::WithRawCallbackMethod_CompileProgram<
    v1::ProgramService::WithRawCallbackMethod_RunProgram<
        v1::ProgramService::WithCallbackMethod_ExecuteProgram<
            v1::ProgramService::WithCallbackMethod_ExecuteAndWatch<v1::ProgramService::Service>>>>;

class ProgramService final : public ProgramServiceBase {
 public:
  explicit ProgramService(Coordinator* coordinator);
  grpc::ServerUnaryReactor* CompileProgram(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ExecuteProgram(grpc::CallbackServerContext* context,
                                           const v1::ExecuteProgramRequest* request,
                                           v1::ExecuteProgramResponse* response) override;
  grpc::ServerWriteReactor<v1::ExecuteProgramEvent>* ExecuteAndWatch(
      grpc::CallbackServerContext* context, const v1::ExecuteProgramRequest* request) override;
  grpc::ServerUnaryReactor* RunProgram(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  Coordinator* const coordinator_;
  RunPool pool_;
};

class OperationService final : public v1::OperationService::CallbackService {
 public:
  explicit OperationService(Coordinator* coordinator) : coordinator_(coordinator) {}
  grpc::ServerUnaryReactor* GetOperation(grpc::CallbackServerContext* context,
                                         const v1::GetOperationRequest* request,
                                         v1::Operation* response) override;
  grpc::ServerUnaryReactor* WaitOperation(grpc::CallbackServerContext* context,
                                          const v1::WaitOperationRequest* request,
                                          v1::Operation* response) override;
  grpc::ServerUnaryReactor* CancelOperation(grpc::CallbackServerContext* context,
                                            const v1::CancelOperationRequest* request,
                                            v1::CancelOperationResponse* response) override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace tessera::server::rpc
