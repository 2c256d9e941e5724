// CallBase and Call stand for one call of a method. A Route maps a method to its handler.
//
// A unary call (one request, one response) is admitted by the gate (gate.h), decoded, looked up in
// the request log (request_log.h), handled and encoded, in this order. It skips the log if the
// scheduler itself recognises repeated calls of the method (server/scheduler/answers.h). Bytes that
// do not decode are answered with INVALID_ARGUMENT and a reason. No call blocks a thread while it
// waits, unless its handler does.
//
// Handlers are declared in handlers.h. server.cc makes gRPC's services from their routes.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/server_callback.h"
#include "ir/serial/process_report.h"
#include "server/coordinator/coordinator.h"
#include "server/core/caller.h"
#include "server/core/reader.h"
#include "server/core/telemetry.h"
#include "server/rpc/gate.h"
#include "server/rpc/request_log.h"

namespace tessera::server::rpc {

class ConnectedWorkers;
class Executions;
class JobPool;

// Returns the programs that the caller may see, the busiest first. An entry with the name "" is the
// sum of all other programs.
using TopProgramsFn = std::function<std::vector<core::ProgramUse>(const core::Caller& caller)>;

// The objects that calls and their handlers share. A CallContext outlives the gRPC server.
struct CallContext {
  Gate* gate = nullptr;
  const Clock* clock = nullptr;
  RequestLog* requests = nullptr;
  Coordinator* coordinator = nullptr;
  JobPool* run_pool = nullptr;             // threads for RunProgram, which blocks
  JobPool* decoders = nullptr;             // threads that read programs, which takes a while
  core::ProgramReader* reader = nullptr;   // null if programs are read in this process
  Executions* executions = nullptr;        // streams of ExecutePrograms
  ConnectedWorkers* workers = nullptr;     // workers that are connected
  TopProgramsFn top_programs = {};         // empty if ListTopPrograms lists none
  std::vector<std::string> features = {};  // enabled features, for GetCapabilities
  ir::serial::ProcessSources sources = {};
};

// Takes the request_id out of `field`, a field of `request`. The payload of the result identifies
// the rest of the request. Returns an empty id if the request has no request_id, and VALUE_ERROR if
// its request_id is too long.
absl::StatusOr<scheduler::RequestId> TakeRequestId(std::string* field,
                                                   const google::protobuf::Message& request);

// Returns how long a call may wait: `timeout` if it is `given`, but at most until shortly before
// the caller's deadline, so that there is time to send the answer.
absl::Duration WaitTimeOf(const grpc::CallbackServerContext& context, bool given,
                          const google::protobuf::Duration& timeout);

// The part of a unary call that does not depend on the types of its messages. A handler that drops
// its call without calling Finish has a bug; the destructor then answers the call with INTERNAL.
class CallBase : public std::enable_shared_from_this<CallBase> {
 public:
  virtual ~CallBase();
  CallBase(const CallBase&) = delete;
  CallBase& operator=(const CallBase&) = delete;

  const core::Caller& caller() const { return caller_; }
  size_t request_bytes() const { return request_bytes_; }  // size of the encoded request
  // Returns the identity of the request, which is the caller and the request_id, as the first
  // member of an event whose repetition the scheduler recognises.
  scheduler::Request identity() const { return {0, caller_, id_}; }
  const CallContext& context() const { return *context_; }
  Coordinator* coordinator() const { return context_->coordinator; }
  // See WaitTimeOf. Must not be called after Finish.
  absl::Duration WaitTime(bool given, const google::protobuf::Duration& timeout) const {
    return WaitTimeOf(*grpc_, given, timeout);
  }
  // Answers the call: with the response if `status` is OK, otherwise with the error. Must be called
  // once, on any thread.
  void Finish(const absl::Status& status);

 protected:
  CallBase(const CallContext* context, Method method, grpc::CallbackServerContext* grpc,
           grpc::ByteBuffer* out);
  // Does everything that comes before the handler, and then calls `handle`, unless the call has
  // been answered by then.
  grpc::ServerUnaryReactor* Run(const grpc::ByteBuffer& bytes, const std::function<void()>& handle);

  virtual google::protobuf::Message& request_message() = 0;
  virtual const google::protobuf::Message& response_message() const = 0;
  // Returns the request_id field of the request, or null if its message type has no such field.
  virtual std::string* request_id_field() = 0;
  // Returns the kind of the error for bytes that do not decode.
  virtual ErrorKind decode_error_kind() const = 0;

 private:
  // If the call repeats an earlier one, lets the request log answer it. Otherwise enters a call
  // with a request_id in the log, unless the scheduler recognises its repetitions. Returns false if
  // the handler must run.
  bool AnswerIfRepeated();
  void Send(const absl::Status& status);

  const CallContext* const context_;
  const Method method_;
  grpc::CallbackServerContext* const grpc_;
  grpc::ByteBuffer* const out_;
  grpc::ServerUnaryReactor* const reactor_;
  core::Caller caller_;
  size_t request_bytes_ = 0;
  scheduler::RequestId id_;
  RequestLog::Key key_;  // key in the request log; its request_id is empty if the call is not there
  bool finished_ = false;
};

template <class Q, class R>
class Call final : public CallBase {
 public:
  using Ref = std::shared_ptr<Call>;

  template <class Handler>
  static grpc::ServerUnaryReactor* Start(const CallContext* context, Method method,
                                         grpc::CallbackServerContext* grpc,
                                         const grpc::ByteBuffer& bytes, grpc::ByteBuffer* out,
                                         const Handler& handler) {
    const Ref call(new Call(context, method, grpc, out));
    return call->Run(bytes, [&] { handler(call); });
  }

