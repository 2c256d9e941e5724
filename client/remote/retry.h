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

// Decides how long the calls of one client wait for a server that has gone away or is silent. They
// wait for `patience` in all, counted from the first call that does not reach the server. After
// that each call waits only briefly, until the server is back. For a server that has never
// answered, each call waits only briefly as well.
class Outage {
 public:
  // `keepalive` is the time after which keepalive gives up a connection on which nothing comes
  // back.
  explicit Outage(absl::Duration patience, absl::Duration keepalive = absl::ZeroDuration())
      : patience_(patience), keepalive_(keepalive) {}
  // Notes that the server has answered, which ends the outage.
  void NoteAnswered() ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that a call has not reached the server since the time `since`, by SteadyNow(). The first
  // such call starts the outage. Returns the time until which the call waits.
  absl::Time NoteUnreachable(absl::Time since) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether there is no patience left: the outage has lasted for too long, or the server
  // has never answered.
  bool exhausted() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns how long an attempt that begins now may wait for an answer. Infinite if there is no
  // outage.
  absl::Duration AttemptLimit() const ABSL_LOCKS_EXCLUDED(mu_);
  absl::Duration patience() const { return patience_; }
  absl::Duration keepalive() const { return keepalive_; }

 private:
  absl::Time WaitsUntil(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration patience_, keepalive_;
  mutable absl::Mutex mu_;
  std::optional<absl::Time> answered_at_ ABSL_GUARDED_BY(mu_);  // time of the last answer
  std::optional<absl::Time> began_ ABSL_GUARDED_BY(mu_);
};

// The time limits of one call, and its name.
struct CallBounds {
  std::string what;       // name of the call, for the error: "GetArray"
  absl::Duration answer;  // how long the server may take to answer one attempt
  // The part of `answer` for which the server itself waits, say for the end of a run.
  absl::Duration server_wait = absl::ZeroDuration();
  // The caller's own deadline, by SteadyNow(). It ends the call in an outage as well.
  absl::Time deadline = absl::InfiniteFuture();
  // How much later than `deadline` the answer of a server that can be reached may arrive.
  absl::Duration grace = absl::ZeroDuration();
};

// The attempts of one call. The call is attempted again, a few times, while the connection fails or
// the server is stopping, and as often as `outage` allows while there is no connection or no
// answer. Before each new attempt WaitToRetry waits for a connection. Other errors are final.
//
//   Retries tries(channel, bounds, &outage);
//   grpc::Status status;
//   do {
//     status = call(tries.BeginAttempt());
//   } while (tries.WaitToRetry(status));
//   return tries.FinalStatus(to_status);
class Retries {
 public:
  // `outage` must outlive this object. If `stop` is given, its notification ends the attempts; it
  // must outlive this object, too.
  Retries(std::shared_ptr<grpc::Channel> channel, CallBounds bounds, Outage* outage,
          const absl::Notification* stop = nullptr);
  // Begins an attempt, and returns its time limit.
  absl::Duration BeginAttempt();
  // Returns whether to retry the call, which ended with `status`. Before it returns true, it backs
  // off and waits for a connection.
  bool WaitToRetry(const grpc::Status& status);
  // Returns the result of the call. If no server responded, the result is an error that names the
  // call and says how long the call has waited: DEADLINE_EXCEEDED if the caller's own deadline
  // ended the call, and otherwise UNREACHABLE.
  absl::Status FinalStatus(const ToStatusFn& to_status) const;

 private:
  bool stopped() const { return stop_ != nullptr && stop_->HasBeenNotified(); }
  void Sleep(absl::Duration time) const;
  // Returns the time since which the server has not been reached, given that the last attempt ended
  // now, with this status.
  absl::Time UnreachedSince(const grpc::Status& status, absl::Time now) const;
  // Waits for a connection until `until`. Returns whether there is one.
  bool AwaitConnection(absl::Time until) const;

  const std::shared_ptr<grpc::Channel> channel_;
  const CallBounds bounds_;
  Outage* const outage_;
  const absl::Notification* const stop_;
  const absl::Time began_;    // when the call began
  absl::Time attempt_began_;  // when the last attempt began
  int attempts_ = 0;          // attempts that the connection ended
  grpc::Status status_;       // the status that FinalStatus converts
  bool unreachable_ = false;  // whether the call ended without a connection or without an answer
  bool at_deadline_ = false;  // whether the caller's own deadline ended it
};

// Runs `call` with Retries until it is answered or given up, and returns its result.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel, CallBounds bounds,
                               Outage* outage, const PrepareFn& prepare,
                               const ToStatusFn& to_status,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call,
                               const absl::Notification* stop = nullptr);

// Returns a unique id, which a call and its retries share.
std::string NewRequestId();

}  // namespace tessera::remote
