// Counting and searching with ops of fixed shape: elements are found by sorting, cumulated sums and
// scatters, and the caller gives the number of results.
#include "client/sets.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/numpy.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::Apply;
using internal::Apply1;
using internal::ThrowError;
using ir::Value;
using Vs = std::vector<Value>;

DType IndexDType(int64_t n) {
  return n > std::numeric_limits<int32_t>::max() ? DType::kS64 : DType::kS32;
}

void CheckSize(std::string_view name, std::string_view what, int64_t size, const Site& site) {
  if (size >= 0) return;
  ThrowError(ErrorKind::kValueError, site, ToAbsl(name), ": ", ToAbsl(what), " is ", size,
             "; expected 0 or more");
}

Value Flattened(Value x) { return ir::Reshape(x, {x.type().num_elements()}); }
Value IsNonzero(Value x) {
  return x.dtype() == DType::kBool ? x : ir::Compare(x, ir::FullLike(x, 0), "NE");
}
Value IotaLike(Value like, DType dtype, int64_t n) {
  return ir::Iota(like.builder(), dtype, {n}, 0);
}
// Returns a constant vector that varies over the same axes as `like`.
Value Filled(Value like, DType dtype, int64_t n, double value) {
  ir::Type type = ir::MakeType(dtype, {n});
  type.varying = like.type().varying;
  return ir::Full(like.builder(), type, value);
}

// Returns dimension numbers for a scatter of rows to rows of `to`. For a vector, rows are elements.
ir::ScatterDimensionNumbers RowScatterDims(const Value& to) {
  ir::ScatterDimensionNumbers dims;
  for (int d = 1; d < to.rank(); ++d) dims.update_window_dims.push_back(d);
  dims.inserted_window_dims = {0};
  dims.scatter_dims_to_operand_dims = {0};
  return dims;
}
Value IndexColumn(Value at) { return ir::ExpandDims(at, {at.rank()}); }

// Returns elements `at` of a vector. All indices must be within bounds.
Value ElementsAt(Value x, Value at) {
  ir::GatherDimensionNumbers dims;
  dims.collapsed_slice_dims = {0};
  dims.start_index_map = {0};
  return ir::Gather(x, IndexColumn(at), dims, {1},
                    {.mode = ir::GatherScatterMode::kPromiseInBounds});
}

// Returns the indices of the first `size` true elements of a vector of bools. Unused positions are
// 0.
Value TrueIndices(Value mask, int64_t size) {
  const int64_t n = mask.dim(0);
  const DType index_dtype = IndexDType(std::max(n, size));
  const Value one = ir::Convert(mask, index_dtype);
  const Value before = ir::Sub(ir::Cumsum(one, 0), one);
  // Elements that are false get an index beyond the end, so that the scatter drops them.
  const Value to = ir::Select(mask, before, ir::FullLike(before, static_cast<double>(size)));
  const Value found = Filled(mask, index_dtype, size, 0);
  if (size == 0) return found;
  const Value position = IotaLike(mask, index_dtype, n);
  return ir::Scatter(found, IndexColumn(to), position, RowScatterDims(found),
                     {.unique_indices = true});
}
// Returns a mask of length `size` whose first n elements are true, where n is the number of true
// elements of `mask`.
Value FilledMask(Value mask, int64_t size) {
  const DType index_dtype = IndexDType(std::max(mask.dim(0), size));
  const Value count = ir::ReduceSum(ir::Convert(mask, index_dtype), {0});
  const Value position = IotaLike(mask, index_dtype, size);
  return ir::Compare(position, ir::BroadcastInDim(count, {size}, {}), "LT");
}

}  // namespace

// ---- searchsorted. ------------------------------------------------------------------------------

