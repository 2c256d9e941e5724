// Hoisting moves collectives out of loops if every iteration would exchange the same values. A
// collective that is hoisted depends only on constants of the loop (operands that are the same in
// every iteration). It depends neither on carries, which one iteration hands to the next, nor on
// slices, of which each iteration gets its own. It runs once before the loop, together with the ops
// that it needs, and its result becomes a constant of the loop.
//
// Pure. The collective runs even if the loop has no iteration, which is harmless because ops have
// no effects. Ops that the reference evaluator runs on the host do not move, and neither do ops
// that contain a loop without a fixed number of iterations: it might never end. No op moves past a
// barrier (of the user, or of a `checkpoint`'s backward pass), because a value behind a barrier
// does not count as a constant. No op leaves a branch, because only one branch runs.
#pragma once
#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::server::planner {

enum class Hoisting : uint8_t {
  kAll,       // all collectives, even if results larger than operands then live during the loop
  kNoLarger,  // only collectives whose results have no more bytes than their operands
};
// Returns the device program with the collectives that may move placed before their loops. A
// collective that is the same in every iteration of an outer loop too moves before the outer loop.
// If an equal collective on equal operands is already there, its result is used instead. Returns
// `f` itself if nothing moves. Requires: `f` is the device program of a plan.
absl::StatusOr<ir::FunctionRef> HoistCollectives(const ir::FunctionRef& f, Hoisting which);

}  // namespace tessera::server::planner
