// Names the planner in a file of its own, so that the fixture's header, like the roles that it
// tests, does not see it.
#include "server/rpc/testing/edge.h"

#include "server/planner/planner.h"

namespace tessera::server::rpc {

core::PlanFn PlannerOfTests() { return planner::MakePlan; }

}  // namespace tessera::server::rpc