namespace {

// Returns floats in a form with a total order: -0 becomes +0, and every NaN the same NaN.
Value Canonicalize(Value x) {
  if (!ir::IsFloat(x.dtype())) return x;
  const Value zero = ir::FullLike(x, 0);
  x = ir::Select(ir::Compare(x, zero, "EQ"), zero, x);
  const Value is_nan = ir::Compare(x, x, "NE");
  return ir::Select(is_nan, ir::FullLike(x, std::numeric_limits<double>::quiet_NaN()), x);
}
Value IsBefore(Value x, Value y, const char* direction) {
  return ir::IsFloat(x.dtype()) ? ir::CompareTotalOrder(x, y, direction)
                                : ir::Compare(x, y, direction);
}

// Bisects for all elements of `v` at once.
Value Search(Value sorted, Value v, bool right) {
  const int64_t n = sorted.dim(0);
  ir::Type type = v.type();
  type.dtype = IndexDType(n);
  type.weak = false;
  const Value zero = ir::Full(v.builder(), type, 0);
  if (n == 0) return zero;
  sorted = Canonicalize(sorted);
  v = Canonicalize(v);
  Value low = zero, high = ir::FullLike(zero, static_cast<double>(n));
  for (int step = std::bit_width(static_cast<uint64_t>(n)); step > 0; --step) {
    const Value half = ir::Sub(high, low);
    const Value middle = ir::Add(low, ir::ShiftRightLogical(half, ir::FullLike(half, 1)));
    const Value go_left = IsBefore(v, ElementsAt(sorted, middle), right ? "LT" : "LE");
    low = ir::Select(go_left, low, middle);
    high = ir::Select(go_left, middle, high);
  }
  return high;
}

bool IsRight(std::string_view side, const Site& site) {
  if (side != "left" && side != "right") {
    ThrowError(ErrorKind::kValueError, site, "searchsorted: '", ToAbsl(side),
               "' is an invalid value for keyword 'side'. Expected one of ['left', 'right']");
  }
  return side == "right";
}

}  // namespace

Array searchsorted(const Array& sorted, const Arg& v, std::string_view side, Site site) {
  const bool right = IsRight(side, site);
  internal::ThrowIfNoValue(sorted, site);
  if (sorted.rank() != 1) {
    ThrowError(ErrorKind::kValueError, site, "searchsorted: a should be 1-dimensional, is ",
               sorted.type().ToString());
  }
  const DType dtype = internal::CommonDType({Arg(sorted, site), v});
  std::vector<Array> inputs = {sorted};
  if (v.kind == Arg::kArray) inputs.push_back(*v.array);
  return Apply1("searchsorted", site, inputs, [&](ir::Builder& b, Vs in) {
    const Value needles = v.kind == Arg::kArray ? in[1] : internal::Literal(b, v, dtype);
    const Value haystack = ir::Convert(in[0], dtype);
    return Search(haystack, ir::Convert(needles, dtype), right);
  });
}

// ---- nonzero. -----------------------------------------------------------------------------------

namespace {

// Returns one array of indices for each dim: the indices of the first `size` elements that are not
// 0.
Vs Nonzero(std::string_view name, Value x, int64_t size, int64_t fill_value, const Site& site) {
  if (x.rank() == 0) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(name),
               ": Calling nonzero on 0d arrays is not allowed; reshape it to one dim");
  }
  const Value mask = Flattened(IsNonzero(x));
  const Value at = TrueIndices(mask, size);
  Vs out;
  int64_t stride = x.type().num_elements();
  for (int d = 0; d < x.rank(); ++d) {
    stride = x.dim(d) == 0 ? 0 : stride / x.dim(d);
    Value index = at;
    if (stride > 1) index = ir::Div(index, ir::FullLike(index, static_cast<double>(stride)));
    if (d > 0 && stride > 0)
      index = ir::Rem(index, ir::FullLike(index, static_cast<double>(x.dim(d))));
    out.push_back(index);
  }
  // An array without elements has no fill value, which is how jax.numpy has it.
  if (fill_value == 0 || mask.dim(0) == 0) return out;
  const Value is_filled = FilledMask(mask, size);
  for (Value& index : out) {
    const Value fill = ir::Constant(x.builder(), ir::Array::ScalarInt(index.dtype(), fill_value));
    index = ir::Select(is_filled, index, ir::BroadcastInDim(fill, {size}, {}));
  }
  return out;
}

}  // namespace

