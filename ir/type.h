// The type of an array value: dtype, shape, a flag for weak types, and what is known of the value
// along each axis of the mesh. For an Explicit axis that is the dim that the axis shards; for a
// Manual axis it is how the value varies along the axis.
//
// The full printed form is `f32[8@data,512]{V:model}`: dim 0, of size 8, is sharded over the axis
// data, and the value varies along the axis model. A weak type is printed as `f32[]~`. The letters
// are the states of JAX's ManualAxisType: V is varying, U unreduced and R reduced; along an axis
// that is not listed the value is invarying. A value is unreduced along an axis if it is a pending
// sum: its shards along the axis are summands that have not been added up yet. It is reduced along
// an axis if its shards are equal and its cotangent is unreduced along the axis. A value can be
// unreduced or reduced along Explicit axes, too.
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
  bool weak = false;  // made from a C++ literal: takes the dtype of the other operand
  DimAxes sharding;   // empty if no dim is sharded, otherwise one entry per dim
  // The axes along which the value has each of these states. The three sets are called the manual
  // axes type.
  AxisSet varying, unreduced, reduced;

  bool operator==(const Type&) const = default;
  int rank() const { return static_cast<int>(shape.size()); }
  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * ByteWidth(dtype); }
  bool is_sharded() const { return !sharding.empty(); }
  const AxisList& axes_of(int dim) const;  // the axes that shard `dim`, possibly none
  void set_axes_of(int dim, AxisList axes);
  // Returns the union of varying, unreduced and reduced.
  AxisSet NonInvaryingAxes() const;
  std::string ToString() const;
};

// Returns a type of this dtype and shape that is neither weak nor sharded nor varying.
Type MakeType(DType dtype, Dims shape);
// Drops a sharding whose entries are all empty. Every Type in a program is normalised.
void Normalize(Type* type);
// Returns whether shape and dtype are equal. Ignores the weak flag, the sharding and the manual
// axes type.
bool SameShapeAndDType(const Type& a, const Type& b);
// Returns whether the types are equal except for `weak`.
bool EqualButWeak(const Type& a, const Type& b);
// Checks that `type` is well formed in `mesh`: dims are not negative, and all named axes exist. The
// axes in the sharding are Explicit and divide their dims. The axes of the three sets are Manual;
// unreduced and reduced ones may be Explicit too. No axis is used twice.
absl::Status CheckType(const Type& type, const Mesh& mesh);
// Returns the type's Explicit axes, and its unreduced and reduced axes, as a spec.
PartitionSpec SpecOf(const Type& type);
// Returns the type of the cotangents of values of `type`: unreduced and reduced axes are swapped.
// Integer dtypes have no cotangents (see IsInexact).
Type CotangentType(const Type& type);
// Parses the form that ToString prints.
absl::StatusOr<Type> ParseType(std::string_view text);

std::string TypesToString(absl::Span<const Type> types);  // f32[8], s32[]
std::string DimsToString(const Dims& dims);               // 8,512
std::string AxesToString(const AxisSet& axes);            // {x,y}

}  // namespace tessera::ir
