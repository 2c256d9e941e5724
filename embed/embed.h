// Runs a cluster in this process: a coordinator, a planner and one worker with CPU devices, behind
// the same interfaces as a distributed cluster.
//
// The returned service owns the cluster. When the service is destroyed, the worker stops first and
// then the coordinator.
#pragma once
#include <memory>

#include "absl/status/statusor.h"
#include "client/embedded.h"
#include "ir/api/service.h"

namespace tessera::embed {

// Starts a cluster and returns its service. Returns VALUE_ERROR if an option is out of range.
absl::StatusOr<std::shared_ptr<api::Service>> Start(const EmbeddedOptions& options);

}  // namespace tessera::embed
