// The planner: a pure function from a program, its shardings and a snapshot of the cluster to a
// plan.
//
// The passes are, in order: seed (read the shardings that the program gives), propagate (extend
// them to all values), partition (emit the device program), bound its memory, hoist (move
// collectives out of loops) and explain. Equal requests give plans that are equal byte by byte. Any
// thread may call the planner. PlanRequest::on_stage only observes, and is called on the caller's
// thread.
#pragma once
#include "absl/status/statusor.h"
#include "server/core/plan.h"

namespace tessera::server::planner {

// Plans the request.  Errors are VALUE_ERROR, UNKNOWN_AXIS, INDIVISIBLE, SHARDING_TYPE_ERROR or
// NOT_IMPLEMENTED, each with the op and its source location, and FAILED_PRECONDITION
// (NOT_ENOUGH_DEVICES) if the numbers of devices in the snapshot and in the mesh differ. How long
// planning takes depends on the program, not on the number of devices. Requires: the program has
// been verified.
absl::StatusOr<core::Plan> MakePlan(const core::PlanRequest& request);

}  // namespace tessera::server::planner