std::vector<Array> nonzero(const Array& x, int64_t size, int64_t fill_value, Site site) {
  CheckSize("nonzero", "size", size, site);
  return Apply("nonzero", site, {x}, [&](ir::Builder&, Vs v) {
    return Nonzero("nonzero", v[0], size, fill_value, site);
  });
}
Array flatnonzero(const Array& x, int64_t size, int64_t fill_value, Site site) {
  CheckSize("flatnonzero", "size", size, site);
  return Apply1("flatnonzero", site, {x}, [&](ir::Builder&, Vs v) {
    return Nonzero("flatnonzero", Flattened(v[0]), size, fill_value, site)[0];
  });
}
Array argwhere(const Array& x, int64_t size, int64_t fill_value, Site site) {
  CheckSize("argwhere", "size", size, site);
  return Apply1("argwhere", site, {x}, [&](ir::Builder&, Vs v) {
    Vs columns = Nonzero("argwhere", v[0], size, fill_value, site);
    for (Value& column : columns) column = ir::ExpandDims(column, {1});
    return ir::Concatenate(columns, 1);
  });
}

// ---- unique. ------------------------------------------------------------------------------------

namespace {

// Returns the values, indices, inverse indices and counts of unique_all.
Vs Unique(std::string_view name, Value x, int64_t size, std::optional<double> fill_value,
          bool equal_nan, const Site& site) {
  const int64_t n = x.type().num_elements();
  const DType index_dtype = IndexDType(std::max(n, size));
  if (n == 0) {
    if (size > 0 && !fill_value) {
      ThrowError(ErrorKind::kValueError, site, ToAbsl(name),
                 ": for zero-sized input with nonzero size argument, fill_value must be specified");
    }
    const Value none = Filled(x, index_dtype, 0, 0);  // as in jax.numpy, whatever the size is
    return {Filled(x, x.dtype(), size, fill_value.value_or(0)), none, ir::Reshape(none, x.shape()),
            none};
  }
  const Value flat = Flattened(x);
  const Vs sorted =
      ir::Sort({flat, ir::MatchVarying({IotaLike(flat, index_dtype, n), flat})[0]}, 0);
  // Find the elements that differ from the one before them: each is the first of its value.
  const Value left = ir::SliceInDim(sorted[0], 0, 0, n - 1);
  const Value right = ir::SliceInDim(sorted[0], 0, 1, n);
  Value differs = ir::Compare(right, left, "NE");
  if (equal_nan && ir::IsFloat(x.dtype())) {
    const Value is_number = ir::Compare(left, left, "EQ");
    differs = ir::And(differs, ir::Or(is_number, ir::Compare(right, right, "EQ")));
  }
  const Value is_first = ir::Concatenate({Filled(differs, DType::kBool, 1, 1), differs}, 0);

  const Value at = TrueIndices(is_first, size);
  Value values = ElementsAt(sorted[0], at);
  if (fill_value) {
    const Value is_filled = FilledMask(is_first, size);
    values = ir::Select(is_filled, values, ir::FullLike(values, *fill_value));
  }
  const Value number = ir::Cumsum(ir::Convert(is_first, index_dtype), 0);
  const Value value_index = ir::Sub(number, ir::FullLike(number, 1));
  const Value unset = Filled(flat, index_dtype, n, 0);
  const Value inverse = ir::Scatter(unset, IndexColumn(sorted[1]), value_index,
                                    RowScatterDims(unset), {.unique_indices = true});
  // In the sorted array the elements of one value end where the elements of the next value begin.
  // The elements of the last value end with the array.
  const Value begins = TrueIndices(is_first, size + 1);
  const Value rest = ir::SliceInDim(begins, 0, 1, size + 1);
  const Value is_begin = ir::Compare(rest, ir::FullLike(rest, 0), "NE");
  const Value ends = ir::Select(is_begin, rest, ir::FullLike(rest, static_cast<double>(n)));
  Vs starts = {ir::SliceInDim(begins, 0, 0, std::min<int64_t>(size, 1))};
  if (size > 1) starts.push_back(ir::SliceInDim(ends, 0, 0, size - 1));
  const Value counts = ir::Sub(ends, ir::Concatenate(starts, 0));
  return {values, ElementsAt(sorted[1], at), ir::Reshape(inverse, x.shape()), counts};
}

}  // namespace

