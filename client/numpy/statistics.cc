// The functions of statistics.h, and var of numpy.h, as ops on the reduced axes or by means of
// numpy's functions.
#include "client/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "client/apply/operand.h"
#include "client/numpy/reductions.h"
#include "client/sets.h"
#include "client/shapes.h"
#include "client/ufuncs.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::ApplyArgs;
using internal::BroadcastBack;
using internal::InexactOf;
using internal::KeptDims;
using internal::MeanOf;
using internal::NormalizeAxes;
using internal::NormalizeAxis;
using internal::NumReduced;
using internal::Operands;
using internal::RankOf;
using internal::Reduce;
using internal::ThrowError;
using internal::ToInexact;
using ir::Value;
using Vs = std::vector<Value>;
using Dimensions = std::vector<int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Value NotNan(Value x) {
  return ir::IsInexact(x.dtype()) ? ir::Compare(x, x, "EQ")
                                  : ir::Full(x.builder(), DType::kBool, x.shape(), 1);
}
// Returns x with `other` in place of NaNs.
Value ReplaceNans(Value x, double other) {
  return ir::IsInexact(x.dtype()) ? ir::Select(NotNan(x), x, ir::FullLike(x, other)) : x;
}
// Returns |x|^2, a real number.
Value SquaredSize(Value x) {
  if (!ir::IsComplex(x.dtype())) return ir::Square(x);
  const Value re = ir::Square(ir::Real(x));
  return ir::Add(re, ir::Square(ir::Imag(x)));
}
// Divides `sum` by `count` minus ddof. Returns NaNs if the divisor is not positive.
Value DivideByCount(Value sum, double count, double ddof) {
  if (count - ddof <= 0) return ir::FullLike(sum, kNan);
  return ir::Div(sum, ir::FullLike(sum, count - ddof));
}
Value Variance(Value x, const Dimensions& d, double ddof) {
  x = ToInexact(x);
  const Value centered = ir::Sub(x, BroadcastBack(MeanOf(x, d), x, d));
  return DivideByCount(ir::ReduceSum(SquaredSize(centered), d),
                       static_cast<double>(NumReduced(x.shape(), d)), ddof);
}
Value VarianceIgnoringNans(Value x, const Dimensions& d, double ddof) {
  x = ToInexact(x);
  const Value kept = NotNan(x);
  const Value total = ir::ReduceSum(ReplaceNans(x, 0), d);
  const Value count = ir::ReduceSum(ir::Convert(kept, total.dtype()), d);
  const Value mean = ir::Div(total, count);
  const Value distance = ir::Sub(x, BroadcastBack(mean, x, d));
  const Value squares = SquaredSize(ir::Select(kept, distance, ir::FullLike(distance, 0)));
  const Value sum = ir::ReduceSum(squares, d);
  const Value real_count = ir::ReduceSum(ir::Convert(kept, sum.dtype()), d);
  const Value degrees_of_freedom = ir::Sub(real_count, ir::FullLike(real_count, ddof));
  const Value is_undefined =
      ir::Compare(degrees_of_freedom, ir::FullLike(degrees_of_freedom, 0), "LE");
  const Value divisor =
      ir::Select(is_undefined, ir::FullLike(degrees_of_freedom, 1), degrees_of_freedom);
  return ir::Select(is_undefined, ir::FullLike(sum, kNan), ir::Div(sum, divisor));
}

}  // namespace

