// The three sides of the relay that bench-dispatch compares with: A in the place of the
// coordinator, B in the place of a worker, and the client. They use gRPC as Tessera does, but send
// uninterpreted bytes instead of protobuf messages, so that the relay's time is the least that gRPC
// costs.
#include "bench/relay.h"

#include <signal.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace tessera::bench {
namespace {

using grpc::ByteBuffer;

constexpr char kRoundTrip[] = "/tessera.bench.Relay/RoundTrip";
constexpr char kPost[] = "/tessera.bench.Relay/Post";
constexpr char kWorker[] = "/tessera.bench.Relay/Worker";
constexpr absl::Duration kCallLimit = absl::Seconds(30);

ByteBuffer FromBytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return ByteBuffer(&slice, 1);
}
std::string ToBytes(const ByteBuffer& buffer) {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return bytes;
}

// Returns a message between A and B: the number of the call, and then the call's bytes.
ByteBuffer NumberedMessage(uint64_t number, const std::string& bytes) {
  std::string message(sizeof(number), '\0');
  std::memcpy(message.data(), &number, sizeof(number));
  return FromBytes(message + bytes);
}
uint64_t NumberOf(const std::string& message) {
  uint64_t number = 0;
  if (message.size() >= sizeof(number)) std::memcpy(&number, message.data(), sizeof(number));
  return number;
}

// The queue of messages to write to a stream, and the message that is being written. The owner
// starts each write that Push or WriteDone returns.
class WriteQueue {
 public:
  // Queues `message`. Returns the next message to write, or null if a write is in flight.
  const ByteBuffer* Push(ByteBuffer message) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    queue_.push_back(std::move(message));
    return Next();
  }
  // Called when the write in flight has ended. Returns the next message to write, or null if there
  // is none.
  const ByteBuffer* WriteDone() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    writing_ = false;
    return Next();
  }

 private:
  const ByteBuffer* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || queue_.empty()) return nullptr;
    current_ = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    return &current_;
  }
  absl::Mutex mu_;
  std::deque<ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);
  ByteBuffer current_;  // message of the write in flight
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
};

// ---- A. -----------------------------------------------------------------------------------------
class RelayService;

// A call of the client's: one request, and one reply.
class ClientCall final : public grpc::ServerGenericBidiReactor {
 public:
  ClientCall(RelayService* relay, bool is_post) : relay_(relay), is_post_(is_post) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override;
  void OnDone() override { delete this; }
  void Answer(ByteBuffer reply) {
    reply_ = std::move(reply);
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }

 private:
  RelayService* const relay_;
  const bool is_post_;
  ByteBuffer request_, reply_;
};

// The stream that B opens to A and keeps open.
class WorkerCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit WorkerCall(RelayService* relay) : relay_(relay) { StartRead(&report_); }
  void Send(ByteBuffer message) {
    if (const ByteBuffer* next = writes_.Push(std::move(message))) StartWrite(next);
  }
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (const ByteBuffer* next = writes_.WriteDone()) StartWrite(next);
  }
  void OnDone() override;

 private:
  RelayService* const relay_;
  ByteBuffer report_;
  WriteQueue writes_;
};

class RelayService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kWorker) return new ClientCall(this, context->method() == kPost);
    auto* worker = new WorkerCall(this);
    {
      absl::MutexLock lock(&mu_);
      worker_ = worker;
    }
    std::cout << "ready" << std::endl;
    return worker;
  }

  // Sends `bytes` to B. `caller` gets B's reply; it is null for Post, which drops the reply.
  void Forward(const std::string& bytes, ClientCall* caller) {
    WorkerCall* worker = nullptr;
    uint64_t number = 0;
    {
      absl::MutexLock lock(&mu_);
      worker = worker_;
      number = ++last_number_;
      if (caller != nullptr && worker != nullptr) waiting_calls_.emplace(number, caller);
    }
    if (worker != nullptr) return worker->Send(NumberedMessage(number, bytes));
    if (caller != nullptr)
      caller->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "relay: B is not there"));
  }
  void OnAnswer(const std::string& message) {
    ClientCall* caller = nullptr;
    {
      absl::MutexLock lock(&mu_);
      const auto it = waiting_calls_.find(NumberOf(message));
      if (it == waiting_calls_.end()) return;
      caller = it->second;
      waiting_calls_.erase(it);
    }
    caller->Answer(FromBytes(message.substr(sizeof(uint64_t))));
  }
  void OnWorkerGone() {
    std::map<uint64_t, ClientCall*> left;
    {
      absl::MutexLock lock(&mu_);
      worker_ = nullptr;
      left.swap(waiting_calls_);
    }
    for (const auto& [number, call] : left)
      call->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "relay: B is gone"));
  }

 private:
  absl::Mutex mu_;
  uint64_t last_number_ ABSL_GUARDED_BY(mu_) = 0;
  WorkerCall* worker_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::map<uint64_t, ClientCall*> waiting_calls_ ABSL_GUARDED_BY(mu_);
};

