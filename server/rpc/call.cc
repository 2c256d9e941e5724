// Handles the part of a call that is the same for all methods. server.cc registers the services,
// and gRPC calls a route's handler for each call. CallBase admits the call, decodes it and finally
// answers it.
#include "server/rpc/call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "ir/serial/status.h"

namespace tessera::server::rpc {
namespace {

constexpr size_t kRequestIdMax = 64;
constexpr size_t kUnhashedPayloadMax = 128;  // bytes of the longest payload that is not hashed
// A call stops waiting this much time before the caller's deadline, so that there is time to send
// the answer.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(20);

// Serializes the message deterministically, maps included, so that equal requests have equal bytes.
std::string StableBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// Returns whether a call of the method is a single event of the scheduler, which then recognises
// repeated calls itself.
bool IsOneEvent(Method method) {
  switch (method) {
    case Method::kArrayService_CreateArray:
    case Method::kArrayService_DeleteArrays:
    case Method::kArrayService_LoadArrays:
    case Method::kArrayService_ReshardArray:
    case Method::kArrayService_SaveArrays:
    case Method::kClusterService_CreateMesh:
    case Method::kClusterService_DeleteMesh:
    case Method::kProgramService_DeleteProgram:
    case Method::kProgramService_ExecuteProgram:
    case Method::kSessionService_CreateSession:
    case Method::kSessionService_DeleteSession:
      return true;
    default:
      return false;
  }
}

// Encodes the message. Returns LIMIT_EXCEEDED for messages of 2 GiB and more, which cannot be
// serialized.
absl::Status Encode(const google::protobuf::Message& message, grpc::ByteBuffer* out) {
  bool own_buffer = false;
  const grpc::Status encoded =
      grpc::SerializationTraits<google::protobuf::Message>::Serialize(message, out, &own_buffer);
  if (encoded.ok()) return absl::OkStatus();
  return MakeError(ErrorKind::kLimitExceeded,
                   absl::StrCat("the answer has ", message.ByteSizeLong(),
                                " bytes, more than a message can have; ask for less at a time"));
}

}  // namespace

absl::StatusOr<scheduler::RequestId> TakeRequestId(std::string* field,
                                                   const google::protobuf::Message& request) {
  if (field == nullptr || field->empty()) return scheduler::RequestId();
  if (field->size() > kRequestIdMax)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("request_id: it has ", field->size(), " bytes, at most ",
                                  kRequestIdMax, " are accepted"));
  scheduler::RequestId id{std::exchange(*field, ""), StableBytes(request)};
  if (id.payload.size() > kUnhashedPayloadMax) id.payload = Sha256Hex(id.payload);
  return id;
}

absl::Duration WaitTimeOf(const grpc::CallbackServerContext& context, bool given,
                          const google::protobuf::Duration& timeout) {
  const absl::Duration requested =
      given ? ir::serial::FromProto(timeout) : absl::InfiniteDuration();
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max())
    return std::max(requested, absl::ZeroDuration());
  const absl::Duration left =
      absl::FromChrono(deadline - std::chrono::system_clock::now()) - kAnswerTime;
  return std::max(std::min(requested, left), absl::ZeroDuration());
}

absl::Status Decode(const grpc::ByteBuffer& bytes, ErrorKind kind,
                    google::protobuf::Message* request) {
  grpc::ByteBuffer copy = bytes;  // decoding consumes the references to the slices
  if (copy.Length() == 0) return absl::OkStatus();  // an empty message, in which no field is set
  if (grpc::SerializationTraits<google::protobuf::Message>::Deserialize(&copy, request).ok())
    return absl::OkStatus();
  return MakeError(
      kind, absl::StrCat("request: the ", bytes.Length(), " bytes sent are not a message of type ",
                         request->GetDescriptor()->full_name(),
                         "; build the request with the server's protos"));
}

