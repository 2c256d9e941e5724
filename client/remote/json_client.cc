// The transport of the command line: its commands write requests and read responses as JSON, and
// never see protobuf types. Messages are made from the descriptors of the linked .proto files, so a
// new method of one of these services needs no code here.
#include "client/remote/json_client.h"

#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/json_util.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/remote/channel.h"
#include "client/remote/reach.h"
#include "client/remote/status.h"
#include "grpc/health/v1/health.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "ir/serial/program.h"
#include "tessera/v1/admin.pb.h"
#include "tessera/v1/array.pb.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/operation.pb.h"
#include "tessera/v1/program_service.pb.h"
#include "tessera/v1/session.pb.h"

namespace tessera::remote {
namespace {

namespace pb = google::protobuf;

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);  // time between give_up calls

// Returns the descriptor of the method, or null if there is none. Services are found through the
// file descriptor of one message per file; naming the message also links the file.
const pb::MethodDescriptor* FindMethod(const std::string& method) {
  const size_t slash = method.find('/');
  if (slash == std::string::npos) return nullptr;
  std::string service = method.substr(0, slash);
  service = service.substr(service.rfind('.') + 1);
  for (const pb::Descriptor* d :
       {v1::Token::descriptor(), v1::Array::descriptor(), v1::Device::descriptor(),
        v1::Operation::descriptor(), v1::RunProgramRequest::descriptor(), v1::Session::descriptor(),
        ::grpc::health::v1::HealthCheckRequest::descriptor()}) {
    const pb::ServiceDescriptor* found = d->file()->FindServiceByName(service);
    if (found != nullptr) return found->FindMethodByName(method.substr(slash + 1));
  }
  return nullptr;
}

::grpc::ByteBuffer SerializeToBuffer(const pb::Message& message) {
  const ::grpc::Slice slice(message.SerializeAsString());
  return ::grpc::ByteBuffer(&slice, 1);
}

bool Parse(const ::grpc::ByteBuffer& bytes, pb::Message* message) {
  std::vector<::grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return false;
  std::string whole;
  for (const ::grpc::Slice& s : slices) {
    whole.append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  return message->ParseFromString(whole);
}

}  // namespace

struct JsonClient::Channel {
  Channel(std::shared_ptr<::grpc::Channel> c,
          std::shared_ptr<::grpc::ChannelCredentials> channel_credentials)
      : credentials(std::move(channel_credentials)), stub(std::move(c)) {}
  const std::shared_ptr<::grpc::ChannelCredentials> credentials;
  ::grpc::GenericStub stub;
};

std::string JsonOf(const ir::Program& program) {
  std::string json;
  // Fails only if a message contains another one of unknown type.
  (void)pb::util::MessageToJsonString(ir::serial::ToProto(program), &json);
  return json;
}

absl::StatusOr<std::unique_ptr<JsonClient>> JsonClient::Make(const std::string& address,
                                                             const ConnectOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<::grpc::ChannelCredentials> credentials,
                           CredentialsFor(address, options));
  return std::unique_ptr<JsonClient>(new JsonClient(
      address, options, std::make_unique<Channel>(ChannelTo(address, credentials), credentials)));
}

JsonClient::JsonClient(std::string address, const ConnectOptions& options,
                       std::unique_ptr<Channel> channel)
    : address_(std::move(address)),
      token_(options.token),
      tls_(!options.ca_file.empty()),
      channel_(std::move(channel)) {}
JsonClient::~JsonClient() = default;

// Parses the request, makes the call and prints the response. The call is asynchronous, because a
// synchronous one could not ask `give_up` while it waits. Default values are printed, too, so that
// commands find every field in the response.
absl::StatusOr<std::string> JsonClient::Call(const std::string& method, const std::string& request,
                                             absl::Duration timeout,
                                             const std::function<bool()>& give_up) const {
  const pb::MethodDescriptor* const descriptor = FindMethod(method);
  if (descriptor == nullptr || descriptor->server_streaming() || descriptor->client_streaming()) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("there is no unary method with the name ", method));
  }
  pb::DynamicMessageFactory messages;
  const std::unique_ptr<pb::Message> input(messages.GetPrototype(descriptor->input_type())->New());
  if (const auto parsed = pb::util::JsonStringToMessage(request, input.get()); !parsed.ok()) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(method, ": ", parsed.ToString(), " in ", request));
  }

  ::grpc::ClientContext context;
  context.set_deadline(WallDeadline(timeout));
  // If nothing listens at the address, the call fails at once.
  context.set_wait_for_ready(false);
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
  ::grpc::CompletionQueue queue;
  const auto call = channel_->stub.PrepareUnaryCall(
      &context, absl::StrCat("/", descriptor->service()->full_name(), "/", descriptor->name()),
      SerializeToBuffer(*input), &queue);
  ::grpc::ByteBuffer reply;
  ::grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, &reply);
  bool given_up = false;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const auto next = queue.AsyncNext(&tag, &ok, WallDeadline(kPollInterval));
    if (next != ::grpc::CompletionQueue::TIMEOUT) break;
    if (!given_up && give_up()) {
      given_up = true;
      context.TryCancel();
    }
  }
  if (given_up && !status.ok()) {
    return MakeError(ErrorKind::kCancelled, absl::StrCat(method, ": given up by the caller"));
  }
  TESSERA_RETURN_IF_ERROR(DiagnoseUnreachable(
      FromGrpc(status, absl::StrCat("the coordinator at ", address_), ErrorKind::kServerStopping),
      address_, tls_, channel_->credentials));
  const std::unique_ptr<pb::Message> output(
      messages.GetPrototype(descriptor->output_type())->New());
  std::string json;
  pb::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  if (!Parse(reply, output.get()) || !pb::util::MessageToJsonString(*output, &json, options).ok()) {
    return MakeError(
        ErrorKind::kInternal,
        absl::StrCat("the coordinator at ", address_, " answered ", method,
                     " with something other than a ", descriptor->output_type()->name(),
                     ". Compare its version with this program's"));
  }
  return json;
}

}  // namespace tessera::remote
