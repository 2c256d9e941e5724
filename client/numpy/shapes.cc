// The functions of shapes.h. Each emits slices, transposes, reshapes or gathers with static
// indices, whose sharding follows from the operand's where it can.
#include "client/shapes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/numpy/reductions.h"
#include "ir/ops.h"

namespace tessera {
namespace {

using internal::Apply;
using internal::Apply1;
using internal::ApplyArgs;
using internal::NormalizeAxis;
using internal::Operands;
using internal::RankOf;
using internal::Resharded;
using internal::ThrowError;
using internal::Unary;
using ir::Value;
using Vs = std::vector<Value>;

Array ArrayOf(std::string_view name, const Arg& x) {
  return x.kind == Arg::kArray ? *x.array : Unary(name, x, [](Value v) { return v; });
}
// Returns the sharding of a value, for values that are combined with it elementwise.
OutSharding ShardingOf(Value x) {
  return x.type().is_sharded() ? OutSharding(ir::SpecOf(x.type())) : std::nullopt;
}
// Returns a mask [rows, cols]: for each element, whether its column minus its row compares to k as
// `direction` says ("LE", "GE" or "EQ").
Value Band(ir::Builder& b, int64_t rows, int64_t cols, int64_t k, std::string_view direction) {
  const Dims shape = {rows, cols};
  const Value row = ir::Iota(b, DType::kS32, shape, 0);
  const Value moved = ir::Add(row, ir::FullLike(row, static_cast<double>(k)));
  return ir::Compare(ir::Iota(b, DType::kS32, shape, 1), moved, direction);
}

}  // namespace

Array ravel(const Arg& x, const OutSharding& out_sharding) {
  return reshape(x, {-1}, out_sharding);
}
// Builds a permutation: the moved dims get their positions first, the others fill the gaps in
// order.
Array moveaxis(const Arg& x, const Axes& source, const Axes& destination) {
  const int rank = RankOf(x);
  const std::vector<int64_t> none, &from_list = source.list ? *source.list : none,
                                   &to_list = destination.list ? *destination.list : none;
  if (from_list.size() != to_list.size()) {
    ThrowError(ErrorKind::kValueError, x.site,
               "moveaxis: Inconsistent number of elements: ", from_list.size(), " vs ",
               to_list.size());
  }
  std::vector<int64_t> order(rank, -1);
  std::vector<bool> taken(rank, false);
  for (size_t i = 0; i < from_list.size(); ++i) {
    const int from = NormalizeAxis("moveaxis", from_list[i], rank, x.site);
    const int to = NormalizeAxis("moveaxis", to_list[i], rank, x.site);
    if (taken[from] || order[to] >= 0) {
      ThrowError(ErrorKind::kValueError, x.site, "moveaxis: repeated axis in `",
                 taken[from] ? "source" : "destination", "`");
    }
    taken[from] = true;
    order[to] = from;
  }
  int next = 0;
  for (int64_t& at : order) {
    if (at >= 0) continue;
    while (taken[next]) ++next;
    at = next++;
  }
  return Unary("moveaxis", x, [&](Value v) { return ir::Transpose(v, order); });
}
Array permute_dims(const Arg& x, std::vector<int64_t> permutation) {
  return Unary("permute_dims", x, [&](Value v) { return ir::Transpose(v, permutation); });
}
Array matrix_transpose(const Arg& x) {
  if (RankOf(x) < 2) {
    ThrowError(ErrorKind::kValueError, x.site, "matrix_transpose: x must be at least ",
               "two-dimensional, got ", RankOf(x), " dims");
  }
  return swapaxes(x, -1, -2);
}
Array atleast_1d(const Arg& x) {
  return Unary("atleast_1d", x, [](Value v) { return v.rank() == 0 ? ir::ExpandDims(v, {0}) : v; });
}
Array atleast_2d(const Arg& x) {
  return Unary("atleast_2d", x, [](Value v) {
    if (v.rank() >= 2) return v;
    return v.rank() == 0 ? ir::ExpandDims(v, {0, 1}) : ir::ExpandDims(v, {0});
  });
}
Array atleast_3d(const Arg& x) {
  return Unary("atleast_3d", x, [](Value v) {
    if (v.rank() >= 3) return v;
    if (v.rank() == 2) return ir::ExpandDims(v, {2});
    return v.rank() == 1 ? ir::ExpandDims(v, {0, 2}) : ir::ExpandDims(v, {0, 1, 2});
  });
}
std::vector<Array> broadcast_arrays(const std::vector<Array>& xs, Site site) {
  std::vector<Dims> shapes;
  for (const Array& x : xs) {
    internal::ThrowIfNoValue(x, site);
    shapes.push_back(x.shape());
  }
  const Dims shape = internal::BroadcastShapes("broadcast_arrays", shapes, site);
  return Apply("broadcast_arrays", site, xs, [&](ir::Builder&, Vs v) {
    for (Value& x : v) x = internal::BroadcastTo(x, shape);
    return v;
  });
}

// ---- Joining. -----------------------------------------------------------------------------------

namespace {
std::vector<Array> ApplyToEach(Array (*f)(const Arg&), const std::vector<Array>& xs,
                               const Site& site) {
  std::vector<Array> out;
  for (const Array& x : xs) out.push_back(f(Arg(x, site)));
  return out;
}
}  // namespace

Array concat(const std::vector<Array>& xs, int axis, Site site) {
  return concatenate(xs, axis, site);
}
Array hstack(const std::vector<Array>& xs, Site site) {
  const std::vector<Array> all = ApplyToEach(atleast_1d, xs, site);
  return concatenate(all, !all.empty() && all[0].rank() > 1 ? 1 : 0, site);
}
Array vstack(const std::vector<Array>& xs, Site site) {
  return concatenate(ApplyToEach(atleast_2d, xs, site), 0, site);
}
Array dstack(const std::vector<Array>& xs, Site site) {
  return concatenate(ApplyToEach(atleast_3d, xs, site), 2, site);
}
Array column_stack(const std::vector<Array>& xs, Site site) {
  std::vector<Array> all;
  for (const Array& x : xs) {
    internal::ThrowIfNoValue(x, site);
    all.push_back(x.rank() >= 2 ? x : atleast_2d(Arg(x, site)).T(site));
  }
  return concatenate(all, 1, site);
}
Array append(const Array& x, const Array& values, std::optional<int> axis, Site site) {
  if (axis) return concatenate({x, values}, *axis, site);
  return concatenate({ravel(Arg(x, site)), ravel(Arg(values, site))}, 0, site);
}

// ---- Cutting. -----------------------------------------------------------------------------------

namespace {

// Computes the bounds of the parts from a number or from indices, then slices. `must_be_equal`
// refuses a number of parts that does not divide the dim.
std::vector<Array> SplitAt(const char* name, const Arg& x, const Sections& sections, int axis,
                           bool must_be_equal) {
  const Array whole = ArrayOf(name, x);
  const int dim = NormalizeAxis(name, axis, whole.rank(), x.site);
  const int64_t size = whole.dim(dim);
  std::vector<int64_t> begins = {0};
  if (sections.count) {
    const int64_t parts = *sections.count, rest = parts > 0 ? size % parts : 0;
    if (parts < 1) {
      ThrowError(ErrorKind::kValueError, x.site, name, ": got ", parts,
                 " parts; expected one or more");
    }
    if (must_be_equal && rest != 0) {
      ThrowError(ErrorKind::kValueError, x.site, name,
                 ": array split does not result in an equal division: rest is ", rest, " of ", size,
                 " in ", parts, " parts");
    }
    for (int64_t i = 0; i < parts; ++i)
      begins.push_back(begins.back() + size / parts + (i < rest ? 1 : 0));
  } else {
    for (int64_t at : sections.indices) begins.push_back(at);
    begins.push_back(size);
    if (!std::is_sorted(begins.begin(), begins.end())) {
      ThrowError(ErrorKind::kValueError, x.site, name, ": the parts begin at ",
                 ir::DimsToString(sections.indices), " of a dim of ", size,
                 "; expected numbers in ascending order, none greater than the size of the dim");
    }
  }
  return Apply(name, x.site, {whole}, [&](ir::Builder&, Vs v) {
    Vs out;
    for (size_t i = 0; i + 1 < begins.size(); ++i)
      out.push_back(ir::SliceInDim(v[0], dim, begins[i], begins[i + 1]));
    return out;
  });
}

}  // namespace

std::vector<Array> split(const Arg& x, const Sections& sections, int axis) {
  return SplitAt("split", x, sections, axis, /*must_be_equal=*/true);
}
std::vector<Array> array_split(const Arg& x, const Sections& sections, int axis) {
  return SplitAt("array_split", x, sections, axis, /*must_be_equal=*/false);
}
std::vector<Array> hsplit(const Arg& x, const Sections& sections) {
  return SplitAt("hsplit", x, sections, RankOf(x) == 1 ? 0 : 1, /*must_be_equal=*/true);
}
std::vector<Array> vsplit(const Arg& x, const Sections& sections) {
  return SplitAt("vsplit", x, sections, 0, /*must_be_equal=*/true);
}
std::vector<Array> dsplit(const Arg& x, const Sections& sections) {
  return SplitAt("dsplit", x, sections, 2, /*must_be_equal=*/true);
}
std::vector<Array> unstack(const Arg& x, int axis) {
  const Array whole = ArrayOf("unstack", x);
  const int dim = NormalizeAxis("unstack", axis, whole.rank(), x.site);
  return Apply("unstack", x.site, {whole}, [&](ir::Builder&, Vs v) {
    Vs out;
    for (int64_t i = 0; i < v[0].dim(dim); ++i)
      out.push_back(ir::Squeeze(ir::SliceInDim(v[0], dim, i, i + 1), {dim}));
    return out;
  });
}

// ---- Repeating and moving. ----------------------------------------------------------------------

// Broadcasts each repeated dim through a new dim before it, and joins both. The new dims would
// leave the sharding of a cut dim open, so that case is refused as in JAX.
Array tile(const Arg& x, const std::vector<int64_t>& reps) {
  for (const int64_t n : reps) {
    if (n < 0) {
      ThrowError(ErrorKind::kValueError, x.site, "tile: got ", n,
                 " repetitions; expected 0 or more");
    }
  }
  return Unary("tile", x, [&](Value v) {
    std::vector<int64_t> all = reps;
    if (static_cast<int>(all.size()) < v.rank()) all.insert(all.begin(), v.rank() - all.size(), 1);
    std::vector<int64_t> added(all.size() - v.rank());
    std::iota(added.begin(), added.end(), 0);
    if (!added.empty()) v = ir::ExpandDims(v, added);
    Dims repeated_shape, result;
    std::vector<int64_t> operand_dims;
    for (int d = 0; d < v.rank(); ++d) {
      if (all[d] != 1) {
        if (v.type().is_sharded() && !v.type().sharding[d].empty()) {
          ThrowError(ErrorKind::kShardingTypeError, x.site, "tile: Operand cannot be sharded on ",
                     "dimension ", d,
                     " when the tiling is non-trivial. Got input type: ", v.type().ToString(),
                     " with reps: (", ir::DimsToString(all), ")");
        }
        repeated_shape.push_back(all[d]);
      }
      operand_dims.push_back(static_cast<int64_t>(repeated_shape.size()));
      repeated_shape.push_back(v.dim(d));
      result.push_back(all[d] * v.dim(d));
    }
    return ir::Reshape(ir::BroadcastInDim(v, repeated_shape, operand_dims), result);
  });
}

namespace {

// Applies `f`, which repeats elements along a dim. `f` gets a value that is not sharded along this
// dim.
Array ApplyRepeat(const Arg& x, std::optional<int> axis, const OutSharding& out_sharding,
                  const std::vector<Arg>& more, absl::FunctionRef<Value(const Vs&, int)> f) {
  const int dim = axis ? NormalizeAxis("repeat", *axis, RankOf(x), x.site) : 0;
  std::vector<Arg> args = {x};
  args.insert(args.end(), more.begin(), more.end());
  return ApplyArgs("repeat", args, Operands::kStrict, [&](ir::Builder&, Vs v) {
    if (!axis) v[0] = ir::Reshape(v[0], {v[0].type().num_elements()});
    if (v[0].type().is_sharded() && !v[0].type().sharding[dim].empty()) {
      if (!out_sharding) {
        ThrowError(ErrorKind::kValueError, x.site,
                   "repeat: Please pass sharding to `repeat` via `out_sharding` parameter: dim ",
                   dim, " of ", v[0].type().ToString(), " is sharded");
      }
      PartitionSpec whole = ir::SpecOf(v[0].type());
      whole.dims[dim].clear();
      v[0] = Resharded("repeat", v[0], whole, x.site);
    }
    return Resharded("repeat", f(v, dim), out_sharding, x.site);
  });
}
// Returns the elements along a dim at `positions`, an s32 vector of indices in bounds.
Value TakeAt(Value x, Value positions, int dim) {
  ir::GatherDimensionNumbers dims;
  dims.collapsed_slice_dims = {dim};
  dims.start_index_map = {dim};
  Dims sizes = x.shape();
  sizes[dim] = std::min<int64_t>(sizes[dim], 1);
  for (int d = 0; d < x.rank(); ++d)
    if (d != dim) dims.offset_dims.push_back(d);
  return ir::Gather(x, ir::ExpandDims(positions, {1}), dims, std::move(sizes),
                    {.mode = lax::GatherScatterMode::kClip});
}
Value IndexVector(ir::Builder& b, const std::vector<double>& positions);
// Returns the index of the element at each of the `total` positions of a result in which element i
// is repeated counts[i] times. The index is the number of elements whose repetitions end at or
// before the position: the ends at each position are counted, and the counts are summed up. The
// scatter drops the ends beyond the last position.
Value RepeatedIndices(Value counts, int64_t total) {
  const int64_t n = counts.dim(0);
  const auto filled = [&](int64_t size, double value) {
    ir::Type type = ir::MakeType(DType::kS32, {size});
    type.varying = counts.type().varying;
    return ir::Full(counts.builder(), type, value);
  };
  const Value none = filled(total, 0);
  if (total == 0 || n == 0) return none;
  ir::ScatterDimensionNumbers dims;
  dims.inserted_window_dims = {0};
  dims.scatter_dims_to_operand_dims = {0};
  const Value ends = ir::ExpandDims(ir::Cumsum(counts, 0), {1});
  return ir::Cumsum(ir::ScatterAdd(none, ends, filled(n, 1), dims), 0);
}

}  // namespace

Array repeat(const Arg& x, int64_t repeats, std::optional<int> axis,
             const OutSharding& out_sharding) {
  if (repeats < 0)
    ThrowError(ErrorKind::kValueError, x.site, "repeat: got ", repeats,
               " repeats; expected 0 or more");
  return ApplyRepeat(x, axis, out_sharding, {}, [&](const Vs& v, int dim) {
    Dims repeated_shape = v[0].shape(), result = repeated_shape;
    repeated_shape.insert(repeated_shape.begin() + dim + 1, repeats);
    result[dim] *= repeats;
    std::vector<int64_t> operand_dims(v[0].rank());
    for (int d = 0; d < v[0].rank(); ++d) operand_dims[d] = d <= dim ? d : d + 1;
    return ir::Reshape(ir::BroadcastInDim(v[0], repeated_shape, operand_dims), result);
  });
}
Array repeat(const Arg& x, const std::vector<int64_t>& repeats, std::optional<int> axis,
             const OutSharding& out_sharding) {
  return ApplyRepeat(x, axis, out_sharding, {}, [&](const Vs& v, int dim) {
    if (static_cast<int64_t>(repeats.size()) != v[0].dim(dim) ||
        std::any_of(repeats.begin(), repeats.end(), [](int64_t n) { return n < 0; })) {
      ThrowError(ErrorKind::kValueError, x.site, "repeat: repeats are ", ir::DimsToString(repeats),
                 " for a dim of ", v[0].dim(dim),
                 "; a number for each element is expected, 0 or more");
    }
    std::vector<double> positions;
    for (size_t i = 0; i < repeats.size(); ++i)
      positions.insert(positions.end(), repeats[i], static_cast<double>(i));
    return TakeAt(v[0], IndexVector(v[0].builder(), positions), dim);
  });
}
Array repeat(const Arg& x, const Array& repeats, int64_t total, std::optional<int> axis,
             const OutSharding& out_sharding) {
  internal::ThrowIfNoValue(repeats, x.site);
  if (!ir::IsInteger(repeats.dtype()) || repeats.rank() > 1) {
    ThrowError(ErrorKind::kTypeError, x.site, "repeat: repeats are ", repeats.type().ToString(),
               "; one integer or a vector of integers is expected");
  }
  return ApplyRepeat(x, axis, out_sharding, {Arg(repeats, x.site)}, [&](const Vs& v, int dim) {
    const int64_t n = v[0].dim(dim);
    if (repeats.size() != 1 && repeats.size() != n) {
      ThrowError(ErrorKind::kValueError, x.site, "repeat: there are ", repeats.size(),
                 " repeats for a dim of ", n, "; a number for each element is expected");
    }
    Value counts = ir::Convert(v[1], DType::kS32);
    if (counts.rank() == 0) counts = ir::ExpandDims(counts, {0});
    if (counts.type().is_sharded()) counts = Resharded("repeat", counts, PartitionSpec(), x.site);
    counts = internal::BroadcastTo(counts, {n});
    return TakeAt(v[0], RepeatedIndices(counts, total), dim);
  });
}
namespace {
Value IndexVector(ir::Builder& b, const std::vector<double>& positions) {
  const auto n = static_cast<int64_t>(positions.size());
  if (n == 0) return ir::Full(b, DType::kS32, {0}, 0);
  return ir::Constant(b, ir::Array::Of(DType::kS32, {n}, positions));
}
}  // namespace

// Rolls one axis after another by joining the two parts of a cut. A shift by a multiple of the size
// emits nothing.
Array roll(const Arg& x, const Axes& shift, const Axes& axis) {
  const std::vector<int64_t> shifts = shift.list.value_or(std::vector<int64_t>{});
  return Unary("roll", x, [&](Value v) {
    const Dims shape = v.shape();
    std::vector<int64_t> axes = {0};
    if (axis.list) {
      axes.clear();
      for (const int64_t a : *axis.list) axes.push_back(NormalizeAxis("roll", a, v.rank(), x.site));
    } else {
      v = ir::Reshape(v, {v.type().num_elements()});
    }
    if (shifts.size() != 1 && axes.size() != 1 && shifts.size() != axes.size()) {
      ThrowError(ErrorKind::kValueError, x.site, "roll: got ", shifts.size(), " shifts and ",
                 axes.size(), " axes; expected as many shifts as axes, or only one shift or axis");
    }
    for (size_t i = 0; i < std::max(shifts.size(), axes.size()); ++i) {
      const auto dim = static_cast<int>(axes[axes.size() == 1 ? 0 : i]);
      const int64_t n = v.dim(dim), by = shifts[shifts.size() == 1 ? 0 : i];
      if (n == 0 || by % n == 0) continue;
      const int64_t first = ((-by) % n + n) % n;
      const Value tail = ir::SliceInDim(v, dim, first, n);
      v = ir::Concatenate({tail, ir::SliceInDim(v, dim, 0, first)}, dim);
    }
    return axis.list ? v : ir::Reshape(v, shape);
  });
}
Array flipud(const Arg& x) { return flip(x, 0); }
Array fliplr(const Arg& x) { return flip(x, 1); }
Array rot90(const Arg& x, int k, std::pair<int, int> axes) {
  const int rank = RankOf(x), first = NormalizeAxis("rot90", axes.first, rank, x.site),
            second = NormalizeAxis("rot90", axes.second, rank, x.site);
  if (first == second)
    ThrowError(ErrorKind::kValueError, x.site, "rot90: Axes must be different, got ", first,
               " twice");
  return Unary("rot90", x, [&](Value v) {
    const int turns = (k % 4 + 4) % 4;
    if (turns == 0) return v;
    if (turns == 2) return ir::Reverse(v, {std::min(first, second), std::max(first, second)});
    std::vector<int64_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[first], order[second]);
    return turns == 1 ? ir::Transpose(ir::Reverse(v, {second}), order)
                      : ir::Reverse(ir::Transpose(v, order), {second});
  });
}

