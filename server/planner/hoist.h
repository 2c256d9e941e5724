// Hoisting: collectives leave loops whose every iteration would exchange the same values: what
// depends on neither the loop's carries nor its slices, but on its constants only. They run once
// before the loop, with what they need, and their results are constants of the loop.
//
// Pure. A loop that runs no iteration exchanges them too: ops have no effects, and none is moved
// that a host evaluates, or whose own loops need not end. Nothing moves past a barrier of the user
// or of a `checkpoint`'s backward pass, for what lies behind one is no constant. Branches keep what
// they have, as only one of them runs.
#pragma once
#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::server::planner {

enum class Hoisting : uint8_t {
  kAll,       // gathers too: what they give then lives for as long as the loop runs
  kNoLarger,  // collectives that give no more bytes than they take
};
// The device program with such collectives before their loops, and before loops around those if
// they are constants there, too; one that is in the function already is not repeated. `f` itself if
// nothing moves. Requires: `f` is the device program of a plan.
absl::StatusOr<ir::FunctionRef> HoistCollectives(const ir::FunctionRef& f, Hoisting which);

}  // namespace tessera::server::planner
