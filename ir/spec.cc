// The one check of a spec against a mesh and a shape. The planner, the readers of programs,
// placements and the client all call it, and write their own error texts.
#include "ir/spec.h"

#include <algorithm>

namespace tessera::ir {

bool IsPrefix(const AxisList& prefix, const AxisList& axes) {
  return prefix.size() <= axes.size() && std::equal(prefix.begin(), prefix.end(), axes.begin());
}

std::optional<SpecFault> FindSpecFault(const PartitionSpec& spec, const Mesh& mesh,
                                       const Dims& shape) {
  if (spec.dims.size() > shape.size()) return SpecFault{};
  AxisSet seen;
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    for (const std::string& axis : spec.dims[d]) {
      if (!mesh.Has(axis)) return SpecFault{SpecFault::kUnknownAxis, d, axis};
      if (!seen.insert(axis).second) return SpecFault{SpecFault::kAxisTwice, d, axis};
    }
    const int64_t shards = mesh.SizeOf(spec.dims[d]);
    if (shape[d] % shards != 0) return SpecFault{SpecFault::kIndivisible, d, "", shards};
  }
  return std::nullopt;
}

}  // namespace tessera::ir