namespace {

// Returns the index in [0, n) of the element at `position`, which may lie beyond a dim that `mode`
// continues.
int64_t SourceOf(std::string_view mode, int64_t position, int64_t n) {
  const auto modulo = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  if (mode == "edge") return std::clamp<int64_t>(position, 0, n - 1);
  if (mode == "wrap") return modulo(position, n);
  if (mode == "symmetric") {
    const int64_t at = modulo(position, 2 * n);
    return at < n ? at : 2 * n - 1 - at;
  }
  if (n == 1) return 0;
  const int64_t at = modulo(position, 2 * n - 2);
  return at < n ? at : 2 * n - 2 - at;
}

}  // namespace

// Pads by a constant with one op. The other modes compute the source of each new element here and
// gather, one dim after the other, so that corners are padded along both dims.
Array pad(const Arg& x, const PadWidth& pad_width, std::string_view mode, double constant_value) {
  static constexpr std::string_view kModes[] = {"constant", "edge", "reflect", "symmetric", "wrap"};
  if (std::find(std::begin(kModes), std::end(kModes), mode) == std::end(kModes)) {
    ThrowError(ErrorKind::kNotImplemented, x.site, "pad: mode is '", ToAbsl(mode),
               "'; expected constant, edge, reflect, symmetric or wrap");
  }
  const int rank = RankOf(x);
  std::vector<std::pair<int64_t, int64_t>> amounts = pad_width.amounts;
  if (amounts.size() == 1 && rank != 1) amounts.resize(rank, amounts[0]);
  if (static_cast<int>(amounts.size()) != rank) {
    ThrowError(ErrorKind::kValueError, x.site, "pad: pad_width has ", amounts.size(),
               " pairs; expected one, or one for each of ", rank, " dims");
  }
  for (const auto& [before, after] : amounts) {
    if (before < 0 || after < 0)
      ThrowError(ErrorKind::kValueError, x.site, "pad: index can't contain negative values, got (",
                 before, ", ", after, ")");
  }
  return Unary("pad", x, [&](Value v) {
    if (mode == "constant") {
      std::vector<int64_t> low, high;
      for (const auto& [before, after] : amounts) {
        low.push_back(before);
        high.push_back(after);
      }
      return ir::Pad(v, ir::Constant(v.builder(), v.dtype(), constant_value), low, high);
    }
    for (int d = 0; d < rank; ++d) {
      const auto [before, after] = amounts[d];
      if (before == 0 && after == 0) continue;
      const int64_t n = v.dim(d);
      if (n == 0) {
        ThrowError(ErrorKind::kValueError, x.site, "pad: can't extend empty axis ", d,
                   " using modes other than 'constant'");
      }
      std::vector<double> positions;
      for (int64_t i = -before; i < n + after; ++i)
        positions.push_back(static_cast<double>(SourceOf(mode, i, n)));
      v = TakeAt(v, IndexVector(v.builder(), positions), d);
    }
    return v;
  });
}