Array var(const Arg& x, const Axes& axes, bool keepdims, double ddof) {
  return Reduce("var", x, axes, keepdims,
                [&](Value v, const Dimensions& d) { return Variance(v, d, ddof); });
}
Array std(const Arg& x, const Axes& axes, bool keepdims, double ddof) {
  return Reduce("std", x, axes, keepdims,
                [&](Value v, const Dimensions& d) { return ir::Sqrt(Variance(v, d, ddof)); });
}
Array ptp(const Arg& x, const Axes& axes, bool keepdims) {
  const Array most = max(x, axes, keepdims);
  return Arg(most, x.site) - Arg(min(x, axes, keepdims), x.site);
}
Array count_nonzero(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("count_nonzero", x, axes, keepdims, [](Value v, const Dimensions& d) {
    const Value counts = v.dtype() == DType::kBool ? v : ir::Compare(v, ir::FullLike(v, 0), "NE");
    return ir::ReduceSum(ir::Convert(counts, DType::kS32), d);
  });
}
// Reshapes a vector of weights so that it broadcasts along its axis, and divides the weighted sum
// by the sum of weights. The dtype of the result follows from the dtypes of x and of the weights.
Array average(const Arg& x, const std::optional<Array>& weights, const Axes& axes, bool keepdims) {
  if (!weights) return mean(x, axes, keepdims);
  internal::ThrowIfNoValue(*weights, x.site);
  const Dims shape = x.array ? x.array->shape() : Dims{};
  const Dimensions dims = NormalizeAxes("average", axes, RankOf(x), x.site);
  Array w = *weights;
  if (w.shape() != shape) {
    if (dims.size() != 1 || w.shape() != Dims{shape[dims[0]]}) {
      ThrowError(ErrorKind::kValueError, x.site, "average: the weights are ", w.type().ToString(),
                 ", the array is (", ir::DimsToString(shape),
                 "); equal shapes are expected, or one axis and a vector of its size");
    }
    Dims wide(shape.size(), 1);
    wide[dims[0]] = shape[dims[0]];
    w = w.reshape(wide, x.site);
  }
  const DType dtype = InexactOf(internal::CommonDType({x, Arg(w, x.site)}));
  return ApplyArgs(
      "average", {x, Arg(w, x.site)}, Operands::kPromote,
      [&](ir::Builder&, Vs v) {
        const Value sum = ir::ReduceSum(ir::Mul(v[0], v[1]), dims);
        const Value out = ir::Div(sum, ir::ReduceSum(v[1], dims));
        return keepdims ? ir::Reshape(out, KeptDims(v[0].shape(), dims)) : out;
      },
      dtype);
}

// ---- Quantiles. ---------------------------------------------------------------------------------

