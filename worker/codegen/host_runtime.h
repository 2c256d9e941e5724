// What compiled host kernels call: functions of floats that have no vector code, a few lanes at a
// time, and what LLVM's x86 back end takes from libm and libc. Resolved by name when code is
// loaded. A constant table; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// out[i] = prim(x[i], y[i]) for i < n, as ir/ops/scalar_math.h says. `y` is unused where the
// primitive takes one argument.
using LaneFn = void (*)(const void* x, const void* y, void* out, int64_t n);
// The symbol of a primitive on f32 or f64.
std::string LaneFnName(ir::ScalarPrim prim, ir::DType dtype);

struct HostSymbol {
  std::string name;
  void* address;
};
// Every symbol that an object may leave undefined.
const std::vector<HostSymbol>& HostSymbols();

}  // namespace tessera::worker::codegen
