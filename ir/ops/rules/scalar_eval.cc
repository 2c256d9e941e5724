// The parts of scalar_eval.h that do not depend on the op's lambda: the first and the last nodes of
// a recorded graph, and the end of the process after a wrong inference.
#include "ir/ops/rules/scalar_eval.h"

#include <cstdlib>
#include <string>

#include "base/log.h"

namespace tessera::ir::scalar {

void CrashAfterWrongInference(DType dtype) {
  TESSERA_CHECK(false) << "dtype " << std::string(DTypeName(dtype)) << " passed inference";
  std::abort();
}

int AddInput(ScalarGraph* graph, int index, DType from, DType to) {
  const int id = graph->Add(ScalarPrim::kInput, from, {}, index);
  return from == to ? id : graph->Add(ScalarPrim::kConvert, to, {id});
}
void AddRoot(ScalarGraph* graph, int node, DType to) {
  if (graph->nodes[node].dtype != to) node = graph->Add(ScalarPrim::kConvert, to, {node});
  graph->roots.push_back(node);
}

}  // namespace tessera::ir::scalar
