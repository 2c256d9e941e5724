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

// Draws the whole plan as text.
std::string DrawPlan(const PlanView& plan, const Display& display);
// Draws which device holds which shard of an array. Returns nothing for an array that is not
// sharded.
std::vector<std::string> DrawArray(const PlanView& plan, const PlanArray& array,
                                   const Display& display);
// Like DrawArray, for any array. A picture has two dims. An array that is cut along more dims has
// one picture for each block along the others.
std::string DrawPlacement(const PlanView& plan, const PlanArray& array, const Display& display);
// Draws several arrays, one below the other, as an SVG document.
std::string SvgOf(const PlanView& plan, const std::vector<PlanArray>& arrays);
// Draws the arrays that DrawPlan draws.
std::string SvgOf(const PlanView& plan);

}  // namespace tessera::internal