Array unique(const Array& x, int64_t size, std::optional<double> fill_value, Site site) {
  CheckSize("unique", "size", size, site);
  return Apply1("unique", site, {x}, [&](ir::Builder&, Vs v) {
    return Unique("unique", v[0], size, fill_value, /*equal_nan=*/true, site)[0];
  });
}
UniqueAll unique_all(const Array& x, int64_t size, std::optional<double> fill_value, Site site) {
  CheckSize("unique_all", "size", size, site);
  const std::vector<Array> out = Apply("unique_all", site, {x}, [&](ir::Builder&, Vs v) {
    return Unique("unique_all", v[0], size, fill_value, /*equal_nan=*/false, site);
  });
  return {out[0], out[1], out[2], out[3]};
}

// ---- bincount, histogram. -----------------------------------------------------------------------

namespace {

// Adds the weights to `length` zeros of the weights' dtype. Weights with an index out of bounds are
// dropped.
Value AddWeights(Value at, Value weights, int64_t length) {
  const Value zeros = Filled(weights, weights.dtype(), length, 0);
  if (length == 0) return zeros;
  return ir::ScatterAdd(zeros, IndexColumn(at), weights, RowScatterDims(zeros));
}

// Checks the vector and the weights, then scatters ones or weights. The length must be an argument,
// because the largest number is known only when the program runs.
Array Bincount(const Array& x, const std::optional<Array>& weights, int64_t length,
               const Site& site) {
  CheckSize("bincount", "length", length, site);
  internal::ThrowIfNoValue(x, site);
  if (x.dtype() != DType::kBool && !ir::IsInteger(x.dtype())) {
    ThrowError(ErrorKind::kTypeError, site,
               "x argument to bincount must have an integer type; got ", x.type().ToString());
  }
  if (x.rank() != 1) {
    ThrowError(ErrorKind::kValueError, site, "bincount: only 1-dimensional input supported, got ",
               x.type().ToString());
  }
  std::vector<Array> inputs = {x};
  if (weights) {
    internal::ThrowIfNoValue(*weights, site);
    if (weights->shape() != x.shape()) {
      ThrowError(ErrorKind::kValueError, site, "bincount: shape of weights must match shape of x. ",
                 "Got ", x.type().ToString(), " and ", weights->type().ToString());
    }
    inputs.push_back(*weights);
  }
  return Apply1("bincount", site, inputs, [&](ir::Builder&, Vs v) {
    Value at = v[0].dtype() == DType::kBool ? ir::Convert(v[0], DType::kS32) : v[0];
    if (ir::IsSignedInt(at.dtype())) at = ir::Max(at, ir::FullLike(at, 0));
    return AddWeights(at, weights ? v[1] : Filled(at, DType::kS32, at.dim(0), 1), length);
  });
}

// Returns the edges of `bins` bins of equal width. They are computed in f64, so that round numbers
// are exact, and elements of narrower floats fall on the right side of an edge, too.
Value EdgesOf(Value x, int64_t bins, const std::optional<std::pair<double, double>>& range) {
  const DType dtype = x.dtype();
  Value low, high;
  if (range) {
    low = ir::Constant(x.builder(), dtype, range->first);
    high = ir::Constant(x.builder(), dtype, range->second);
  } else {
    low = ir::ReduceMin(x, {0});
    high = ir::ReduceMax(x, {0});
  }
  const Value half = ir::FullLike(low, 0.5);
  const Value is_point = ir::Compare(low, high, "EQ");
  const Value first = ir::Select(is_point, ir::Sub(low, half), low);
  const Value last = ir::Select(is_point, ir::Add(high, half), high);
  const auto spread = [&](Value v) {
    return ir::BroadcastInDim(ir::Convert(v, DType::kF64), {bins}, {});
  };
  const Value count = IotaLike(x, DType::kF64, bins);
  const Value step = ir::Div(count, ir::FullLike(count, static_cast<double>(bins)));
  const Value rest = ir::Sub(ir::FullLike(step, 1), step);
  const Value of_first = ir::Mul(spread(first), rest);
  const Value inner = ir::Add(of_first, ir::Mul(spread(last), step));
  return ir::Concatenate({ir::Convert(inner, dtype), ir::Reshape(last, {1})}, 0);
}

// Returns the counts and the edges. The edges are `edges` or, without `edges`, those of `bins` bins
// of equal width.
std::pair<Array, Array> Histogram(const Array& x, const std::optional<Array>& edges, int64_t bins,
                                  const HistogramOptions& options, const Site& site) {
  internal::ThrowIfNoValue(x, site);
  std::vector<Arg> promoted = {Arg(x, site)};
  std::vector<Array> inputs = {x};
  if (options.weights) {
    internal::ThrowIfNoValue(*options.weights, site);
    if (options.weights->shape() != x.shape()) {
      ThrowError(ErrorKind::kValueError, site,
                 "histogram: weights should have the same shape as a. Got ", x.type().ToString(),
                 " and ", options.weights->type().ToString());
    }
    promoted.emplace_back(*options.weights, site);
    inputs.push_back(*options.weights);
  }
  if (edges) inputs.push_back(*edges);
  const DType common = internal::CommonDType(promoted);
  const DType dtype = ir::IsInexact(common)                                 ? common
                      : ir::IsInteger(common) && ir::ByteWidth(common) == 8 ? DType::kF64
                                                                            : DType::kF32;
  const std::vector<Array> out = Apply("histogram", site, inputs, [&](ir::Builder&, Vs v) {
    const Value a = Flattened(ir::Convert(v[0], dtype));
    const int64_t n = a.dim(0);
    const Value weights =
        options.weights ? Flattened(ir::Convert(v[1], dtype)) : Filled(a, dtype, n, 1);
    const Value at_edges = edges ? ir::Convert(v.back(), dtype) : EdgesOf(a, bins, options.range);
    const int64_t m = at_edges.dim(0);
    Value bin = Search(at_edges, a, /*right=*/true);
    const Value last = ir::Reshape(ir::SliceInDim(at_edges, 0, m - 1, m), {});
    const Value is_last = ir::Compare(a, ir::BroadcastInDim(last, {n}, {}), "EQ");
    bin = ir::Select(is_last, ir::FullLike(bin, static_cast<double>(m - 1)), bin);
    // Elements before the first edge are counted at position 0, which is cut off.
    Value counts = ir::SliceInDim(AddWeights(bin, weights, m), 0, 1, m);
    if (options.density) {
      const Value right = ir::SliceInDim(at_edges, 0, 1, m);
      const Value widths = ir::Sub(right, ir::SliceInDim(at_edges, 0, 0, m - 1));
      const Value total = ir::ReduceSum(counts, {0});
      counts = ir::Div(counts, widths);
      counts = ir::Div(counts, ir::BroadcastInDim(total, {m - 1}, {}));
    }
    return Vs{counts, at_edges};
  });
  return {out[0], out[1]};
}

}  // namespace

