// The inputs and outputs of an op's partial_eval rule. Reference: JAX's partial_eval_jaxpr_custom
// rules.
#pragma once
#include <functional>
#include <vector>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"

namespace tessera::ir {

struct PartialEvalContext {
  Builder& known_b;
  Builder& unknown_b;
  // The source op, with its attributes and regions.
  const Op& op;
  std::vector<Type> in_types, out_types;
  std::vector<bool> known;      // one for each operand
  std::vector<Value> known_in;  // values of known_b; valid for known operands
  // Returns an operand on the unknown side. A known operand becomes a residual on first use.
  std::function<Value(int operand)> unknown_in;
  // Turns a value of known_b into a value of unknown_b.
  std::function<Value(Value)> residual;
  PartialEvalOptions options;  // options for the regions of ops that are not loops
  // The rule fills in these lists. For each result exactly one of the two entries must be valid.
  std::vector<Value> known_out, unknown_out;
};

}  // namespace tessera::ir
