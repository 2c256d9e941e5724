// Axes, dtypes and reductions that the functions of numpy.h, nn.h, statistics.h and other headers
// share.
#include "client/numpy/reductions.h"

#include <algorithm>
#include <numeric>

#include "client/apply/operand.h"

namespace tessera::internal {

using ir::Value;

DType InexactOf(DType d) {
  if (ir::IsInexact(d)) return d;
  return ir::IsInteger(d) && ir::ByteWidth(d) == 8 ? DType::kF64 : DType::kF32;
}
Value ToInexact(Value x) { return ConvertTo(x, {InexactOf(x.dtype()), x.type().weak}); }
Array Unary(std::string_view name, const Arg& x, absl::FunctionRef<Value(Value)> op) {
  return ApplyArgs(name, {x}, Operands::kPromote,
                   [&](ir::Builder&, std::vector<Value> v) { return op(v[0]); });
}
Array Binary(std::string_view name, const Arg& x, const Arg& y,
             absl::FunctionRef<Value(Value, Value)> op, std::optional<DType> dtype) {
  return ApplyArgs(
      name, {x, y}, Operands::kPromote,
      [&](ir::Builder&, std::vector<Value> v) { return op(v[0], v[1]); }, dtype);
}
Array UnaryInexact(std::string_view name, const Arg& x, absl::FunctionRef<Value(Value)> op) {
  return ApplyArgs(name, {x}, Operands::kPromote,
                   [&](ir::Builder&, std::vector<Value> v) { return op(ToInexact(v[0])); });
}

int NormalizeAxis(std::string_view op, int64_t axis, int rank, const Site& site) {
  if (axis < -rank || axis >= rank) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(op), ": axis ", axis,
               " is out of bounds for array of dimension ", rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> NormalizeAxes(std::string_view op, const Axes& axes, int rank,
                                   const Site& site) {
  std::vector<int64_t> out;
  if (!axes.list) {
    out.resize(rank);
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  for (int64_t a : *axes.list) out.push_back(NormalizeAxis(op, a, rank, site));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(op), ": duplicate value in axes");
  }
  return out;
}

int RankOf(const Arg& x) { return x.kind == Arg::kArray ? x.array->rank() : 0; }

Dims KeptDims(Dims shape, const std::vector<int64_t>& axes) {
  for (int64_t a : axes) shape[a] = 1;
  return shape;
}

int64_t NumReduced(const Dims& shape, const std::vector<int64_t>& axes) {
  int64_t n = 1;
  for (int64_t a : axes) n *= shape[a];
  return n;
}

Array Reduce(std::string_view name, const Arg& x, const Axes& axes, bool keepdims,
             absl::FunctionRef<Value(Value, const std::vector<int64_t>&)> op) {
  const std::vector<int64_t> dims = NormalizeAxes(name, axes, RankOf(x), x.site);
  return ApplyArgs(name, {x}, Operands::kPromote, [&](ir::Builder&, std::vector<Value> v) {
    const Value r = op(v[0], dims);
    return keepdims ? ir::Reshape(r, KeptDims(v[0].shape(), dims)) : r;
  });
}

Value BroadcastBack(Value reduced, Value x, const std::vector<int64_t>& axes) {
  std::vector<int64_t> kept;
  for (int d = 0; d < x.rank(); ++d) {
    if (!std::binary_search(axes.begin(), axes.end(), d)) kept.push_back(d);
  }
  return ir::BroadcastInDim(reduced, x.shape(), kept);
}

Value MeanOf(Value x, const std::vector<int64_t>& axes) {
  x = ToInexact(x);
  const Value s = ir::ReduceSum(x, axes);
  return s / ir::FullLike(s, static_cast<double>(NumReduced(x.shape(), axes)));
}

}  // namespace tessera::internal
