// Unary calls that are made again when no answer came. The server executes a call once, since calls
// that change something carry a request_id.
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
using PrepareFn = std::function<void(grpc::ClientContext* context, absl::Duration limit)>;
// Turns the status of a call into ours.
using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

// The tries of one call. It is made again, a few times within `limit`, while the connection breaks
// or the server is going down, and only once there is a connection again. Other errors end it.
//
//   Retries tries(channel, limit);
//   grpc::Status status;
//   do {
//     status = call(tries.left());
//   } while (tries.Again(status));
//   return tries.End(done);
class Retries {
 public:
  Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration limit);
  absl::Duration left() const;
  // Whether to make the call, which ended with `status`, again; waits for the connection first.
  bool Again(const grpc::Status& status);
  // The result: the last answer of a server, or UNREACHABLE when the connection broke without one
  // and could not be made again.
  absl::Status End(const DoneFn& done) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Time end_;
  int tries_ = 0;
  grpc::Status status_;  // what End reports
  bool unreachable_ = false;
};

// Makes the call with Retries.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel, absl::Duration limit,
                               const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// Unique; one for a call and its retries.
std::string NewRequestId();

}  // namespace tessera::remote