// ---- Diagonals and triangles. -------------------------------------------------------------------

// Moves the two dims to the end and cuts the largest square that starts on the diagonal. In the
// flattened square, diagonal elements are n + 1 positions apart, so one strided slice reads them.
Array diagonal(const Arg& x, int64_t offset, int axis1, int axis2) {
  const int rank = RankOf(x), rows = NormalizeAxis("diagonal", axis1, rank, x.site),
            cols = NormalizeAxis("diagonal", axis2, rank, x.site);
  if (rows == cols)
    ThrowError(ErrorKind::kValueError, x.site, "diagonal: axis1 and axis2 can not be same, got ",
               rows, " twice");
  return Unary("diagonal", x, [&](Value v) {
    std::vector<int64_t> order;
    for (int d = 0; d < rank; ++d)
      if (d != rows && d != cols) order.push_back(d);
    order.insert(order.end(), {rows, cols});
    v = ir::Transpose(v, order);
    const int64_t first_row = std::max<int64_t>(0, -offset),
                  first_col = std::max<int64_t>(0, offset);
    const int64_t n =
        std::max<int64_t>(0, std::min(v.dim(rank - 2) - first_row, v.dim(rank - 1) - first_col));
    Dims shape(v.shape().begin(), v.shape().end() - 2);
    if (n == 0) {
      shape.push_back(0);
      return ir::Full(v.builder(), v.dtype(), shape, 0);
    }
    v = ir::SliceInDim(v, rank - 2, first_row, first_row + n);
    v = ir::SliceInDim(v, rank - 1, first_col, first_col + n);
    shape.push_back(n * n);
    v = ir::Reshape(v, shape);
    Dims strides(shape.size(), 1);
    strides.back() = n + 1;
    return ir::Slice(v, Dims(shape.size(), 0), shape, strides);
  });
}
Array diag(const Arg& x, int64_t k) {
  const int rank = RankOf(x);
  if (rank == 2) return diagonal(x, k);
  if (rank != 1)
    ThrowError(ErrorKind::kValueError, x.site, "diag: input must be 1d or 2d, got ", rank, " dims");
  return Unary("diag", x, [&](Value v) {
    const int64_t before = std::max<int64_t>(0, -k), after = std::max<int64_t>(0, k);
    const int64_t n = v.dim(0) + before + after;
    const Value zero = ir::Constant(v.builder(), v.dtype(), 0);
    const Value column = ir::BroadcastInDim(ir::Pad(v, zero, {before}, {after}), {n, n}, {0});
    const Value on_diagonal =
        Resharded("diag", Band(v.builder(), n, n, k, "EQ"), ShardingOf(column), x.site);
    return ir::Select(on_diagonal, column, ir::FullLike(column, 0));
  });
}
Array diagflat(const Arg& x, int64_t k) { return diag(Arg(ravel(x), x.site), k); }

