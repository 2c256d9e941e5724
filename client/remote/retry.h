// Unary calls that are made again when nobody answered: what the server has done before it does not
// do twice, since what changes something carries a request_id.
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
// Reads how a call ended.
using DoneFn = std::function<absl::Status(const grpc::Status& status)>;

// The tries of one call. It is made again, a few times within `limit`, while the connection breaks
// or the server is going down, and only over a connection that stands again. Other answers are the
// caller's.
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
  // Whether the call, which has ended so, is to be made again; waits for what must come before.
  bool Again(const grpc::Status& status);
  // How it ended: as a server said, at last or before it was gone; UNREACHABLE where the connection
  // broke and no other could be made.
  absl::Status End(const DoneFn& done) const;

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const absl::Time end_;
  int tries_ = 0;
  grpc::Status status_;  // what is to be told
  bool unreachable_ = false;
};

// Makes the call with Retries.
absl::Status CallUntilAnswered(const std::shared_ptr<grpc::Channel>& channel, absl::Duration limit,
                               const PrepareFn& prepare, const DoneFn& done,
                               const std::function<grpc::Status(grpc::ClientContext*)>& call);

// For one call and its retries: used by nobody else, ever.
std::string NewRequestId();

}  // namespace tessera::remote
