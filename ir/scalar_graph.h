// The scalar function of an elementwise op as data: a small graph whose nodes are primitives. There
// are about fifty primitives, and a code generator needs to know only them. scalar_math.h
// defines each primitive. The operands of a primitive have one dtype, except for the predicate of
// Select. bf16 occurs in Input and Convert only. Thread-compatible.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dtype.h"

namespace tessera::ir {

// clang-format off
#define TESSERA_SCALAR_FUNCTIONS(X)                                                            \
  X(Add) X(Sub) X(Mul) X(Div) X(Rem) X(Neg) X(Abs) X(Min) X(Max) X(Exp) X(Expm1) X(Log)        \
  X(Log1p) X(Sin) X(Cos) X(Tan) X(Tanh) X(Atan2) X(Pow) X(Sqrt) X(Rsqrt) X(Cbrt) X(Erf)        \
  X(Floor) X(Ceil) X(RoundEven) X(RoundAway) X(And) X(Or) X(Xor) X(Not) X(Shl) X(ShrA) X(ShrL) \
  X(PopCount) X(Clz) X(Eq) X(Ne) X(Lt) X(Le) X(Gt) X(Ge) X(IsFinite) X(Select)
#define TESSERA_SCALAR_PRIMS(X) \
  X(Input) X(Constant) TESSERA_SCALAR_FUNCTIONS(X) X(Convert) X(Bitcast)
// clang-format on

enum class ScalarPrim : uint8_t {
#define TESSERA_X(Name) k##Name,
  TESSERA_SCALAR_PRIMS(TESSERA_X)
#undef TESSERA_X
};
std::string_view ScalarPrimName(ScalarPrim prim);

struct ScalarNode {
  ScalarPrim prim;
  DType dtype;            // dtype of the result
  std::vector<int> args;  // indices of earlier nodes
  double value = 0;       // kConstant: its value, if a float; kInput: the operand index
  int64_t int_value = 0;  // kConstant: its value, if an integer or bool
};
struct ScalarGraph {
  std::vector<ScalarNode> nodes;  // each node comes after its arguments
  std::vector<int> roots;         // one root for each result

  // Appends a node and returns its index.
  int Add(ScalarPrim prim, DType dtype, std::initializer_list<int> args, double value = 0,
          int64_t int_value = 0);
  std::string ToString() const;  // one line per node, then the roots
};
// Returns an equal graph in which equal nodes are merged, dead ones are dropped, and the rest is
// numbered depth first from the roots. The numbering then does not depend on the order in which the
// C++ code that recorded the graph was evaluated.
ScalarGraph Canonical(const ScalarGraph& graph);

}  // namespace tessera::ir
