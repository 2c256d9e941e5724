// The op sliding_window_view, and the composites built on it: ReduceWindow and SelectAndScatter.
// The dims of its result are the dims of the array, which count the windows, and then one dim for
// each windowed dim, along which the elements of a window lie.
//
// Reference: NumPy's sliding_window_view, with strides and dilations. StableHLO's reduce_window is
// a reduction of the last dims of such a view.
#include <algorithm>
#include <limits>

#include "ir/ops/regions/computation.h"
#include "ir/ops/rules/movement.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// The attributes, one entry per windowed dim: the operand's dim, the number of elements that a
// window has along it, the distance from one window to the next, and the distance between elements
// of a window.
struct Windows {
  const DimList &dims, &sizes, &strides, &dilations;

  explicit Windows(const Attrs& attrs)
      : dims(attrs.Ints("dimensions")),
        sizes(attrs.Ints("window_dimensions")),
        strides(attrs.Ints("window_strides")),
        dilations(attrs.Ints("window_dilations")) {}
};

// Returns the number of windows along a dim of `n` elements.
int64_t CountOf(int64_t n, int64_t size, int64_t stride, int64_t dilation) {
  if (n == 0) return 0;
  // The dilation of a window with a single element has no meaning and may be any number.
  if (size > 1 && dilation > (n - 1) / (size - 1)) return 0;
  return (n - 1 - (size - 1) * dilation) / stride + 1;
}

Types InferWindows(const InferContext& c) {
  const Type& x = c.in[0];
  const Windows w(c.attrs);
  TESSERA_RETURN_IF_ERROR(CheckDistinctDims(c, "dimensions", w.dims, x.rank()));
  const size_t n = w.dims.size();
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "window_dimensions", w.sizes.size(), static_cast<int>(n)));
  TESSERA_RETURN_IF_ERROR(CheckLength(c, "window_strides", w.strides.size(), static_cast<int>(n)));
  TESSERA_RETURN_IF_ERROR(
      CheckLength(c, "window_dilations", w.dilations.size(), static_cast<int>(n)));
  Dims shape = x.shape;
  for (size_t i = 0; i < n; ++i) {
    if (w.sizes[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1)
      return ValueError(c, "the window along dim ", w.dims[i], " has size ", w.sizes[i],
                        ", stride ", w.strides[i], " and dilation ", w.dilations[i],
                        "; expected positive numbers");
    shape[w.dims[i]] = CountOf(x.shape[w.dims[i]], w.sizes[i], w.strides[i], w.dilations[i]);
  }
  shape.insert(shape.end(), w.sizes.begin(), w.sizes.end());
  TESSERA_RETURN_IF_ERROR(CountElements(c, shape).status());
  return std::vector<Type>{WithShape(x, shape)};
}

// Returns the number of windows along dim `d`, the i-th of `w`, if the dim consists of one block
// for each window and the windows lie within their blocks. Otherwise returns 0.
int64_t BlocksOf(const Windows& w, size_t i, int64_t size, int64_t count) {
  const __int128 span = static_cast<__int128>(w.sizes[i] - 1) * w.dilations[i] + 1;
  const bool within = count > 0 && w.sizes[i] > 0 && span <= w.strides[i] &&
                      static_cast<__int128>(count) * w.strides[i] == size;
  return within ? count : 0;
}
// Dims without a window pass through, and so do blocks that contain one window each.
Signature WindowsFactors(const InferContext& c, absl::Span<const Type> out) {
  const Windows w(c.attrs);
  Signature s;
  TensorFactors from, to;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const int64_t size = c.in[0].shape[d], count = out[0].shape[d];
    const auto at = std::find(w.dims.begin(), w.dims.end(), d);
    const bool pass = at == w.dims.end();
    const int64_t blocks =
        pass ? size : BlocksOf(w, static_cast<size_t>(at - w.dims.begin()), size, count);
    if (!pass && blocks == 0) {
      from.push_back({s.Add(FactorKind::kReplicated, size)});
      to.push_back({s.Add(FactorKind::kReplicated, count)});
      continue;
    }
    to.push_back({s.Add(FactorKind::kPassThrough, blocks)});
    from.push_back(to.back());
    if (size != blocks) from.back().push_back(s.Add(FactorKind::kReplicated, size / blocks));
  }
  for (const int64_t size : w.sizes) to.push_back({s.Add(FactorKind::kReplicated, size)});
  s.operands = {from};
  s.results = {to};
  return s;
}

