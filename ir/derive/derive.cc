// The derived rules: they follow from an op's factor signature or its family. The builder and the
// generic walks call them for every rule that an op's row leaves as Derived{}.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/derive/factors.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/batch_dim.h"

namespace tessera::ir::derive {
namespace {

template <class... Parts>
absl::Status ShardingError(const InferContext& c, const Parts&... parts) {
  return MakeError(ErrorKind::kShardingTypeError, absl::StrCat(ToAbsl(c.def.lax_name), parts...));
}

// Returns the axes that shard each factor of an op in its operands, or an error where two operands
// disagree.
absl::StatusOr<std::vector<AxisList>> UnifyFactors(const InferContext& c, const Signature& s) {
  std::vector<AxisList> axes(s.factors.size());
  for (size_t i = 0; i < c.in.size(); ++i) {
    for (int d = 0; d < c.in[i].rank(); ++d) {
      if (c.in[i].axes_of(d).empty()) continue;
      auto split = SplitAxes(c.in[i].axes_of(d), s.operands[i][d], s, c.scope.mesh);
      if (!split)
        return ShardingError(c, ": operand ", i, " of type ", c.in[i].ToString(),
                             " is sharded on dim ", d,
                             " in a way the op cannot keep; reshard it first");
      for (size_t k = 0; k < split->size(); ++k) {
        AxisList& have = axes[s.operands[i][d][k]];
        const AxisList& want = (*split)[k];
        if (want.empty() || have == want) continue;
        if (!have.empty())
          return ShardingError(c, " got incompatible shardings for broadcasting: ",
                               TypesToString(c.in), "; reshard one operand");
        have = want;
      }
    }
  }
  return axes;
}

}  // namespace

absl::Status ShardingByFactors(const InferContext& c, std::vector<Type>* out) {
  const Signature s = c.def.factors(c, *out);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<AxisList> axes, UnifyFactors(c, s));
  for (size_t f = 0; f < axes.size(); ++f)
    if (s.factors[f].kind == FactorKind::kReplicated && !axes[f].empty())
      return ShardingError(c, ": a dim that must be whole is sharded over {",
                           absl::StrJoin(axes[f], ","), "}: ", TypesToString(c.in),
                           "; reshard the operand to leave it unsharded");
  for (size_t r = 0; r < out->size(); ++r) {
    Type& t = (*out)[r];
    AxisSet seen;
    t.sharding.assign(t.rank(), {});
    for (int d = 0; d < t.rank(); ++d)
      for (int f : s.results[r][d])
        for (const std::string& a : axes[f]) {
          if (!seen.insert(a).second)
            return ShardingError(c, " operation with inputs: ", TypesToString(c.in),
                                 " produces an illegally sharded result: axis '", a,
                                 "' would shard two dims; reshard one operand");
          t.sharding[d].push_back(a);
        }
    Normalize(&t);
  }
  return absl::OkStatus();
}

absl::Status CheckVaryingEqual(const InferContext& c) {
  for (const Type& t : c.in)
    if (t.varying != c.in[0].varying)
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("Primitive ", ToAbsl(c.def.lax_name),
                       " requires varying manual axes to match, but got [", TypesToString(c.in),
                       "]; cast with pcast(x, axes, to='varying')"));
  return absl::OkStatus();
}

// Finds the reduced axes of the operands and checks that every operand can take part: along such an
// axis it is reduced or unreduced itself. The error distinguishes operands that are cut along the
// axis from those that are replicated, because the user resolves the two cases differently. The
// words are JAX's.
absl::StatusOr<AxisSet> ReducedOf(const InferContext& c) {
  AxisSet reduced;
  for (const Type& t : c.in) {
    if (t.reduced.empty() || t.reduced == reduced) continue;
    if (!reduced.empty())
      return ShardingError(c, ": All inputs should be reduced across the same mesh axes, but got ",
                           TypesToString(c.in), "; reshard or pcast one of them");
    reduced = t.reduced;
  }
  for (const Type& t : c.in)
    for (const std::string& axis : reduced) {
      if (t.reduced.contains(axis) || t.unreduced.contains(axis)) continue;
      const bool is_cut = t.varying.contains(axis) ||
                          std::any_of(t.sharding.begin(), t.sharding.end(), [&](const AxisList& d) {
                            return std::find(d.begin(), d.end(), axis) != d.end();
                          });
      return ShardingError(
          c,
          is_cut ? ": Inputs cannot be sharded/varying on the same axes that another input is "
                   "reduced on. Reshard the input which is reduced to be sharded on the mesh "
                   "axes it is reduced on via `reshard(inp, P(...))`. Got input type: "
                 : ": Inputs cannot be replicated on the same axes that another input is "
                   "reduced on; reshard it to reduced={...} as well. Got input type: ",
          t.ToString(), " and reduced spec: ", AxesToString(reduced));
    }
  return reduced;
}

