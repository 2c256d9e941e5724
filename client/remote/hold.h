// The stream by which the coordinator knows that this client is alive (SessionService.HoldSession).
//
// Thread-compatible: used by one thread. Nothing polls the stream while it is open: a thread parked
// in a poll would delay the answers of other calls on the same socket.
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
  // Cancels the stream.
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  enum class State {
    kHeld,     // also if the server is older and has no HoldSession
    kOpening,  // not answered yet; perhaps there is no connection
    kRefused
  };
  // Opens a stream for `session` if there is none, and checks that it is still open; waits at most
  // `wait` for it to open.
  State Keep(uint64_t session, absl::Duration wait);

 private:
  struct Stream;
  void Open(uint64_t session);

  v1::SessionService::Stub* const stub_;
  const PrepareFn prepare_;
  std::unique_ptr<Stream> stream_;
  bool unknown_ = false;  // the server is older and has no HoldSession
};

}  // namespace tessera::remote
