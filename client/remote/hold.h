// The stream that keeps the session of this client alive (SessionService.HoldSession).
//
// Thread-compatible: used by one thread. No thread blocks on the open stream: a blocked thread
// would delay the responses of other calls on the same socket.
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
  // The stub and the captures of `prepare` must outlive this object.
  Hold(v1::SessionService::Stub* stub, PrepareFn prepare);
  // Cancels the stream.
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  enum class State {
    kHeld,     // the stream is open, or the server is older and has no HoldSession
    kOpening,  // no response yet; there may be no connection
    kRefused
  };
  // Opens a stream for `session` if there is none, and waits at most `wait` until the stream is
  // open. If there is a stream, checks that it is still open, and opens a broken one again.
  State KeepOpen(uint64_t session, absl::Duration wait);

 private:
  struct Stream;
  void Open(uint64_t session);

  v1::SessionService::Stub* const stub_;
  const PrepareFn prepare_;
  std::unique_ptr<Stream> stream_;
  bool unimplemented_ = false;  // the server is older and has no HoldSession
};

}  // namespace tessera::remote
