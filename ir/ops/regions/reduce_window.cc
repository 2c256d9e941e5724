// ReduceWindow and SelectAndScatter of StableHLO, composed of other ops: a reduction over windows
// is a reduction of the last dims of a sliding_window_view. The reader of StableHLO and the
// client's functions on windows call them.
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/ops.h"
#include "ir/ops/regions/computation.h"
#include "ir/ops/rules/dims.h"

namespace tessera::ir {

int64_t WindowDimensions::elements_per_window() const {
  int64_t positions = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(positions, size, &positions))
      return std::numeric_limits<int64_t>::max();
  return positions;
}

namespace {

// Combines the elements of each window one after the other, in row-major order, beginning with the
// initial value. The dims from `rank` on are those of the windows.
std::vector<Value> CombineInTurn(const std::vector<Value>& windows, const std::vector<Value>& inits,
                                 const FunctionRef& computation, int rank) {
  const Dims shape = windows[0].shape();
  const Dims kept(shape.begin(), shape.begin() + rank);
  std::vector<Value> total;
  for (const Value init : inits) total.push_back(BroadcastInDim(init, kept, {}));
  if (windows[0].type().num_elements() == 0) return total;
  Dims start(shape.size(), 0), limit = shape;
  for (bool has_next = true; has_next;) {
    for (size_t d = rank; d < shape.size(); ++d) limit[d] = start[d] + 1;
    std::vector<Value> in = total;
    for (const Value x : windows) in.push_back(Reshape(Slice(x, start, limit), kept));
    total = MapComputation(computation, MatchVarying(in));
    has_next = false;
    for (size_t d = shape.size(); d-- > static_cast<size_t>(rank) && !has_next;) {
      has_next = ++start[d] < shape[d];
      if (!has_next) start[d] = 0;
    }
  }
  return total;
}

}  // namespace

// Pads the arrays with the initial values, views their windows, and reduces the dims of the view. A
// computation for which there is no reduction op such as reduce_sum may not be associative, as
// StableHLO allows here. The elements of a small window are therefore combined in turn. A larger
// window is reduced in pairs, because combining in turn adds a copy of the computation to the
// program for each position of the window.
std::vector<Value> ReduceWindow(std::vector<Value> xs, std::vector<Value> inits,
                                FunctionRef computation, const WindowDimensions& window) {
  if (xs.empty() || xs.size() != inits.size())
    Throw(ErrorKind::kTypeError, "reduce_window: expected an initial value for each operand");
  const int rank = xs[0].rank();
  const auto check_per_dim = [&](const auto& list, std::string_view name) {
    if (static_cast<int>(list.size()) == rank) return;
    Throw(ErrorKind::kValueError,
          absl::StrCat("reduce_window: ", ToAbsl(name), " has ", list.size(), " entries; expected ",
                       rank, ", one for each dim"));
  };
  check_per_dim(window.sizes, "window_dimensions");
  check_per_dim(window.strides, "window_strides");
  check_per_dim(window.base_dilations, "base_dilations");
  check_per_dim(window.dilations, "window_dilations");
  check_per_dim(window.padding, "padding");
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
  if (ops::ReductionBy(*computation) == nullptr &&
      window.elements_per_window() <= kWindowElementsInTurnMax)
    return CombineInTurn(xs, inits, computation, rank);
  return Reduce(std::move(xs), std::move(inits), std::move(computation), std::move(reduced));
}

namespace {

// Returns the computation (a, position of a, b, position of b) -> (the chosen element, its
// position). Elements outside of the array have a negative position, and are never chosen over an
// element of the array.
FunctionRef ChoiceBy(const FunctionRef& select, DType dtype, DType position_dtype) {
  Builder b({}, "select");
  const Type value = MakeType(dtype, {}), index = MakeType(position_dtype, {});
  const Value x = b.Param(value), at_x = b.Param(index), y = b.Param(value), at_y = b.Param(index);
  const Value zero = Constant(b, position_dtype, 0);
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

// A reduction over windows, with the elements' positions carried along, finds the winner of each
// window. A scatter then combines `source` at the winners' positions. The windowed dims are
// flattened to one, so that a position is a single index, and the plain dims, which have no window,
// become batching dims, which shardings can cut.
Value SelectAndScatter(Value x, Value source, Value init, FunctionRef select, FunctionRef scatter,
                       const WindowDimensions& window) {
  Builder& b = x.builder();
  const int rank = x.rank();
  if (static_cast<int>(window.sizes.size()) != rank)
    Throw(ErrorKind::kValueError,
          absl::StrCat("select_and_scatter: window_dimensions has ", window.sizes.size(),
                       " entries; expected ", rank, ", one for each dim"));
  if (x.type().num_elements() == 0) return BroadcastInDim(init, x.shape(), {});
  // Plain dims, which have no window, are kept. A position in the other dims is a single number.
  std::vector<int64_t> plain, windowed;
  for (int d = 0; d < rank; ++d) {
    const bool is_plain = window.sizes[d] == 1 && window.strides[d] == 1 &&
                          window.padding[d] == std::pair<int64_t, int64_t>(0, 0);
    (is_plain ? plain : windowed).push_back(d);
  }
  Dims spatial, flat;
  for (const int64_t d : plain) flat.push_back(x.dim(static_cast<int>(d)));
  int64_t positions = 1;
  for (const int64_t d : windowed) {
    spatial.push_back(x.dim(static_cast<int>(d)));
    positions *= spatial.back();
  }
  flat.push_back(positions);
  const DType position_dtype = ops::IndexDTypeFor(positions);
  const Value numbers = Reshape(Iota(b, position_dtype, {positions}, 0), spatial);
  const Value at = BroadcastInDim(numbers, x.shape(), windowed);
  // Elements beyond the ends have a negative position, so that their values do not matter.
  std::vector<Value> operands = MatchVarying({x, at});
  const Value zero = Constant(b, x.dtype(), 0), nowhere = Constant(b, position_dtype, -1);
  const Value winners = ReduceWindow(operands, {zero, nowhere},
                                     ChoiceBy(select, x.dtype(), position_dtype), window)[1];
  if (winners.shape() != source.shape())
    Throw(ErrorKind::kTypeError,
          absl::StrCat("select_and_scatter: source is ", source.type().ToString(),
                       "; expected an element for each of the windows, which are ",
                       winners.type().ToString()));

  std::vector<int64_t> order = plain;
  order.insert(order.end(), windowed.begin(), windowed.end());
  const auto flattened = [&](Value v) {
    Dims shape(flat.begin(), flat.end() - 1);
    int64_t windows = 1;
    for (const int64_t d : windowed) windows *= v.dim(static_cast<int>(d));
    shape.push_back(windows);
    return Reshape(Transpose(v, order), shape);
  };
  const auto num_plain = static_cast<int64_t>(plain.size());
  const Value indices = ExpandDims(flattened(winners), {num_plain + 1});
  const Value updates = flattened(source);
  ScatterDimensionNumbers dims = {{}, {num_plain}, {num_plain}};
  for (int64_t d = 0; d < num_plain; ++d) {
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
