// The client's end of HoldSession. The thread of a Lease calls KeepOpen several times per grace
// period of the server, so that a broken stream is opened again before the server takes the client
// to be gone.
#include "client/remote/hold.h"

#include <utility>

#include "base/clock.h"

namespace tessera::remote {

struct Hold::Stream {
  uint64_t session = 0;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  std::unique_ptr<grpc::ClientAsyncReader<v1::Session>> reader;
  v1::Session response;
  bool held = false;  // the server has responded

  ~Stream() {
    context.TryCancel();
    queue.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue.Next(&tag, &ok)) continue;
  }
  // Returns the stream's final status. Call only once the stream has ended.
  grpc::Status End() {
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    reader->Finish(&status, &status);
    while (queue.Next(&tag, &ok) && tag != &status) continue;
    return status;
  }
};

Hold::Hold(v1::SessionService::Stub* stub, PrepareFn prepare)
    : stub_(stub), prepare_(std::move(prepare)) {}

Hold::~Hold() = default;

void Hold::Open(uint64_t session) {
  stream_ = std::make_unique<Stream>();
  stream_->session = session;
  prepare_(&stream_->context, absl::InfiniteDuration());
  // The call is sent as soon as there is a connection.
  stream_->context.set_wait_for_ready(true);
  v1::HoldSessionRequest request;
  request.set_session(session);
  stream_->reader = stub_->AsyncHoldSession(&stream_->context, request, &stream_->queue, nullptr);
  stream_->reader->Read(&stream_->response, &stream_->response);
}

// Takes the events of the stream from its queue and opens the stream again if it broke. A read is
// always pending, because only the failure of a read shows that the stream has ended. If the stream
// ended before the server responded, returns kRefused, and the next call of KeepOpen tries again.
Hold::State Hold::KeepOpen(uint64_t session, absl::Duration wait) {
  if (unimplemented_) return State::kHeld;
  if (stream_ == nullptr || stream_->session != session) Open(session);
  const absl::Time end = SteadyNow() + wait;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    // An open stream is only checked, without a wait.
    const absl::Time until = stream_->held ? SteadyNow() : end;
    if (stream_->queue.AsyncNext(&tag, &ok, WallDeadline(until - SteadyNow())) !=
        grpc::CompletionQueue::GOT_EVENT)
      return stream_->held ? State::kHeld : State::kOpening;
    if (tag != &stream_->response) continue;  // the event says that the request was sent
    if (ok) {
      stream_->held = true;
      stream_->reader->Read(&stream_->response, &stream_->response);  // completes at the end
      continue;
    }
    const bool was_held = stream_->held;
    unimplemented_ = stream_->End().error_code() == grpc::StatusCode::UNIMPLEMENTED;
    stream_ = nullptr;
    if (unimplemented_) return State::kHeld;
    if (!was_held) return State::kRefused;
    Open(session);
  }
}

}  // namespace tessera::remote
