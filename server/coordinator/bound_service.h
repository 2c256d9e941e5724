// Implements the client's interface (api::Service) for one caller and session. Each call waits for
// the coordinator's asynchronous call.
#pragma once
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/core/caller.h"

namespace tessera::server {

class Coordinator;

// Thread-safe.  The coordinator outlives the service. `session` owns the arrays that the calls
// make. Compile and Put wait for executors no longer than until the time `until`, and then end with
// DEADLINE_EXCEEDED; the other calls that wait have timeouts of their own. `before_wait`, if given,
// is called on each thread that is about to wait for a run or an array. The function may do the
// awaited work on that thread.
std::unique_ptr<api::Service> MakeBoundService(Coordinator* coordinator, core::Caller caller = {},
                                               uint64_t session = 0,
                                               absl::Time until = absl::InfiniteFuture(),
                                               std::function<void()> before_wait = nullptr);

}  // namespace tessera::server
