// The op sliding_window_view. The dims of its result are the dims of the array, which count the
// windows, and then one dim for each windowed dim, along which the elements of a window lie.
//
// Reference: NumPy's sliding_window_view, with strides and dilations.
#include <algorithm>

#include "ir/ops/rules/movement.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;

// The attributes, one entry per windowed dim: the operand's dim, the number of elements that a
// window has along it, the distance from one window to the next, and the distance between elements
// of a window.
struct WindowAttrs {
  const DimList &dims, &sizes, &strides, &dilations;

  explicit WindowAttrs(const Attrs& attrs)
      : dims(attrs.Ints("dimensions")),
        sizes(attrs.Ints("window_dimensions")),
        strides(attrs.Ints("window_strides")),
        dilations(attrs.Ints("window_dilations")) {}
};

// Returns the number of windows along a dim of `n` elements.
int64_t NumWindows(int64_t n, int64_t size, int64_t stride, int64_t dilation) {
  if (n == 0) return 0;
  // If a window has only one element, its dilation is unused and may be any number.
  if (size > 1 && dilation > (n - 1) / (size - 1)) return 0;
  return (n - 1 - (size - 1) * dilation) / stride + 1;
}

Types InferWindows(const InferContext& c) {
  const Type& x = c.in[0];
  const WindowAttrs w(c.attrs);
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
    shape[w.dims[i]] = NumWindows(x.shape[w.dims[i]], w.sizes[i], w.strides[i], w.dilations[i]);
  }
  shape.insert(shape.end(), w.sizes.begin(), w.sizes.end());
  TESSERA_RETURN_IF_ERROR(CountElements(c, shape).status());
  return std::vector<Type>{WithShape(x, shape)};
}

// Returns the number of windows along dim `d`, the i-th of `w`, if the dim consists of one block
// for each window and the windows lie within their blocks. Otherwise returns 0.
int64_t BlocksOf(const WindowAttrs& w, size_t i, int64_t size, int64_t count) {
  const __int128 span = static_cast<__int128>(w.sizes[i] - 1) * w.dilations[i] + 1;
  const bool within = count > 0 && w.sizes[i] > 0 && span <= w.strides[i] &&
                      static_cast<__int128>(count) * w.strides[i] == size;
  return within ? count : 0;
}
// Dims without a window pass through, and so do blocks that contain one window each.
Signature WindowsFactors(const InferContext& c, absl::Span<const Type> out) {
  const WindowAttrs w(c.attrs);
  Signature s;
  TensorFactors from, to;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const int64_t size = c.in[0].shape[d], count = out[0].shape[d];
    const auto at = std::find(w.dims.begin(), w.dims.end(), d);
    const bool passes_through = at == w.dims.end();
    const int64_t blocks =
        passes_through ? size : BlocksOf(w, static_cast<size_t>(at - w.dims.begin()), size, count);
    if (!passes_through && blocks == 0) {
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
  TESSERA_RETURN_IF_ERROR(KeepShardingIfDivisible(c, "reducing windows", &positions));
  (*out)[0].sharding = positions.sharding;
  if (positions.is_sharded()) (*out)[0].sharding.resize((*out)[0].rank());
  return absl::OkStatus();
}

// The transpose of the view along one dim. Dim `d` of x counts windows of this stride and dilation,
// and `window` is the dim of the positions within a window. Returns, for each of the `n` elements
// that the windows cover, the sum of the values at the positions that stand for the element. x is
// first padded so that the distance between windows is 1. In the flattened dims of positions and
// windows, the values of one element are then a constant distance apart, so that one slice and one
// reshape align them for a sum over the positions.
Value OverlapAdd(Value x, int d, int window, int64_t n, int64_t stride, int64_t dilation) {
  const int64_t size = x.dim(window), count = x.dim(d);
  // Puts the dim of positions right before the dim of windows.
  const int at = window < d ? d - 1 : d;
  x = MoveDim(x, window, at);
  const int positions = at + 1;
  const int64_t before = (size - 1) * dilation, padded_size = n + before;
  DimList low(x.rank(), 0), high = low, interior = low;
  low[positions] = before;
  interior[positions] = count <= 1 ? 0 : stride - 1;
  high[positions] = padded_size - before - (count == 0 ? 0 : (count - 1) * stride + 1);
  x = Pad(x, Constant(x.builder(), x.dtype(), 0), low, high, interior);
  // Element i + (size - 1 - w) * dilation of position w has the flat index (size - 1) * dilation +
  // w * (padded_size - dilation) + i.
  Dims shape = x.shape();
  shape[at] *= shape[positions];
  shape.erase(shape.begin() + positions);
  x = Reshape(x, shape);
  x = SliceInDim(x, at, before, before + size * (padded_size - dilation));
  shape[at] = size;
  shape.insert(shape.begin() + positions, padded_size - dilation);
  x = SliceInDim(Reshape(x, shape), positions, 0, n);
  return ReduceSum(x, {at});
}

std::vector<Value> TransposeWindows(const RuleContext& c, Values cts, const std::vector<bool>&) {
  if (!cts[0]) return {Value()};
  const WindowAttrs w(c.attrs);
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
  const WindowAttrs w(c.attrs);
  const Dims from = StridesOf(c.in[0].shape);
  IndexPiece piece = ContiguousPiece(0, out[0].shape);
  if (out[0].num_elements() == 0) return {{piece}, {}};
  std::copy(from.begin(), from.end(), piece.strides.begin());
  for (size_t i = 0; i < w.dims.size(); ++i) {
    const int64_t d = w.dims[i], step = from[d];
    // If there is only one window, its stride is unused, and if a window has only one element, its
    // dilation is unused. Both may then be any number.
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

// ---- The function of ops.h. ---------------------------------------------------------------------
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

}  // namespace tessera::ir
