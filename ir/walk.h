// Helpers of walks over functions: the renumbering of a function's params and results, regions
// under other mapped axes, and types with a dim more or less. They emit no ops. Internal to ir/;
// stateless; thread-safe.
#pragma once
#include <vector>

#include "absl/types/span.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// Returns the function whose params and results are these values of `f`, in this order, without
// dead ops. Results may repeat. Requires: the remaining ops use no param that is left out.
FunctionRef Extract(Function f, absl::Span<const ValueId> params,
                    absl::Span<const ValueId> results);
// Like Extract, but `results` are indices into f.results.
FunctionRef Reorder(const Function& f, absl::Span<const int> params, absl::Span<const int> results);
// Returns which params the results depend on.
std::vector<bool> UsedParams(const Function& f);
// Iota returns 0 .. n-1. Where returns the indices at which `mask` is `value`.
std::vector<int> Iota(int n);
std::vector<int> Where(const std::vector<bool>& mask, bool value = true);

// Returns the type with a dim of `size` inserted before `dim`, unsharded.
Type InsertDim(Type type, int dim, int64_t size);
// Returns the type without `dim`.
Type DropDim(Type type, int dim);

// Returns the regions of an op of `def` in a scope with these mapped axes. The axes do not affect
// types.
std::vector<FunctionRef> RegionsUnder(const OpDef& def, std::vector<FunctionRef> regions,
                                      const std::vector<MappedAxis>& mapped);

}  // namespace tessera::ir::walk
