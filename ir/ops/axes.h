// Shared by the ops over named axes: which axes an op names, and whether they are there. Internal
// to ir/; stateless; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/ops/family.h"

namespace tessera::ir::ops {

// The attribute of these ops.
inline constexpr AttrSpec kAxesAttrs[] = {{"axes", AttrKind::kStrings}};
inline const AxisList& AxesOf(const Attrs& attrs) { return attrs.Strings("axes"); }

// Those of the axes along which manual axes types are tracked: the mesh's; and the others, of
// vmaps.
AxisList OfMesh(const Scope& scope, AxisList axes);
AxisList OfVmaps(const Scope& scope, AxisList axes);
inline AxisList MeshAxesOf(const InferContext& c) { return OfMesh(c.scope, AxesOf(c.attrs)); }

// Each is a Manual axis or one of a vmap, and is named once. NAME_ERROR, VALUE_ERROR.
absl::Status CheckBound(std::string_view op, const Scope& scope, const AxisList& axes);
// The op names at least one such axis.
absl::Status CheckAxes(const InferContext& c);

bool ContainsAll(const AxisSet& set, const AxisList& axes);
bool Disjoint(const AxisSet& set, const AxisList& axes);
// The error of an op whose operand is in several states over its axes.
std::string MixedStates(std::string_view op, const Type& t, const AxisList& axes);

// Of an op that treats all dims alike: the batch dim is one more dim of the operand.
Batched BatchElementwise(const RuleContext& c, absl::Span<const int> dims, int64_t size);

}  // namespace tessera::ir::ops
