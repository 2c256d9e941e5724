// The client's seam for one caller and session: the coordinator's asynchronous calls, waited for.
#pragma once
#include <memory>

#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/core/caller.h"

namespace tessera::server {

class Coordinator;

// Thread-safe.  The coordinator outlives it.
// No call waits for executors beyond `until`.
std::unique_ptr<api::Service> MakeBoundService(Coordinator* coordinator, core::Caller caller,
                                               uint64_t session, absl::Time until);

}  // namespace tessera::server