namespace {

// Moves the axes to the end, joins them to one dim, sorts along this dim, and gathers the two
// elements around each quantile. Places and weights are computed in q's dtype. `whole` is the q of
// the largest element, 1 or 100.
Array QuantileOf(const char* name, const Arg& x, const Arg& q, const Axes& axes,
                 std::string_view method, bool keepdims, double whole) {
  static constexpr std::string_view kMethods[] = {"linear", "lower", "higher", "midpoint",
                                                  "nearest"};
  if (std::find(std::begin(kMethods), std::end(kMethods), method) == std::end(kMethods))
    ThrowError(ErrorKind::kValueError, x.site, name,
               ": method can only be 'linear', 'lower', 'higher', 'midpoint' or 'nearest', got '",
               ToAbsl(method), "'");
  if (RankOf(q) > 1)
    ThrowError(ErrorKind::kValueError, x.site, name, ": q must have rank <= 1, got ",
               q.array->type().ToString());
  const Dimensions dims = NormalizeAxes(name, axes, RankOf(x), x.site);
  const DType dtype = InexactOf(internal::CommonDType({x}));
  if (ir::IsComplex(dtype))
    ThrowError(ErrorKind::kValueError, x.site, name, " does not support complex input");
  const DType q_dtype = q.array ? InexactOf(q.array->dtype()) : dtype;
  const Array quantiles = internal::AsArray(q, q_dtype);
  return ApplyArgs(name, {x, Arg(quantiles, x.site)}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    // Moves the axes to the end and joins them. NaNs sort last.
    Value a = ir::Convert(v[0], dtype);
    const Dims shape = a.shape();
    Dimensions order;
    Dims kept;
    for (int d = 0; d < a.rank(); ++d) {
      if (std::binary_search(dims.begin(), dims.end(), d)) continue;
      order.push_back(d);
      kept.push_back(shape[d]);
    }
    order.insert(order.end(), dims.begin(), dims.end());
    const int64_t n = NumReduced(shape, dims);
    Dims flat = kept;
    flat.push_back(n);
    a = ir::Reshape(ir::Transpose(a, order), flat);
    const auto last = static_cast<int>(kept.size());
    const Value any_nan = ir::ReduceOr(ir::Compare(a, a, "NE"), {last});
    a = ir::Sort({a}, last)[0];
    const Value q_value = ir::Convert(v[1], q_dtype);
    const Value position = ir::Mul(ir::Div(q_value, ir::FullLike(q_value, whole)),
                                   ir::FullLike(q_value, static_cast<double>(n - 1)));
    const Value low = ir::Floor(position), high = ir::Ceil(position);
    const Value weight = ir::Sub(position, low);
    const int q_rank = q_value.rank();
    const auto elements_at = [&](Value where) {
      const Value zero = ir::FullLike(where, 0);
      const Value most = ir::FullLike(where, static_cast<double>(n - 1));
      const Value index = ir::Convert(ir::Min(ir::Max(where, zero), most), DType::kS32);
      ir::GatherDimensionNumbers numbers;
      numbers.collapsed_slice_dims = {last};
      numbers.start_index_map = {last};
      for (int d = 0; d < last; ++d) numbers.offset_dims.push_back(d + q_rank);
      Dims sizes = a.shape();
      sizes[last] = 1;
      return ir::Gather(a, ir::ExpandDims(index, {q_rank}), numbers, sizes,
                        {.mode = lax::GatherScatterMode::kClip});
    };
    const Value below = elements_at(low), above = elements_at(high);
    Dimensions q_dims;
    for (int d = 0; d < q_rank; ++d) q_dims.push_back(d);
    const auto spread = [&](Value w) { return ir::BroadcastInDim(w, below.shape(), q_dims); };
    Value out = below;
    if (method == "linear") {
      const Value high_weight = spread(weight);
      const Value low_weight = ir::Sub(ir::FullLike(high_weight, 1), high_weight);
      const Value low_part = ir::Mul(ir::Convert(below, q_dtype), low_weight);
      out = ir::Add(low_part, ir::Mul(ir::Convert(above, q_dtype), high_weight));
    } else if (method == "higher") {
      out = above;
    } else if (method == "nearest") {
      const Value nearer = ir::Compare(weight, ir::FullLike(weight, 0.5), "LE");
      out = ir::Select(spread(nearer), below, above);
    } else if (method == "midpoint") {
      out = ir::Mul(ir::Add(below, above), ir::FullLike(below, 0.5));
    }
    out = ir::Convert(out, dtype);
    Dimensions rest_dims;
    for (int d = 0; d < last; ++d) rest_dims.push_back(d + q_rank);
    const Value nan = ir::BroadcastInDim(any_nan, out.shape(), rest_dims);
    out = ir::Select(nan, ir::FullLike(out, kNan), out);
    if (!keepdims) return out;
    Dims kept_shape = KeptDims(shape, dims);
    if (q_rank == 1) kept_shape.insert(kept_shape.begin(), q_value.dim(0));
    return ir::Reshape(out, kept_shape);
  });
}

}  // namespace

Array quantile(const Arg& x, const Arg& q, const Axes& axes, std::string_view method,
               bool keepdims) {
  return QuantileOf("quantile", x, q, axes, method, keepdims, 1);
}
Array percentile(const Arg& x, const Arg& q, const Axes& axes, std::string_view method,
                 bool keepdims) {
  return QuantileOf("percentile", x, q, axes, method, keepdims, 100);
}
Array median(const Arg& x, const Axes& axes, bool keepdims) {
  return QuantileOf("median", x, Arg(0.5, x.site), axes, "midpoint", keepdims, 1);
}

