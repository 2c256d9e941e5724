// What the op files of data movement share.
//
// Pure functions; any thread may call them.
#pragma once
#include <string_view>
#include <utility>

#include "ir/ops/dims.h"

namespace tessera::ir::ops {

// Fills in what movement ops share: linear in every operand, states of operand 0.
consteval OpDef Movement(OpDef d) {
  d.family = Family::kDataMovement;
  d.lowering = Lowering::kIndexMap;
  if (d.sharding.kind == Rule<TypeFn>::kUnset) d.sharding = Derived{};
  if (d.varying.kind == Rule<TypeFn>::kUnset) d.varying = StatesOfFirst;
  if (d.jvp.kind == Rule<JvpFn>::kUnset) d.jvp = Derived{};
  if (d.partition.kind == Rule<PartitionFn>::kUnset) d.partition = Derived{};
  d.cost = Derived{};
  return Checked(d);
}

// `type` with another shape: dtype and weak flag of a moved operand.
Type Moved(const Type& x, Dims shape);
// Attribute `what` has an entry per dim of operand 0, of `rank`.
absl::Status CheckLength(const InferContext& c, std::string_view what, size_t length, int rank);
// A box of `shape` in the result's corner that takes the flat elements of `source` in order.
IndexPiece WholeFrom(int source, const Dims& shape);

// A signature in which dims for which `same(d)` pass from operand 0 to the result and the others
// must be whole on both sides.
template <class Same>
Signature PassWhere(const InferContext& c, absl::Span<const Type> out, Same same) {
  Signature s;
  TensorFactors from, to;
  auto add = [&](FactorKind kind, int64_t size) {
    s.factors.push_back({kind, size});
    return static_cast<int>(s.factors.size()) - 1;
  };
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const bool pass = same(d);
    from.push_back({add(pass ? FactorKind::kPass : FactorKind::kReplicate, c.in[0].shape[d])});
    to.push_back(pass ? from.back() : FactorList{add(FactorKind::kReplicate, out[0].shape[d])});
  }
  s.operands.push_back(from);
  for (size_t i = 1; i < c.in.size(); ++i) s.operands.emplace_back();
  s.results = {to};
  return s;
}

}  // namespace tessera::ir::ops
