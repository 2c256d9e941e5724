// The properties of scalar primitives by which fusion, loop planning and the emitters decide, in
// one table (scalar_prims.def). Constants; thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "ir/scalar_graph.h"

namespace tessera::worker::codegen {

// The operands and the result of a primitive. Leaves take no operands. Not takes only integers and
// bools. Comparisons and tests give a bool, a cast gives another dtype, and all others give the
// dtype of their operands.
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
  kExact,         // gives the evaluator's bits
  kTwoRoundings,  // is computed by two exact instructions, each of which rounds
  kInF32,         // is approximated in f32
  kInF64,         // is approximated in f64 and rounded once
  kLibrary,       // is computed exactly, by a loop or a call
};

struct ScalarPrimInfo {
  ir::ScalarPrim prim;
  PrimSignature signature;
  // The number of instructions for one block of lanes on a CPU. It decides whether loads are
  // prefetched.
  int instructions;
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
  // Returns whether the primitive is a function of floats that no single instruction computes.
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