  const Q& request() const { return request_; }
  R& response() { return response_; }

 private:
  using CallBase::CallBase;
  google::protobuf::Message& request_message() override { return request_; }
  const google::protobuf::Message& response_message() const override { return response_; }
  std::string* request_id_field() override {
    if constexpr (requires(Q q) { q.mutable_request_id(); }) {
      return request_.mutable_request_id();
    } else {
      return nullptr;
    }
  }
  // If the message type has a program field, bytes that do not decode count as a malformed program.
  ErrorKind decode_error_kind() const override {
    if constexpr (requires(Q q) { q.program(); }) {
      return ErrorKind::kMalformedProgram;
    } else {
      return ErrorKind::kValueError;
    }
  }

  Q request_;
  R response_;
};

template <class Q, class R>
using CallRef = std::shared_ptr<Call<Q, R>>;

// Returns a callback that answers the call. Given a value, it fills in the response by `fill(value,
// &response)`; given an error, it answers with that error.
template <class T, class Q, class R, class Fill>
std::function<void(absl::StatusOr<T>)> AnswerWith(CallRef<Q, R> call, Fill fill) {
  return [call = std::move(call), fill = std::move(fill)](absl::StatusOr<T> value) {
    if (value.ok()) fill(*value, &call->response());
    call->Finish(value.status());
  };
}

// Posts `event` to the scheduler. When the reply, a T, comes, fills in the response by `fill` and
// answers the call.
template <class T, class Event, class Q, class R, class Fill>
void Answer(const CallRef<Q, R>& call, Event event, Fill fill) {
  call->coordinator()->template Post<T>(std::move(event), AnswerWith<T>(call, std::move(fill)));
}
// Like Answer, for a method whose response has no fields to fill in.
template <class Event, class Q, class R>
void AnswerEmpty(const CallRef<Q, R>& call, Event event) {
  Answer<std::monostate>(call, std::move(event), [](const std::monostate&, R*) {});
}

// ---- Routes. ------------------------------------------------------------------------------------
// A method, and a function that makes the object by which gRPC calls the method's handler.
struct Route {
  Method method;
  std::function<grpc::internal::MethodHandler*(const CallContext*)> handler;
};

template <class Q, class R>
Route UnaryRoute(Method method, void (*handler)(const CallRef<Q, R>&)) {
  return {method, [=](const CallContext* context) -> grpc::internal::MethodHandler* {
            return new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                [=](grpc::CallbackServerContext* grpc, const grpc::ByteBuffer* bytes,
                    grpc::ByteBuffer* out) {
                  return Call<Q, R>::Start(context, method, grpc, *bytes, out, handler);
                });
          }};
}

// Decodes `bytes` into `request`. Returns an error of `kind` if the bytes are not a message of the
// type of `request`.
absl::Status Decode(const grpc::ByteBuffer& bytes, ErrorKind kind,
                    google::protobuf::Message* request);

// A call of a method with a stream of responses. The handler returns the stream's reactor, the
// object whose functions gRPC calls back.
template <class Q, class R>
struct StreamCall {
  const CallContext* context = nullptr;
  grpc::CallbackServerContext* grpc = nullptr;
  core::Caller caller;
  Q request;
};
template <class Q, class R>
Route StreamRoute(Method method, grpc::ServerWriteReactor<R>* (*handler)(StreamCall<Q, R> call)) {
  return {method, [=](const CallContext* context) -> grpc::internal::MethodHandler* {
            return new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, R>(
                [=](grpc::CallbackServerContext* grpc,
                    const grpc::ByteBuffer* bytes) -> grpc::ServerWriteReactor<R>* {
                  StreamCall<Q, R> call{context, grpc, {}, {}};
                  absl::StatusOr<core::Caller> caller = context->gate->Admit(grpc, method);
                  absl::Status status = caller.status();
                  if (status.ok()) status = Decode(*bytes, ErrorKind::kValueError, &call.request);
                  if (!status.ok()) return new RefusedStream<grpc::ServerWriteReactor<R>>(status);
                  call.caller = *std::move(caller);
                  return handler(std::move(call));
                });
          }};
}

// A call of a method with streams both ways. The handler returns one reactor for both streams. The
// reactor also decodes the requests.
struct BidiCall {
  const CallContext* context = nullptr;
  grpc::CallbackServerContext* grpc = nullptr;
  core::Caller caller;
};
template <class R>
using BidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, R>;
template <class R>
Route BidiRoute(Method method, BidiReactor<R>* (*handler)(BidiCall call)) {
  return {method, [=](const CallContext* context) -> grpc::internal::MethodHandler* {
            return new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, R>(
                [=](grpc::CallbackServerContext* grpc) -> BidiReactor<R>* {
                  absl::StatusOr<core::Caller> caller = context->gate->Admit(grpc, method);
                  if (!caller.ok()) return new RefusedStream<BidiReactor<R>>(caller.status());
                  return handler({context, grpc, *std::move(caller)});
                });
          }};
}

// The gRPC service for one proto service. Each of the service's methods must have a route.
class TableService final : public grpc::Service {
 public:
  TableService(const google::protobuf::ServiceDescriptor& service, const std::vector<Route>& routes,
               const CallContext* context);

 private:
  std::deque<std::string> names_;  // names of the methods, to which gRPC keeps pointers
};

}  // namespace tessera::server::rpc
