// The op sort_by: sorts operands of one shape along a dim, in the order of a comparator. SortBy
// emits the op sort instead if the comparator describes an order that sort has. Reference:
// StableHLO's sort.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "ir/ops/regions/computation.h"
#include "ir/ops/rules/comparator.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/sorting.h"
#include "ir/strided.h"

namespace tessera::ir::ops {
namespace {

using Types = absl::StatusOr<std::vector<Type>>;
using Arrays = absl::StatusOr<std::vector<Array>>;

Types InferSortBy(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferSortedRows(c));
  std::vector<DType> params;
  for (const Type& t : c.in) params.insert(params.end(), 2, t.dtype);
  TESSERA_RETURN_IF_ERROR(CheckComputation(c, params, {DType::kBool}));
  return out;
}

Cost SortByCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost = SortCost(c, out);
  cost.flops = FlopsOf(c, static_cast<int64_t>(std::min(cost.flops, 0x1p62)));
  return cost;
}

// Calls f(stride, positions) for each stage of a network that sorts n elements. In a stage, the
// element at each of `positions` is compared with the one `stride` positions after it, and the two
// are exchanged if necessary. No element is in two pairs of a stage. Reference: Batcher's merge
// exchange; Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
template <class F>
absl::Status ForEachStage(int64_t n, const F& f) {
  if (n < 2) return absl::OkStatus();
  const int64_t top = int64_t{1} << (std::bit_width(static_cast<uint64_t>(n - 1)) - 1);
  for (int64_t p = top; p > 0; p /= 2) {
    int64_t residue = 0, stride = p;
    for (int64_t q = top;; q /= 2) {
      std::vector<int64_t> positions;
      for (int64_t i = 0; i < n - stride; ++i)
        if ((i & p) == residue) positions.push_back(i);
      TESSERA_RETURN_IF_ERROR(f(stride, positions));
      if (q == p) break;
      stride = q - p;
      residue = p;
    }
  }
  return absl::OkStatus();
}

// Calls f with an array of `width` bytes, a power of two, as the type of an element.
template <int64_t kWidth = 1, class F>
void WithElement(int64_t width, const F& f) {
  if constexpr (kWidth < 16) {
    if (width != kWidth) return WithElement<2 * kWidth>(width, f);
  }
  f(std::array<std::byte, kWidth>());
}

// Rows of elements that are exchanged during sorting. Each row has the elements of every operand,
// and the position where each element stood at first.
class Rows {
 public:
  // The last dim of `xs` holds the rows, of `n` elements each.
  Rows(std::vector<Array> xs, int64_t n) : xs_(std::move(xs)), n_(n) {
    original_positions_.resize(xs_[0].num_elements());
    for (size_t i = 0; i < original_positions_.size(); ++i)
      original_positions_[i] = static_cast<int64_t>(i);
  }
  const std::vector<Array>& xs() const { return xs_; }

  // Returns the pairs of elements at `positions` and `stride` positions after them, in every row,
  // as a comparator takes them: for every operand first the elements of the pairs that stood later
  // before sorting, then those that stood earlier.
  std::vector<Array> Pairs(int64_t stride, const std::vector<int64_t>& positions) const {
    std::vector<Array> sides;
    const auto pairs = static_cast<int64_t>(positions.size()) * num_rows();
    for (const Array& x : xs_)
      for (const bool later : {true, false}) {
        Array& side = sides.emplace_back(x.dtype(), Dims{pairs});
        WithElement(ByteWidth(x.dtype()), [&](auto element) {
          using T = decltype(element);
          const auto* from = reinterpret_cast<const T*>(x.data());
          auto* to = reinterpret_cast<T*>(side.MutableData());
          ForEach(stride, positions, [&](int64_t a, int64_t b) {
            *to++ = from[(original_positions_[a] > original_positions_[b]) == later ? a : b];
          });
        });
      }
    return sides;
  }
  // Puts each pair in order. The element that stood later before sorting goes first if `is_less`
  // holds for the pair. Otherwise the other element goes first.
  void OrderPairs(int64_t stride, const std::vector<int64_t>& positions, const bool* is_less) {
    for (Array& x : xs_)
      WithElement(ByteWidth(x.dtype()), [&](auto element) {
        auto* const data = reinterpret_cast<decltype(element)*>(x.MutableData());
        const bool* less = is_less;
        ForEach(stride, positions, [&](int64_t a, int64_t b) {
          if (*less++ == (original_positions_[b] > original_positions_[a]))
            std::swap(data[a], data[b]);
        });
      });
    ForEach(stride, positions, [&](int64_t a, int64_t b) {
      if (*is_less++ == (original_positions_[b] > original_positions_[a]))
        std::swap(original_positions_[a], original_positions_[b]);
    });
  }

