// Linearization: a jvp, split by partial evaluation into a forward function and a linear one.
// Reverse mode transposes the linear one.
#include <algorithm>

#include "base/status.h"
#include "ir/transform/transform.h"

namespace tessera::ir {

absl::StatusOr<Linearized> Linearize(const Function& f, const std::vector<bool>& active) {
  TESSERA_ASSIGN_OR_RETURN(JvpResult jvp, Jvp(f, active));
  const size_t num_results = f.results.size();
  // The params of the jvp are f's params, then the tangents. The results of the jvp are f's
  // results, then the active tangents.
  std::vector<bool> known(jvp.fn->num_params, false), tangent(jvp.fn->results.size(), true);
  std::fill_n(known.begin(), f.num_params, true);
  std::fill_n(tangent.begin(), num_results, false);
  TESSERA_ASSIGN_OR_RETURN(PartialEvalResult pe, PartialEval(*jvp.fn, known, tangent));
  return Linearized{pe.known, pe.unknown, jvp.out_active, pe.num_residuals};
}

}  // namespace tessera::ir
