// The checks and the derivative rule that the products dot_general and convolution share. The
// inference of both ops calls the checks, and the rows name the rule.
#include "ir/ops/rules/contraction.h"

#include <string>

namespace tessera::ir::ops {

absl::StatusOr<DType> ProductDType(const InferContext& c) {
  const Type &x = c.in[0], &y = c.in[1];
  if (x.dtype != y.dtype)
    return TypeError(c, "lhs is ", x.ToString(), ", rhs is ", y.ToString(),
                     "; requires arguments of equal dtypes; convert one");
  const DType dtype =
      c.attrs.Has("preferred_element_type") ? c.attrs.Dtype("preferred_element_type") : x.dtype;
  if (x.dtype == DType::kBool || dtype == DType::kBool)
    return TypeError(c, "does not accept dtype bool; expected number types; convert the operands");
  if (IsInteger(x.dtype) != IsInteger(dtype) || IsComplex(x.dtype) != IsComplex(dtype))
    return TypeError(c, "preferred_element_type ", ToAbsl(DTypeName(dtype)),
                     " is of another kind than the operands' ", ToAbsl(DTypeName(x.dtype)),
                     "; expected a wider or narrower type of the same kind");
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, x.dtype));
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, dtype));
  return dtype;
}

absl::Status CheckPrecision(const InferContext& c) {
  if (!c.attrs.Has("precision")) return absl::OkStatus();
  const std::string& name = c.attrs.Str("precision");
  if (FindPrecision(name).value_or(Precision::kDefault) != Precision::kDefault)
    return absl::OkStatus();
  return ValueError(c, "precision is \"", name,
                    "\"; expected \"high\" or \"highest\"; leave it out for the default");
}

std::vector<Value> BilinearJvp(const RuleContext& c, Values tangents) {
  Value sum;
  for (const int i : {0, 1}) {
    if (!tangents[i]) continue;
    std::vector<Value> in = c.in;
    in[i] = tangents[i];
    Value term = c.b.Emit1(c.def, MatchVarying(in), c.attrs);
    sum = sum ? Add(sum, term) : term;
  }
  return {sum};
}

}  // namespace tessera::ir::ops
