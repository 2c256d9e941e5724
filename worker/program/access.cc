// Composes affine accesses with views. Fusion (fuse.cc, group.cc) uses it to let a kernel read
// through transposes, slices, broadcasts and the like, so that moving data costs no copy. The
// number of an element of a view is written in mixed radix, with one digit for each dim of the
// view. If adding up the parts of an access never carries from one digit into the next, each digit
// moves by the view's own stride along its dim.
#include "worker/program/access.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "worker/codegen/kernel.h"

namespace tessera::worker::program {
namespace {

// A term of an access: i * stride, where i is the index in a dim of the box or the number of a
// shift.
struct Term {
  int64_t count = 1;  // i is in [0, count)
  int64_t stride = 0;
  int dim = -1;                 // the dim of the box, or -1 for a shift
  std::vector<int64_t> digits;  // digits of the stride
};

// The digits of a flat element of a view in mixed radix: one digit for each dim of the view whose
// size is not 1.
struct MixedRadix {
  // For each digit: its dim, its size, and the number of flat elements that one step along it
  // passes.
  std::vector<int> dims;
  std::vector<int64_t> sizes, dense_strides;

  explicit MixedRadix(const ir::Dims& shape) {
    int64_t step = 1;
    for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
      if (shape[d] == 1) continue;
      dims.insert(dims.begin(), d);
      sizes.insert(sizes.begin(), shape[d]);
      dense_strides.insert(dense_strides.begin(), step);
      step *= shape[d];
    }
  }
  size_t size() const { return sizes.size(); }
  std::vector<int64_t> Of(int64_t flat) const {
    std::vector<int64_t> digits(size());
    for (size_t k = 0; k < size(); ++k) {
      digits[k] = flat / dense_strides[k];
      flat %= dense_strides[k];
    }
    return digits;
  }
};

// Call if the terms run past the end of digit k. Returns the split of a box dim after which a term
// ends exactly at the end of the digit, or nullopt if there is no such split.
std::optional<Split> SplitFor(const MixedRadix& digits, const std::vector<Term>& terms, size_t k) {
  for (const Term& t : terms) {
    if (t.dim < 0 || t.digits[k] == 0) continue;
    bool has_other_digits = false;
    for (size_t other = 0; other < digits.size(); ++other)
      has_other_digits |= other != k && t.digits[other] != 0;
    const int64_t step = t.digits[k];
    if (has_other_digits || digits.sizes[k] % step != 0) continue;
    const int64_t inner = digits.sizes[k] / step;
    if (inner > 1 && inner < t.count && t.count % inner == 0) return Split{t.dim, inner};
  }
  return std::nullopt;
}

// An affine function of the terms' counters: an offset, and a stride for each term. ComposeAffine
// makes it from offset + sum(strides[d] * i_d) over the dims of the view. The terms count from the
// index `at` of the view.
struct Affine {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};
Affine ComposeAffine(const MixedRadix& digits, const std::vector<int64_t>& at,
                     const std::vector<Term>& terms, int64_t offset, const ir::Dims& strides) {
  Affine result{offset, {}};
  const auto along = [&](const std::vector<int64_t>& index) {
    int64_t sum = 0;
    for (size_t k = 0; k < digits.size(); ++k) sum += index[k] * strides[digits.dims[k]];
    return sum;
  };
  result.offset += along(at);
  for (const Term& t : terms) {
    const int64_t step = along(t.digits);
    if (t.stride < 0) result.offset += step * (t.count - 1);
    result.strides.push_back(t.stride < 0 ? -step : step);
  }
  return result;
}

}  // namespace

bool IsGather(const ValueAccess& access) {
  return std::any_of(access.shifts.begin(), access.shifts.end(),
                     [](const DynamicValueOffset& s) { return !s.strides.empty(); });
}