namespace {
Array Triangle(const char* name, const Arg& x, int64_t k, const char* direction) {
  const int rank = RankOf(x);
  if (rank < 2)
    ThrowError(ErrorKind::kValueError, x.site, "Argument to ", name, " must be at least 2D, got ",
               rank, " dims");
  return Unary(name, x, [&](Value v) {
    const Value band = Band(v.builder(), v.dim(rank - 2), v.dim(rank - 1), k, direction);
    const Value all = ir::BroadcastInDim(band, v.shape(), {rank - 2, rank - 1});
    const Value kept = Resharded(name, all, ShardingOf(v), x.site);
    return ir::Select(kept, v, ir::FullLike(v, 0));
  });
}
}  // namespace
Array tril(const Arg& x, int64_t k) { return Triangle("tril", x, k, "LE"); }
Array triu(const Arg& x, int64_t k) { return Triangle("triu", x, k, "GE"); }
Array tri(int64_t n, std::optional<int64_t> m, int64_t k, DType dtype, Site site) {
  return Apply1("tri", site, {}, [&](ir::Builder& b, Vs) {
    return ir::Convert(Band(b, n, m.value_or(n), k, "LE"), dtype);
  });
}
Array eye(int64_t n, int64_t m, int64_t k, DType dtype, Site site) {
  return Apply1("eye", site, {},
                [&](ir::Builder& b, Vs) { return ir::Convert(Band(b, n, m, k, "EQ"), dtype); });
}
Array identity(int64_t n, DType dtype, Site site) { return eye(n, dtype, site); }

