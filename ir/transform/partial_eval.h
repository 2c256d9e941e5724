// What an op's partial_eval rule sees.  Reference: JAX's partial_eval_jaxpr_custom rules.
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
  const Op& op;  // the source op; attrs and regions
  std::vector<Type> in_types, out_types;
  std::vector<bool> known;      // per operand
  std::vector<Value> known_in;  // valid where known, in known_b
  // An operand on the unknown side: a residual is made of a known one on first use.
  std::function<Value(int operand)> unknown_in;
  // Turns a value of known_b into one of unknown_b.
  std::function<Value(Value)> residual;
  PartialEvalOptions options;  // for the regions of ops that are no loops
  // To fill: exactly one of the two valid for each result.
  std::vector<Value> known_out, unknown_out;
};

}  // namespace tessera::ir
