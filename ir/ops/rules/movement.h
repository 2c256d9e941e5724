// Helpers of the data movement ops, such as slice and pad: their common rules and factor signature.
// Stateless; thread-safe.
#pragma once
#include <string_view>
#include <utility>

#include "ir/ops/rules/dims.h"

namespace tessera::ir::ops {

// Fills in the rules that the data movement ops share. Unless `d` has other rules, the op is linear
// in all operands at once, and its results have the manual axes type (the varying, unreduced and
// reduced axes) of operand 0.
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

// Returns an unsharded type of shape `shape` with the dtype and the weak flag of `x`.
Type WithShape(const Type& x, Dims shape);
// Checks that `length` equals `rank`. `length` is the number of entries of the attribute `what`,
// which must have one entry for each of `rank` dims of operand 0.
absl::Status CheckLength(const InferContext& c, std::string_view what, size_t length, int rank);
// Returns the piece that copies elements of `source` (an operand number or an IndexPiece constant)
// to the result. It fills the box of shape `shape` at index 0 of every dim, row-major, from the
// first flat element of the source on.
IndexPiece ContiguousPiece(int source, const Dims& shape);

// Returns the signature of an op that moves elements within blocks of a dim. Dim d of operand 0 and
// of the result is cut into blocks(d) blocks of equal size, and block i of the result consists of
// elements of block i of operand 0. If blocks(d) is 0, the dim needs replication in the operand and
// in the result.
template <class Blocks>
Signature PassThroughInBlocks(const InferContext& c, absl::Span<const Type> out, Blocks blocks) {
  Signature s;
  const auto replicated = [&](int64_t n) { return s.Add(FactorKind::kReplicated, n); };
  TensorFactors from, to;
  for (int d = 0; d < c.in[0].rank(); ++d) {
    const int64_t n = blocks(d);
    if (n == 0) {
      from.push_back({replicated(c.in[0].shape[d])});
      to.push_back({replicated(out[0].shape[d])});
      continue;
    }
    const int factor = s.Add(FactorKind::kPassThrough, n);
    const auto of = [&](int64_t size) {
      return size == n ? FactorList{factor} : FactorList{factor, replicated(size / n)};
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
