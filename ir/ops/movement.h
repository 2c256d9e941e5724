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

// The same where dims are cut in blocks: blocks(d) of equal size on both sides, of which each of
// the result comes from that of operand 0; 0 where both need replication.
template <class Blocks>
Signature PassThroughInBlocks(const InferContext& c, absl::Span<const Type> out, Blocks blocks) {
  Signature s;
  const auto whole = [&](int64_t n) { return s.Add(FactorKind::kReplicated, n); };
  TensorFactors from, to;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const int64_t n = blocks(d);
    if (n == 0) {
      from.push_back({whole(c.in[0].shape[d])});
      to.push_back({whole(out[0].shape[d])});
      continue;
    }
    const int factor = s.Add(FactorKind::kPassThrough, n);
    const auto of = [&](int64_t size) {
      return size == n ? FactorList{factor} : FactorList{factor, whole(size / n)};
    };
    from.push_back(of(c.in[0].shape[d]));
    to.push_back(of(out[0].shape[d]));
  }
  s.operands.push_back(from);
  for (size_t i = 1; i < c.in.size(); ++i) s.operands.emplace_back();
  s.results = {to};
  return s;
}

}  // namespace tessera::ir::ops
