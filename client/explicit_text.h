// What the planner chose on Auto axes, as the user would write it down: with_sharding_constraint
// for the values of each line, and what a program on Explicit axes needs.
//
// Stateless; thread-safe; the text depends on the plan alone. Used by the SDK and the command line.
#pragma once
#include <string>

#include "client/picture.h"
#include "ir/mesh.h"

namespace tessera::internal {

// A spec in the language of a source file: P("x", None, {"y", "z"}) in C++, else
// P('x', None, ('y','z')), as Python and the text form of programs have it.
std::string SpecText(const ir::PartitionSpec& spec, bool cpp);
std::string ExplicitText(const PlanView& plan);

}  // namespace tessera::internal
