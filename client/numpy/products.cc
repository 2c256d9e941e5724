// The products of products.h, each written by means of matmul, dot_general or broadcasting.
#include "client/products.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/apply/dot.h"
#include "client/apply/operand.h"
#include "client/numpy/reductions.h"
#include "client/shapes.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::ApplyArgs;
using internal::NormalizeAxis;
using internal::Operands;
using internal::RankOf;
using internal::SiteOf;
using internal::ThrowError;
using ir::Value;
using Vs = std::vector<Value>;

Array Conjugated(const Arg& x) {
  return ApplyArgs("conj", {x}, Operands::kPromote, [](ir::Builder&, Vs v) {
    return ir::IsComplex(v[0].dtype()) ? ir::Conj(v[0]) : v[0];
  });
}
// Returns element i along the last dim.
Array ElementOfLastDim(const Array& x, int64_t i, const Site& site) {
  return ApplyArgs("slice", {Arg(x, site)}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    const int last = v[0].rank() - 1;
    return ir::Squeeze(ir::SliceInDim(v[0], last, i, i + 1), {last});
  });
}
std::string ShapeText(const Arg& x) {
  return x.array ? absl::StrCat("(", ir::DimsToString(x.array->shape()), ")") : "()";
}

}  // namespace

Array inner(const Arg& x, const Arg& y, const lax::PrecisionLike& precision) {
  if (RankOf(x) == 0 || RankOf(y) == 0) return x * y;
  return tensordot(x, y, {{-1}, {-1}}, precision);
}
Array outer(const Arg& x, const Arg& y) {
  const Site site = SiteOf({x, y});
  const Array column = expand_dims(Arg(ravel(x), site), 1);
  return Arg(column, site) * Arg(ravel(y), site);
}
Array vdot(const Arg& x, const Arg& y, const lax::PrecisionLike& precision) {
  const Site site = SiteOf({x, y});
  const Array left = ravel(Arg(Conjugated(x), site));
  return dot(Arg(left, site), Arg(ravel(y), site), precision);
}
Array vecdot(const Arg& x, const Arg& y, int axis, const lax::PrecisionLike& precision) {
  const Site site = SiteOf({x, y});
  const int x_axis = NormalizeAxis("vecdot", axis, RankOf(x), site),
            y_axis = NormalizeAxis("vecdot", axis, RankOf(y), site);
  if (x.array->dim(x_axis) != y.array->dim(y_axis))
    ThrowError(ErrorKind::kValueError, site, "vecdot: axes must match; got shapes ", ShapeText(x),
               " and ", ShapeText(y), " with axis ", axis);
  // Compute the product of a row and a column.
  const Array left = moveaxis(Arg(Conjugated(x), site), x_axis, -1);
  const Array row = expand_dims(Arg(left, site), -2);
  const Array column = expand_dims(Arg(moveaxis(y, y_axis, -1), site), -1);
  const Array out = matmul(Arg(row, site), Arg(column, site), {.precision = precision});
  return squeeze(Arg(out, site), {-1, -2});
}
Array matvec(const Arg& x, const Arg& y, const lax::PrecisionLike& precision) {
  const Site site = SiteOf({x, y});
  if (RankOf(x) < 2 || RankOf(y) < 1)
    ThrowError(ErrorKind::kValueError, site, "matvec: got shapes ", ShapeText(x), " and ",
               ShapeText(y), "; matrices and vectors are expected");
  const Array column = expand_dims(y, -1);
  const Array out = matmul(x, Arg(column, site), {.precision = precision});
  return squeeze(Arg(out, site), -1);
}
Array vecmat(const Arg& x, const Arg& y, const lax::PrecisionLike& precision) {
  const Site site = SiteOf({x, y});
  if (RankOf(x) < 1 || RankOf(y) < 2)
    ThrowError(ErrorKind::kValueError, site, "vecmat: got shapes ", ShapeText(x), " and ",
               ShapeText(y), "; vectors and matrices are expected");
  const Array row = expand_dims(Arg(Conjugated(x), site), -2);
  const Array out = matmul(Arg(row, site), y, {.precision = precision});
  return squeeze(Arg(out, site), -2);
}

