// The client's seam for one caller and session: the coordinator's asynchronous calls, waited for.
#pragma once
#include <memory>

#include "ir/api/service.h"
#include "server/core/caller.h"

namespace tessera::server {

class Coordinator;

// Thread-safe.  The coordinator outlives it.
std::unique_ptr<api::Service> MakeBoundService(Coordinator* coordinator, core::Caller caller,
                                               uint64_t session);

}  // namespace tessera::server
