#include "worker/program/access.h"

#include <cstdlib>
#include <utility>

namespace tessera::worker::program {
namespace {

// A term of an access: i * stride, for a dim of the box or a shift.
struct Term {
  int64_t count = 1;  // i is in [0, count)
  int64_t stride = 0;
  int dim = -1;                 // -1: a shift
  std::vector<int64_t> digits;  // of the stride
  int64_t composed = 0;         // the term's stride in the source
};

// Writes a flat element of a view as its index, one digit per dim of the view that is not of
// size 1.
struct Digits {
  // Per digit: the dim's size, and one step along it in flat elements of the view and of the
  // source.
  std::vector<int64_t> sizes, dense, strides;

  explicit Digits(const View& view) {
    int64_t step = 1;
    for (int d = static_cast<int>(view.shape.size()) - 1; d >= 0; --d) {
      if (view.shape[d] == 1) continue;
      sizes.insert(sizes.begin(), view.shape[d]);
      dense.insert(dense.begin(), step);
      strides.insert(strides.begin(), view.access.strides[d]);
      step *= view.shape[d];
    }
  }
  size_t size() const { return sizes.size(); }
  std::vector<int64_t> Of(int64_t flat) const {
    std::vector<int64_t> digits(size());
    for (size_t k = 0; k < size(); ++k) {
      digits[k] = flat / dense[k];
      flat %= dense[k];
    }
    return digits;
  }
};

// If the terms run past the end of digit k: the split of one that ends there, if there is one.
std::optional<Split> SplitFor(const Digits& digits, const std::vector<Term>& terms, size_t k) {
  for (const Term& t : terms) {
    if (t.dim < 0 || t.digits[k] == 0) continue;
    bool only = true;
    for (size_t other = 0; other < digits.size(); ++other)
      only &= other == k || t.digits[other] == 0;
    const int64_t step = t.digits[k];
    if (!only || digits.sizes[k] % step != 0) continue;
    const int64_t inner = digits.sizes[k] / step;
    if (inner > 1 && inner < t.count && t.count % inner == 0) return Split{t.dim, inner};
  }
  return std::nullopt;
}

}  // namespace

int64_t NumElements(absl::Span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

ir::Dims Joined(std::initializer_list<ir::Dims> lists) {
  ir::Dims all;
  for (const ir::Dims& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Composed Compose(const ir::Dims& box, const ValueAccess& access, const View& view) {
  const Digits digits(view);
  std::vector<Term> terms;
  for (size_t d = 0; d < box.size(); ++d)
    terms.push_back({box[d], access.strides[d], static_cast<int>(d), {}, 0});
  for (const DynamicValueOffset& s : access.shifts)
    terms.push_back({s.max + 1, s.stride, -1, {}, 0});

  // The first element read; from there every term counts upwards.
  int64_t low = access.offset;
  for (Term& t : terms) {
    if (t.count == 1) t.stride = 0;
    if (t.stride < 0) low += t.stride * (t.count - 1);
    t.digits = digits.Of(std::abs(t.stride));
  }
  if (low < 0) return {};
  const std::vector<int64_t> at = digits.Of(low);
  // Strides compose digit by digit if no sum of the terms carries from one digit into the next.
  for (size_t k = digits.size(); k-- > 0;) {
    int64_t top = at[k];
    for (const Term& t : terms) top += t.digits[k] * (t.count - 1);
    if (top >= digits.sizes[k]) return {std::nullopt, SplitFor(digits, terms, k)};
  }
  if (digits.size() == 0 && low != 0) return {};

  ValueAccess result;
  result.offset = view.access.offset;
  for (size_t k = 0; k < digits.size(); ++k) result.offset += at[k] * digits.strides[k];
  for (Term& t : terms) {
    for (size_t k = 0; k < digits.size(); ++k) t.composed += t.digits[k] * digits.strides[k];
    if (t.stride < 0) {
      result.offset += t.composed * (t.count - 1);
      t.composed = -t.composed;
    }
  }
  for (size_t d = 0; d < box.size(); ++d) result.strides.push_back(terms[d].composed);
  result.shifts = view.access.shifts;
  for (size_t s = 0; s < access.shifts.size(); ++s)
    if (terms[box.size() + s].composed != 0)
      result.shifts.push_back(
          {access.shifts[s].value, access.shifts[s].max, terms[box.size() + s].composed});
  return {std::move(result), std::nullopt};
}

void Apply(const Split& split, ir::Dims* box) {
  (*box)[split.dim] /= split.inner;
  box->insert(box->begin() + split.dim + 1, split.inner);
}

void Apply(const Split& split, ValueAccess* access) {
  const int64_t stride = access->strides[split.dim];
  access->strides[split.dim] = stride * split.inner;
  access->strides.insert(access->strides.begin() + split.dim + 1, stride);
}

ValueAccess Dense(const ir::Dims& box, int num_dims) {
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
  const ValueAccess dense = Dense(box, num_dims);
  for (size_t d = 0; d < box.size(); ++d)
    if (box[d] != 1 && access.strides[d] != dense.strides[d]) return false;
  return true;
}

}  // namespace tessera::worker::program
