// The stream by which the coordinator knows that this client is there (SessionService.HoldSession).
//
// Thread-compatible: used by one thread. No thread waits for it while it lasts: a parked poller
// would stand between the socket and those who wait for their answers.
#pragma once
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "client/remote/retry.h"
#include "grpcpp/grpcpp.h"
#include "tessera/v1/session.grpc.pb.h"

namespace tessera::remote {

class Hold {
 public:
  // The stub and what `prepare` refers to outlive it.
  Hold(v1::SessionService::Stub* stub, PrepareFn prepare);
  // Leaves.
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  enum class State {
    kHeld,     // or the server is older, and knows no such thing
    kOpening,  // there may be no connection
    kRefused
  };
  // Opens the stream of `session` where there is none, and sees whether it still lasts; waits until
  // it is there, at most `wait`.
  State Keep(uint64_t session, absl::Duration wait);

 private:
  struct Stream;
  void Open(uint64_t session);

  v1::SessionService::Stub* const stub_;
  const PrepareFn prepare_;
  std::unique_ptr<Stream> stream_;
  bool unknown_ = false;  // to an older server
};

}  // namespace tessera::remote