// ---- Ranges. ------------------------------------------------------------------------------------

namespace {

// Numbers at equal distances, as floats, and the dtype that the caller wants.
struct SpacedNumbers {
  Value numbers;
  DType dtype;
};
// The shared part of linspace, logspace and geomspace: numbers in equal steps. Each number is a
// weighted sum of both ends, so that both ends are exact.
SpacedNumbers EvenlySpaced(const char* name, const Vs& v, DType input_dtype, int64_t num,
                           const SpaceOptions& options, const Site& site) {
  const DType dtype = options.dtype.value_or(input_dtype);
  const DType real_dtype = internal::InexactOf(dtype);
  const Value start = ir::Convert(v[0], real_dtype), stop = ir::Convert(v[1], real_dtype);
  const int dim = NormalizeAxis(name, options.axis, start.rank() + 1, site);
  Dims shape = start.shape();
  shape.insert(shape.begin() + dim, 1);
  const Value first = ir::Reshape(start, shape), last = ir::Reshape(stop, shape);
  ir::Builder& b = first.builder();
  if (num < 2) {
    if (num == 1) return {first, dtype};
    shape[dim] = 0;
    return {ir::Full(b, real_dtype, shape, 0), dtype};
  }
  const int64_t steps = options.endpoint ? num - 1 : num;
  shape[dim] = steps;
  const Value step = ir::Iota(b, real_dtype, {steps}, 0);
  const Value part = ir::Div(step, ir::FullLike(step, static_cast<double>(steps)));
  const Value other = ir::BroadcastInDim(ir::Sub(ir::FullLike(part, 1), part), shape, {dim});
  const Value of_first = ir::Mul(internal::BroadcastTo(first, shape), other);
  const Value of_last =
      ir::Mul(internal::BroadcastTo(last, shape), ir::BroadcastInDim(part, shape, {dim}));
  const Value out = ir::Add(of_first, of_last);
  return {options.endpoint ? ir::Concatenate({out, last}, dim) : out, dtype};
}
void CheckNum(const char* name, int64_t num, const Site& site) {
  if (num < 0)
    ThrowError(ErrorKind::kValueError, site, name, ": Number of samples, ", num,
               ", must be non-negative");
}

}  // namespace