int64_t NumElements(absl::Span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Finds the access to the source, term by term. A term is a dim of the box or a shift; a shift is
// treated as a dim that runs to its maximum, because its value is known only at run time. Terms
// with negative strides are turned around first, so that all terms count upwards from the lowest
// element. If a digit would overflow, the split of a dim may help, and the caller decides whether
// to make it.
ComposeResult Compose(const ir::Dims& box, const ValueAccess& access, const View& view) {
  const MixedRadix digits(view.shape);
  std::vector<Term> terms;
  for (size_t d = 0; d < box.size(); ++d)
    terms.push_back({box[d], access.strides[d], static_cast<int>(d), {}});
  for (const DynamicValueOffset& s : access.shifts) terms.push_back({s.max + 1, s.stride, -1, {}});

  // The first element that is read. All terms count upwards from it.
  int64_t low = access.offset;
  for (Term& t : terms) {
    if (t.count == 1) t.stride = 0;
    if (t.stride < 0) low += t.stride * (t.count - 1);
    t.digits = digits.Of(std::abs(t.stride));
  }
  if (low < 0) return {};
  const std::vector<int64_t> at = digits.Of(low);
  // Strides compose digit by digit, if no sum of the terms carries from one digit into the next.
  for (size_t k = digits.size(); k-- > 0;) {
    int64_t top = at[k];
    for (const Term& t : terms) top += t.digits[k] * (t.count - 1);
    if (top >= digits.sizes[k]) return {std::nullopt, SplitFor(digits, terms, k)};
  }
  if (digits.size() == 0 && low != 0) return {};

  const auto rank = static_cast<std::ptrdiff_t>(box.size());
  const Affine composed = ComposeAffine(digits, at, terms, view.access.offset, view.access.strides);
  ValueAccess result{composed.offset,
                     {composed.strides.begin(), composed.strides.begin() + rank},
                     view.access.shifts};
  // The element from which a shift of the view reads its number moves with the access. It may not
  // depend on a shift of the access.
  for (DynamicValueOffset& s : result.shifts) {
    if (s.strides.empty()) continue;
    const Affine reads = ComposeAffine(digits, at, terms, s.offset, s.strides);
    if (std::any_of(reads.strides.begin() + rank, reads.strides.end(),
                    [](int64_t stride) { return stride != 0; }))
      return {};
    s.offset = reads.offset;
    s.strides.assign(reads.strides.begin(), reads.strides.begin() + rank);
  }
  for (size_t s = 0; s < access.shifts.size(); ++s) {
    if (composed.strides[box.size() + s] == 0) continue;
    result.shifts.push_back(access.shifts[s]);
    result.shifts.back().stride = composed.strides[box.size() + s];
  }
  if (!access.shifts.empty() && result.shifts.size() > kShiftsMax) return {};
  return {std::move(result), std::nullopt};
}

void Apply(const Split& split, ir::Dims* box) {
  (*box)[split.dim] /= split.inner;
  box->insert(box->begin() + split.dim + 1, split.inner);
}

void Apply(const Split& split, ValueAccess* access) {
  codegen::ForEachStrides(*access, [&](ir::Dims& strides) {
    const int64_t stride = strides[split.dim];
    strides[split.dim] = stride * split.inner;
    strides.insert(strides.begin() + split.dim + 1, stride);
  });
}

ValueAccess DenseAccess(const ir::Dims& box, int num_dims) {
  ValueAccess access;
  access.strides.assign(box.size(), 0);
  int64_t step = 1;
  for (int d = num_dims - 1; d >= 0; --d) {
    access.strides[d] = step;
    step *= box[d];
  }
  return access;
}

bool IsDense(const ir::Dims& box, int num_dims, const ValueAccess& access) {
  if (access.offset != 0 || !access.shifts.empty()) return false;
  const ValueAccess dense = DenseAccess(box, num_dims);
  for (size_t d = 0; d < box.size(); ++d)
    if (box[d] != 1 && access.strides[d] != dense.strides[d]) return false;
  return true;
}

}  // namespace tessera::worker::program