Array bincount(const Array& x, int64_t length, Site site) {
  return Bincount(x, std::nullopt, length, site);
}
Array bincount(const Array& x, const Array& weights, int64_t length, Site site) {
  return Bincount(x, weights, length, site);
}

std::pair<Array, Array> histogram(const Array& x, int64_t bins, const HistogramOptions& options,
                                  Site site) {
  if (bins < 1) {
    ThrowError(ErrorKind::kValueError, site, "histogram: bins is ", bins, "; expected 1 or more");
  }
  if (x.valid() && x.type().num_elements() == 0 && !options.range) {
    ThrowError(ErrorKind::kValueError, site,
               "histogram: zero-size array to reduction operation min which has no identity: ",
               x.type().ToString(), "; give a range");
  }
  return Histogram(x, std::nullopt, bins, options, site);
}
std::pair<Array, Array> histogram(const Array& x, const Array& edges,
                                  const HistogramOptions& options, Site site) {
  internal::ThrowIfNoValue(edges, site);
  if (edges.rank() != 1 || edges.shape()[0] < 1) {
    ThrowError(ErrorKind::kValueError, site, "histogram: edges are ", edges.type().ToString(),
               "; expected a vector of one or more numbers");
  }
  return Histogram(x, edges, 0, options, site);
}