// JAX's rule for windows: a cut dim stays cut, and its new size must be divisible.
absl::Status WindowsSharding(const InferContext& c, std::vector<Type>* out) {
  const Type& x = c.in[0];
  if (!x.is_sharded()) return absl::OkStatus();
  Type positions = (*out)[0];
  positions.shape.resize(x.rank());
  TESSERA_RETURN_IF_ERROR(KeepWhereDivisible(c, "reducing windows", &positions));
  (*out)[0].sharding = positions.sharding;
  if (positions.is_sharded()) (*out)[0].sharding.resize((*out)[0].rank());
  return absl::OkStatus();
}

// The transpose of the view along one dim. Dim `d` of x counts windows of this stride and dilation,
// and `window` is the dim of the places within a window. Returns, for each of the `n` elements that
// the windows cover, the sum of the values at the places that stand for the element. x is first
// padded so that the distance between windows is 1. In the flattened dims of places and windows,
// the values of one element are then a constant distance apart, so that one slice and one reshape
// align them for a sum over the places.
Value OverlapAdd(Value x, int d, int window, int64_t n, int64_t stride, int64_t dilation) {
  const int64_t size = x.dim(window), count = x.dim(d);
  // Puts the dim of places right before that of windows.
  const int at = window < d ? d - 1 : d;
  x = MoveDim(x, window, at);
  const int positions = at + 1;
  const int64_t before = (size - 1) * dilation, all = n + before;
  DimList low(x.rank(), 0), high = low, interior = low;
  low[positions] = before;
  interior[positions] = count <= 1 ? 0 : stride - 1;
  high[positions] = all - before - (count == 0 ? 0 : (count - 1) * stride + 1);
  x = Pad(x, Constant(x.builder(), x.dtype(), 0), low, high, interior);
  // Element i + (size - 1 - w) * dilation of place w has the flat index (size - 1) * dilation + w *
  // (all - dilation) + i.
  Dims shape = x.shape();
  shape[at] *= shape[positions];
  shape.erase(shape.begin() + positions);
  x = Reshape(x, shape);
  x = SliceInDim(x, at, before, before + size * (all - dilation));
  shape[at] = size;
  shape.insert(shape.begin() + positions, all - dilation);
  x = SliceInDim(Reshape(x, shape), positions, 0, n);
  return ReduceSum(x, {at});
}

std::vector<Value> TransposeWindows(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const Windows w(c.attrs);
  const Type& x = c.in_types[0];
  Value ct = cts[0];
  if (ct.type().num_elements() == 0) return {Zeros(c.b, x)};
  for (size_t i = w.dims.size(); i-- > 0;) {
    const auto d = static_cast<int>(w.dims[i]);
    if (w.sizes[i] == 1) {
      ct = Squeeze(ct, {ct.rank() - 1});
      DimList high(ct.rank(), 0), interior = high;
      high[d] = x.shape[d] - ((ct.dim(d) - 1) * w.strides[i] + 1);
      interior[d] = ct.dim(d) <= 1 ? 0 : w.strides[i] - 1;
      ct = Pad(ct, Constant(c.b, x.dtype, 0), DimList(ct.rank(), 0), high, interior);
      continue;
    }
    ct = OverlapAdd(ct, d, ct.rank() - 1, x.shape[d], w.strides[i], w.dilations[i]);
  }
  return {x.is_sharded() ? ShardedLike(ct, x) : ct};
}

Batched BatchWindows(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  Attrs attrs = c.attrs;
  attrs.Set("dimensions", PastBatch(c.attrs.Ints("dimensions"), dims[0]));
  return {c.b.Emit(c.def, c.in, std::move(attrs)), {dims[0]}};
}

IndexMap WindowsMap(const InferContext& c, absl::Span<const Type> out) {
  const Windows w(c.attrs);
  const Dims from = StridesOf(c.in[0].shape);
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  if (out[0].num_elements() == 0) return {{piece}, {}};
  std::copy(from.begin(), from.end(), piece.strides.begin());
  for (size_t i = 0; i < w.dims.size(); ++i) {
    const int64_t d = w.dims[i], step = from[d];
    // The stride of a single window, and the dilation of a single element, have no meaning and may
    // be any number.
    piece.strides[d] = out[0].shape[d] <= 1 ? step : step * w.strides[i];
    piece.strides[from.size() + i] = w.sizes[i] <= 1 ? step : step * w.dilations[i];
  }
  return {{piece}, {}};
}

constexpr AttrSpec kWindowsAttrs[] = {{"dimensions", AttrKind::kInts},
                                      {"window_dimensions", AttrKind::kInts},
                                      {"window_strides", AttrKind::kInts},
                                      {"window_dilations", AttrKind::kInts}};

}  // namespace