// ---- Without NaNs. ------------------------------------------------------------------------------

namespace {
Array ReplaceNansIn(const Arg& x, double other) {
  return ApplyArgs("nan_to_num", {x}, Operands::kPromote,
                   [&](ir::Builder&, Vs v) { return ReplaceNans(v[0], other); });
}
// Returns the extreme element that `reduce` finds with `other` in place of NaNs, or NaN if all
// elements are NaNs.
Array Extreme(const Arg& x, const Axes& axes, bool keepdims, double other,
              Array (*reduce)(const Arg&, const Axes&, bool)) {
  const Array out = reduce(Arg(ReplaceNansIn(x, other), x.site), axes, keepdims);
  if (!ir::IsInexact(out.dtype())) return out;
  return where(Arg(all(Arg(isnan(x), x.site), axes, keepdims), x.site), Arg(kNan, x.site),
               Arg(out, x.site));
}
}  // namespace

Array nansum(const Arg& x, const Axes& axes, bool keepdims) {
  return sum(Arg(ReplaceNansIn(x, 0), x.site), axes, keepdims);
}
Array nanprod(const Arg& x, const Axes& axes, bool keepdims) {
  return prod(Arg(ReplaceNansIn(x, 1), x.site), axes, keepdims);
}
Array nanmax(const Arg& x, const Axes& axes, bool keepdims) {
  return Extreme(x, axes, keepdims, -HUGE_VAL, max);
}
Array nanmin(const Arg& x, const Axes& axes, bool keepdims) {
  return Extreme(x, axes, keepdims, HUGE_VAL, min);
}
Array nanmean(const Arg& x, const Axes& axes, bool keepdims) {
  return Reduce("nanmean", x, axes, keepdims, [](Value v, const Dimensions& d) {
    v = ToInexact(v);
    const Value total = ir::ReduceSum(ReplaceNans(v, 0), d);
    return ir::Div(total, ir::ReduceSum(ir::Convert(NotNan(v), v.dtype()), d));
  });
}
Array nanvar(const Arg& x, const Axes& axes, bool keepdims, double ddof) {
  return Reduce("nanvar", x, axes, keepdims,
                [&](Value v, const Dimensions& d) { return VarianceIgnoringNans(v, d, ddof); });
}
Array nanstd(const Arg& x, const Axes& axes, bool keepdims, double ddof) {
  return Reduce("nanstd", x, axes, keepdims, [&](Value v, const Dimensions& d) {
    return ir::Sqrt(VarianceIgnoringNans(v, d, ddof));
  });
}

// ---- Functions of samples. ----------------------------------------------------------------------

Array cov(const Arg& m, bool rowvar, double ddof) {
  if (RankOf(m) > 2)
    ThrowError(ErrorKind::kValueError, m.site, "cov: m has more than 2 dimensions, ", RankOf(m));
  return internal::UnaryInexact("cov", m, [&](Value v) {
    if (v.rank() < 2) {
      v = ir::Reshape(v, {1, v.type().num_elements()});
    } else if (!rowvar) {
      v = ir::Transpose(v, {1, 0});
    }
    const Value centered = ir::Sub(v, BroadcastBack(MeanOf(v, {1}), v, {1}));
    const Value other = ir::IsComplex(v.dtype()) ? ir::Conj(centered) : centered;
    ir::DotDims dims;
    dims.lhs_contract = dims.rhs_contract = {1};
    const Value products =
        ir::DotGeneral(centered, other, dims, nullptr, {}, internal::PrecisionOr(std::nullopt));
    const auto count = static_cast<double>(v.dim(1));
    const Value out = ir::Div(products, ir::FullLike(products, count - ddof));
    return v.dim(0) == 1 ? ir::Squeeze(out, {0, 1}) : out;
  });
}
Array corrcoef(const Arg& m, bool rowvar) {
  const Array c = cov(m, rowvar);
  return ApplyArgs("corrcoef", {Arg(c, m.site)}, Operands::kStrict, [](ir::Builder&, Vs v) {
    if (v[0].rank() == 0) return ir::Div(v[0], v[0]);
    const int64_t n = v[0].dim(0);
    // In the flattened matrix, the variances are every (n + 1)-th element.
    const Value flat = ir::Reshape(v[0], {n * n});
    Value variances = ir::Slice(flat, {0}, {n * n}, {n + 1});
    if (ir::IsComplex(variances.dtype())) variances = ir::Real(variances);
    const Value deviations = ir::Convert(ir::Sqrt(variances), v[0].dtype());
    const Value by_row = ir::Div(v[0], ir::BroadcastInDim(deviations, {n, n}, {0}));
    const Value out = ir::Div(by_row, ir::BroadcastInDim(deviations, {n, n}, {1}));
    const auto clipped = [](Value x) {
      const Value low = ir::FullLike(x, -1);
      return ir::Min(ir::Max(x, low), ir::FullLike(x, 1));
    };
    if (!ir::IsComplex(out.dtype())) return clipped(out);
    const Value re = clipped(ir::Real(out));
    return ir::Complex(re, clipped(ir::Imag(out)));
  });
}

