// Helpers for the ops over named axes (collectives and casts): which axes an op names, and checks
// that these axes exist. Internal to ir/. Stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/rules/family.h"

namespace tessera::ir::ops {

// The only attribute of these ops: the names of their axes.
inline constexpr AttrSpec kAxesAttrs[] = {{"axes", AttrKind::kStrings}};
inline const AxisList& AxesOf(const Attrs& attrs) { return attrs.Strings("axes"); }

// MeshAxesAmong returns the given axes that belong to the mesh. Types say only of these axes
// whether a value varies along them. MappedAxesAmong returns the other axes, which are mapped axes
// of vmaps.
AxisList MeshAxesAmong(const Scope& scope, AxisList axes);
AxisList MappedAxesAmong(const Scope& scope, AxisList axes);
inline AxisList MeshAxesOf(const InferContext& c) {
  return MeshAxesAmong(c.scope, AxesOf(c.attrs));
}

// Checks that each axis is a Manual axis of the mesh or a mapped axis of a vmap, and that no axis
// is named twice. Returns NAME_ERROR or VALUE_ERROR otherwise.
absl::Status CheckAxesAreBound(std::string_view op, const Scope& scope, const AxisList& axes);
// Checks the axes of the op with CheckAxesAreBound, and checks that the op names at least one axis.
absl::Status CheckAxes(const InferContext& c);

bool ContainsAll(const AxisSet& set, const AxisList& axes);
bool Disjoint(const AxisSet& set, const AxisList& axes);
// Returns the error text for an op `op` whose operand, of type `t`, is not in one state (varying,
// invarying, unreduced or reduced) along all of `axes`.
std::string MixedStatesMessage(std::string_view op, const Type& t, const AxisList& axes);

// The batching rule of an op that treats all dims alike: emits the op on the batched operand, whose
// batch dim is just one more dim.
Batched BatchSameOp(const RuleContext& c, absl::Span<const int> dims, int64_t size);

}  // namespace tessera::ir::ops