namespace {

// Returns whether the op, applied to the terms of sums, gives the terms of its result. This holds
// if it is linear in all operands at once.
bool TakesTerms(const InferContext& c, const std::vector<Type>& out) {
  const DType dtype = c.in[0].dtype;
  for (const Type& t : c.in)
    if (t.dtype != dtype || t.unreduced != c.in[0].unreduced) return false;
  for (const Type& t : out)
    if (t.dtype != dtype) return false;
  return c.def.lowering == Lowering::kScalar
             ? ir::IsLinear(c.def.scalar.record(c.attrs, dtype, dtype))
             : c.def.jvp.derived();
}

}  // namespace

absl::Status VaryingAllEqual(const InferContext& c, std::vector<Type>* out) {
  if (c.in.empty()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(CheckVaryingEqual(c));
  TESSERA_ASSIGN_OR_RETURN(const AxisSet reduced, ReducedOf(c));
  const bool unreduced =
      std::any_of(c.in.begin(), c.in.end(), [](const Type& t) { return !t.unreduced.empty(); });
  if (unreduced && !TakesTerms(c, *out))
    return MakeError(
        ErrorKind::kNotImplemented,
        absl::StrCat("unreduced rule for ", ToAbsl(c.def.lax_name),
                     " is not implemented: ", TypesToString(c.in),
                     "; add up the operand first, by psum inside shard_map and reshard outside"));
  for (Type& t : *out) {
    t.varying = c.in[0].varying;
    t.reduced = reduced;
    if (unreduced) t.unreduced = c.in[0].unreduced;
  }
  return absl::OkStatus();
}

std::vector<Value> LinearJvp(const RuleContext& c, Values tangents) {
  if (std::none_of(tangents.begin(), tangents.end(), [](const Value& t) { return t.valid(); }))
    return std::vector<Value>(c.out_types.size());
  std::vector<Value> in;
  for (size_t i = 0; i < tangents.size(); ++i)
    in.push_back(tangents[i] ? tangents[i] : Zeros(c.b, c.in[i].type()));
  return c.b.Emit(c.def, in, c.attrs, {c.regions.begin(), c.regions.end()});
}

Value WithBatchDim(const RuleContext& c, Value x, int dim, int64_t size) {
  MappedAxis axis = c.batch;
  axis.size = size;
  return walk::WithBatchDim(axis, x, dim);
}

Batched ElementwiseBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const int rank = c.out_types[0].rank();
  int at = 0;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] >= 0 && c.in_types[i].rank() == rank) {
      at = dims[i];
      break;
    }
  Dims shape = c.out_types[0].shape;
  shape.insert(shape.begin() + at, size);
  std::vector<Value> in;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool whole = c.in_types[i].rank() == rank;
    if (whole && dims[i] >= 0) {
      in.push_back(MoveDim(c.in[i], dims[i], at));
    } else if (whole) {
      in.push_back(WithBatchDim(c, c.in[i], at, size));
      // The remaining case is an operand of rank 0 of an op on arrays.
    } else {
      in.push_back(dims[i] < 0 ? c.in[i] : BroadcastInDim(c.in[i], shape, {at}));
    }
  }
  std::vector<Value> out = c.b.Emit(c.def, MatchVarying(in), c.attrs);
  return {out, std::vector<int>(out.size(), at)};
}

