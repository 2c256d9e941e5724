// Predicts how long the reference evaluator works between two polls of EvalOptions::check_cancel.
// Stateless; thread-safe.
#pragma once
#include "ir/program.h"

namespace tessera::ir {

// The unit of the predictions: an operation takes about 1 / kOperationsPerSecond, and seldom more,
// on a core of a server of 2023. Other machines may be a few times slower.
inline constexpr double kOperationsPerSecond = 4e9;

// Returns about how many operations the evaluation does at most between two polls. The evaluator
// polls between ops, so the result is that of one op of the function or of its regions.
double UninterruptedOperations(const Function& f);

}  // namespace tessera::ir
