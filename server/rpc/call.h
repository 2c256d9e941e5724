// Calls: one shape for every unary method, and rows that say which method is handled by what.
//
// A call goes, in this order, through the gate, the decoder, the log of request_ids, its handler,
// and the encoder.  Bytes that do not decode are INVALID_ARGUMENT with a reason.  No call holds a
// thread while it waits, unless its handler does.
//
// Handlers are declared in handlers.h; server.cc makes gRPC's services out of their rows.
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
#include "server/coordinator.h"
#include "server/core/caller.h"
#include "server/core/telemetry.h"
#include "server/rpc/gate.h"
#include "server/rpc/request_log.h"

namespace tessera::server::rpc {

class Executions;
class RunPool;

// Those that the caller sees, the busiest first; of "" are the others together.
using TopProgramsFn = std::function<std::vector<core::ProgramUse>(const core::Caller& caller)>;

// What calls and their handlers share.  Outlives the server.
struct CallContext {
  Gate* gate = nullptr;
  const Clock* clock = nullptr;
  RequestLog* requests = nullptr;
  Coordinator* coordinator = nullptr;
  RunPool* pool = nullptr;                 // for RunProgram, which blocks
  Executions* executions = nullptr;        // the streams of ExecutePrograms
  TopProgramsFn top_programs = {};         // empty: nothing is known
  std::vector<std::string> features = {};  // what GetCapabilities says is on
};

// What a call with this request_id is known by. VALUE_ERROR: the id is too long.
absl::StatusOr<RequestLog::Key> RequestKey(const core::Caller& caller, Method method,
                                           std::string request_id);
// What tells a request from others: its bytes where they are few, else a hash of them. Without its
// id.
std::string PayloadOf(const google::protobuf::Message& request);

// What a message asks for, within the caller's deadline less what the answer needs.
absl::Duration WaitOf(const grpc::CallbackServerContext& context, bool given,
                      const google::protobuf::Duration& timeout);

// One unary call.  Lives until the last of those that hold it lets go; whoever does so without
// having finished it has a bug, which the caller reads as INTERNAL.
class CallBase : public std::enable_shared_from_this<CallBase> {
 public:
  virtual ~CallBase();
  CallBase(const CallBase&) = delete;
  CallBase& operator=(const CallBase&) = delete;

  const core::Caller& caller() const { return caller_; }
  const CallContext& context() const { return *context_; }
  Coordinator* coordinator() const { return context_->coordinator; }
  // In the handler, before Finish: how long the answer may wait.
  absl::Duration Wait(bool given, const google::protobuf::Duration& timeout) const {
    return WaitOf(*grpc_, given, timeout);
  }
  // Answers with the response, or with the error.  Once; any thread.
  void Finish(const absl::Status& status);

 protected:
  CallBase(const CallContext* context, Method method, grpc::CallbackServerContext* grpc,
           grpc::ByteBuffer* out);
  // Everything before the handler; `handle` is not called when the call ends without it.
  grpc::ServerUnaryReactor* Run(const grpc::ByteBuffer& bytes, const std::function<void()>& handle);

  virtual google::protobuf::Message& request_message() = 0;
  virtual const google::protobuf::Message& response_message() const = 0;
  // The request's field, if its message has one.
  virtual std::string* request_id() = 0;
  virtual ErrorKind undecodable() const = 0;

 private:
  bool AnsweredBefore();
  void Send(const absl::Status& status);

  const CallContext* const context_;
  const Method method_;
  grpc::CallbackServerContext* const grpc_;
  grpc::ByteBuffer* const out_;
  grpc::ServerUnaryReactor* const reactor_;
  core::Caller caller_;
  RequestLog::Key key_;  // its request_id is empty unless the call is in the log
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

