// Predicts how long an evaluation cannot be cancelled. A backend that leaves an op to the host uses
// the prediction to decide where the host evaluates the op (docs/decisions/0038).
#include "ir/eval/uninterrupted.h"

#include <algorithm>
#include <vector>

#include "ir/derive/factors.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

// The evaluators' plain loops take about 4 ns for an element or a flop: they convert each element,
// and most of them run on one lane.
constexpr double kOperationsOfPlainLoop = 16;

// Returns the operations of one op, without those of its regions. The evaluators of ops with
// regions poll before each op of a region, or after each block of elements of a computation.
double OperationsOf(const Function& f, const Op& op) {
  std::vector<Type> in = ElementsAt(f.types, op.operands), out = ElementsAt(f.types, op.results);
  if (op.def->uninterrupted != nullptr)
    return op.def->uninterrupted({*op.def, f.scope, in, op.attrs, op.regions}, out);
  if (!op.regions.empty()) return 0;
  double elements = 0;
  for (const Type& t : in) elements += static_cast<double>(t.num_elements());
  for (const Type& t : out) elements += static_cast<double>(t.num_elements());
  return kOperationsOfPlainLoop * (CostOf(f, op).flops + elements);
}

}  // namespace

double UninterruptedOperations(const Function& f) {
  double most = 0;
  for (const Op& op : f.ops) {
    most = std::max(most, OperationsOf(f, op));
    for (const FunctionRef& region : op.regions)
      most = std::max(most, UninterruptedOperations(*region));
  }
  return most;
}

}  // namespace tessera::ir
