// Retries of unary calls without a response. The server executes a call once, since calls that
// change something carry a request_id.
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

// Sets deadline and credentials of a call.
using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration timeout)>;
// Converts the status of a call to absl::Status.
using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

// How long the calls of one client wait for a server that has gone away: `patience` in all, from
// the first call that does not reach it; each later one waits only briefly until the server is
// back. For a server that has never answered there is no patience.
class Outage {
 public:
  explicit Outage(absl::Duration patience) : patience_(patience) {}
  // The server has answered.
  void Over() ABSL_LOCKS_EXCLUDED(mu_);
  // Until when a call waits that does not reach the server, by SteadyNow().
  absl::Time Until() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const absl::Duration patience_;
  absl::Mutex mu_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Time> began_ ABSL_GUARDED_BY(mu_);
};

// The attempts of one call within `timeout`, while the connection fails or the server is stopping:
// a few that reach the server. Each waits for a connection, as long as `outage` allows. Other
// errors are final.
//
//   Retries tries(channel, timeout, &outage);
//   grpc::Status status;
//   do {
//     status = call(tries.left());
//   } while (tries.Again(status));
//   return tries.End(done);
class Retries {
 public:
  // `outage` must outlive this, and `stop`, which ends the attempts, if it is given.
  Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout, Outage* outage,
          const absl::Notification* stop = nullptr);
  absl::Duration left() const;
  // Whether to retry the call, which ended with `status`; backs off and waits for a connection.
  bool Again(const grpc::Status& status);
  // The result: the last response of a server, or UNREACHABLE if there was none and no connection.
  absl::Status End(const DoneFn& done) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Time end_;
  Outage* const outage_;
  const absl::Notification* const stop_;
  int attempts_ = 0;
  grpc::Status status_;  // the result of End
  bool unreachable_ = false;
};

// Calls `call` with Retries.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration timeout, Outage* outage, const PrepareFn& prepare,
                               const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// A unique id for a call and its retries.
std::string NewRequestId();

}  // namespace tessera::remote
