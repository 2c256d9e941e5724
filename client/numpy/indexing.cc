// Indexing: checks an index against the array's shape. An index of numbers and slices alone becomes
// slice ops, any other index one gather or scatter. Array::operator[] and Array::at call it.
#include "client/indexing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/apply/reshard.h"
#include "client/numpy.h"
#include "client/sharding.h"
#include "client/trace/trace.h"
#include "ir/ops.h"

namespace tessera {

Index::Index(std::in_place_t, int64_t i, Site s) : what(i), site(s) {}
Index::Index(const Array& integers, Site s) : what(integers), site(s) {}
Index::Index(Slice slice, Site s) : what(slice), site(s) {}
Index::Index(NoneType none, Site s) : what(none), site(s) {}
Index::Index(Ellipsis all, Site s) : what(all), site(s) {}
Index::Index(const Index&) = default;
Index::Index(Index&&) noexcept = default;
Index& Index::operator=(const Index&) = default;
Index& Index::operator=(Index&&) noexcept = default;
Index::~Index() = default;

namespace {

using internal::ThrowError;
using ir::Value;
using Vs = std::vector<Value>;

// An entry of an index. It takes one dim of the array, or none if it is a new dim.
struct Entry {
  enum Kind : uint8_t { kInteger, kArray, kSlice, kNewDim } kind;
  int64_t start = 0, size = 1, step = 1;  // of a slice; for an integer, `start` is the integer
  int array = -1;                         // position in ParsedIndex::arrays
  bool whole = false;                     // whether the slice covers the whole dim in order
};

// An index that has been checked against a shape, and its arrays.
struct ParsedIndex {
  std::vector<Entry> entries;
  std::vector<Array> arrays;
  Site site;
  // Whether at least one array of the index has dims. The numbers then count as arrays, too, and
  // all arrays broadcast to one shape.
  bool advanced = false;
  bool contiguous = true;  // whether these arrays and numbers stand side by side
};

int64_t CheckedNumber(int64_t i, int64_t size, int dim, const Type& type, const Site& site) {
  const int64_t from_start = i < 0 ? i + size : i;
  if (from_start < 0 || from_start >= size) {
    ThrowError(ErrorKind::kValueError, site, "index ", i, " is out of bounds for dim ", dim, " of ",
               type.ToString());
  }
  return from_start;
}

// Clamps a slice like Python's slice.indices.
Entry EntryOf(const Slice& s, int64_t size, const Site& site) {
  if (s.step == 0) ThrowError(ErrorKind::kValueError, site, "slice step cannot be zero");
  const auto clamped = [&](int64_t i) {
    if (i < 0) i += size;
    return s.step > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  const int64_t start = s.start ? clamped(*s.start) : s.step > 0 ? 0 : size - 1;
  const int64_t stop = s.stop ? clamped(*s.stop) : s.step > 0 ? size : -1;
  const int64_t distance = s.step > 0 ? stop - start : start - stop;
  // Clamp the step: a step of more than the dim's size has the effect of a step of the size, which
  // cannot overflow.
  const int64_t step = std::clamp<int64_t>(s.step, -size - 1, size + 1);
  const int64_t count = distance <= 0 ? 0 : 1 + (distance - 1) / std::abs(step);
  return {Entry::kSlice, start, count, step, -1, count == size && step == 1};
}

// Checks the index and gives every dim of `x` an entry: an ellipsis, and dims that the index does
// not mention, become whole slices. Bool arrays are refused, because the shape of the result would
// depend on their values.
ParsedIndex Parse(const Type& x, const std::vector<Index>& index) {
  ParsedIndex out;
  out.site = index.empty() ? Site::Here() : index[0].site;
  int num_indexed = 0, ellipses = 0;
  for (const Index& i : index) {
    ellipses += std::holds_alternative<Ellipsis>(i.what);
    num_indexed +=
        !std::holds_alternative<Ellipsis>(i.what) && !std::holds_alternative<NoneType>(i.what);
  }
  if (ellipses > 1)
    ThrowError(ErrorKind::kValueError, out.site, "an index can only have a single ellipsis");
  if (num_indexed > x.rank()) {
    ThrowError(ErrorKind::kValueError, out.site, "too many indices for array: ", x.ToString(),
               " has ", x.rank(), " dims, but ", num_indexed, " were indexed");
  }
  int dim = 0;
  const auto whole_dims = [&](int count) {
    for (; count > 0; --count, ++dim)
      out.entries.push_back(EntryOf(Slice{}, x.shape[dim], out.site));
  };
  std::vector<int> positions;  // positions of numbers and arrays, before the ellipsis is expanded
  for (size_t at = 0; at < index.size(); ++at) {
    const Index& i = index[at];
    if (const auto* number = std::get_if<int64_t>(&i.what)) {
      out.entries.push_back(
          {Entry::kInteger, CheckedNumber(*number, x.shape[dim], dim, x, i.site)});
      positions.push_back(static_cast<int>(at));
      ++dim;
    } else if (const auto* array = std::get_if<Array>(&i.what)) {
      if (!ir::IsInteger(array->dtype())) {
        ThrowError(
            ErrorKind::kTypeError, i.site, "indexer must have integer type, got ",
            array->type().ToString(),
            array->dtype() == DType::kBool
                ? "; the shape of a selection by a bool array depends on its values: use where"
                : "");
      }
      out.entries.push_back({Entry::kArray, 0, 1, 1, static_cast<int>(out.arrays.size())});
      out.arrays.push_back(*array);
      out.advanced |= array->rank() > 0;
      positions.push_back(static_cast<int>(at));
      ++dim;
    } else if (const auto* slice = std::get_if<Slice>(&i.what)) {
      out.entries.push_back(EntryOf(*slice, x.shape[dim], i.site));
      ++dim;
    } else if (std::holds_alternative<NoneType>(i.what)) {
      out.entries.push_back({Entry::kNewDim});
    } else {
      whole_dims(x.rank() - num_indexed);
    }
  }
  whole_dims(x.rank() - dim);
  for (size_t k = 1; k < positions.size(); ++k)
    out.contiguous &= positions[k] == positions[k - 1] + 1;
  return out;
}

// Returns indices as s32, counted from the start of a dim of this size. An index that is out of
// bounds stays out of bounds: it becomes -1 or the size.
Value NormalizeIndices(Value i, int64_t size) {
  if (ir::ByteWidth(i.dtype()) < ir::ByteWidth(DType::kS32)) i = ir::Convert(i, DType::kS32);
  i = internal::WrapNegativeIndices(i, size);
  if (i.dtype() == DType::kS32) return i;
  const Value last = ir::FullLike(i, static_cast<double>(size));
  i = ir::Min(i, last);
  if (ir::IsSignedInt(i.dtype())) i = ir::Max(i, ir::FullLike(i, -1));
  return ir::Convert(i, DType::kS32);
}

// ---- Numbers and slices alone. ------------------------------------------------------------------

// The box of elements of x that an index without arrays names, and how the dims of the result
// differ from those of x.
struct Box {
  Dims low, high, strides;        // per dim of x
  std::vector<int64_t> reversed;  // dims of x that are read from the end
  std::vector<int64_t> dropped;   // dims of x that a number indexes
  std::vector<int64_t> added;     // dims of the result that are new
  Dims shape;                     // shape of the result
  // Returns whether the box is one piece: no dim has steps.
  bool is_window() const {
    return reversed.empty() &&
           std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 1; });
  }
};
Box BoxOf(const ParsedIndex& p) {
  Box box;
  for (const Entry& e : p.entries) {
    const auto dim = static_cast<int64_t>(box.low.size());
    if (e.kind == Entry::kNewDim) box.added.push_back(static_cast<int64_t>(box.shape.size()));
    if (e.kind == Entry::kInteger) box.dropped.push_back(dim);
    if (e.kind != Entry::kInteger) box.shape.push_back(e.size);
    if (e.kind == Entry::kNewDim) continue;
    const bool back = e.step < 0;
    const int64_t stride = back ? -e.step : e.step;
    const int64_t low = e.size == 0 ? 0 : back ? e.start + (e.size - 1) * e.step : e.start;
    box.low.push_back(low);
    box.high.push_back(e.size == 0 ? low : low + (e.size - 1) * stride + 1);
    box.strides.push_back(stride);
    if (back) box.reversed.push_back(dim);
  }
  return box;
}

Value ReadBox(Value x, const Box& box) {
  x = ir::Slice(x, box.low, box.high, box.strides);
  if (!box.reversed.empty()) x = ir::Reverse(x, box.reversed);
  if (!box.dropped.empty()) x = ir::Squeeze(x, box.dropped);
  return box.added.empty() ? x : ir::ExpandDims(x, box.added);
}

// ---- With arrays: as a gather or a scatter. -----------------------------------------------------

// An index as the operands of a gather. Reference: jax._src.numpy.indexing, whose order of result
// dims this code follows.
struct GatherIndex {
  Value vectors;
  ir::GatherDimensionNumbers dims;
  Dims slice_sizes;
  Dims shape;                  // shape of the result
  std::vector<int64_t> added;  // new dims of the result, which the gather does not give
};

// Turns the index into index vectors and dimension numbers. If the arrays do not stand side by side
// in the index, their common dims come first in the result, as in numpy; otherwise these dims stand
// at the place of the first array. A slice with steps becomes a column of indices, because the
// window of a gather has no steps.
GatherIndex ToGather(ir::Builder& b, const ParsedIndex& p, const Vs& arrays, const Dims& x) {
  GatherIndex g;
  // The columns of the index vectors, each with the position of its first dim among `positions`.
  std::vector<std::pair<Value, int>> columns;
  Dims positions;
  const auto is_advanced = [&](const Entry& e) {
    return p.advanced && (e.kind == Entry::kArray || e.kind == Entry::kInteger);
  };
  const auto value_of = [&](const Entry& e, int dim) {
    return e.kind == Entry::kArray ? NormalizeIndices(arrays[e.array], x[dim])
                                   : ir::Constant(b, ir::Array::ScalarInt(DType::kS32, e.start));
  };
  Dims common_shape;
  if (p.advanced) {
    std::vector<Dims> shapes;
    for (const Entry& e : p.entries)
      if (is_advanced(e))
        shapes.push_back(e.kind == Entry::kArray ? arrays[e.array].shape() : Dims{});
    common_shape = internal::BroadcastShapes("indexing", shapes, p.site);
  }
  bool advanced_added = false;
  int dim = 0, gathered = 0;  // `dim` counts dims of x, `gathered` those of the gather's result
  const auto add_advanced = [&] {
    const int first = static_cast<int>(positions.size());
    int d = 0;
    for (const Entry& e : p.entries) {
      if (e.kind == Entry::kNewDim) continue;
      if (is_advanced(e)) {
        columns.emplace_back(internal::BroadcastTo(value_of(e, d), common_shape), first);
        g.dims.start_index_map.push_back(d);
        g.dims.collapsed_slice_dims.push_back(d);
      }
      ++d;
    }
    positions.insert(positions.end(), common_shape.begin(), common_shape.end());
    g.shape.insert(g.shape.end(), common_shape.begin(), common_shape.end());
    gathered += static_cast<int>(common_shape.size());
    advanced_added = true;
  };
  if (p.advanced && !p.contiguous) add_advanced();
  for (const Entry& e : p.entries) {
    if (e.kind == Entry::kNewDim) {
      g.added.push_back(static_cast<int64_t>(g.shape.size()));
      g.shape.push_back(1);
      continue;
    }
    if (is_advanced(e)) {
      if (!advanced_added) add_advanced();
      g.slice_sizes.push_back(std::min<int64_t>(1, x[dim]));
    } else if (e.kind != Entry::kSlice) {
      columns.emplace_back(value_of(e, dim), static_cast<int>(positions.size()));
      g.dims.start_index_map.push_back(dim);
      g.dims.collapsed_slice_dims.push_back(dim);
      g.slice_sizes.push_back(std::min<int64_t>(1, x[dim]));
    } else if (e.step == 1) {
      if (!e.whole) {
        columns.emplace_back(ir::Constant(b, ir::Array::ScalarInt(DType::kS32, e.start)),
                             static_cast<int>(positions.size()));
        g.dims.start_index_map.push_back(dim);
      }
      g.slice_sizes.push_back(e.size);
      g.dims.offset_dims.push_back(gathered++);
      g.shape.push_back(e.size);
    } else {
      const Value steps = ir::Iota(b, DType::kS32, {e.size}, 0);
      const Value scaled = ir::Mul(steps, ir::FullLike(steps, static_cast<double>(e.step)));
      columns.emplace_back(ir::Add(scaled, ir::FullLike(steps, static_cast<double>(e.start))),
                           static_cast<int>(positions.size()));
      g.dims.start_index_map.push_back(dim);
      g.dims.collapsed_slice_dims.push_back(dim);
      g.slice_sizes.push_back(std::min<int64_t>(1, x[dim]));
      positions.push_back(e.size);
      g.shape.push_back(e.size);
      ++gathered;
    }
    ++dim;
  }
  std::sort(g.dims.collapsed_slice_dims.begin(), g.dims.collapsed_slice_dims.end());
  Dims column = positions;
  column.push_back(1);
  std::vector<Value> parts;
  for (const auto& [value, first] : columns) {
    std::vector<int64_t> at;
    for (int d = 0; d < value.rank(); ++d) at.push_back(first + d);
    parts.push_back(ir::BroadcastInDim(value, column, at));
  }
  if (parts.empty()) {
    column.back() = 0;
    g.vectors = ir::Full(b, DType::kS32, column, 0);
  } else {
    g.vectors =
        parts.size() == 1 ? parts[0] : ir::Concatenate(parts, static_cast<int>(column.size()) - 1);
  }
  return g;
}

// Removes the dims `added`, which the gather does not give, from the spec of a result. Returns the
// spec for the gather.
PartitionSpec WithoutDims(PartitionSpec spec, const std::vector<int64_t>& added) {
  for (size_t k = added.size(); k-- > 0;) spec.dims.erase(spec.dims.begin() + added[k]);
  return spec;
}

Array ReadIndexed(const Array& x, const std::vector<Index>& index,
                  const OutSharding& out_sharding) {
  const ParsedIndex p = Parse(x.type(), index);
  std::vector<Array> inputs = {x};
  inputs.insert(inputs.end(), p.arrays.begin(), p.arrays.end());
  internal::CheckVaryAlike("gather", inputs, p.site);
  return internal::Apply1("indexing", p.site, inputs, [&](ir::Builder& b, Vs v) {
    if (p.arrays.empty())
      return internal::Resharded("get", ReadBox(v[0], BoxOf(p)), out_sharding, p.site);
    const GatherIndex g = ToGather(b, p, Vs(v.begin() + 1, v.end()), v[0].shape());
    ir::GatherScatterOptions options{.mode = ir::GatherScatterMode::kPromiseInBounds};
    std::optional<PartitionSpec> spec;
    if (out_sharding) {
      spec = WithoutDims(
          internal::FitToRank("get", *out_sharding, static_cast<int>(g.shape.size()), p.site),
          g.added);
      options.out_sharding = &*spec;
    }
    const Value got = ir::Gather(v[0], g.vectors, g.dims, g.slice_sizes, options);
    return g.added.empty() ? got : ir::ExpandDims(got, g.added);
  });
}

using ScatterFn = absl::FunctionRef<Value(Value, Value, Value, const ir::ScatterDimensionNumbers&,
                                          const ir::GatherScatterOptions&)>;
// Combines the elements `old` with the updates. No element is named twice.
using CombineFn = absl::FunctionRef<Value(Value old, Value update)>;

// Emits one update. A box without steps in an unsharded array becomes a dynamic_update_slice, any
// other update a scatter. If the sharding rules leave the result's sharding open, the scatter is
// emitted again with the array's own sharding, and a diagnostic says so (docs/decisions/0024).
Array Update(const char* name, const Array& x, const std::vector<Index>& index, const Arg& v,
             CombineFn combine, ScatterFn scatter, const OutSharding& out_sharding) {
  const ParsedIndex p = Parse(x.type(), index);
  if (v.kind == Arg::kReal && !ir::IsInexact(x.dtype())) {
    ThrowError(ErrorKind::kTypeError, v.site, "at(...).", name, ": cannot safely cast ", v.number,
               " to ", ToAbsl(ir::DTypeName(x.dtype())), "; convert the array with astype");
  }
  const Array update = internal::ApplyArgs(
      name, {v}, internal::Operands::kStrict, [](ir::Builder&, Vs u) { return u[0]; },
      v.kind == Arg::kArray ? std::nullopt : std::optional(x.dtype()));
  const bool fits = update.type().weak ? ir::IsInexact(x.dtype()) || !ir::IsInexact(update.dtype())
                                       : internal::Promote(update.dtype(), x.dtype()) == x.dtype();
  if (!fits) {
    ThrowError(ErrorKind::kTypeError, v.site, "at(...).", name, ": cannot safely cast value from ",
               ToAbsl(ir::DTypeName(update.dtype())), " to ", ToAbsl(ir::DTypeName(x.dtype())),
               "; convert it with astype");
  }
  std::vector<Array> inputs = {x};
  inputs.insert(inputs.end(), p.arrays.begin(), p.arrays.end());
  if (v.kind != Arg::kArray) internal::CheckVaryAlike("scatter", inputs, p.site);
  inputs.push_back(update);
  if (v.kind == Arg::kArray) internal::CheckVaryAlike("scatter", inputs, p.site);
  return internal::Apply1(name, p.site, inputs, [&](ir::Builder& b, Vs in) {
    const Value operand = in[0];
    const Value values = ir::Convert(in.back(), operand.dtype());
    const auto broadcast = [&](const Dims& shape) {
      const Dims both = internal::BroadcastShapes(name, {values.shape(), shape}, v.site);
      if (both != shape) {
        ThrowError(ErrorKind::kValueError, v.site, "at(...).", name, ": an update of type ",
                   values.type().ToString(), " does not broadcast to the indexed shape ",
                   ir::MakeType(operand.dtype(), shape).ToString());
      }
      return internal::BroadcastTo(values, shape);
    };
    const bool sharded = out_sharding || operand.type().is_sharded() || values.type().is_sharded();
    if (const Box box = BoxOf(p); p.arrays.empty() && box.is_window() && !sharded) {
      Value u = broadcast(box.shape);
      if (!box.added.empty()) u = ir::Squeeze(u, box.added);
      if (!box.dropped.empty()) u = ir::ExpandDims(u, box.dropped);
      u = combine(ir::Slice(operand, box.low, box.high), u);
      std::vector<Value> starts;
      for (int64_t s : box.low)
        starts.push_back(ir::Constant(b, ir::Array::ScalarInt(DType::kS32, s)));
      return ir::DynamicUpdateSlice(operand, u, starts);
    }
    const GatherIndex g = ToGather(b, p, Vs(in.begin() + 1, in.end() - 1), operand.shape());
    Value u = broadcast(g.shape);
    if (!g.added.empty()) u = ir::Squeeze(u, g.added);
    if (operand.type().is_sharded() && !u.type().is_sharded() && values.shape() != u.shape()) {
      // A dim along which the update was broadcast gets the sharding of the windows that the update
      // fills.
      Type like = u.type();
      size_t k = 0;
      for (int d = 0; d < operand.rank(); ++d) {
        const auto& collapsed = g.dims.collapsed_slice_dims;
        if (std::find(collapsed.begin(), collapsed.end(), d) != collapsed.end()) continue;
        const auto at = static_cast<int>(g.dims.offset_dims[k++]);
        if (u.dim(at) == operand.dim(d)) like.set_axes_of(at, operand.type().axes_of(d));
      }
      u = internal::Resharded(name, u, ir::SpecOf(like), p.site);
    }
    const ir::ScatterDimensionNumbers dims{.update_window_dims = g.dims.offset_dims,
                                           .inserted_window_dims = g.dims.collapsed_slice_dims,
                                           .scatter_dims_to_operand_dims = g.dims.start_index_map};
    const auto scatter_with = [&](const PartitionSpec& spec) {
      ir::GatherScatterOptions options;
      options.out_sharding = &spec;
      return scatter(operand, g.vectors, u, dims, options);
    };
    if (out_sharding)
      return scatter_with(internal::FitToRank(name, *out_sharding, operand.rank(), p.site));
    try {
      return scatter(operand, g.vectors, u, dims, {});
    } catch (const StatusException& e) {
      if (KindOf(e.status()) != ErrorKind::kShardingTypeError || is_strict_sharding()) throw;
    }
    AddDiagnostic(
        absl::StrCat("the result of at(...).", name, " keeps the sharding of the array, ",
                     operand.type().ToString(),
                     ", because its type and the types of the indices and of the update, ",
                     u.type().ToString(), ", leave the sharding open; state it with at(...).", name,
                     "(..., out_sharding)"),
        p.site);
    return scatter_with(ir::SpecOf(operand.type()));
  });
}

}  // namespace

