// The names of reductions in texts: errors, plans and the dumps of workers.
#include "ir/collective.h"

#include <cstddef>
#include <iterator>

namespace tessera::ir {

std::string_view ReduceKindName(ReduceKind kind) {
  constexpr std::string_view kNames[] = {"none", "sum", "prod",   "max",   "min",
                                         "and",  "or",  "argmax", "argmin"};
  const auto i = static_cast<size_t>(kind);
  // A peer may have sent an unknown kind.
  return i < std::size(kNames) ? kNames[i] : "?";
}

}  // namespace tessera::ir