// ---- Segments. ----------------------------------------------------------------------------------

namespace {

using ScatterFn = Value (*)(Value, Value, Value, const ir::ScatterDimensionNumbers&,
                            const ir::GatherScatterOptions&);
using ReduceFn = Value (*)(Value, std::vector<int64_t>);

// Scatters the rows of `data` into num_segments rows that hold the neutral element. `scatter` and
// `reduce` have the same operation: `scatter` combines a row with the row that is already there,
// `reduce` combines all rows of an array.
Array ReduceSegments(std::string_view name, const Array& data, const Array& segment_ids,
                     int64_t num_segments, ScatterFn scatter, ReduceFn reduce,
                     const SegmentOptions& options, const Site& site) {
  CheckSize(name, "num_segments", num_segments, site);
  internal::ThrowIfNoValue(data, site);
  internal::ThrowIfNoValue(segment_ids, site);
  if (!ir::IsInteger(segment_ids.dtype())) {
    ThrowError(ErrorKind::kTypeError, site, ToAbsl(name), ": segment_ids are ",
               segment_ids.type().ToString(), "; expected an integer type");
  }
  if (segment_ids.rank() != 1 || data.rank() < 1 || data.shape()[0] != segment_ids.shape()[0]) {
    ThrowError(ErrorKind::kValueError, site, ToAbsl(name), ": segment_ids are ",
               segment_ids.type().ToString(), ", data is ", data.type().ToString(),
               "; expected a vector with an id for each row of data");
  }
  return Apply1(name, site, {data, segment_ids}, [&](ir::Builder&, Vs v) {
    // A segment without rows has the value that the reduction gives for no rows.
    const Value no_rows = ir::StopGradient(ir::SliceInDim(v[0], 0, 0, 0));
    const Value empty_segments = ir::BroadcastNewDim(reduce(no_rows, {0}), 0, num_segments);
    if (num_segments == 0) return empty_segments;
    return scatter(empty_segments, IndexColumn(v[1]), v[0], RowScatterDims(empty_segments),
                   {.mode = options.mode,
                    .indices_are_sorted = options.indices_are_sorted,
                    .unique_indices = options.unique_indices});
  });
}

}  // namespace

#define TESSERA_DEFINE_SEGMENT(name, Symbol, Reduction)                                      \
  Array name(const Array& data, const Array& segment_ids, int64_t num_segments,              \
             const SegmentOptions& options, Site site) {                                     \
    return ReduceSegments(#name, data, segment_ids, num_segments, ir::Symbol, ir::Reduction, \
                          options, site);                                                    \
  }
TESSERA_DEFINE_SEGMENT(segment_sum, ScatterAdd, ReduceSum)
TESSERA_DEFINE_SEGMENT(segment_prod, ScatterMul, ReduceProd)
TESSERA_DEFINE_SEGMENT(segment_max, ScatterMax, ReduceMax)
TESSERA_DEFINE_SEGMENT(segment_min, ScatterMin, ReduceMin)
#undef TESSERA_DEFINE_SEGMENT

}  // namespace tessera
