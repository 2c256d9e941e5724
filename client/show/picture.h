// Draws a plan for a terminal: its mesh with the shards on each device, its sharded arrays, its
// collectives with their bytes, its memory and its time. Can draw arrays as SVG, too.
//
// Stateless; thread-safe. The text depends on the arguments alone. Used by the SDK and the command
// line.
#pragma once
#include <string>
#include <vector>

#include "client/plan/plan_view.h"
#include "client/show/display.h"

namespace tessera::internal {

// Returns the picture of the whole plan.
std::string PlanPicture(const PlanView& plan, const Display& display);
// Returns a picture, in lines, of which device holds which shard of an array. Returns no lines for
// an array that is not sharded.
std::vector<std::string> ArrayPicture(const PlanView& plan, const PlanArray& array,
                                      const Display& display);
// Like ArrayPicture, for any array. A picture has two dims. An array that is cut along more dims
// has one picture for each block along the others.
std::string PlacementPicture(const PlanView& plan, const PlanArray& array, const Display& display);
// Returns an SVG document that shows the arrays one below the other.
std::string SvgOf(const PlanView& plan, const std::vector<PlanArray>& arrays);
// Returns an SVG document of the arrays that PlanPicture shows.
std::string SvgOf(const PlanView& plan);

}  // namespace tessera::internal
