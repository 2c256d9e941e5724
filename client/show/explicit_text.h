// Writes the planner's choices on Auto axes as source text: a with_sharding_constraint for the
// values of each line, and the changes that a program on Explicit axes needs.
//
// Stateless; thread-safe. The text depends on the plan alone. Used by the SDK and the command line.
#pragma once
#include <string>

#include "client/plan/plan_view.h"
#include "ir/mesh.h"

namespace tessera::internal {

// Returns a spec in the language of a source file: P("x", None, {"y", "z"}) in C++, else P('x',
// None, ('y','z')), as in Python and in the text form of programs.
std::string SpecText(const ir::PartitionSpec& spec, bool cpp);
// Returns the whole text: arguments, lines, results, and what Explicit axes need.
std::string ExplicitText(const PlanView& plan);

}  // namespace tessera::internal
