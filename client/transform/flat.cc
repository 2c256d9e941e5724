// Helpers of the transforms (autodiff.cc, jit.cc, vmap.cc and others) on flat lists of arrays and
// on traced functions.
#include "client/transform/flat.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/sharding.h"
#include "client/trace/strict.h"
#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::internal {

std::vector<Array> ResultLeaves(Flat result) {
  if (result.tree.kind == TreeNode::kLeaf) return std::move(result.leaves);
  return WithoutHoles(std::move(result)).leaves;
}

void DropFront(std::vector<Array>* arrays, size_t n) {
  arrays->erase(arrays->begin(), arrays->begin() + static_cast<int64_t>(n));
}

std::vector<Array> Concat(std::vector<Array> a, const std::vector<Array>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Array FullArray(const Type& type, double value, const Site& site) {
  return Apply1("full", site, {},
                [&](ir::Builder& b, std::vector<ir::Value>) { return ir::Full(b, type, value); });
}

std::vector<bool> TangentMask(const std::vector<Type>& types) {
  std::vector<bool> out;
  for (const Type& t : types) out.push_back(ir::IsInexact(t.dtype));
  return out;
}

std::vector<Array> FillWithZeros(const std::vector<Type>& types, const std::vector<bool>& given,
                                 absl::Span<const Array> arrays, const Site& site) {
  std::vector<Array> out;
  size_t next = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    out.push_back(given[i] ? arrays[next++] : FullArray(types[i], 0, site));
  }
  return out;
}

ir::FunctionRef Transposed(const ir::Function& f, const std::vector<bool>& linear,
                           const Site& site) {
  absl::StatusOr<ir::FunctionRef> out = ir::TransposeFunction(f, linear);
  if (!out.ok() &&
      absl::StrContains(out.status().message(), ToAbsl(ir::ops::kWhile.transpose.reason)))
    ThrowError(ErrorKind::kValueError, site, out.status().message());
  ir::FunctionRef transposed = OrThrow(std::move(out), site);
  if (CollectsDiagnostics()) ReportInsertedPsums(f, *transposed, site);
  return transposed;
}

ir::FunctionRef KeepResults(const ir::Function& f, const std::vector<int>& result_indices) {
  ir::Function out = f;
  out.results.clear();
  for (int r : result_indices) out.results.push_back(f.results[r]);
  return ir::Dce(out);
}

std::string PcastHint(const Type& have, const Type& want) {
  ir::AxisList missing;
  for (const std::string& axis : want.varying) {
    if (!have.varying.contains(axis)) missing.push_back(axis);
  }
  Type cast = have;
  cast.varying.insert(missing.begin(), missing.end());
  if (missing.empty() || !ir::EqualButWeak(cast, want)) return "";
  return absl::StrCat("pcast(..., ('", absl::StrJoin(missing, "', '"),
                      missing.size() == 1 ? "',)" : "')", ", to='varying')");
}

Type WithoutDim(Type type, int d) {
  type.shape.erase(type.shape.begin() + d);
  if (type.is_sharded()) type.sharding.erase(type.sharding.begin() + d);
  ir::Normalize(&type);
  return type;
}

// Outside a trace a number becomes a NumberState rather than a constant, so that one program serves
// all values: each run uploads the number. An unsigned number of 2^63 or more does not fit s64; in
// an Arg it has a negative `integer` and a positive `number`.
Array NumberArgument(const Arg& number, bool use_f64) {
  DType dtype = DType::kBool;
  if (number.kind == Arg::kReal) {
    dtype = use_f64 ? DType::kF64 : DType::kF32;
  } else if (number.kind == Arg::kInteger) {
    if (number.integer < 0 && number.number > 0) {
      ThrowError(ErrorKind::kValueError, number.site, "the argument ",
                 static_cast<uint64_t>(number.integer),
                 " is too large: a number below 2^63 is expected. Give an array");
    }
    const bool fits = number.integer == static_cast<int32_t>(number.integer);
    dtype = fits ? DType::kS32 : DType::kS64;
  }
  const bool is_weak = number.kind != Arg::kBoolean;
  if (CurrentFrame()) {
    return Apply1("constant", number.site, {}, [&](ir::Builder& b, std::vector<ir::Value>) {
      return ConvertTo(Literal(b, number, dtype), {dtype, is_weak});
    });
  }
  Type type = ir::MakeType(dtype, {});
  type.weak = is_weak;
  auto state = std::make_shared<NumberState>(std::move(type));
  state->value = number.kind == Arg::kReal ? ir::Array::Scalar(dtype, number.number)
                                           : ir::Array::ScalarInt(dtype, number.integer);
  return Array(std::move(state));
}

Type WithLeadingDim(Type type, int64_t size) {
  type.shape.insert(type.shape.begin(), size);
  if (type.is_sharded()) type.sharding.insert(type.sharding.begin(), ir::AxisList());
  return type;
}

bool HasFloat64(const std::vector<Array>& arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const Array& a) {
    return a.valid() && (a.dtype() == DType::kF64 || a.dtype() == DType::kC128);
  });
}

std::vector<Array> CallFunction(const ir::FunctionRef& f, const std::vector<Array>& args,
                                std::string_view name, const Site& site) {
  return Apply(name, site, args,
               [&](ir::Builder& b, std::vector<ir::Value> in) { return ir::Inline(b, *f, in); });
}

ir::FunctionRef ReorderParams(const ir::Function& f, const std::vector<int>& order) {
  ir::Builder b(f.scope, f.name);
  std::vector<ir::Value> params(f.num_params);
  for (int old : order) params[old] = b.Param(f.types[old]);
  return b.Build(ir::Inline(b, f, params));
}

}  // namespace tessera::internal
