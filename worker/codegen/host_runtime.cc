// The table of symbols that compiled host kernels may refer to. loader.cc defines them before it
// links an object, and emit_host.cc calls them by LaneFnName. An object that needs any other symbol
// does not load, so that compiled code reaches nothing else in the process.
#include "worker/codegen/host_runtime.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/scalar_math.h"
#include "worker/codegen/scalar_prim.h"

namespace tessera::worker::codegen {
namespace {

using ir::DType;
using ir::ScalarPrim;
namespace math = ir::scalar::math;

template <class T, T (*kF)(T)>
void Unary(const void* x, const void*, void* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(out)[i] = kF(static_cast<const T*>(x)[i]);
}
template <class T, T (*kF)(T, T)>
void Binary(const void* x, const void* y, void* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(out)[i] = kF(static_cast<const T*>(x)[i], static_cast<const T*>(y)[i]);
}

template <class T>
void AddLaneFns(DType dtype, std::vector<HostSymbol>* symbols) {
  const auto add = [&](ScalarPrim prim, LaneFn fn) {
    symbols->push_back({LaneFnName(prim, dtype), reinterpret_cast<void*>(fn)});
  };
#define TESSERA_SCALAR_PRIM(name, signature, ...)            \
  if constexpr (InfoOf(ScalarPrim::k##name).is_function()) { \
    TESSERA_##signature(name);                               \
  }
#define TESSERA_kUnary(name) add(ScalarPrim::k##name, Unary<T, math::name<T>>)
#define TESSERA_kBinary(name) add(ScalarPrim::k##name, Binary<T, math::name<T>>)
#define TESSERA_kLeaf(name)
#define TESSERA_kNot(name)
#define TESSERA_kCompare(name)
#define TESSERA_kTest(name)
#define TESSERA_kSelect(name)
#define TESSERA_kCast(name)
#include "worker/codegen/scalar_prims.def"
}

// Adds the exact functions that LLVM's back end calls where the CPU has no instruction for them.
void AddLibraryFunctions(std::vector<HostSymbol>* symbols) {
#define TESSERA_X(name, type) \
  symbols->push_back({#name, reinterpret_cast<void*>(static_cast<type>(::name))});
  using F1 = float (*)(float);
  using D1 = double (*)(double);
  using F3 = float (*)(float, float, float);
  using D3 = double (*)(double, double, double);
  TESSERA_X(fmaf, F3)
  TESSERA_X(fma, D3)
  TESSERA_X(floorf, F1)
  TESSERA_X(floor, D1)
  TESSERA_X(ceilf, F1)
  TESSERA_X(ceil, D1)
  TESSERA_X(truncf, F1)
  TESSERA_X(trunc, D1)
  TESSERA_X(nearbyintf, F1)
  TESSERA_X(nearbyint, D1)
#undef TESSERA_X
  symbols->push_back({"memcpy", reinterpret_cast<void*>(&std::memcpy)});
  symbols->push_back({"memset", reinterpret_cast<void*>(&std::memset)});
}

}  // namespace

std::string LaneFnName(ScalarPrim prim, DType dtype) {
  return absl::StrCat("tessera_", ToAbsl(ir::ScalarPrimName(prim)), "_",
                      ToAbsl(ir::DTypeName(dtype)));
}

const std::vector<HostSymbol>& HostSymbols() {
  static const auto* const symbols = [] {
    auto* all = new std::vector<HostSymbol>;
    AddLaneFns<float>(DType::kF32, all);
    AddLaneFns<double>(DType::kF64, all);
    AddLibraryFunctions(all);
    return all;
  }();
  return *symbols;
}

}  // namespace tessera::worker::codegen