  // A callback that answers with what `fill(value, &response)` makes of the value.
  template <class T, class Fill>
  static std::function<void(absl::StatusOr<T>)> Then(Ref call, Fill fill) {
    return [call = std::move(call), fill = std::move(fill)](absl::StatusOr<T> value) {
      if (value.ok()) fill(*value, &call->response_);
      call->Finish(value.status());
    };
  }

 private:
  using CallBase::CallBase;
  google::protobuf::Message& request_message() override { return request_; }
  const google::protobuf::Message& response_message() const override { return response_; }
  std::string* request_id() override {
    if constexpr (requires(Q q) { q.mutable_request_id(); }) {
      return request_.mutable_request_id();
    } else {
      return nullptr;
    }
  }
  // What carries a program is a program that does not read.
  ErrorKind undecodable() const override {
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

// `fill(value, &response)`, then the answer.
template <class T, class Q, class R, class Fill>
std::function<void(absl::StatusOr<T>)> Then(const CallRef<Q, R>& call, Fill fill) {
  return Call<Q, R>::template Then<T>(call, std::move(fill));
}

// Asks the scheduler, whose reply to `event` is a T, and answers with what `fill` makes of it.
template <class T, class Event, class Q, class R, class Fill>
void Answer(const CallRef<Q, R>& call, Event event, Fill fill) {
  call->coordinator()->template Ask<T>(std::move(event), Then<T>(call, std::move(fill)));
}
// The same, with an empty response.
template <class Event, class Q, class R>
void AnswerDone(const CallRef<Q, R>& call, Event event) {
  Answer<std::monostate>(call, std::move(event), [](const std::monostate&, R*) {});
}

// ---- Rows. --------------------------------------------------------------------------------------
struct Row {
  Method method;
  std::function<grpc::internal::MethodHandler*(const CallContext*)> handler;
};

template <class Q, class R>
Row Unary(Method method, void (*handler)(const CallRef<Q, R>&)) {
  return {method, [=](const CallContext* context) -> grpc::internal::MethodHandler* {
            return new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                [=](grpc::CallbackServerContext* grpc, const grpc::ByteBuffer* bytes,
                    grpc::ByteBuffer* out) {
                  return Call<Q, R>::Start(context, method, grpc, *bytes, out, handler);
                });
          }};
}

// Fills in `request`, or says why not.
absl::Status Decode(const grpc::ByteBuffer& bytes, ErrorKind kind,
                    google::protobuf::Message* request);

// A method that answers with a stream.  The handler makes its reactor.
template <class Q, class R>
struct StreamCall {
  const CallContext* context = nullptr;
  grpc::CallbackServerContext* grpc = nullptr;
  core::Caller caller;
  Q request;
};
template <class Q, class R>
Row Stream(Method method, grpc::ServerWriteReactor<R>* (*handler)(StreamCall<Q, R> call)) {
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

// A method of a stream each way.  The handler makes its reactor, which decodes the requests.
struct BidiCall {
  const CallContext* context = nullptr;
  grpc::CallbackServerContext* grpc = nullptr;
  core::Caller caller;
};
template <class R>
using BidiReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, R>;
template <class R>
Row Bidi(Method method, BidiReactor<R>* (*handler)(BidiCall call)) {
  return {method, [=](const CallContext* context) -> grpc::internal::MethodHandler* {
            return new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, R>(
                [=](grpc::CallbackServerContext* grpc) -> BidiReactor<R>* {
                  absl::StatusOr<core::Caller> caller = context->gate->Admit(grpc, method);
                  if (!caller.ok()) return new RefusedStream<BidiReactor<R>>(caller.status());
                  return handler({context, grpc, *std::move(caller)});
                });
          }};
}

// gRPC's service for the rows of one proto service; every method must have one.
class TableService final : public grpc::Service {
 public:
  TableService(const google::protobuf::ServiceDescriptor& service, const std::vector<Row>& rows,
               const CallContext* context);

 private:
  std::deque<std::string> names_;  // gRPC keeps pointers to them
};

}  // namespace tessera::server::rpc
