// A search through the ops of a function and of the regions of its ops. Stateless; thread-safe.
#pragma once
#include <algorithm>

#include "ir/program.h"

namespace tessera::ir {

// Returns whether `holds(function, op)` is true for some op of `f` or of a region nested in it.
template <class F>
bool AnyOp(const Function& f, const F& holds) {
  return std::any_of(f.ops.begin(), f.ops.end(), [&](const Op& op) {
    return holds(f, op) ||
           std::any_of(op.regions.begin(), op.regions.end(),
                       [&](const FunctionRef& region) { return AnyOp(*region, holds); });
  });
}

}  // namespace tessera::ir
