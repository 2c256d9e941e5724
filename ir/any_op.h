// A search through a function and the regions of its ops.
#pragma once
#include <algorithm>

#include "ir/program.h"

namespace tessera::ir {

// Whether `holds(function, op)` is true of some op of `f` or of its regions.
template <class F>
bool AnyOp(const Function& f, const F& holds) {
  return std::any_of(f.ops.begin(), f.ops.end(), [&](const Op& op) {
    return holds(f, op) ||
           std::any_of(op.regions.begin(), op.regions.end(),
                       [&](const FunctionRef& region) { return AnyOp(*region, holds); });
  });
}

}  // namespace tessera::ir
