// Affine accesses to values, and their composition, which says how a consumer reads through ops
// that only move data.
//
// An access names an element of a value by its number in row-major order, so that a reshape of the
// value changes no access. A box is an iteration space, given by its sizes: all indices (i_0, i_1,
// ...) with 0 <= i_d < box[d]. The functions are pure and thread-safe.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ir/type.h"

namespace tessera::worker::program {

// The largest number of shifts of an access. An access needs a limit because Compose adds the
// shifts of the view to the shifts of the access.
inline constexpr size_t kShiftsMax = 32;

// An offset that is known only at run time: stride * clamp(n, 0, max). The number n is read from
// memory: it is element `offset` + sum(strides[d] * i_d) of `value`.
struct DynamicValueOffset {
  int value = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  ir::Dims strides = {};  // if empty, all are 0, so that n is the same for the whole box
  bool operator==(const DynamicValueOffset&) const = default;
};

// Maps an index of a box to a flat element: offset + sum(strides[d] * i_d) + the shifts.
struct ValueAccess {
  int64_t offset = 0;
  ir::Dims strides;
  std::vector<DynamicValueOffset> shifts;
  bool operator==(const ValueAccess&) const = default;
};

// Returns whether the access has a shift whose number n depends on the index in the box.
bool IsGather(const ValueAccess& access);

// Describes a value by the elements of another value, its source: the element at each index of
// `shape` (row-major) is the source's element at `access`.
struct View {
  ir::Dims shape;
  ValueAccess access;
};

// The replacement of one dim of a box by two, of sizes (size / inner, inner).
struct Split {
  int dim = 0;
  int64_t inner = 0;
};

// The result of Compose. `access` reads the source directly. If that is possible only after a dim
// of the box is split, `split` is set instead. If neither is set, the access and the view do not
// compose.
struct ComposeResult {
  std::optional<ValueAccess> access;
  std::optional<Split> split;
};
// Composes `access`, by which a reader reads a value over `box`, with `view`, which describes this
// value by its source.
ComposeResult Compose(const ir::Dims& box, const ValueAccess& access, const View& view);

// Replace dim split.dim of a box by two dims, and its stride in an access by two strides.
void Apply(const Split& split, ir::Dims* box);
void Apply(const Split& split, ValueAccess* access);

// Returns the access that is dense in row-major order over the first `num_dims` dims of `box`,
// begins at element 0, and has stride 0 over the other dims.
ValueAccess DenseAccess(const ir::Dims& box, int num_dims);
bool IsDense(const ir::Dims& box, int num_dims, const ValueAccess& access);

int64_t NumElements(absl::Span<const int64_t> dims);
template <class T>
std::vector<T> Joined(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace tessera::worker::program
