// Hoisting moves collectives out of loops if every iteration would exchange the same values. Such a
// collective depends only on constants of the loop, and neither on carries nor on slices. It runs
// once before the loop, together with the ops that it needs, and its result becomes a constant of
// the loop.
//
// Pure. The collective runs even if the loop has no iteration, which is harmless because ops have
// no effects. Ops that a host evaluates do not move, and neither do ops with loops that need not
// end. No op moves past a barrier (of the user, or of a `checkpoint`'s backward pass), because a
// value behind a barrier does not count as a constant. No op leaves a branch, because only one
// branch runs.
#pragma once
#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::server::planner {

enum class Hoisting : uint8_t {
  kAll,       // all collectives, also gathers, whose results then live as long as the loop runs
  kNoLarger,  // only collectives whose results have no more bytes than their operands
};
// Returns the device program with such collectives before their loops. A collective that is
// constant in an outer loop too moves before the outer loop. A collective that the function already
// contains is not repeated. Returns `f` itself if nothing moves. Requires: `f` is the device
// program of a plan.
absl::StatusOr<ir::FunctionRef> HoistCollectives(const ir::FunctionRef& f, Hoisting which);

}  // namespace tessera::server::planner
