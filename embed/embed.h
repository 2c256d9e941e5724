// A cluster in this process: coordinator, planner and one worker with CPU devices, behind the same
// interfaces as a distributed one.
//
// Owned by the service; its destructor stops the worker, then the coordinator.
#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "client/embedded.h"
#include "ir/api/service.h"

namespace tessera::embed {

// VALUE_ERROR if options are out of range.
absl::StatusOr<std::shared_ptr<api::Service>> Start(const EmbeddedOptions& options);

}  // namespace tessera::embed