Array Array::operator[](const Index& index) const { return ReadIndexed(*this, {index}, {}); }
Array Array::operator[](std::initializer_list<Index> index) const {
  return ReadIndexed(*this, index, {});
}
IndexUpdateRef Array::at(const Index& index) const { return {*this, {index}}; }
IndexUpdateRef Array::at(std::initializer_list<Index> index) const { return {*this, index}; }

Array IndexUpdateRef::get(const OutSharding& out_sharding) const {
  return ReadIndexed(array_, index_, out_sharding);
}
Array IndexUpdateRef::set(const Arg& v, const OutSharding& out_sharding) const {
  const auto replace = [](Value, Value update) { return update; };
  return Update("set", array_, index_, v, replace, ir::Scatter, out_sharding);
}
Array IndexUpdateRef::add(const Arg& v, const OutSharding& out_sharding) const {
  return Update("add", array_, index_, v, ir::Add, ir::ScatterAdd, out_sharding);
}
Array IndexUpdateRef::subtract(const Arg& v, const OutSharding& out_sharding) const {
  return add(-v, out_sharding);
}
Array IndexUpdateRef::multiply(const Arg& v, const OutSharding& out_sharding) const {
  return Update("multiply", array_, index_, v, ir::Mul, ir::ScatterMul, out_sharding);
}
Array IndexUpdateRef::divide(const Arg& v, const OutSharding& out_sharding) const {
  return array_ / IndexUpdateRef(ones_like(array_), index_).multiply(v, out_sharding);
}
Array IndexUpdateRef::power(const Arg& v, const OutSharding& out_sharding) const {
  return tessera::power(array_,
                        IndexUpdateRef(ones_like(array_), index_).multiply(v, out_sharding));
}
Array IndexUpdateRef::min(const Arg& v, const OutSharding& out_sharding) const {
  return Update("min", array_, index_, v, ir::Min, ir::ScatterMin, out_sharding);
}
Array IndexUpdateRef::max(const Arg& v, const OutSharding& out_sharding) const {
  return Update("max", array_, index_, v, ir::Max, ir::ScatterMax, out_sharding);
}
Array IndexUpdateRef::apply(absl::FunctionRef<Array(const Array&)> func,
                            const OutSharding& out_sharding) const {
  const Site site = index_.empty() ? Site::Here() : index_[0].site;
  // The scatter op also takes updates, but this computation does not use their values.
  const auto computation = [&](int params) {
    return internal::TraceComputation(
        "apply", std::vector<DType>(params, array_.dtype()), site,
        [&](const std::vector<Array>& in) { return std::vector<Array>{func(in[0])}; });
  };
  const auto combine = [&](Value old, Value) {
    return ir::MapComputation(computation(1), {old})[0];
  };
  const auto scatter = [&](Value x, Value indices, Value updates,
                           const ir::ScatterDimensionNumbers& dims,
                           const ir::GatherScatterOptions& options) {
    return ir::ScatterBy({x}, indices, {updates}, computation(2), dims, options)[0];
  };
  return Update("apply", array_, index_, 0, combine, scatter, out_sharding);
}

}  // namespace tessera
