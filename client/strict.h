// What the SDK looks at beyond JAX's rules (client/sharding.h says what it tells). Used by the SDK
// only.
#pragma once
#include <string>
#include <vector>

#include "client/trace.h"
#include "ir/program.h"

namespace tessera::internal {

// Tells, or refuses, that the predicate of `name` varies along axes over which one of the functions
// exchanges data.
void CheckPredicate(const char* name, const Type& predicate,
                    const std::vector<ir::FunctionRef>& functions, const Site& site);

// Whether somebody collects diagnostics here.
bool CollectsDiagnostics();
// Tells of each psum of `transposed` that `linear` has not.
void TellInsertedPsums(const ir::Function& linear, const ir::Function& transposed,
                       const Site& site);

// Whether plans are looked at for what they replicate, which needs their explanation.
bool HasReplicationBudget();
// Throws if the plan of the program makes something whole that is larger than the budget.
void CheckReplication(const TracedProgram& traced, const api::CompileReply& plan,
                      const std::string& name, const Site& site);

}  // namespace tessera::internal
