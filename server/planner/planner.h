// The planner: a pure function from a program, its shardings and a snapshot of the cluster to a
// plan.
//
// Passes, in order: seed, propagate, partition, bound memory, hoist, explain.  The same request
// gives the same bytes.  Any thread.  PlanRequest::on_stage, which only observes, is called on the
// same thread.
#pragma once
#include "absl/status/statusor.h"
#include "server/core/plan.h"

namespace tessera::server::planner {

// Errors: VALUE_ERROR, UNKNOWN_AXIS, INDIVISIBLE, SHARDING_TYPE_ERROR or NOT_IMPLEMENTED, each with
// the op and its source location; FAILED_PRECONDITION (NOT_ENOUGH_DEVICES) when the snapshot has
// another number of devices than the mesh.  The time depends on the program, not on the number of
// devices.  Requires: the program has been verified.
absl::StatusOr<core::Plan> MakePlan(const core::PlanRequest& request);

}  // namespace tessera::server::planner
