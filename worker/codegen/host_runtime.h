// The functions that compiled host kernels call. Functions of floats for which the emitters have no
// vector code are called on a few lanes at a time. LLVM's x86 back end calls some functions of libm
// and libc. All are resolved by name when code is loaded. Constants; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"
#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// Computes out[i] = prim(x[i], y[i]) for i < n, as in ir/scalar_math.h. `y` is unused if the
// primitive takes one argument.
using LaneFn = void (*)(const void* x, const void* y, void* out, int64_t n);
// Returns the symbol of a primitive on f32 or f64.
std::string LaneFnName(ir::ScalarPrim prim, ir::DType dtype);

struct HostSymbol {
  std::string name;
  void* address;
};
// Returns every symbol that an object may leave undefined.
const std::vector<HostSymbol>& HostSymbols();

}  // namespace tessera::worker::codegen