namespace {

// Returns the product of the shards' values. If a dim divides, it is exchanged, so that each shard
// multiplies one block, and the blocks are gathered. Otherwise every shard gathers all values.
Value CombineProducts(Value local, const AxisList& axes) {
  const int64_t n = local.builder().mesh().SizeOf(axes);
  int dim = 0;
  while (dim < local.rank() && (local.dim(dim) == 0 || local.dim(dim) % n != 0)) ++dim;
  if (dim == local.rank()) return ReduceProd(AllGather(local, axes, 0, /*tiled=*/false), {0});
  const Value blocks = AllToAll(local, axes, dim, dim, /*tiled=*/true);
  Dims cut = local.shape();
  cut[dim] /= n;
  cut.insert(cut.begin() + dim, n);
  return AllGather(ReduceProd(Reshape(blocks, cut), {dim}), axes, dim, /*tiled=*/true);
}

}  // namespace

Value CombineShards(Value local, ReduceKind kind, const AxisList& axes) {
  switch (kind) {
    case ReduceKind::kSum:
      return Psum(local, axes);
    case ReduceKind::kProd:
      return CombineProducts(local, axes);
    case ReduceKind::kMax:
      return Pmax(local, axes);
    case ReduceKind::kMin:
      return Pmin(local, axes);
    case ReduceKind::kAnd:
      return Convert(Pmin(Convert(local, DType::kS32), axes), local.dtype());
    case ReduceKind::kOr:
      return Convert(Pmax(Convert(local, DType::kS32), axes), local.dtype());
    default:
      break;
  }
  Throw(MakeError(ErrorKind::kInternal, "partition: a reduce factor without a reduction"));
}

AxisList SummedAxes(const Signature& signature, const std::vector<AxisList>& factor_axes) {
  AxisList axes;
  if (signature.reduce != ReduceKind::kSum) return axes;
  for (size_t f = 0; f < factor_axes.size(); ++f)
    if (signature.factors[f].kind == FactorKind::kReduction)
      axes.insert(axes.end(), factor_axes[f].begin(), factor_axes[f].end());
  return axes;
}

LocalResults PartitionButSums(const RuleContext& c, const PartitionContext& p) {
  const Attrs attrs = c.def.localize ? c.def.localize(c, p) : c.attrs;
  LocalResults out;
  const std::vector<Value> in = c.def.exchange ? c.def.exchange(c, p) : c.in;
  out.values = c.b.Emit(c.def, in, attrs, {c.regions.begin(), c.regions.end()});
  AxisList reduced;
  int64_t terms = 1;  // number of terms that each shard adds up
  for (size_t f = 0; f < p.factor_axes.size(); ++f) {
    if (p.signature.factors[f].kind != FactorKind::kReduction) continue;
    reduced.insert(reduced.end(), p.factor_axes[f].begin(), p.factor_axes[f].end());
    terms *= p.signature.factors[f].size / c.b.mesh().SizeOf(p.factor_axes[f]);
  }
  if (reduced.empty()) return out;
  if (p.signature.reduce == ReduceKind::kSum) {
    // A sum of several terms starts from 0, so a sum of -0s is 0. A shard with one term has not
    // added the 0.
    for (Value& v : out.values)
      if (terms == 1 && IsFloat(v.dtype())) v = v + FullLike(v, 0);
    out.pending = SummedAxes(p.signature, p.factor_axes);
    return out;
  }
  for (Value& v : out.values) v = CombineShards(v, p.signature.reduce, reduced);
  return out;
}

std::vector<Value> PartitionByFactors(const RuleContext& c, const PartitionContext& p) {
  auto [out, pending] = PartitionButSums(c, p);
  if (!pending.empty())
    for (Value& v : out) v = Psum(v, pending);
  return out;
}

Cost CostByFactors(const InferContext& c, absl::Span<const Type> out) {
  const Signature s = c.def.factors(c, out);
  Cost cost;
  const bool moves =
      c.def.lowering == Lowering::kIndexMap || c.def.lowering == Lowering::kDynamicIndex;
  cost.flops = c.def.family == Family::kContraction ? 2 : moves ? 0 : 1;
  for (const Factor& f : s.factors) cost.flops *= static_cast<double>(f.size);
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  return cost;
}

}  // namespace tessera::ir::derive