namespace {
Value Differences(Value v, int dim) {
  const int64_t n = std::max<int64_t>(v.dim(dim), 1);
  const Value later = ir::SliceInDim(v, dim, std::min<int64_t>(1, v.dim(dim)), v.dim(dim));
  const Value before = ir::SliceInDim(v, dim, 0, n - 1);
  return v.dtype() == DType::kBool ? ir::Compare(later, before, "NE") : ir::Sub(later, before);
}
}  // namespace

Array diff(const Arg& x, int n, int axis) {
  if (n < 0)
    ThrowError(ErrorKind::kValueError, x.site, "diff: order must be non-negative but got ", n);
  const int dim = NormalizeAxis("diff", axis, RankOf(x), x.site);
  return ApplyArgs("diff", {x}, Operands::kPromote, [&](ir::Builder&, Vs v) {
    for (int i = 0; i < n; ++i) v[0] = Differences(v[0], dim);
    return v[0];
  });
}
Array gradient(const Arg& x, double dx, int axis) {
  const int dim = NormalizeAxis("gradient", axis, RankOf(x), x.site);
  if (x.array->dim(dim) < 2)
    ThrowError(ErrorKind::kValueError, x.site, "gradient: Shape of array too small to calculate a ",
               "numerical gradient, at least 2 elements are required along axis ", axis, " of ",
               x.array->type().ToString());
  return internal::UnaryInexact("gradient", x, [&](Value v) {
    const int64_t n = v.dim(dim);
    const auto between = [&](int64_t from, int64_t to, int64_t distance) {
      const Value later = ir::SliceInDim(v, dim, from + distance, to + distance);
      return ir::Sub(later, ir::SliceInDim(v, dim, from, to));
    };
    const auto divide_by_dx = [&](Value a) { return ir::Div(a, ir::FullLike(a, dx)); };
    const Value first = divide_by_dx(between(0, 1, 1)),
                last = divide_by_dx(between(n - 2, n - 1, 1));
    Value inner = between(0, n - 2, 2);
    inner = divide_by_dx(ir::Mul(inner, ir::FullLike(inner, 0.5)));
    return ir::Concatenate({first, inner, last}, dim);
  });
}
Array trapezoid(const Arg& y, double dx, int axis) {
  const int dim = NormalizeAxis("trapezoid", axis, RankOf(y), y.site);
  return internal::UnaryInexact("trapezoid", y, [&](Value v) {
    const int64_t n = v.dim(dim);
    const auto at = [&](int64_t i) { return ir::Squeeze(ir::SliceInDim(v, dim, i, i + 1), {dim}); };
    const Value total = ir::ReduceSum(v, {dim});
    if (n == 0) return total;
    const Value first = at(0);
    const Value ends = ir::Add(first, at(n - 1));
    const Value inner = ir::Sub(total, ir::Mul(ends, ir::FullLike(ends, 0.5)));
    return ir::Mul(inner, ir::FullLike(inner, dx));
  });
}
Array trapezoid(const Arg& y, const Array& x, int axis) {
  internal::ThrowIfNoValue(x, y.site);
  const int rank = RankOf(y), dim = NormalizeAxis("trapezoid", axis, rank, y.site);
  const Dims shape = y.array ? y.array->shape() : Dims{};
  if (x.shape() != shape && x.shape() != Dims{shape[dim]})
    ThrowError(ErrorKind::kValueError, y.site, "trapezoid: x is ", x.type().ToString(),
               ", y has shape (", ir::DimsToString(shape), "); y's shape or a vector of ",
               shape[dim], " is expected");
  const DType dtype = InexactOf(internal::CommonDType({y, Arg(x, y.site)}));
  return ApplyArgs("trapezoid", {y, Arg(x, y.site)}, Operands::kStrict, [&](ir::Builder&, Vs v) {
    const Value values = ir::Convert(v[0], dtype), positions = ir::Convert(v[1], dtype);
    const int64_t n = values.dim(dim);
    Value widths = Differences(positions, positions.rank() == 1 ? 0 : dim);
    const Value right = ir::SliceInDim(values, dim, std::min<int64_t>(1, n), n);
    const Value both = ir::Add(right, ir::SliceInDim(values, dim, 0, std::max<int64_t>(n, 1) - 1));
    if (widths.rank() != rank) widths = ir::BroadcastInDim(widths, both.shape(), {dim});
    const Value sum = ir::ReduceSum(ir::Mul(widths, both), {dim});
    return ir::Mul(sum, ir::FullLike(sum, 0.5));
  });
}

