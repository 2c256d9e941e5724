#include "server/rpc/client_services.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/service.h"
#include "ir/serial/status.h"
#include "server/rpc/status.h"

namespace tessera::server::rpc {
namespace {

using ir::serial::FromProto;
using ir::serial::ToProto;

// What the message asks for, within the caller's deadline less what the answer needs.
absl::Duration WaitOf(grpc::CallbackServerContext* context, bool given,
                      const google::protobuf::Duration& timeout) {
  const absl::Duration asked = given ? FromProto(timeout) : absl::InfiniteDuration();
  const auto deadline = context->deadline();
  if (deadline == std::chrono::system_clock::time_point::max())
    return std::max(asked, absl::ZeroDuration());
  const absl::Duration left = absl::FromChrono(deadline) - absl::Now() - absl::Milliseconds(20);
  return std::max(std::min(asked, left), absl::ZeroDuration());
}

grpc::ServerUnaryReactor* Refuse(grpc::ServerUnaryReactor* reactor, const absl::Status& status) {
  reactor->Finish(ToGrpc(status));
  return reactor;
}

// Answers with what `fill` makes of the value.
template <class T, class Fill>
std::function<void(absl::StatusOr<T>)> Then(grpc::ServerUnaryReactor* reactor, Fill fill) {
  return [reactor, fill = std::move(fill)](absl::StatusOr<T> value) {
    if (value.ok()) fill(*value);
    reactor->Finish(ToGrpc(value.status()));
  };
}

void Fill(const std::vector<ShardTicket>& tickets,
          google::protobuf::RepeatedPtrField<v1::ShardTicket>* out) {
  for (const ShardTicket& t : tickets) {
    v1::ShardTicket* ticket = out->Add();
    ticket->set_ordinal(t.ordinal);
    ticket->set_endpoint(t.endpoint);
    ticket->set_ticket(t.ticket);
  }
}

}  // namespace

// ---- Cluster. -----------------------------------------------------------------------------------
grpc::ServerUnaryReactor* ClusterService::ListDevices(grpc::CallbackServerContext* context,
                                                      const v1::ListDevicesRequest*,
                                                      v1::ListDevicesResponse* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->ListDevicesAsync(
      Then<std::vector<api::Device>>(reactor, [response](const std::vector<api::Device>& devices) {
        for (const api::Device& d : devices) *response->add_devices() = ToProto(d);
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::GetCapabilities(grpc::CallbackServerContext* context,
                                                          const v1::GetCapabilitiesRequest*,
                                                          v1::GetCapabilitiesResponse* response) {
  const Options& o = coordinator_->options();
  response->set_version("0.1.0");
  response->set_opset(ir::kOpset);
  response->set_max_program_bytes(o.max_program_bytes);
  response->set_max_message_bytes(o.max_message_bytes);
  response->set_max_ops(o.max_ops);
  response->set_max_mesh_devices(o.max_mesh_devices);
  response->set_queue_bound(o.queue_bound);
  response->set_result_wait_ms_max(o.result_wait_ms_max);
  response->set_lease_ms(o.lease_ms);
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

// ---- Arrays. ------------------------------------------------------------------------------------
ArrayService::ArrayService(Coordinator* coordinator) : coordinator_(coordinator) {}

grpc::ServerUnaryReactor* ArrayService::CreateArray(grpc::CallbackServerContext* context,
                                                    const v1::CreateArrayRequest* request,
                                                    v1::CreateArrayResponse* response) {
  auto* reactor = context->DefaultReactor();
  absl::StatusOr<api::ArraySpec> spec = FromProto(request->spec(), coordinator_->limits());
  if (!spec.ok()) return Refuse(reactor, spec.status());
  coordinator_->CreateArrayAsync(
      *std::move(spec), Then<TicketedArray>(reactor, [response](const TicketedArray& a) {
        response->set_array(a.array);
        Fill(a.tickets, response->mutable_tickets());
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ArrayService::GetArray(grpc::CallbackServerContext* context,
                                                 const v1::GetArrayRequest* request,
                                                 v1::Array* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->DescribeAsync(
      request->array(),
      Then<scheduler::ArrayInfo>(reactor, [response](const scheduler::ArrayInfo& info) {
        response->set_id(info.array);
        *response->mutable_spec() = ToProto(info.spec);
        response->set_state(info.state);
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ArrayService::CreateReadTickets(
    grpc::CallbackServerContext* context, const v1::CreateReadTicketsRequest* request,
    v1::CreateReadTicketsResponse* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->ReadTicketsAsync(
      request->array(), {request->ordinals().begin(), request->ordinals().end()},
      WaitOf(context, request->has_timeout(), request->timeout()),
      Then<TicketedArray>(reactor, [response](const TicketedArray& a) {
        *response->mutable_spec() = ToProto(a.spec);
        Fill(a.tickets, response->mutable_tickets());
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ArrayService::DeleteArrays(grpc::CallbackServerContext* context,
                                                     const v1::DeleteArraysRequest* request,
                                                     v1::DeleteArraysResponse*) {
  auto* reactor = context->DefaultReactor();
  coordinator_->DeleteAsync({request->arrays().begin(), request->arrays().end()},
                            [reactor](const absl::Status& s) { reactor->Finish(ToGrpc(s)); });
  return reactor;
}

// ---- Programs. ----------------------------------------------------------------------------------
ProgramService::ProgramService(Coordinator* coordinator)
    : coordinator_(coordinator), pool_(coordinator) {}

grpc::ServerUnaryReactor* ProgramService::CompileProgram(grpc::CallbackServerContext* context,
                                                         const v1::CompileProgramRequest* request,
                                                         v1::CompileProgramResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (static_cast<int64_t>(request->program().ByteSizeLong()) >
      coordinator_->options().max_program_bytes)
    return Refuse(reactor, MakeError(ErrorKind::kLimitExceeded,
                                     "compile: the program is larger than max_program_bytes "
                                     "(GetCapabilities)"));
  absl::StatusOr<api::CompileRequest> body = FromProto(*request, coordinator_->limits());
  if (!body.ok()) return Refuse(reactor, body.status());
  coordinator_->CompileAsync(
      *std::move(body), Then<api::CompileReply>(reactor, [response](const api::CompileReply& r) {
        *response = ToProto(r);
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ProgramService::ExecuteProgram(grpc::CallbackServerContext* context,
                                                         const v1::ExecuteProgramRequest* request,
                                                         v1::ExecuteProgramResponse* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->ExecuteAsync(
      FromProto(*request), Then<api::ExecuteReply>(reactor, [response](const api::ExecuteReply& r) {
        *response = ToProto(r);
      }));
  return reactor;
}

grpc::ServerUnaryReactor* ProgramService::RunProgram(grpc::CallbackServerContext* context,
                                                     const v1::RunProgramRequest* request,
                                                     v1::RunProgramResponse* response) {
  auto* reactor = context->DefaultReactor();
  const absl::Duration timeout = std::min(
      WaitOf(context, request->has_timeout(), request->timeout()),
      absl::Milliseconds(coordinator_->options().result_wait_ms_max));
  pool_.Run(request, response, timeout,
            [reactor](const absl::Status& s) { reactor->Finish(ToGrpc(s)); });
  return reactor;
}

// ---- Operations. --------------------------------------------------------------------------------
grpc::ServerUnaryReactor* OperationService::GetOperation(grpc::CallbackServerContext* context,
                                                         const v1::GetOperationRequest* request,
                                                         v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->WaitOperationAsync(
      request->operation(), absl::ZeroDuration(),
      Then<api::Operation>(reactor, [response](const api::Operation& o) { *response = ToProto(o); }));
  return reactor;
}

grpc::ServerUnaryReactor* OperationService::WaitOperation(grpc::CallbackServerContext* context,
                                                          const v1::WaitOperationRequest* request,
                                                          v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->WaitOperationAsync(
      request->operation(), WaitOf(context, request->has_timeout(), request->timeout()),
      Then<api::Operation>(reactor, [response](const api::Operation& o) { *response = ToProto(o); }));
  return reactor;
}

grpc::ServerUnaryReactor* OperationService::CancelOperation(
    grpc::CallbackServerContext* context, const v1::CancelOperationRequest* request,
    v1::CancelOperationResponse*) {
  auto* reactor = context->DefaultReactor();
  coordinator_->CancelAsync(request->operation(),
                            [reactor](const absl::Status& s) { reactor->Finish(ToGrpc(s)); });
  return reactor;
}

}  // namespace tessera::server::rpc
