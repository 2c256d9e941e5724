// A stream of messages to one caller. It is the common part of all streaming methods of the server.
//
// At most one write is in flight; later messages wait in a queue. The stream ends only once, and
// only while no write is in flight. A thread decides under the lock whether to write or to end, and
// calls gRPC after it has released the lock. Meanwhile `writing_` or `finished_` keeps other
// threads from calling gRPC. gRPC is never called under a lock. A stream keeps itself alive until
// gRPC is done with it; callbacks of runs may keep it alive for longer, and must not call gRPC
// then.
#pragma once
#include <cstddef>
#include <deque>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/gate.h"

namespace tessera::server::rpc {

// Objects of `Derived`, or of a class derived from it, are created by Make.  `Reactor` is gRPC's
// ServerWriteReactor or ServerBidiReactor that writes `Message`.  Thread-safe.
template <class Derived, class Reactor, class Message>
class MessageStream : public Reactor, public std::enable_shared_from_this<Derived> {
 public:
  template <class Stream = Derived, class... Args>
  static std::shared_ptr<Stream> Make(Args&&... args) {
    auto stream = std::make_shared<Stream>(std::forward<Args>(args)...);
    stream->self_ = stream;
    return stream;
  }

  // Sends the message, unless the stream was told to end. Returns the number of queued messages
  // including this one, or 0 if the stream was told to end.
  size_t Send(Message message) { return Enqueue(std::move(message), /*last=*/false); }
  // Sends the message and ends the stream with OK.
  void SendLast(Message message) { Enqueue(std::move(message), /*last=*/true); }
  // Ends the stream when the messages that wait are written.  Later calls of End and Cut do not
  // change the status.
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (!ending_) status_ = status;
      ending_ = true;
    }
    Pump();
  }
  // Ends the stream and drops the messages that wait.  Returns true if this call ends the stream
  // and a write is in flight, for which the end has to wait.
  bool Cut(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    bool waits = false;
    {
      absl::MutexLock lock(&mu_);
      if (!ending_) status_ = status;
      waits = !ending_ && writing_;
      ending_ = true;
      queue_.clear();
    }
    Pump();
    return waits;
  }

  void OnWriteDone(bool ok) final ABSL_LOCKS_EXCLUDED(mu_) {
    bool sent = ok;
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      sent &= !ending_ && queue_.empty();
    }
    if (!ok) {
      Cut(absl::CancelledError("the caller has left"));
    } else if (sent) {
      OnSent();
    } else {
      Pump();
    }
  }
  void OnCancel() override { Cut(absl::CancelledError("the caller has left")); }
  void OnDone() override { const std::shared_ptr<Derived> last = std::move(self_); }

 protected:
  // If `begun` is false, nothing is written before Begin. Until then a stream with queued messages
  // is ended by Cut only.
  explicit MessageStream(bool begun = true) : begun_(begun) {}
  // Starts writing: first the messages in `first`, and then those that were sent before this call.
  void Begin(std::deque<Message> first) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      queue_.insert(queue_.begin(), std::make_move_iterator(first.begin()),
                    std::make_move_iterator(first.end()));
      begun_ = true;
    }
    Pump();
  }
  // Calls `start`, which starts a read, unless the stream was told to end.  The stream does not end
  // during the call: gRPC frees a stream that has ended once no read or write is in flight.
  // Returns whether `start` was called.
  template <class F>
  bool StartUnlessEnding(F start) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return false;
      ++starting_;
    }
    start();
    {
      absl::MutexLock lock(&mu_);
      --starting_;
    }
    Pump();
    return true;
  }
  // Called before a message is written.  The stream does not end during the call.
  virtual void OnSending(Message* message) { (void)message; }
  // Called when all messages are written and the stream goes on.
  virtual void OnSent() {}

 private:
  size_t Enqueue(Message message, bool last) ABSL_LOCKS_EXCLUDED(mu_) {
    size_t waiting = 0;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return 0;
      ending_ = last;
      queue_.push_back(std::move(message));
      waiting = queue_.size();
    }
    Pump();
    return waiting;
  }
  // Starts the next write or ends the stream, unless a write is in flight.
  void Pump() ABSL_LOCKS_EXCLUDED(mu_) {
    bool write = false, end = false;
    absl::Status status;
    {
      absl::MutexLock lock(&mu_);
      if (writing_ || finished_) return;
      write = begun_ && !queue_.empty();
      if (write) {
        message_ = std::move(queue_.front());
        queue_.pop_front();
      }
      end = ending_ && queue_.empty() && starting_ == 0 && (!write || status_.ok());
      writing_ = write;
      finished_ = end;
      status = status_;
    }
    if (write) OnSending(&message_);
    if (write && end) {
      this->StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    } else if (write) {
      this->StartWrite(&message_);
    } else if (end) {
      this->Finish(ToGrpc(status));
    }
  }

  std::shared_ptr<Derived> self_;
  Message message_;  // message of the write in flight
  absl::Mutex mu_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);
  bool begun_ ABSL_GUARDED_BY(mu_);
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  int starting_ ABSL_GUARDED_BY(mu_) = 0;     // number of calls of StartUnlessEnding
  absl::Status status_ ABSL_GUARDED_BY(mu_);  // status with which the stream ends
};

}  // namespace tessera::server::rpc
