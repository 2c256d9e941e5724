// The client's interface (api::Service) for one caller and session: waits for the coordinator's
// asynchronous calls.
#pragma once
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/core/caller.h"

namespace tessera::server {

class Coordinator;

// Thread-safe.  The coordinator outlives it.  `session` owns the results.  No call waits for
// executors beyond `until`: DEADLINE_EXCEEDED.  `before_wait`, if given, is called on a thread that
// is about to wait for a run or an array: it may do the work that is waited for.
std::unique_ptr<api::Service> MakeBoundService(Coordinator* coordinator, core::Caller caller = {},
                                               uint64_t session = 0,
                                               absl::Time until = absl::InfiniteFuture(),
                                               std::function<void()> before_wait = nullptr);

}  // namespace tessera::server