void ClientCall::OnReadDone(bool ok) {
  if (!ok) return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "relay: no message"));
  const std::string bytes = ToBytes(request_);
  if (!is_post_) return relay_->Forward(bytes, this);
  Answer(FromBytes("ok"));
  relay_->Forward(bytes, nullptr);
}
void WorkerCall::OnReadDone(bool ok) {
  if (!ok) return Finish(grpc::Status::OK);
  relay_->OnAnswer(ToBytes(report_));
  StartRead(&report_);
}
void WorkerCall::OnDone() {
  relay_->OnWorkerGone();
  delete this;
}

// ---- B. -----------------------------------------------------------------------------------------
// Replies to each message with the same number and bytes.
class Echo final : public grpc::ClientBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  explicit Echo(grpc::GenericStub* stub) {
    stub->PrepareBidiStreamingCall(&context_, kWorker, {}, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    // Reads and writes start only inside these callbacks, so that gRPC's AddHold is not needed.
    ByteBuffer answer = FromBytes(ToBytes(message_));
    if (const ByteBuffer* next = writes_.Push(std::move(answer))) StartWrite(next);
    StartRead(&message_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (const ByteBuffer* next = writes_.WriteDone()) StartWrite(next);
  }
  void OnDone(const grpc::Status&) override { done_.Notify(); }
  void Stop() {
    context_.TryCancel();
    done_.WaitForNotificationWithTimeout(kCallLimit);
  }

 private:
  grpc::ClientContext context_;
  ByteBuffer message_;
  WriteQueue writes_;
  absl::Notification done_;
};

void AwaitStop() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  int signal = 0;
  sigwait(&signals, &signal);
}
// Called before any thread starts, so that sigwait receives the signals.
void BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// ---- The client. --------------------------------------------------------------------------------
class GenericRelayClient final : public RelayClient {
 public:
  explicit GenericRelayClient(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}
  absl::Status RoundTrip(const std::string& bytes) override { return Call(kRoundTrip, bytes); }
  absl::Status Post(const std::string& bytes) override { return Call(kPost, bytes); }

 private:
  // Makes one call and waits for its reply. The calling thread polls the completion queue itself,
  // as a synchronous stub does.
  absl::Status Call(const char* method, const std::string& bytes) {
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCallLimit));
    ByteBuffer reply;
    grpc::Status status;
    const auto call = stub_.PrepareUnaryCall(&context, method, FromBytes(bytes), &queue);
    call->StartCall();
    call->Finish(&reply, &status, &status);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) continue;
    if (status.ok()) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("relay: ", status.error_message()));
  }

  grpc::GenericStub stub_;
};

}  // namespace

int RunRelayA() {
  BlockSignals();
  RelayService relay;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&relay);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) return 1;
  std::cout << "127.0.0.1:" << port << std::endl;
  AwaitStop();
  server->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  return 0;
}

int RunRelayB(const std::string& address) {
  BlockSignals();
  grpc::GenericStub stub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  Echo echo(&stub);
  AwaitStop();
  echo.Stop();
  return 0;
}

std::unique_ptr<RelayClient> RelayClient::Connect(const std::string& address) {
  return std::make_unique<GenericRelayClient>(address);
}

}  // namespace tessera::bench