CallBase::CallBase(const CallContext* context, Method method, grpc::CallbackServerContext* grpc,
                   grpc::ByteBuffer* out)
    : context_(context),
      method_(method),
      grpc_(grpc),
      out_(out),
      reactor_(grpc->DefaultReactor()) {}

CallBase::~CallBase() {
  if (finished_) return;
  const absl::Status bug =
      MakeError(ErrorKind::kInternal, absl::StrCat(MethodName(method_), " was not answered"));
  TESSERA_LOG(ERROR) << bug.message();
  if (!key_.request_id.empty()) context_->requests->End(key_, {bug, ""}, context_->clock->Now());
  Send(bug);
}

grpc::ServerUnaryReactor* CallBase::Run(const grpc::ByteBuffer& bytes,
                                        const std::function<void()>& handle) {
  // The call may end on another thread while this one still returns the reactor.
  grpc::ServerUnaryReactor* const reactor = reactor_;
  absl::StatusOr<core::Caller> caller = context_->gate->Admit(grpc_, method_);
  absl::Status status = caller.status();
  if (status.ok()) {
    caller_ = *std::move(caller);
    request_bytes_ = bytes.Length();
    status = Decode(bytes, decode_error_kind(), &request_message());
  }
  if (!status.ok()) {
    Send(status);
  } else if (!AnswerIfRepeated()) {
    handle();
  }
  return reactor;
}

bool CallBase::AnswerIfRepeated() {
  absl::StatusOr<scheduler::RequestId> id = TakeRequestId(request_id_field(), request_message());
  if (!id.ok()) {
    Send(id.status());
    return true;
  }
  id_ = *std::move(id);
  if (id_.text.empty() || IsOneEvent(method_)) return false;
  RequestLog::Key key{caller_.tenant, static_cast<int>(method_), id_.text};
  const bool is_new = context_->requests->Begin(key, id_.payload, context_->clock->Now(),
                                                [self = shared_from_this()](const auto& answer) {
                                                  if (answer.status.ok()) {
                                                    grpc::Slice slice(answer.bytes);
                                                    *self->out_ = grpc::ByteBuffer(&slice, 1);
                                                  }
                                                  self->finished_ = true;
                                                  self->reactor_->Finish(ToGrpc(answer.status));
                                                });
  if (is_new) key_ = std::move(key);
  return !is_new;
}

void CallBase::Finish(const absl::Status& status) {
  if (!key_.request_id.empty())
    context_->requests->End(
        key_, {status, status.ok() ? response_message().SerializeAsString() : std::string()},
        context_->clock->Now());
  Send(status);
}

void CallBase::Send(const absl::Status& status) {
  TESSERA_CHECK(!finished_) << MethodName(method_) << " was answered twice";
  finished_ = true;
  reactor_->Finish(ToGrpc(status.ok() ? Encode(response_message(), out_) : status));
}

TableService::TableService(const google::protobuf::ServiceDescriptor& service,
                           const std::vector<Route>& routes, const CallContext* context) {
  for (int i = 0; i < service.method_count(); ++i) {
    const google::protobuf::MethodDescriptor& method = *service.method(i);
    const std::string name = absl::StrCat(service.full_name(), "/", method.name());
    const auto route = std::find_if(routes.begin(), routes.end(),
                                    [&](const Route& r) { return MethodName(r.method) == name; });
    TESSERA_CHECK(route != routes.end()) << name << " has no route";
    names_.push_back("/" + name);
    using grpc::internal::RpcMethod;
    const RpcMethod::RpcType type = method.client_streaming()   ? RpcMethod::BIDI_STREAMING
                                    : method.server_streaming() ? RpcMethod::SERVER_STREAMING
                                                                : RpcMethod::NORMAL_RPC;
    AddMethod(new grpc::internal::RpcServiceMethod(names_.back().c_str(), type, nullptr));
    MarkMethodRawCallback(i, route->handler(context));
  }
}

}  // namespace tessera::server::rpc
