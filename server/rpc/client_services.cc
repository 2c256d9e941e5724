#include "server/rpc/client_services.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/log.h"
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

template <class Message>
absl::Status Decode(const grpc::ByteBuffer& bytes, Message* out) {
  grpc::ByteBuffer copy = bytes;  // of the references; decoding uses them up
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, out).ok()) return absl::OkStatus();
  return MakeError(
      ErrorKind::kMalformedProgram,
      absl::StrCat("request: its ", bytes.Length(), " bytes are no ",
                   Message::descriptor()->full_name(), "; build it with the server's protos"));
}
template <class Message>
void Encode(const Message& message, grpc::ByteBuffer* out) {
  bool own = false;
  const grpc::Status encoded = grpc::SerializationTraits<Message>::Serialize(message, out, &own);
  TESSERA_CHECK(encoded.ok()) << encoded.error_message();
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

// One ExecuteAndWatch: at most one write in flight, and Finish once, when none is.
class ExecutionStream final : public grpc::ServerWriteReactor<v1::ExecuteProgramEvent>,
                              public std::enable_shared_from_this<ExecutionStream> {
 public:
  static ExecutionStream* Start(Coordinator* coordinator, api::ExecuteRequest request) {
    const auto stream = std::make_shared<ExecutionStream>();
    stream->self_ = stream;
    coordinator->ExecuteToEndAsync(
        std::move(request),
        [stream](const absl::StatusOr<api::ExecuteReply>& reply) { stream->Accepted(reply); },
        [stream](const absl::StatusOr<api::Completion>& end) { stream->Ended(end); });
    return stream.get();
  }

  void OnWriteDone(bool ok) override ABSL_LOCKS_EXCLUDED(mu_) {
    bool end = false;
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      if (!ok) status_ = absl::CancelledError("the caller has left");
      end = TakeEnd();
    }
    if (end) End();
  }
  void OnCancel() override { Leave(absl::CancelledError("the caller has left")); }
  void OnDone() override { const std::shared_ptr<ExecutionStream> last = std::move(self_); }

 private:
  void Accepted(const absl::StatusOr<api::ExecuteReply>& reply) ABSL_LOCKS_EXCLUDED(mu_) {
    if (!reply.ok()) return Leave(reply.status());
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      writing_ = true;
    }
    *accepted_.mutable_accepted() = ToProto(*reply);
    StartWrite(&accepted_);
  }
  void Ended(const absl::StatusOr<api::Completion>& end) ABSL_LOCKS_EXCLUDED(mu_) {
    if (!end.ok()) return Leave(end.status());
    v1::ExecuteProgramEvent event;
    *event.mutable_ended() = ToProto(*end);
    bool now = false;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      ended_ = std::move(event);
      has_ended_ = true;
      now = TakeEnd();
    }
    if (now) End();
  }
  void Leave(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_) {
    bool now = false;
    {
      absl::MutexLock lock(&mu_);
      status_.Update(why);
      now = TakeEnd();
    }
    if (now) End();
  }
  // Whether the caller is to call End.
  bool TakeEnd() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || ending_ || (!has_ended_ && status_.ok())) return false;
    ending_ = true;
    return true;
  }
  // Nothing changes what it reads once ending_ is set.
  void End() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (has_ended_ && status_.ok()) {
      StartWriteAndFinish(&ended_, {}, grpc::Status::OK);
    } else {
      Finish(ToGrpc(status_));
    }
  }

  std::shared_ptr<ExecutionStream> self_;
  v1::ExecuteProgramEvent accepted_, ended_;
  absl::Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool has_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

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
  coordinator_->CreateArrayAsync(*std::move(spec),
                                 Then<TicketedArray>(reactor, [response](const TicketedArray& a) {
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
  coordinator_->ReadTicketsAsync(request->array(),
                                 {request->ordinals().begin(), request->ordinals().end()},
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
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* response) {
  auto* reactor = context->DefaultReactor();
  v1::CompileProgramRequest request;
  if (absl::Status s = Decode(*bytes, &request); !s.ok()) return Refuse(reactor, s);
  if (static_cast<int64_t>(request.program().ByteSizeLong()) >
      coordinator_->options().max_program_bytes)
    return Refuse(reactor, MakeError(ErrorKind::kLimitExceeded,
                                     "compile: the program is larger than max_program_bytes "
                                     "(GetCapabilities)"));
  absl::StatusOr<api::CompileRequest> body = FromProto(request, coordinator_->limits());
  if (!body.ok()) return Refuse(reactor, body.status());
  coordinator_->CompileAsync(
      *std::move(body), Then<api::CompileReply>(reactor, [response](const api::CompileReply& r) {
        Encode(ToProto(r), response);
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

grpc::ServerWriteReactor<v1::ExecuteProgramEvent>* ProgramService::ExecuteAndWatch(
    grpc::CallbackServerContext*, const v1::ExecuteProgramRequest* request) {
  return ExecutionStream::Start(coordinator_, FromProto(*request));
}

grpc::ServerUnaryReactor* ProgramService::RunProgram(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  struct Call {
    v1::RunProgramRequest request;
    v1::RunProgramResponse response;
  };
  auto* reactor = context->DefaultReactor();
  auto call = std::make_shared<Call>();
  if (absl::Status s = Decode(*bytes, &call->request); !s.ok()) return Refuse(reactor, s);
  const absl::Duration timeout =
      std::min(WaitOf(context, call->request.has_timeout(), call->request.timeout()),
               absl::Milliseconds(coordinator_->options().result_wait_ms_max));
  pool_.Run(&call->request, &call->response, timeout,
            [reactor, response, call](const absl::Status& s) {
              if (s.ok()) Encode(call->response, response);
              reactor->Finish(ToGrpc(s));
            });
  return reactor;
}

// ---- Operations. --------------------------------------------------------------------------------
grpc::ServerUnaryReactor* OperationService::GetOperation(grpc::CallbackServerContext* context,
                                                         const v1::GetOperationRequest* request,
                                                         v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->WaitOperationAsync(
      request->operation(), absl::ZeroDuration(),
      Then<api::Operation>(reactor,
                           [response](const api::Operation& o) { *response = ToProto(o); }));
  return reactor;
}

grpc::ServerUnaryReactor* OperationService::WaitOperation(grpc::CallbackServerContext* context,
                                                          const v1::WaitOperationRequest* request,
                                                          v1::Operation* response) {
  auto* reactor = context->DefaultReactor();
  coordinator_->WaitOperationAsync(
      request->operation(), WaitOf(context, request->has_timeout(), request->timeout()),
      Then<api::Operation>(reactor,
                           [response](const api::Operation& o) { *response = ToProto(o); }));
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
