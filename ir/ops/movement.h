// Shared by the op files of data movement. Stateless; thread-safe.
#pragma once
#include <string_view>
#include <utility>

#include "ir/ops/dims.h"

namespace tessera::ir::ops {

// Fills in the rules that these ops share: linear in every operand, the manual axes type of operand
// 0.
consteval OpDef Movement(OpDef d) {
  d.family = Family::kDataMovement;
  d.lowering = Lowering::kIndexMap;
  if (d.sharding.kind == Rule<TypeFn>::kUnset) d.sharding = Derived{};
  if (d.varying.kind == Rule<TypeFn>::kUnset) d.varying = SameVmaAsFirst;
  if (d.jvp.kind == Rule<JvpFn>::kUnset) d.jvp = Derived{};
  if (d.partition.kind == Rule<PartitionFn>::kUnset) d.partition = Derived{};
  d.cost = Derived{};
  return Checked(d);
}

// `x` with another shape: keeps dtype and weak flag.
Type WithShape(const Type& x, Dims shape);
// Checks that attribute `what` has one entry per dim of operand 0, of `rank`.
absl::Status CheckLength(const InferContext& c, std::string_view what, size_t length, int rank);
// A copy of the flat elements of `source`, in order, to `shape` at the result's origin.
IndexPiece ContiguousPiece(int source, const Dims& shape);

// A signature in which dims with `same(d)` pass through from operand 0 to the result and the others
// need replication on both sides.
template <class Same>
Signature PassThroughWhere(const InferContext& c, absl::Span<const Type> out, Same same) {
  Signature s;
  TensorFactors from, to;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool pass = same(d);
    from.push_back(
        {s.Add(pass ? FactorKind::kPassThrough : FactorKind::kReplicated, c.in[0].shape[d])});
    to.push_back(pass ? from.back() : FactorList{s.Add(FactorKind::kReplicated, out[0].shape[d])});
  }
  s.operands.push_back(from);
  for (size_t i = 1; i < c.in.size(); ++i) s.operands.emplace_back();
  s.results = {to};
  return s;
}

}  // namespace tessera::ir::ops