Array tensordot(const Arg& x, const Arg& y, int axes, const lax::PrecisionLike& precision) {
  const int most = std::min(RankOf(x), RankOf(y));
  if (axes < 0 || axes > most)
    ThrowError(ErrorKind::kTypeError, SiteOf({x, y}), "tensordot: Number of axes (axes ", axes,
               ") exceeds input ranks ", ShapeText(x), " and ", ShapeText(y));
  std::pair<std::vector<int64_t>, std::vector<int64_t>> lists;
  for (int i = 0; i < axes; ++i) {
    lists.first.push_back(RankOf(x) - axes + i);
    lists.second.push_back(i);
  }
  return tensordot(x, y, lists, precision);
}
// The operands are brought to one dtype but keep their shapes, because contracted dims of different
// sizes must not broadcast.
Array tensordot(const Arg& x, const Arg& y,
                const std::pair<std::vector<int64_t>, std::vector<int64_t>>& axes,
                const lax::PrecisionLike& precision) {
  const Site site = SiteOf({x, y});
  if (axes.first.size() != axes.second.size())
    ThrowError(ErrorKind::kTypeError, site,
               "tensordot requires axes lists to have equal length, got ", axes.first.size(),
               " and ", axes.second.size());
  ir::DotDims dims;
  for (size_t i = 0; i < axes.first.size(); ++i) {
    dims.lhs_contract.push_back(NormalizeAxis("tensordot", axes.first[i], RankOf(x), site));
    dims.rhs_contract.push_back(NormalizeAxis("tensordot", axes.second[i], RankOf(y), site));
    const int64_t left = x.array->dim(static_cast<int>(dims.lhs_contract[i])),
                  right = y.array->dim(static_cast<int>(dims.rhs_contract[i]));
    if (left != right)
      ThrowError(ErrorKind::kTypeError, site, "tensordot: the sizes of axis ", axes.first[i],
                 " of ", ShapeText(x), " and axis ", axes.second[i], " of ", ShapeText(y),
                 " differ: ", left, " and ", right);
  }
  const internal::CommonType common = internal::CommonTypeOf({x, y});
  const Array left = internal::AsArray(x, common.dtype), right = internal::AsArray(y, common.dtype);
  return ApplyArgs("tensordot", {Arg(left, site), Arg(right, site)}, Operands::kStrict,
                   [&](ir::Builder&, Vs v) {
                     const Value a = internal::ConvertTo(v[0], common);
                     const Value b = internal::ConvertTo(v[1], common);
                     return internal::DotWithPrecision(a, b, dims, nullptr, {}, precision, site);
                   });
}
Array kron(const Arg& x, const Arg& y) {
  const Site site = SiteOf({x, y});
  const int rank = std::max(RankOf(x), RankOf(y));
  const internal::CommonType common = internal::CommonTypeOf({x, y});
  const Array left = internal::AsArray(x, common.dtype), right = internal::AsArray(y, common.dtype);
  return ApplyArgs(
      "kron", {Arg(left, site), Arg(right, site)}, Operands::kStrict, [&](ir::Builder&, Vs v) {
        Dims shape, result;
        std::vector<int64_t> x_dims, y_dims;
        const int x_before = rank - v[0].rank(), y_before = rank - v[1].rank();
        for (int d = 0; d < rank; ++d) {
          const int64_t m = d < x_before ? 1 : v[0].dim(d - x_before);
          const int64_t n = d < y_before ? 1 : v[1].dim(d - y_before);
          if (d >= x_before) x_dims.push_back(2 * d);
          if (d >= y_before) y_dims.push_back(2 * d + 1);
          shape.insert(shape.end(), {m, n});
          result.push_back(m * n);
        }
        const Value a = ir::BroadcastInDim(internal::ConvertTo(v[0], common), shape, x_dims);
        const Value b = ir::BroadcastInDim(internal::ConvertTo(v[1], common), shape, y_dims);
        return ir::Reshape(a.dtype() == DType::kBool ? ir::And(a, b) : ir::Mul(a, b), result);
      });
}

Array cross(const Arg& x, const Arg& y, int axis) {
  const Site site = SiteOf({x, y});
  const Array a = moveaxis(x, axis, -1), b = moveaxis(y, axis, -1);
  const int64_t a_size = a.dim(-1), b_size = b.dim(-1);
  if ((a_size != 2 && a_size != 3) || (b_size != 2 && b_size != 3))
    ThrowError(ErrorKind::kValueError, site,
               "cross: Dimension must be either 2 or 3 for cross product, got ", a_size, " and ",
               b_size);
  const auto element = [&](const Array& v, int64_t i) {
    if (i >= v.dim(-1)) return zeros_like(Arg(ElementOfLastDim(v, 0, site), site));
    return ElementOfLastDim(v, i, site);
  };
  const auto component = [&](int64_t i, int64_t j) {
    const Array first = Arg(element(a, i), site) * Arg(element(b, j), site);
    return Arg(first, site) - Arg(Arg(element(a, j), site) * Arg(element(b, i), site), site);
  };
  if (a_size == 2 && b_size == 2) return component(0, 1);
  const Array out = stack({component(1, 2), component(2, 0), component(0, 1)}, -1, site);
  return moveaxis(Arg(out, site), -1, axis);
}

}  // namespace tessera
