// Affine accesses to values, and their composition: how a consumer reads through ops that only move
// data.
//
// Accesses count flat elements of dense row-major values, so that a reshape changes nothing. Pure
// functions; any thread may call them.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ir/type.h"

namespace tessera::worker::program {

// stride * clamp(first element of `value`, 0, max).
struct DynamicValueOffset {
  int value = 0;
  int64_t max = 0;
  int64_t stride = 0;
  bool operator==(const DynamicValueOffset&) const = default;
};

// The flat element that belongs to an index of a box: offset + sum(strides[d] * i_d) + the shifts.
struct ValueAccess {
  int64_t offset = 0;
  ir::Dims strides;
  std::vector<DynamicValueOffset> shifts;
  bool operator==(const ValueAccess&) const = default;
};

// A value whose flat elements, counted over `shape` in row-major order, are the elements of another
// value at `access`.
struct View {
  ir::Dims shape;
  ValueAccess access;
};

// A dim of the box that has to become two, (size / inner, inner), for an access to compose.
struct Split {
  int dim = 0;
  int64_t inner = 0;
};

// `access` over `box` reads a value that is `view` of a source. The result's `access`, if set,
// reads the source directly. Otherwise `split`, if set, says which split of the box to make before
// trying again; if neither is set, the two do not compose.
struct Composed {
  std::optional<ValueAccess> access;
  std::optional<Split> split;
};
Composed Compose(const ir::Dims& box, const ValueAccess& access, const View& view);

// `box` and the access with dim split.dim as two.
void Apply(const Split& split, ir::Dims* box);
void Apply(const Split& split, ValueAccess* access);

// Dense row-major over the first `num_dims` of the box, from element 0; 0 over the others.
bool IsDense(const ir::Dims& box, int num_dims, const ValueAccess& access);
// The access that is dense over the first `num_dims` dims of `box` and 0 over the others.
ValueAccess Dense(const ir::Dims& box, int num_dims);

int64_t NumElements(absl::Span<const int64_t> dims);

}  // namespace tessera::worker::program
