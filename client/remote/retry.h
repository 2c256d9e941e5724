// Retries unary calls that got no response. The server still executes each call only once, since
// calls that change something carry a request_id.
//
// The functions and Outage are thread-safe; Retries belongs to one thread.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace tessera::remote {

// Sets the deadline and the credentials of a call.
using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration timeout)>;
// Converts the status of a call to absl::Status.
using ToStatusFn = std::function<absl::Status(const grpc::Status& status)>;

// Decides how long the calls of one client wait for a server that has gone away. They wait for
// `patience` in all, counted from the first call that does not reach the server. After that each
// call waits only briefly, until the server is back. For a server that has never answered, each
// call waits only briefly as well.
class Outage {
 public:
  explicit Outage(absl::Duration patience) : patience_(patience) {}
  // Notes that the server has answered, which ends the outage.
  void NoteAnswered() ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that a call did not reach the server; the first such call starts the outage. Returns the
  // time, by SteadyNow(), until which the call waits.
  absl::Time NoteUnreachable() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const absl::Duration patience_;
  absl::Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Time> began_ ABSL_GUARDED_BY(mu_);
};

// The attempts of one call within `timeout`. The call is attempted again, a few times, while the
// connection fails or the server is stopping. Before each new attempt WaitToRetry waits for a
// connection, as long as `outage` allows. Other errors are final.
//
//   Retries tries(channel, timeout, &outage);
//   grpc::Status status;
//   do {
//     status = call(tries.left());
//   } while (tries.WaitToRetry(status));
//   return tries.FinalStatus(to_status);
class Retries {
 public:
  // `outage` must outlive this object. If `stop` is given, its notification ends the attempts; it
  // must outlive this object, too.
  Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout, Outage* outage,
          const absl::Notification* stop = nullptr);
  absl::Duration left() const;
  // Returns whether to retry the call, which ended with `status`. Before it returns true, it backs
  // off and waits for a connection.
  bool WaitToRetry(const grpc::Status& status);
  // Returns the result of the call: the last response of a server or, if there was no response and
  // no connection, UNREACHABLE.
  absl::Status FinalStatus(const ToStatusFn& to_status) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Time end_;
  Outage* const outage_;
  const absl::Notification* const stop_;
  int attempts_ = 0;
  grpc::Status status_;  // the status that FinalStatus converts
  bool unreachable_ = false;
};

// Runs `call` with Retries until it is answered or given up, and returns its result.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration timeout, Outage* outage, const PrepareFn& prepare,
                               const ToStatusFn& to_status,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// Returns a unique id, which a call and its retries share.
std::string NewRequestId();

}  // namespace tessera::remote
