// Retries of unary calls without a response. The server executes a call once, since calls that
// change something carry a request_id.
//
// The functions are thread-safe; Retries belongs to one thread.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace tessera::remote {

// Sets deadline and credentials of a call.
using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration timeout)>;
// Converts the status of a call to absl::Status.
using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

// The attempts of one call: a few within `timeout`, while the connection fails or the server is
// stopping. Each waits for a connection. Other errors are final.
//
//   Retries tries(channel, timeout);
//   grpc::Status status;
//   do {
//     status = call(tries.left());
//   } while (tries.Again(status));
//   return tries.End(done);
class Retries {
 public:
  Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration timeout);
  absl::Duration left() const;
  // Whether to retry the call, which ended with `status`; backs off and waits for a connection.
  bool Again(const grpc::Status& status);
  // The result: the last response of a server, or UNREACHABLE if there was none and no connection.
  absl::Status End(const DoneFn& done) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Time end_;
  int attempts_ = 0;
  grpc::Status status_;  // the result of End
  bool unreachable_ = false;
};

// Calls `call` with Retries.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel,
                               absl::Duration timeout, const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// A unique id for a call and its retries.
std::string NewRequestId();

}  // namespace tessera::remote
