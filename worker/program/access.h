// Affine accesses to values, and their composition: how a consumer reads through ops that only move
// data.
//
// Accesses count flat elements of dense row-major values, so that a reshape changes nothing. A box
// is an iteration space: all indices below its sizes, dim by dim. Pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ir/type.h"

namespace tessera::worker::program {

// The bound of the shifts of an access, which views of views add up.
inline constexpr size_t kShiftsMax = 32;

// An offset known only at run time: stride * clamp(n, 0, max), where n is the element
// offset + sum(strides[d] * i_d) of `value`, in memory.
struct DynamicValueOffset {
  int value = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  ir::Dims strides = {};  // none: all are 0, so that n is the same for the whole box
  bool operator==(const DynamicValueOffset&) const = default;
};

// Maps an index of a box to a flat element: offset + sum(strides[d] * i_d) + the shifts.
struct ValueAccess {
  int64_t offset = 0;
  ir::Dims strides;
  std::vector<DynamicValueOffset> shifts;
  bool operator==(const ValueAccess&) const = default;
};

// Whether the access has shifts that differ within a box.
bool IsGather(const ValueAccess& access);

// A value whose flat elements, counted over `shape` in row-major order, are the elements of another
// value at `access`.
struct View {
  ir::Dims shape;
  ValueAccess access;
};

// Replaces a dim of a box by two, (size / inner, inner).
struct Split {
  int dim = 0;
  int64_t inner = 0;
};

// Given an `access` over `box` to a value that is a `view` of a source, finds an access that reads
// the source directly. If there is one only after a dim of the box is split, returns that `split`;
// if neither is set, the two do not compose.
struct Composed {
  std::optional<ValueAccess> access;
  std::optional<Split> split;
};
Composed Compose(const ir::Dims& box, const ValueAccess& access, const View& view);

void Apply(const Split& split, ir::Dims* box);
void Apply(const Split& split, ValueAccess* access);

// The access that is dense row-major over the first `num_dims` dims of `box`, from element 0, and
// has stride 0 over the others.
ValueAccess Dense(const ir::Dims& box, int num_dims);
bool IsDense(const ir::Dims& box, int num_dims, const ValueAccess& access);

int64_t NumElements(absl::Span<const int64_t> dims);
template <class T>
std::vector<T> Joined(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace tessera::worker::program
