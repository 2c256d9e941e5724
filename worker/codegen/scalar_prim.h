// The properties of scalar primitives by which fusion, loop planning and the emitters decide, in
// one table (scalar_prims.def). Constants; thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// Operands and result. Leaves take no operands; Not takes integers and bools alone; comparisons and
// tests give a bool; a cast gives another dtype; all others give the dtype of their operands.
enum class PrimSignature : uint8_t {
  kLeaf,
  kUnary,
  kNot,
  kBinary,
  kCompare,
  kTest,
  kSelect,
  kCast,
};

// How an emitter computes the primitive on f32.
enum class FloatForm : uint8_t {
  kExact,         // with the evaluator's bits
  kTwoRoundings,  // by two exact instructions, each of which rounds
  kInF32,         // by an approximation in f32
  kInF64,         // by an approximation in f64, rounded once
  kLibrary,       // exactly, by a loop or a call
};

struct ScalarPrimInfo {
  ir::ScalarPrim prim;
  PrimSignature signature;
  int instructions;  // for one block of lanes on a CPU: decides whether loads are prefetched
  FloatForm form;

  constexpr int arity() const {
    switch (signature) {
      case PrimSignature::kLeaf:
        return 0;
      case PrimSignature::kBinary:
      case PrimSignature::kCompare:
        return 2;
      case PrimSignature::kSelect:
        return 3;
      default:
        return 1;
    }
  }
  constexpr bool gives_bool() const {
    return signature == PrimSignature::kCompare || signature == PrimSignature::kTest;
  }
  // A function of floats that no single instruction computes.
  constexpr bool is_function() const {
    return form == FloatForm::kInF32 || form == FloatForm::kInF64 || form == FloatForm::kLibrary;
  }
};

inline constexpr auto kScalarPrims = std::to_array<ScalarPrimInfo>({
#define TESSERA_SCALAR_PRIM(name, signature, instructions, form) \
  {ir::ScalarPrim::k##name, PrimSignature::signature, instructions, FloatForm::form},
#include "worker/codegen/scalar_prims.def"
});

constexpr const ScalarPrimInfo& InfoOf(ir::ScalarPrim prim) {
  return kScalarPrims[static_cast<size_t>(prim)];
}

static_assert(
    [] {
      for (size_t i = 0; i < kScalarPrims.size(); ++i)
        if (kScalarPrims[i].prim != static_cast<ir::ScalarPrim>(i)) return false;
      return kScalarPrims.back().prim == ir::ScalarPrim::kBitcast;
    }(),
    "scalar_prims.def has a row for each primitive, in the order of ir/scalar_graph.h");

}  // namespace tessera::worker::codegen
