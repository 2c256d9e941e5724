// The whole cluster in this process: coordinator, planner and one worker with CPU devices, over the
// same seams as the real one.
//
// Owned by whoever holds the service; the last release stops the worker, then the coordinator.
#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "client/embedded.h"
#include "ir/api/service.h"

namespace tessera::embed {

// VALUE_ERROR when options are out of range.
absl::StatusOr<std::shared_ptr<api::Service>> Start(const EmbeddedOptions& options);

}  // namespace tessera::embed