 private:
  int64_t num_rows() const { return static_cast<int64_t>(original_positions_.size()) / n_; }
  template <class F>
  void ForEach(int64_t stride, const std::vector<int64_t>& positions, const F& f) const {
    for (int64_t row = 0; row < num_rows(); ++row)
      for (const int64_t i : positions) f(row * n_ + i, row * n_ + i + stride);
  }

  std::vector<Array> xs_;
  int64_t n_;
  std::vector<int64_t> original_positions_;  // the position where each element stood at first
};

// Sorts with a network, which makes the same comparisons whatever their answers are. So all pairs
// of a stage are compared at once, and a comparator that contradicts itself ends with some
// permutation. In a pair, the element that stood first before sorting stays first unless the other
// one is less: elements that are equal stay in their order.
Arrays EvalSortBy(const EvalContext& c, absl::Span<const Array> in) {
  if (in[0].num_elements() == 0) return std::vector<Array>(in.begin(), in.end());
  const int dim = SortedDim(c.attrs);
  const int64_t n = in[0].shape()[dim];
  DimList last = DimsExcept(in[0].rank(), {dim});
  last.push_back(dim);
  std::vector<Array> out;
  for (const Array& x : in) out.push_back(Permuted(x, last));
  Rows rows(std::move(out), n);
  TupleEvaluator evaluator(c);
  TESSERA_RETURN_IF_ERROR(
      ForEachStage(n, [&](int64_t stride, const std::vector<int64_t>& positions) -> absl::Status {
        TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> got,
                                 evaluator.Run(rows.Pairs(stride, positions)));
        rows.OrderPairs(stride, positions, reinterpret_cast<const bool*>(got[0].data()));
        return absl::OkStatus();
      }));
  out.clear();
  for (const Array& x : rows.xs()) out.push_back(Permuted(x, InversePermutation(last)));
  return out;
}

constexpr AttrSpec kSortByAttrs[] = {{"dimension", AttrKind::kInt}, {"is_stable", AttrKind::kBool}};

}  // namespace

constexpr OpDef kSortBy = Sorting({.name = "sort_by",
                                   .lax_name = "sort",
                                   .regions = kOneComputation,
                                   .attrs = kSortByAttrs,
                                   .lowering = Lowering::kHost,
                                   .infer = InferSortBy,
                                   .cost = SortByCost,
                                   .eval = EvalSortBy});

}  // namespace tessera::ir::ops

// ---- The function of ops.h. ---------------------------------------------------------------------
namespace tessera::ir {

std::vector<Value> SortBy(std::vector<Value> xs, FunctionRef comparator, int dimension,
                          bool is_stable) {
  if (xs.empty()) Throw(ErrorKind::kTypeError, "sort: takes at least one operand, got nothing");
  Builder& b = xs[0].builder();
  xs = MatchVarying(std::move(xs));
  Attrs attrs = {{"dimension", int64_t{dimension}}, {"is_stable", is_stable}};
  const std::optional<ops::KeyOrder> order = ops::OrderOf(*comparator);
  if (!order) return b.Emit(ops::kSortBy, xs, std::move(attrs), {std::move(comparator)});
  // Refuse what the op sort_by refuses, with its errors, although the op sort is emitted.
  ThrowIfError(InferTypes(ops::kSortBy, b.scope(), TypesOf(xs), attrs, {&comparator, 1}).status());
  std::vector<int> positions = order->keys;  // the index in `xs` of each operand of the sort
  for (int i = 0; i < static_cast<int>(xs.size()); ++i)
    if (std::find(positions.begin(), positions.end(), i) == positions.end()) positions.push_back(i);
  // Reversing before and after a stable ascending sort keeps equal elements in their order.
  const auto reversed = [&](Value x) { return order->descending ? Reverse(x, {dimension}) : x; };
  std::vector<Value> in;
  for (const int i : positions) in.push_back(reversed(xs[i]));
  const std::vector<Value> out =
      Sort(std::move(in), dimension, is_stable, static_cast<int>(order->keys.size()));
  for (size_t k = 0; k < positions.size(); ++k) xs[positions[k]] = reversed(out[k]);
  return xs;
}

}  // namespace tessera::ir
