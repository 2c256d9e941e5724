// Checks that go beyond JAX's rules. client/sharding.h has the scopes that turn them on and
// documents their messages. Used by the SDK only.
#pragma once
#include <string>
#include <vector>

#include "client/trace/trace.h"
#include "ir/program.h"

namespace tessera::internal {

// Checks the predicate of the op `name`. If it varies along axes over which one of the functions
// exchanges data, adds a diagnostic, or throws VALUE_ERROR in a strict_collectives scope.
void CheckPredicate(const char* name, const Type& predicate,
                    const std::vector<ir::FunctionRef>& functions, const Site& site);

// Adds a diagnostic for each psum of `transposed` that `linear` does not have.
void ReportInsertedPsums(const ir::Function& linear, const ir::Function& transposed,
                         const Site& site);

// Returns whether plans are checked for arrays that they replicate. The check needs the
// explanation.
bool HasReplicationBudget();
// Throws LIMIT_EXCEEDED if the plan makes an array whole on a device and the array is larger than
// the budget.
void CheckReplication(const TracedProgram& traced, const api::CompileReply& plan,
                      const std::string& name, const Site& site);

}  // namespace tessera::internal