constexpr OpDef kSlidingWindowView = Movement({.name = "sliding_window_view",
                                               .lax_name = "sliding_window_view",
                                               .num_operands = 1,
                                               .attrs = kWindowsAttrs,
                                               .infer = InferWindows,
                                               .factors = WindowsFactors,
                                               .sharding = WindowsSharding,
                                               .transpose = TransposeWindows,
                                               .batch = BatchWindows,
                                               .index_map = WindowsMap});

}  // namespace tessera::ir::ops

// ---- The functions of ops.h. --------------------------------------------------------------------
namespace tessera::ir {

Value SlidingWindowView(Value x, std::vector<int64_t> dimensions,
                        std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
                        std::vector<int64_t> window_dilations) {
  return x.builder().Emit1(ops::kSlidingWindowView, {x},
                           {{"dimensions", std::move(dimensions)},
                            {"window_dimensions", std::move(window_dimensions)},
                            {"window_strides", std::move(window_strides)},
                            {"window_dilations", std::move(window_dilations)}});
}

int64_t WindowDimensions::places() const {
  int64_t places = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(places, size, &places)) return std::numeric_limits<int64_t>::max();
  return places;
}

namespace {

// Combines the elements of each window one after the other, in row-major order, beginning with the
// initial value. The dims from `rank` on are those of the windows.
std::vector<Value> InTurn(const std::vector<Value>& windows, const std::vector<Value>& inits,
                          const FunctionRef& computation, int rank) {
  const Dims shape = windows[0].shape();
  const Dims kept(shape.begin(), shape.begin() + rank);
  std::vector<Value> total;
  for (const Value init : inits) total.push_back(BroadcastInDim(init, kept, {}));
  if (windows[0].type().num_elements() == 0) return total;
  Dims start(shape.size(), 0), limit = shape;
  for (bool more = true; more;) {
    for (size_t d = rank; d < shape.size(); ++d) limit[d] = start[d] + 1;
    std::vector<Value> in = total;
    for (const Value x : windows) in.push_back(Reshape(Slice(x, start, limit), kept));
    total = MapComputation(computation, MatchVarying(in));
    more = false;
    for (size_t d = shape.size(); d-- > static_cast<size_t>(rank) && !more;) {
      more = ++start[d] < shape[d];
      if (!more) start[d] = 0;
    }
  }
  return total;
}

}  // namespace

// Pads the arrays with the initial values, views their windows, and reduces the dims of the view. A
// computation for which there is no reduction op such as reduce_sum may not be associative, as
// StableHLO allows here; the windows of such a computation are combined in turn as long as they are
// small. Larger ones are reduced in pairs, because in turn each place of a window adds a copy of
// the computation to the program.
std::vector<Value> ReduceWindow(std::vector<Value> xs, std::vector<Value> inits,
                                FunctionRef computation, const WindowDimensions& window) {
  if (xs.empty() || xs.size() != inits.size())
    Throw(ErrorKind::kTypeError, "reduce_window: expected an initial value for each operand");
  const int rank = xs[0].rank();
  const auto per_dim = [&](const auto& list, std::string_view name) {
    if (static_cast<int>(list.size()) == rank) return;
    Throw(ErrorKind::kValueError,
          absl::StrCat("reduce_window: ", ToAbsl(name), " has ", list.size(), " entries; expected ",
                       rank, ", one for each dim"));
  };
  per_dim(window.sizes, "window_dimensions");
  per_dim(window.strides, "window_strides");
  per_dim(window.base_dilations, "base_dilations");
  per_dim(window.dilations, "window_dilations");
  per_dim(window.padding, "padding");
  std::vector<int64_t> low, high, interior, dims, sizes, strides, dilations, reduced;
  for (int d = 0; d < rank; ++d) {
    low.push_back(window.padding[d].first);
    high.push_back(window.padding[d].second);
    interior.push_back(window.base_dilations[d] - 1);
    if (window.sizes[d] == 1 && window.strides[d] == 1) continue;
    reduced.push_back(rank + static_cast<int64_t>(dims.size()));
    dims.push_back(d);
    sizes.push_back(window.sizes[d]);
    strides.push_back(window.strides[d]);
    dilations.push_back(window.dilations[d]);
  }
  for (size_t i = 0; i < xs.size(); ++i) {
    xs[i] = Pad(xs[i], inits[i], low, high, interior);
    xs[i] = SlidingWindowView(xs[i], dims, sizes, strides, dilations);
  }
  if (ops::ReductionBy(*computation) == nullptr && window.places() <= kPlacesInTurnMax)
    return InTurn(xs, inits, computation, rank);
  return Reduce(std::move(xs), std::move(inits), std::move(computation), std::move(reduced));
}

