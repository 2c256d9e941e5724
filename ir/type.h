// The one type of an array value: dtype, shape, weak flag, and per mesh axis either the dim it
// shards (Explicit axes) or how the value varies across it (Manual axes).
//
// Printed in full: `f32[8@data,512]{V:model}`, a weak type as `f32[]~`.  The manual axes type
// (reference: JAX's ManualAxisType): absent = invarying, V varying, U unreduced, R reduced. A value
// is unreduced along an axis if its shards there are terms of it, which nobody has added up yet,
// and reduced if they are equal and its cotangent is to be unreduced. Both may be so of Explicit
// axes.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/dtype.h"
#include "ir/mesh.h"

namespace tessera::ir {

using Dims = std::vector<int64_t>;
using AxisSet = std::set<std::string, std::less<>>;

struct Type {
  DType dtype = DType::kF32;
  Dims shape;
  bool weak = false;  // from a C++ literal: gives way to the other operand's dtype
  DimAxes sharding;   // empty when no dim is sharded, else one entry per dim
  AxisSet varying, unreduced, reduced;

  bool operator==(const Type&) const = default;
  int rank() const { return static_cast<int>(shape.size()); }
  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * ByteWidth(dtype); }
  bool is_sharded() const { return !sharding.empty(); }
  const AxisList& axes_of(int dim) const;  // the axes that shard `dim`, possibly none
  void set_axes_of(int dim, AxisList axes);
  // The union of varying, unreduced and reduced.
  AxisSet NonInvaryingAxes() const;
  std::string ToString() const;
};

// A type of this dtype and shape that is neither weak nor sharded nor varying.
Type MakeType(DType dtype, Dims shape);
// Drops an all-empty sharding.  Every Type in a program is normalised.
void Normalize(Type* type);
// Whether shape and dtype are equal; ignores the weak flag, sharding and manual axes type.
bool SameShapeAndDType(const Type& a, const Type& b);
// Whether the types are equal but for `weak`.
bool EqualButWeak(const Type& a, const Type& b);
// `type` is well formed in `mesh`: non-negative dims, named axes exist, Explicit axes shard and are
// used once and divide their dim; the axes of the three sets are Manual, unreduced and reduced ones
// Explicit too, and none is used twice.
absl::Status CheckType(const Type& type, const Mesh& mesh);
// The spec written on the type's Explicit axes, and its unreduced and reduced axes.
PartitionSpec SpecOf(const Type& type);
// The type of a cotangent: integer dtypes have none (see IsInexact); U and R swap.
Type CotangentType(const Type& type);
// Parses what ToString prints.
absl::StatusOr<Type> ParseType(std::string_view text);

std::string TypesToString(absl::Span<const Type> types);  // f32[8], s32[]
std::string DimsToString(const Dims& dims);               // 8,512
std::string AxesToString(const AxisSet& axes);            // {x,y}

}  // namespace tessera::ir