Array linspace(const Arg& start, const Arg& stop, int64_t num, const SpaceOptions& options) {
  CheckNum("linspace", num, start.site);
  const DType input_dtype = internal::InexactOf(internal::CommonDType({start, stop}));
  return ApplyArgs(
      "linspace", {start, stop}, Operands::kPromote,
      [&](ir::Builder&, Vs v) {
        const auto [numbers, dtype] =
            EvenlySpaced("linspace", v, input_dtype, num, options, start.site);
        return ir::Convert(ir::IsInexact(dtype) ? numbers : ir::Floor(numbers), dtype);
      },
      input_dtype);
}
Array logspace(const Arg& start, const Arg& stop, int64_t num, double base,
               const SpaceOptions& options) {
  CheckNum("logspace", num, start.site);
  const DType input_dtype = internal::InexactOf(internal::CommonDType({start, stop}));
  return ApplyArgs(
      "logspace", {start, stop}, Operands::kPromote,
      [&](ir::Builder&, Vs v) {
        const auto [numbers, dtype] =
            EvenlySpaced("logspace", v, input_dtype, num, options, start.site);
        return ir::Convert(ir::Pow(ir::FullLike(numbers, base), numbers), dtype);
      },
      input_dtype);
}
Array geomspace(const Arg& start, const Arg& stop, int64_t num, const SpaceOptions& options) {
  CheckNum("geomspace", num, start.site);
  const DType input_dtype = internal::InexactOf(internal::CommonDType({start, stop}));
  return ApplyArgs(
      "geomspace", {start, stop}, Operands::kPromote,
      [&](ir::Builder&, Vs v) {
        const DType real_dtype = internal::InexactOf(options.dtype.value_or(input_dtype));
        const Value first = ir::Convert(v[0], real_dtype), last = ir::Convert(v[1], real_dtype);
        const Value sign = ir::Sign(first);
        const auto exponent = [&](Value x) {
          const Value log = ir::Log(ir::Div(x, sign));
          return ir::Mul(log, ir::FullLike(log, 1 / std::log(10.0)));
        };
        const Value from = exponent(first), to = exponent(last);
        const auto [numbers, dtype] =
            EvenlySpaced("geomspace", {from, to}, input_dtype, num, options, start.site);
        const Value powers = ir::Pow(ir::FullLike(numbers, 10), numbers);
        Dims shape = sign.shape();
        const int axis = NormalizeAxis("geomspace", options.axis, sign.rank() + 1, start.site);
        shape.insert(shape.begin() + axis, 1);
        const Value signs = internal::BroadcastTo(ir::Reshape(sign, shape), powers.shape());
        return ir::Convert(ir::Mul(signs, powers), dtype);
      },
      input_dtype);
}

std::vector<Array> meshgrid(const std::vector<Array>& xs, std::string_view indexing, bool sparse,
                            Site site) {
  if (indexing != "xy" && indexing != "ij")
    ThrowError(ErrorKind::kValueError, site,
               "meshgrid: Valid values for indexing are 'xy' and 'ij', got ", ToAbsl(indexing));
  Dims whole;
  for (const Array& x : xs) {
    internal::ThrowIfNoValue(x, site);
    if (x.rank() != 1)
      ThrowError(ErrorKind::kValueError, site, "meshgrid: Arguments must be 1D, got ",
                 x.type().ToString());
    whole.push_back(x.dim(0));
  }
  const bool swap = indexing == "xy" && xs.size() >= 2;
  if (swap) std::swap(whole[0], whole[1]);
  return Apply("meshgrid", site, xs, [&](ir::Builder&, Vs v) {
    for (size_t i = 0; i < v.size(); ++i) {
      const auto dim = static_cast<int64_t>(swap && i < 2 ? 1 - i : i);
      Dims shape = sparse ? Dims(whole.size(), 1) : whole;
      shape[dim] = v[i].dim(0);
      v[i] = ir::BroadcastInDim(v[i], shape, {dim});
    }
    return v;
  });
}

}  // namespace tessera