// Finds the interval of each x by bisection, and interpolates in it. Selections guard each
// division, so that points of equal xp give no NaN in the derivative.
Array interp(const Arg& x, const Array& xp, const Array& fp, std::optional<double> left,
             std::optional<double> right) {
  const Site site = x.site;
  internal::ThrowIfNoValue(xp, site);
  internal::ThrowIfNoValue(fp, site);
  if (xp.rank() != 1 || xp.shape() != fp.shape() || xp.dim(0) < 2)
    ThrowError(ErrorKind::kValueError, site,
               "interp: xp and fp must be one-dimensional arrays of equal size, 2 or more; got ",
               xp.type().ToString(), " and ", fp.type().ToString());
  const DType dtype = InexactOf(internal::CommonDType({x, Arg(xp, site)}));
  const Array at = internal::AsArray(x, dtype).astype(dtype, site);
  const Array positions = xp.astype(dtype, site), values = fp.astype(InexactOf(fp.dtype()), site);
  const auto n = static_cast<int>(xp.dim(0));
  const Array i = clip(Arg(searchsorted(positions, Arg(at, site), "right", site), site), 1, n - 1);
  const auto element_at = [&](const Array& a, const Array& index) {
    return take(Arg(a, site), Arg(index, site), 0, lax::GatherScatterMode::kClip);
  };
  const Array before = i - 1, low = element_at(positions, before),
              f_low = element_at(values, before);
  const Array width = element_at(positions, i) - low, rise = element_at(values, i) - f_low;
  // Treat an interval of at most this width as a point, because dividing by its width would make
  // the derivative NaN.
  const double eps = dtype == DType::kF64 ? 0x1p-104 : 0x1p-46;
  const Array is_point = abs(width) <= eps;
  Array out = where(is_point, f_low, f_low + (at - low) / where(is_point, 1, width) * rise);
  const Array first = positions[0], last = positions[n - 1];
  out = left ? where(at < first, *left, out) : where(at < first, values[0], out);
  return right ? where(at > last, *right, out) : where(at > last, values[n - 1], out);
}

}  // namespace tessera
