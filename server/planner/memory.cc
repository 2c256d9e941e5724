#include "server/planner/memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ir/op_def.h"

namespace tessera::server::planner {
namespace {

// A value may have 2^61 bytes: sums saturate.
int64_t Plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

}  // namespace

MemoryBound BoundMemory(const ir::Function& f) {
  std::vector<int> last(f.types.size(), -1);
  for (size_t i = 0; i < f.ops.size(); ++i)
    for (const auto* list : {&f.ops[i].operands, &f.ops[i].results})
      for (ir::ValueId v : *list) last[v] = static_cast<int>(i);
  for (ir::ValueId v : f.results) last[v] = static_cast<int>(f.ops.size());
  for (int i = 0; i < f.num_params; ++i) last[i] = static_cast<int>(f.ops.size());

  std::vector<std::vector<ir::ValueId>> dead(f.ops.size() + 1);
  for (size_t v = 0; v < last.size(); ++v)
    if (last[v] >= 0) dead[last[v]].push_back(static_cast<ir::ValueId>(v));

  MemoryBound m;
  for (int i = 0; i < f.num_params; ++i) m.arguments = Plus(m.arguments, f.types[i].num_bytes());
  for (ir::ValueId v : f.results) m.results = Plus(m.results, f.types[v].num_bytes());
  int64_t live = m.arguments;
  m.peak = live;
  for (size_t i = 0; i < f.ops.size(); ++i) {
    for (ir::ValueId v : f.ops[i].results) live = Plus(live, f.types[v].num_bytes());
    int64_t inner = 0;
    for (const ir::FunctionRef& r : f.ops[i].regions) inner = std::max(inner, BoundMemory(*r).peak);
    m.peak = std::max(m.peak, Plus(live, inner));
    for (ir::ValueId v : dead[i]) live -= f.types[v].num_bytes();
  }
  return m;
}

}  // namespace tessera::server::planner
