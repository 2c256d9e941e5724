#include "ir/transform/transform.h"
#include "ir/transform/walk.h"

namespace tessera::ir {

FunctionRef Dce(const Function& f, bool keep_params, std::vector<bool>* kept) {
  std::vector<bool> used(f.num_params, true);
  if (!keep_params) used = walk::UsedParams(f);
  if (kept) *kept = used;
  return walk::Reorder(f, walk::Where(used), walk::Iota(static_cast<int>(f.results.size())));
}

}  // namespace tessera::ir