namespace {

// Returns the computation (a, place of a, b, place of b) -> (the chosen element, its place).
// Elements outside of the array have a negative place, and are never chosen over an element of the
// array.
FunctionRef ChoiceBy(const FunctionRef& select, DType dtype, DType place) {
  Builder b({}, "select");
  const Type value = MakeType(dtype, {}), index = MakeType(place, {});
  const Value x = b.Param(value), at_x = b.Param(index), y = b.Param(value), at_y = b.Param(index);
  const Value zero = Constant(b, place, 0);
  const std::vector<Value> keeps = MapComputation(select, {x, y});
  if (keeps.size() != 1)
    Throw(ErrorKind::kTypeError, absl::StrCat("select_and_scatter: select has ", keeps.size(),
                                              " results; expected 1, a bool"));
  const Value has_x = Compare(at_x, zero, "GE"), lacks_y = Compare(at_y, zero, "LT");
  const Value stays = Or(lacks_y, And(has_x, keeps[0]));
  const Value chosen = Select(stays, x, y);
  return b.Build({chosen, Select(stays, at_x, at_y)});
}

}  // namespace

// A reduction over windows, with the elements' places carried along, finds the winner of each
// window. A scatter then combines `source` at the winners' places. The windowed dims are flattened
// to one, so that a place is a single index, and the plain dims, which have no window, become
// batching dims, which shardings can cut.
Value SelectAndScatter(Value x, Value source, Value init, FunctionRef select, FunctionRef scatter,
                       const WindowDimensions& window) {
  Builder& b = x.builder();
  const int rank = x.rank();
  if (static_cast<int>(window.sizes.size()) != rank)
    Throw(ErrorKind::kValueError,
          absl::StrCat("select_and_scatter: window_dimensions has ", window.sizes.size(),
                       " entries; expected ", rank, ", one for each dim"));
  if (x.type().num_elements() == 0) return BroadcastInDim(init, x.shape(), {});
  // Plain dims, which have no window, are kept. A place in the other dims is a single number.
  std::vector<int64_t> along, windowed;
  for (int d = 0; d < rank; ++d) {
    const bool plain = window.sizes[d] == 1 && window.strides[d] == 1 &&
                       window.padding[d] == std::pair<int64_t, int64_t>(0, 0);
    (plain ? along : windowed).push_back(d);
  }
  Dims spatial, flat;
  for (const int64_t d : along) flat.push_back(x.dim(static_cast<int>(d)));
  int64_t places = 1;
  for (const int64_t d : windowed) {
    spatial.push_back(x.dim(static_cast<int>(d)));
    places *= spatial.back();
  }
  flat.push_back(places);
  const DType place = ops::IndexTypeFor(places);
  const Value numbers = Reshape(Iota(b, place, {places}, 0), spatial);
  const Value at = BroadcastInDim(numbers, x.shape(), windowed);
  // Elements beyond the ends have a negative place, so that their values do not matter.
  std::vector<Value> operands = MatchVarying({x, at});
  const Value none = Constant(b, x.dtype(), 0), nowhere = Constant(b, place, -1);
  const Value winners =
      ReduceWindow(operands, {none, nowhere}, ChoiceBy(select, x.dtype(), place), window)[1];
  if (winners.shape() != source.shape())
    Throw(ErrorKind::kTypeError,
          absl::StrCat("select_and_scatter: source is ", source.type().ToString(),
                       "; expected an element for each of the windows, which are ",
                       winners.type().ToString()));

  std::vector<int64_t> order = along;
  order.insert(order.end(), windowed.begin(), windowed.end());
  const auto flattened = [&](Value v) {
    Dims shape(flat.begin(), flat.end() - 1);
    int64_t windows = 1;
    for (const int64_t d : windowed) windows *= v.dim(static_cast<int>(d));
    shape.push_back(windows);
    return Reshape(Transpose(v, order), shape);
  };
  const auto last = static_cast<int64_t>(along.size());
  const Value indices = ExpandDims(flattened(winners), {last + 1});
  const Value updates = flattened(source);
  ScatterDimensionNumbers dims = {{}, {last}, {last}};
  for (int64_t d = 0; d < last; ++d) {
    dims.operand_batching_dims.push_back(d);
    dims.scatter_indices_batching_dims.push_back(d);
  }
  const Value base = BroadcastInDim(init, flat, {});
  const Value sums = ScatterBy({base}, indices, {updates}, std::move(scatter), dims)[0];
  Dims shape(flat.begin(), flat.end() - 1);
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  return Transpose(Reshape(sums, shape), ops::InversePermutation(order));
}

}  // namespace tessera::ir
