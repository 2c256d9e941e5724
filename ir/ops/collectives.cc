// Collectives over named axes: their types, derivatives, batching and evaluation.
//
// Typing follows JAX's manual axes types, which say along which axes a value is varying, unreduced
// or reduced. The ops refuse an operand in a state that they do not take. The functions of ops.h
// cast an invarying operand with `pvary` first. Sums also take unreduced operands, and a gathered
// result may be reduced. In a scope with check_vma=false these states are not tracked, and psum
// transposes to psum. They are never tracked along the mapped axis of a vmap either. Batch turns
// collectives over a mapped axis into ops on the batch dim.
#include <algorithm>
#include <complex>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "ir/element.h"
#include "ir/eval/eval.h"
#include "ir/ops/rules/axes.h"
#include "ir/ops/rules/batch_dim.h"
#include "ir/ops/rules/dims.h"
#include "ir/ops/rules/family.h"
#include "ir/scalar_math.h"
#include "ir/strided.h"

namespace tessera::ir {
namespace ops {
namespace {

// ---- Axes and manual axes types. ----

int64_t SizeAlong(const InferContext& c) { return c.scope.SizeOf(AxesOf(c.attrs)); }

absl::Status CheckDim(const InferContext& c, std::string_view attr, int rank) {
  const int64_t d = c.attrs.Int(attr);
  if (d >= 0 && d < rank) return absl::OkStatus();
  return ValueError(c, ToAbsl(attr), " is ", d, "; expected 0 <= ", ToAbsl(attr), " < ", rank,
                    " for operand ", c.in[0].ToString());
}

// Checks that the operand is in one state, such as varying, along all mesh axes of the op.
// `axes_in_state` are the axes along which it is in that state. The errors assume that it should
// vary.
absl::Status CheckAllInState(const InferContext& c, const AxisSet& axes_in_state) {
  const Type& t = c.in[0];
  const AxisList axes = MeshAxesOf(c);
  if (ContainsAll(axes_in_state, axes)) return absl::OkStatus();
  if (!Disjoint(t.NonInvaryingAxes(), axes) && !ContainsAll(t.unreduced, axes) &&
      !ContainsAll(t.reduced, axes))
    return MakeError(ErrorKind::kValueError, MixedStatesMessage(c.def.lax_name, t, axes));
  for (const std::string& a : axes)
    if (t.unreduced.contains(a) || t.reduced.contains(a))
      return ValueError(c, "cannot accept args which are ",
                        t.unreduced.contains(a) ? "unreduced" : "reduced", ". Got ", t.ToString(),
                        " and axes=(", absl::StrJoin(axes, ","), "); ",
                        t.unreduced.contains(a) ? "add it up with psum first"
                                                : "apply pcast(..., to='varying') first");
  return ValueError(c, "Collective ", ToAbsl(c.def.lax_name),
                    " must be applied to a device-varying type, but got ", t.ToString(),
                    " over axes (", absl::StrJoin(axes, ","),
                    "); apply pcast(..., to='varying') first");
}
absl::Status CheckVaries(const InferContext& c) { return CheckAllInState(c, c.in[0].varying); }
// Returns whether the operand of a sum is unreduced along all mesh axes of the op. If it is not, it
// has to vary along them.
bool IsUnreduced(const InferContext& c) {
  const AxisList axes = MeshAxesOf(c);
  return !axes.empty() && ContainsAll(c.in[0].unreduced, axes);
}

// The `varying` rules of the collectives. The result has the operand's manual axes type, without
// the axes along which the collective makes the result equal.
absl::Status StaysVarying(const InferContext& c, std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(CheckVaries(c));
  return SameVmaAsFirst(c, out);
}
absl::Status BecomesInvarying(const InferContext& c, std::vector<Type>* out) {
  TESSERA_RETURN_IF_ERROR(StaysVarying(c, out));
  for (const std::string& a : MeshAxesOf(c)) (*out)[0].varying.erase(a);
  return absl::OkStatus();
}
absl::Status SumStates(const InferContext& c, std::vector<Type>* out) {
  if (!IsUnreduced(c)) return BecomesInvarying(c, out);
  TESSERA_RETURN_IF_ERROR(SameVmaAsFirst(c, out));
  for (const std::string& a : MeshAxesOf(c)) (*out)[0].unreduced.erase(a);
  return absl::OkStatus();
}
absl::Status ScatterStates(const InferContext& c, std::vector<Type>* out) {
  if (!IsUnreduced(c)) return StaysVarying(c, out);
  TESSERA_RETURN_IF_ERROR(SumStates(c, out));
  for (const std::string& a : MeshAxesOf(c)) (*out)[0].varying.insert(a);
  return absl::OkStatus();
}
absl::Status GatherStates(const InferContext& c, std::vector<Type>* out) {
  const std::string& to = c.attrs.Str("to");
  if (to == "varying") return StaysVarying(c, out);
  if (to == "reduced" && !ContainsAll(c.in[0].varying, MeshAxesOf(c)))
    return ValueError(
        c, "all_gather_reduced only accepts inputs that are varying. Got ", c.in[0].ToString(),
        " over axes (", absl::StrJoin(MeshAxesOf(c), ","),
        "); cast a value that is already equal everywhere with pcast(..., to='reduced')");
  TESSERA_RETURN_IF_ERROR(BecomesInvarying(c, out));
  if (to == "reduced")
    for (const std::string& a : MeshAxesOf(c)) (*out)[0].reduced.insert(a);
  return absl::OkStatus();
}
absl::Status AxisIndexStates(const InferContext& c, std::vector<Type>* out) {
  const AxisList axes = MeshAxesOf(c);
  (*out)[0].varying = AxisSet(axes.begin(), axes.end());
  return absl::OkStatus();
}
// ---- Shapes. ----

// Returns a type with the dtype and shape of the operand. It is not weak, and no axis is varying,
// unreduced or reduced in it yet.
absl::StatusOr<std::vector<Type>> InferLikeOperand(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckAxes(c));
  return std::vector<Type>{MakeType(c.in[0].dtype, c.in[0].shape)};
}

absl::Status CheckSummable(const InferContext& c) {
  if (c.in[0].dtype == DType::kBool)
    return TypeError(c, "cannot sum ", c.in[0].ToString(), "; convert it to s32 first");
  return IsComplex(c.in[0].dtype) ? absl::OkStatus() : CheckComputable(c, c.in[0].dtype);
}

absl::StatusOr<std::vector<Type>> InferPsum(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSummable(c));
  return InferLikeOperand(c);
}

absl::StatusOr<std::vector<Type>> InferPextremum(const InferContext& c) {
  if (IsComplex(c.in[0].dtype))
    return TypeError(c, "complex values have no order, got ", c.in[0].ToString());
  TESSERA_RETURN_IF_ERROR(CheckComputable(c, c.in[0].dtype));
  return InferLikeOperand(c);
}

absl::StatusOr<std::vector<Type>> InferAllGather(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferLikeOperand(c));
  const bool tiled = c.attrs.Bool("tiled");
  const std::string& to = c.attrs.Str("to");
  if (to != "varying" && to != "invarying" && to != "reduced")
    return ValueError(c, "to is '", to, "'; expected 'varying', 'invarying' or 'reduced'");
  if (const AxisList mesh_axes = MeshAxesOf(c);
      to != "varying" && !mesh_axes.empty() && mesh_axes != AxesOf(c.attrs))
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat("all_gather: to='", to,
                                  "' over axes of the mesh and of a vmap together is "
                                  "not implemented; gather over one after the other"));
  TESSERA_RETURN_IF_ERROR(CheckDim(c, "all_gather_dimension", c.in[0].rank() + (tiled ? 0 : 1)));
  const int64_t dim = c.attrs.Int("all_gather_dimension"), n = SizeAlong(c);
  Dims& shape = out[0].shape;
  if (tiled)
    shape[dim] *= n;
  else
    shape.insert(shape.begin() + dim, n);
  return out;
}

absl::StatusOr<std::vector<Type>> InferPsumScatter(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckSummable(c));
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferLikeOperand(c));
  TESSERA_RETURN_IF_ERROR(CheckDim(c, "scatter_dimension", c.in[0].rank()));
  const int64_t dim = c.attrs.Int("scatter_dimension"), n = SizeAlong(c);
  Dims& shape = out[0].shape;
  if (c.attrs.Bool("tiled")) {
    if (shape[dim] % n != 0)
      return ValueError(c, "tiled psum_scatter operand scatter dimension size ", shape[dim],
                        " must be divisible by the size ", n, " of axes (",
                        absl::StrJoin(AxesOf(c.attrs), ","), ")");
    shape[dim] /= n;
  } else {
    if (shape[dim] != n)
      return ValueError(c, "psum_scatter operand scatter dimension size ", shape[dim],
                        " must match the size ", n, " of axes (",
                        absl::StrJoin(AxesOf(c.attrs), ","), ")");
    shape.erase(shape.begin() + dim);
  }
  return out;
}

absl::StatusOr<std::vector<Type>> InferPpermute(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferLikeOperand(c));
  const std::vector<int64_t>& perm = c.attrs.Ints("perm");
  const int64_t n = SizeAlong(c);
  if (perm.size() % 2 != 0)
    return ValueError(c, "perm has ", perm.size(),
                      " numbers; expected (source, destination) pairs");
  std::set<int64_t> ends[2];
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] < 0 || perm[i] >= n)
      return ValueError(c, "perm names position ", perm[i], "; expected 0 <= position < ", n,
                        ", the size of axes (", absl::StrJoin(AxesOf(c.attrs), ","), ")");
    if (!ends[i % 2].insert(perm[i]).second)
      return ValueError(c, "sources and destinations must be unique, but ", perm[i], " is twice a ",
                        i % 2 ? "destination" : "source", " in perm [", absl::StrJoin(perm, ","),
                        "]");
  }
  return out;
}

absl::StatusOr<std::vector<Type>> InferAllToAll(const InferContext& c) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> out, InferLikeOperand(c));
  TESSERA_RETURN_IF_ERROR(CheckDim(c, "split_dimension", c.in[0].rank()));
  TESSERA_RETURN_IF_ERROR(CheckDim(c, "concat_dimension", c.in[0].rank()));
  const int64_t split = c.attrs.Int("split_dimension"), concat = c.attrs.Int("concat_dimension");
  const int64_t n = SizeAlong(c);
  Dims& shape = out[0].shape;
  if (c.attrs.Bool("tiled")) {
    if (shape[split] % n != 0)
      return ValueError(c, "all_to_all split dimension size ", shape[split],
                        " must be divisible by the size ", n, " of axes (",
                        absl::StrJoin(AxesOf(c.attrs), ","), ")");
    shape[split] /= n;
    shape[concat] *= n;
  } else {
    if (shape[split] != n)
      return ValueError(c,
                        "all_to_all requires the size of the mapped axis axis_name to equal "
                        "x.shape[split_axis], but they are ",
                        n, " and ", shape[split], " respectively; use tiled=true for other sizes");
    shape.erase(shape.begin() + split);
    shape.insert(shape.begin() + concat, n);
  }
  return out;
}

absl::StatusOr<std::vector<Type>> InferAxisIndex(const InferContext& c) {
  TESSERA_RETURN_IF_ERROR(CheckAxes(c));
  return std::vector<Type>{MakeType(DType::kS32, {})};
}

// ---- Factors: dims that the collective changes need replication, and others pass through. -----

// Returns the signature of an op that changes only the `operand_whole` dims of its operand and the
// `result_whole` dims of its result. These need replication. The other dims of both correspond to
// each other in order.
Signature DimensionwiseFactors(absl::Span<const int> operand_whole,
                               absl::Span<const int> result_whole, const Type& in,
                               const Type& out) {
  Signature s;
  TensorFactors operand, result;
  std::vector<int> passing;
  auto has_dim = [](absl::Span<const int> dims, int d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  };
  for (int d = 0; d < in.rank(); ++d) {
    const bool fixed = has_dim(operand_whole, d);
    const int factor =
        s.Add(fixed ? FactorKind::kReplicated : FactorKind::kPassThrough, in.shape[d]);
    operand.push_back({factor});
    if (!fixed) passing.push_back(factor);
  }
  size_t next = 0;
  for (int d = 0; d < out.rank(); ++d) {
    if (has_dim(result_whole, d)) {
      result.push_back({s.Add(FactorKind::kReplicated, out.shape[d])});
    } else {
      result.push_back({passing.at(next++)});
    }
  }
  s.operands = {operand};
  s.results = {result};
  return s;
}

Signature GatherFactors(const InferContext& c, absl::Span<const Type> out) {
  const int dim = static_cast<int>(c.attrs.Int("all_gather_dimension"));
  if (c.attrs.Bool("tiled")) return DimensionwiseFactors({dim}, {dim}, c.in[0], out[0]);
  return DimensionwiseFactors({}, {dim}, c.in[0], out[0]);
}
Signature ScatterFactors(const InferContext& c, absl::Span<const Type> out) {
  const int dim = static_cast<int>(c.attrs.Int("scatter_dimension"));
  if (c.attrs.Bool("tiled")) return DimensionwiseFactors({dim}, {dim}, c.in[0], out[0]);
  return DimensionwiseFactors({dim}, {}, c.in[0], out[0]);
}
Signature AllToAllFactors(const InferContext& c, absl::Span<const Type> out) {
  const int split = static_cast<int>(c.attrs.Int("split_dimension"));
  const int concat = static_cast<int>(c.attrs.Int("concat_dimension"));
  if (c.attrs.Bool("tiled"))
    return DimensionwiseFactors({split, concat}, {split, concat}, c.in[0], out[0]);
  return DimensionwiseFactors({split}, {concat}, c.in[0], out[0]);
}
Signature NoFactors(const InferContext&, absl::Span<const Type>) {
  return {{}, {}, {TensorFactors{}}};
}

Cost ExchangeCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost;
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  if (c.def.reduce != ReduceKind::kNone) cost.flops = static_cast<double>(c.in[0].num_elements());
  return cost;
}

// ---- Transposes. ----

std::vector<Value> PsumTranspose(const RuleContext& c, Values ct, const std::vector<bool>&) {
  const AxisList& axes = AxesOf(c.attrs);
  if (!c.b.scope().check_vma) return {Psum(ct[0], axes)};
  const AxisList mesh_axes = MeshAxesAmong(c.b.scope(), axes);
  const AxisSet cast_axes(mesh_axes.begin(), mesh_axes.end());
  const bool unreduced = !mesh_axes.empty() && ContainsAll(c.in_types[0].unreduced, mesh_axes);
  const Value x = unreduced ? Preduced(ct[0], cast_axes) : Pvary(ct[0], cast_axes);
  return {Psum(x, MappedAxesAmong(c.b.scope(), axes))};
}

std::vector<Value> AllGatherTranspose(const RuleContext& c, Values ct, const std::vector<bool>&) {
  const AxisList& axes = AxesOf(c.attrs);
  const int dim = static_cast<int>(c.attrs.Int("all_gather_dimension"));
  const bool tiled = c.attrs.Bool("tiled");
  if (c.attrs.Str("to") != "invarying" || !c.b.scope().check_vma ||
      MeshAxesAmong(c.b.scope(), axes).empty())
    return {PsumScatter(ct[0], axes, dim, tiled)};
  // Every device has the whole cotangent and takes its own slice.
  const Value i = AxisIndex(c.b, axes);
  if (!tiled) return {DynamicIndexInDim(ct[0], i, dim)};
  const Dims& block = c.in_types[0].shape;
  std::vector<Value> starts(block.size(), Constant(c.b, DType::kS32, 0));
  starts[dim] = Mul(i, Constant(c.b, DType::kS32, static_cast<double>(block[dim])));
  return {DynamicSlice(ct[0], starts, block)};
}

std::vector<Value> PsumScatterTranspose(const RuleContext& c, Values ct, const std::vector<bool>&) {
  const AxisList mesh_axes = MeshAxesAmong(c.b.scope(), AxesOf(c.attrs));
  const bool unreduced = !mesh_axes.empty() && ContainsAll(c.in_types[0].unreduced, mesh_axes);
  return {AllGather(ct[0], AxesOf(c.attrs), static_cast<int>(c.attrs.Int("scatter_dimension")),
                    c.attrs.Bool("tiled"), unreduced ? "reduced" : "varying")};
}

std::vector<Value> PpermuteTranspose(const RuleContext& c, Values ct, const std::vector<bool>&) {
  const std::vector<int64_t>& perm = c.attrs.Ints("perm");
  std::vector<std::pair<int64_t, int64_t>> inverse;
  for (size_t i = 0; i + 1 < perm.size(); i += 2) inverse.emplace_back(perm[i + 1], perm[i]);
  return {Ppermute(ct[0], AxesOf(c.attrs), inverse)};
}

std::vector<Value> AllToAllTranspose(const RuleContext& c, Values ct, const std::vector<bool>&) {
  return {AllToAll(ct[0], AxesOf(c.attrs), static_cast<int>(c.attrs.Int("concat_dimension")),
                   static_cast<int>(c.attrs.Int("split_dimension")), c.attrs.Bool("tiled"))};
}

// ---- Batching. ----

// Returns the attributes for a batched operand, whose batch dim is `batch_dim`. The attributes in
// `names` are dims of the unbatched operand, and are moved past the batch dim.
Attrs PastBatch(const Attrs& attrs, absl::Span<const std::string_view> names, int batch_dim) {
  Attrs out = attrs;
  for (std::string_view name : names) {
    const int64_t d = attrs.Int(name);
    out.Set(name, d >= batch_dim ? d + 1 : d);
  }
  return out;
}

// Tiled collectives keep the rank, so the batch dim stays where it is. The others remove or insert
// a dim, so the batch dim is moved to the front first.
Batched BatchExchange(const RuleContext& c, int batch_dim,
                      absl::Span<const std::string_view> names) {
  const bool tiled = c.attrs.Bool("tiled");
  const Value x = tiled ? c.in[0] : MoveDim(c.in[0], batch_dim, 0);
  const int dim = tiled ? batch_dim : 0;
  return {c.b.Emit(c.def, {x}, PastBatch(c.attrs, names, dim)), {dim}};
}
Batched BatchAllGather(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return BatchExchange(c, dims[0], {"all_gather_dimension"});
}
Batched BatchPsumScatter(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return BatchExchange(c, dims[0], {"scatter_dimension"});
}
Batched BatchAllToAll(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  return BatchExchange(c, dims[0], {"split_dimension", "concat_dimension"});
}

// ---- Batching of a call whose axes include the batch's own axis, which becomes an op on the batch
// dim. The axes before and after it belong to the mesh, or to vmaps further out. ----

// The axes of the call other than the batch's axis: those before it and those after it. If Manual
// axes of the mesh cut the batch, each device has one part of it. These axes are then the last ones
// of `before`.
struct AxesAroundBatch {
  AxisList before, after, rest;  // `rest` has both
  int64_t num_before = 1, size = 1, num_after = 1;
  bool is_cut = false;  // whether axes of the mesh cut the batch

  explicit AxesAroundBatch(const RuleContext& c) : size(c.batch.size) {
    bool passed = false;
    for (const std::string& a : AxesOf(c.attrs)) {
      if (a != c.batch.name) {
        (passed ? after : before).push_back(a);
        continue;
      }
      passed = true;
      for (const std::string& cut : c.batch.spmd) {
        if (!c.b.mesh().IsManual(cut)) continue;
        before.push_back(cut);
        is_cut = true;
      }
    }
    rest = before;
    rest.insert(rest.end(), after.begin(), after.end());
    num_before = c.b.scope().SizeOf(before);
    num_after = c.b.scope().SizeOf(after);
  }
};

// Returns `x` with its first dim sharded over `axes`.
Value ShardFirstDim(Value x, const AxisList& axes) {
  Type type = x.type();
  type.set_axes_of(0, axes);
  Normalize(&type);
  return ShardedLike(x, type);
}

// OperandWithBatchFirst returns the operand with the batch dim in front and unsharded.
// BatchedAtDim0 returns `x`, whose dim 0 is the batch, as a batched result, sharded as the batch
// is.
Value OperandWithBatchFirst(const RuleContext& c, absl::Span<const int> dims) {
  if (dims[0] >= 0) return ShardFirstDim(MoveDim(c.in[0], dims[0], 0), {});
  return BroadcastNewDim(Pvary(c.in[0], walk::MissingSpmdAxes(c.batch, c.in[0])), 0, c.batch.size);
}
Batched BatchedAtDim0(const RuleContext& c, Value x) {
  return {{ShardFirstDim(x, c.batch.sharding)}, {0}};
}

// MergeDims merges `count` dims, from dim `at` on, into one. SplitDim splits dim `at` into dims of
// these sizes.
Value MergeDims(Value x, int at, int count) {
  Dims shape = x.shape();
  for (int i = 1; i < count; ++i) {
    shape[at] *= shape[at + 1];
    shape.erase(shape.begin() + at + 1);
  }
  return Reshape(x, shape);
}
Value SplitDim(Value x, int at, const Dims& sizes) {
  Dims shape = x.shape();
  shape.erase(shape.begin() + at);
  shape.insert(shape.begin() + at, sizes.begin(), sizes.end());
  return Reshape(x, shape);
}

// Returns the sum, the maximum or the minimum over the batch.
Value ReduceBatch(ReduceKind kind, Value x, int dim) {
  if (kind == ReduceKind::kMax) return ReduceMax(x, {dim});
  if (kind == ReduceKind::kMin) return ReduceMin(x, {dim});
  return ReduceSum(x, {dim});
}
// Like ReduceBatch, for a batch of `size` members that are all equal to `x`.
Value ReduceCopies(ReduceKind kind, Value x, int64_t size) {
  return kind == ReduceKind::kSum ? Mul(x, FullLike(x, static_cast<double>(size))) : x;
}

// Emits the collective `def` along `axes` on `x`, which is made to vary along them. Returns `x` if
// there are no axes.
Value EmitAlong(const OpDef& def, Value x, const AxisList& axes) {
  if (axes.empty()) return x;
  const AxisList mesh_axes = MeshAxesAmong(x.builder().scope(), axes);
  AxisSet missing(mesh_axes.begin(), mesh_axes.end());
  for (const std::string& a : x.type().varying) missing.erase(a);
  x = Pvary(x, missing);
  return x.builder().Emit1(def, {x}, {{"axes", axes}});
}

Batched ReduceAlongBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const Value x = dims[0] < 0 ? ReduceCopies(c.def.reduce, c.in[0], size)
                              : ReduceBatch(c.def.reduce, c.in[0], dims[0]);
  return {{EmitAlong(c.def, x, AxesAroundBatch(c).rest)}, {-1}};
}

// Brings the blocks of all members and devices into one dim in front, in the order of the axes, and
// then moves that dim to its position.
Batched GatherAlongBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const AxesAroundBatch along(c);
  const auto dim = static_cast<int>(c.attrs.Int("all_gather_dimension"));
  Value x;
  if (dims[0] < 0 && along.rest.empty()) {
    x = BroadcastNewDim(c.in[0], dim, size);
  } else {
    x = OperandWithBatchFirst(c, dims);
    if (!along.rest.empty()) {
      x = AllGather(x, along.rest, 0, /*tiled=*/false, c.attrs.Str("to"));
      x = MergeDims(MoveDim(SplitDim(x, 0, {along.num_before, along.num_after}), 2, 1), 0, 3);
    }
    x = MoveDim(x, 0, dim);
  }
  if (c.attrs.Bool("tiled")) x = MergeDims(x, dim, 2);
  // A result that is the same for all members would have to be equal along the axes that cut the
  // batch, which its type does not say. It is given a batch dim instead.
  if (along.is_cut) return {{walk::WithBatchDim(c.batch, x, 0)}, {0}};
  return {{x}, {-1}};
}

Batched ScatterAlongBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  const AxesAroundBatch along(c);
  const auto dim = static_cast<int>(c.attrs.Int("scatter_dimension"));
  const bool tiled = c.attrs.Bool("tiled");
  Value x = dims[0] < 0 ? ReduceCopies(c.def.reduce, c.in[0], size)
                        : ReduceBatch(c.def.reduce, c.in[0], dims[0]);
  Dims blocks{along.num_before, along.size, along.num_after};
  if (tiled) blocks.push_back(x.dim(dim) / (along.num_before * along.size * along.num_after));
  x = MoveDim(SplitDim(x, dim, blocks), dim + 1, 0);
  x = MergeDims(x, dim + 1, 2);
  x = along.rest.empty() ? Squeeze(x, {dim + 1})
                         : PsumScatter(x, along.rest, dim + 1, /*tiled=*/false);
  return BatchedAtDim0(c, x);
}

// Consecutive destinations that get members from consecutive sources are moved as one slice.
Batched PermuteAlongBatch(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  if (!AxesAroundBatch(c).rest.empty())
    Throw(
        ErrorKind::kNotImplemented,
        absl::StrCat(
            "ppermute: over axes (", absl::StrJoin(AxesOf(c.attrs), ","), "), of which '",
            c.batch.name,
            "' is the axis of a vmap, is not implemented; permute over one axis after the other"));
  const std::vector<int64_t>& perm = c.attrs.Ints("perm");
  if (dims[0] < 0 && static_cast<int64_t>(perm.size()) == 2 * size) return {{c.in[0]}, {-1}};
  std::vector<int64_t> source(size, -1);
  for (size_t i = 0; i + 1 < perm.size(); i += 2) source[perm[i + 1]] = perm[i];
  const Value x = OperandWithBatchFirst(c, dims);
  std::vector<Value> parts;
  for (int64_t begin = 0, end = 0; begin < size; begin = end) {
    const int64_t from = source[begin], step = from < 0 ? 0 : 1;
    end = begin + 1;
    while (end < size && source[end] == from + step * (end - begin)) ++end;
    Type zeros = x.type();
    zeros.shape[0] = end - begin;
    parts.push_back(from < 0 ? Zeros(c.b, zeros) : SliceInDim(x, 0, from, from + end - begin));
  }
  return BatchedAtDim0(
      c, parts.size() == 1 ? parts[0] : Concatenate(MatchVarying(std::move(parts)), 0));
}

// Moves each piece to its receiver. The pieces that a receiver gets from all senders become one
// dim.
Batched ExchangeAlongBatch(const RuleContext& c, absl::Span<const int> dims, int64_t) {
  const AxesAroundBatch along(c);
  const auto split = static_cast<int>(c.attrs.Int("split_dimension"));
  const auto concat = static_cast<int>(c.attrs.Int("concat_dimension"));
  const bool tiled = c.attrs.Bool("tiled");
  Value x = OperandWithBatchFirst(c, dims);
  Dims blocks{along.num_before, along.size, along.num_after};
  if (tiled) blocks.push_back(x.dim(split + 1) / (along.num_before * along.size * along.num_after));
  x = SplitDim(x, split + 1, blocks);
  // Move dims from [sender, ..., before, receiver, after, ...] to [receiver, before, after, sender,
  // ...].
  DimList order{split + 2, split + 1, split + 3, 0};
  const DimList others = DimsExcept(x.rank(), order);
  order.insert(order.end(), others.begin(), others.end());
  x = Transpose(x, order);
  if (!along.rest.empty()) {
    x = AllToAll(MergeDims(x, 1, 2), along.rest, 1, 1, /*tiled=*/false);
    x = SplitDim(x, 1, {along.num_before, along.num_after});
  }
  x = MergeDims(MoveDim(x, 3, 2), 1, 3);  // [receiver, senders, ...]
  x = MoveDim(x, 1, concat + 1);
  return BatchedAtDim0(c, tiled ? MergeDims(x, concat + 1, 2) : x);
}

Batched IndexAlongBatch(const RuleContext& c, absl::Span<const int>, int64_t size) {
  const AxesAroundBatch along(c);
  Value index = Iota(c.b, DType::kS32, {size}, 0);
  if (!along.before.empty()) {
    const Value outer = AxisIndex(c.b, along.before);
    const Value start = Mul(outer, FullLike(outer, static_cast<double>(size)));
    index = Add(BroadcastNewDim(start, 0, size), index);
  }
  if (!along.after.empty()) {
    const Value scaled = Mul(index, FullLike(index, static_cast<double>(along.num_after)));
    index = Add(scaled, BroadcastNewDim(AxisIndex(c.b, along.after), 0, size));
  }
  return BatchedAtDim0(c, index);
}

// ---- Reference semantics, evaluated on all shards at once. ----

// The blocks that take part in the collective for one device, in the order of the group, and the
// position of the device's own block among them.
struct Group {
  std::vector<const Array*> blocks;
  int64_t position = 0;
};
// Returns the group of each shard. Throws if a device of a group is not running.
std::vector<Group> Groups(const EvalContext& c, const Shards& in) {
  const std::vector<int64_t>& devices = c.evaluator.shard_devices();
  std::map<int64_t, const Array*> block_of;
  for (size_t shard = 0; shard < devices.size(); ++shard) block_of[devices[shard]] = &in[shard];
  std::vector<Group> groups;
  for (int64_t device : devices) {
    Group g;
    for (int64_t member : c.scope.mesh.GroupOf(device, AxesOf(c.attrs))) {
      if (member == device) g.position = static_cast<int64_t>(g.blocks.size());
      auto it = block_of.find(member);
      if (it == block_of.end())
        Throw(ErrorKind::kValueError,
              absl::StrCat(ToAbsl(c.def.lax_name), ": device ", member,
                           " does not take part: it runs another branch, or has left the loop; "
                           "make the predicate the same on every device of the group"));
      g.blocks.push_back(it->second);
    }
    groups.push_back(std::move(g));
  }
  return groups;
}

// Combines two elements by `kind`, which is a sum, max or min, as the elementwise op of that name
// does.
template <class T>
T Combine(ReduceKind kind, T a, T b) {
  if (kind == ReduceKind::kMax) return scalar::math::Max(a, b);
  if (kind == ReduceKind::kMin) return scalar::math::Min(a, b);
  return scalar::math::Add(a, b);
}

// Combines the blocks of a group, element by element: integers, or bools as 0 and 1. Bools are
// never summed.
template <class T>
void FoldIntegers(ReduceKind kind, const Group& g, Array* out) {
  const absl::Span<T> acc = out->MutableAs<T>();
  for (size_t k = 0; k < g.blocks.size(); ++k) {
    const absl::Span<const T> x = g.blocks[k]->As<T>();
    for (size_t i = 0; i < x.size(); ++i) acc[i] = k == 0 ? x[i] : Combine(kind, acc[i], x[i]);
  }
}

// Adds up the blocks of a group in double precision, in the order of the group, and rounds once.
template <class T>
void FoldComplex(const Group& g, Array* out) {
  const absl::Span<T> to = out->MutableAs<T>();
  for (size_t i = 0; i < to.size(); ++i) {
    std::complex<double> sum = g.blocks[0]->As<T>()[i];
    for (size_t k = 1; k < g.blocks.size(); ++k) sum += g.blocks[k]->As<T>()[i];
    to[i] = static_cast<T>(sum);
  }
}

// Combines floats in double precision, in the order of the group, and rounds once.
void FoldFloats(ReduceKind kind, const Group& g, Array* out) {
  for (int64_t i = 0; i < out->num_elements(); ++i) {
    double acc = g.blocks[0]->At(i);
    for (size_t k = 1; k < g.blocks.size(); ++k) acc = Combine(kind, acc, g.blocks[k]->At(i));
    out->Set(i, acc);
  }
}

Array FoldGroup(ReduceKind kind, const Group& g) {
  Array out(g.blocks[0]->dtype(), g.blocks[0]->shape());
  VisitDType(out.dtype(), [&]<DType kD>(DTypeTag<kD>) {
    if constexpr (IsComplexType<ComputeType<kD>>)
      FoldComplex<ComputeType<kD>>(g, &out);
    else if constexpr (std::is_integral_v<ComputeType<kD>>)
      FoldIntegers<StorageType<kD>>(kind, g, &out);
    else
      FoldFloats(kind, g, &out);
  });
  return out;
}

template <class PerShard>
absl::StatusOr<std::vector<Shards>> OnEachShard(const EvalContext& c, absl::Span<const Shards> in,
                                                PerShard f) {
  Shards out;
  for (const Group& g : Groups(c, in[0])) out.push_back(f(g));
  return std::vector<Shards>{std::move(out)};
}

absl::StatusOr<std::vector<Shards>> EvalReduce(const EvalContext& c, absl::Span<const Shards> in) {
  return OnEachShard(c, in, [&](const Group& g) { return FoldGroup(c.def.reduce, g); });
}

// Returns the `blocks` concatenated along `dim`, or stacked there as a new dim.
Array Join(const std::vector<Array>& blocks, int64_t dim, bool tiled, const Type& type) {
  Array out(type.dtype, type.shape);
  Dims starts(type.shape.size(), 0);
  for (const Array& block : blocks) {
    Dims shape = block.shape();
    if (!tiled) shape.insert(shape.begin() + dim, 1);
    WriteBlock(&out, starts, tiled ? block : block.Reshaped(shape));
    starts[dim] += shape[dim];
  }
  return out;
}
// Returns piece `index` of the `n` pieces of `x` along `dim`. If `tiled` is false, a piece has one
// element along the dim, and the dim is dropped.
Array Piece(const Array& x, int64_t dim, int64_t n, int64_t index, bool tiled) {
  Dims starts(x.rank(), 0), shape = x.shape();
  shape[dim] /= n;
  starts[dim] = index * shape[dim];
  Array piece = SliceBlock(x, starts, shape);
  if (tiled) return piece;
  shape.erase(shape.begin() + dim);
  return piece.Reshaped(shape);
}

absl::StatusOr<std::vector<Shards>> EvalAllGather(const EvalContext& c,
                                                  absl::Span<const Shards> in) {
  return OnEachShard(c, in, [&](const Group& g) {
    std::vector<Array> blocks;
    for (const Array* block : g.blocks) blocks.push_back(*block);
    return Join(blocks, c.attrs.Int("all_gather_dimension"), c.attrs.Bool("tiled"), c.out_types[0]);
  });
}

absl::StatusOr<std::vector<Shards>> EvalPsumScatter(const EvalContext& c,
                                                    absl::Span<const Shards> in) {
  const int64_t dim = c.attrs.Int("scatter_dimension");
  return OnEachShard(c, in, [&](const Group& g) {
    const auto n = static_cast<int64_t>(g.blocks.size());
    std::vector<Array> pieces;
    for (const Array* block : g.blocks)
      pieces.push_back(Piece(*block, dim, n, g.position, c.attrs.Bool("tiled")));
    Group mine;
    for (const Array& piece : pieces) mine.blocks.push_back(&piece);
    return FoldGroup(c.def.reduce, mine);
  });
}

absl::StatusOr<std::vector<Shards>> EvalPpermute(const EvalContext& c,
                                                 absl::Span<const Shards> in) {
  const std::vector<int64_t>& perm = c.attrs.Ints("perm");
  return OnEachShard(c, in, [&](const Group& g) {
    for (size_t i = 0; i + 1 < perm.size(); i += 2)
      if (perm[i + 1] == g.position) return *g.blocks[perm[i]];
    return Array(c.out_types[0].dtype, c.out_types[0].shape);  // zeros: no device sends to this one
  });
}

absl::StatusOr<std::vector<Shards>> EvalAllToAll(const EvalContext& c,
                                                 absl::Span<const Shards> in) {
  const bool tiled = c.attrs.Bool("tiled");
  return OnEachShard(c, in, [&](const Group& g) {
    const auto n = static_cast<int64_t>(g.blocks.size());
    std::vector<Array> pieces;
    for (const Array* block : g.blocks)
      pieces.push_back(Piece(*block, c.attrs.Int("split_dimension"), n, g.position, tiled));
    return Join(pieces, c.attrs.Int("concat_dimension"), tiled, c.out_types[0]);
  });
}

absl::StatusOr<std::vector<Shards>> EvalAxisIndex(const EvalContext& c, absl::Span<const Shards>) {
  Shards out;
  for (int64_t device : c.evaluator.shard_devices())
    out.push_back(Array::ScalarInt(DType::kS32, c.scope.mesh.IndexAlong(device, AxesOf(c.attrs))));
  return std::vector<Shards>{std::move(out)};
}

// ---- The ops. ----

constexpr AttrSpec kGatherAttrs[] = {{"axes", AttrKind::kStrings},
                                     {"all_gather_dimension", AttrKind::kInt},
                                     {"tiled", AttrKind::kBool},
                                     {"to", AttrKind::kString}};
constexpr AttrSpec kScatterAttrs[] = {{"axes", AttrKind::kStrings},
                                      {"scatter_dimension", AttrKind::kInt},
                                      {"tiled", AttrKind::kBool}};
constexpr AttrSpec kPermuteAttrs[] = {{"axes", AttrKind::kStrings}, {"perm", AttrKind::kInts}};
constexpr AttrSpec kAllToAllAttrs[] = {{"axes", AttrKind::kStrings},
                                       {"split_dimension", AttrKind::kInt},
                                       {"concat_dimension", AttrKind::kInt},
                                       {"tiled", AttrKind::kBool}};

constexpr Refused kPerShard{"a collective is already a per-shard op"};

// Completes the OpDef of a collective with the fields that all of them share. `d` has the others.
consteval OpDef Collective(OpDef d) {
  d.family = Family::kCollective;
  d.num_operands = 1;
  d.lowering = Lowering::kCollective;
  d.sharding = Derived{};
  if (d.jvp.kind == Rule<JvpFn>::kUnset) d.jvp = Derived{};
  d.partition = kPerShard;
  d.cost = ExchangeCost;
  return Checked(d);
}

// Returns the OpDef of a collective that computes the maximum or the minimum along axes.
consteval OpDef Extremum(std::string_view name, ReduceKind kind) {
  return Collective({.name = name,
                     .lax_name = name,
                     .attrs = kAxesAttrs,
                     .infer = InferPextremum,
                     .factors = PointwiseFactors,
                     .varying = BecomesInvarying,
                     .jvp = Refused{"the coordinate that gave the result is not kept; use "
                                    "all_gather and a local max or min"},
                     .transpose = Refused{"the op is not linear"},
                     .batch = BatchSameOp,
                     .batch_along = ReduceAlongBatch,
                     .eval_shards = EvalReduce,
                     .reduce = kind,
                     .collective = CollectiveKind::kAllReduce});
}

}  // namespace

const OpDef kPsum = Collective({.name = "psum",
                                .lax_name = "psum",
                                .attrs = kAxesAttrs,
                                .infer = InferPsum,
                                .factors = PointwiseFactors,
                                .varying = SumStates,
                                .transpose = PsumTranspose,
                                .batch = BatchSameOp,
                                .batch_along = ReduceAlongBatch,
                                .eval_shards = EvalReduce,
                                .reduce = ReduceKind::kSum,
                                .collective = CollectiveKind::kAllReduce});
const OpDef kPmax = Extremum("pmax", ReduceKind::kMax);
const OpDef kPmin = Extremum("pmin", ReduceKind::kMin);
const OpDef kAllGather = Collective({.name = "all_gather",
                                     .lax_name = "all_gather",
                                     .attrs = kGatherAttrs,
                                     .infer = InferAllGather,
                                     .factors = GatherFactors,
                                     .varying = GatherStates,
                                     .transpose = AllGatherTranspose,
                                     .batch = BatchAllGather,
                                     .batch_along = GatherAlongBatch,
                                     .eval_shards = EvalAllGather,
                                     .collective = CollectiveKind::kAllGather});
const OpDef kPsumScatter = Collective({.name = "psum_scatter",
                                       .lax_name = "reduce_scatter",
                                       .attrs = kScatterAttrs,
                                       .infer = InferPsumScatter,
                                       .factors = ScatterFactors,
                                       .varying = ScatterStates,
                                       .transpose = PsumScatterTranspose,
                                       .batch = BatchPsumScatter,
                                       .batch_along = ScatterAlongBatch,
                                       .eval_shards = EvalPsumScatter,
                                       .reduce = ReduceKind::kSum,
                                       .collective = CollectiveKind::kReduceScatter});
const OpDef kPpermute = Collective({.name = "ppermute",
                                    .lax_name = "ppermute",
                                    .attrs = kPermuteAttrs,
                                    .infer = InferPpermute,
                                    .factors = PointwiseFactors,
                                    .varying = StaysVarying,
                                    .transpose = PpermuteTranspose,
                                    .batch = BatchSameOp,
                                    .batch_along = PermuteAlongBatch,
                                    .eval_shards = EvalPpermute,
                                    .collective = CollectiveKind::kPermute});
const OpDef kAllToAll = Collective({.name = "all_to_all",
                                    .lax_name = "all_to_all",
                                    .attrs = kAllToAllAttrs,
                                    .infer = InferAllToAll,
                                    .factors = AllToAllFactors,
                                    .varying = StaysVarying,
                                    .transpose = AllToAllTranspose,
                                    .batch = BatchAllToAll,
                                    .batch_along = ExchangeAlongBatch,
                                    .eval_shards = EvalAllToAll,
                                    .collective = CollectiveKind::kAllToAll});
const OpDef kAxisIndex = Checked({.name = "axis_index",
                                  .lax_name = "axis_index",
                                  .family = Family::kCollective,
                                  .num_operands = 0,
                                  .attrs = kAxesAttrs,
                                  .lowering = Lowering::kCollective,
                                  .infer = InferAxisIndex,
                                  .factors = NoFactors,
                                  .sharding = Derived{},
                                  .varying = AxisIndexStates,
                                  .jvp = Refused{"it has no operand"},
                                  .transpose = Refused{"it has no operand"},
                                  .batch = Refused{"it has no operand"},
                                  .batch_along = IndexAlongBatch,
                                  .partition = kPerShard,
                                  .cost = NoCost,
                                  .eval_shards = EvalAxisIndex,
                                  .collective = CollectiveKind::kAxisIndex});
}  // namespace ops

namespace {

// Returns the operand, cast to vary along all of `axes` if it is invarying along them. Throws if it
// is in several states along them.
Value CastToVarying(Value x, const AxisList& axes, const OpDef& def) {
  const Scope& scope = x.builder().scope();
  ThrowIfError(ops::CheckAxesAreBound(def.lax_name, scope, axes));
  const AxisList mesh_axes = ops::MeshAxesAmong(scope, axes);
  if (!scope.check_vma || ops::ContainsAll(x.type().varying, mesh_axes)) return x;
  // A sum takes unreduced operands as they are. The inference of the other ops refuses such
  // operands.
  if (ops::ContainsAll(x.type().unreduced, mesh_axes) ||
      ops::ContainsAll(x.type().reduced, mesh_axes))
    return x;
  if (!ops::Disjoint(x.type().NonInvaryingAxes(), mesh_axes))
    Throw(ErrorKind::kValueError, ops::MixedStatesMessage(def.lax_name, x.type(), mesh_axes));
  return Pvary(x, AxisSet(mesh_axes.begin(), mesh_axes.end()));
}

Value EmitAllReduce(Value x, AxisList axes, const OpDef& def) {
  if (axes.empty()) return x;
  x = CastToVarying(x, axes, def);
  return x.builder().Emit1(def, {x}, {{"axes", std::move(axes)}});
}

}  // namespace

Value Psum(Value x, AxisList axes) {
  if (x.dtype() == DType::kBool && !axes.empty()) x = Convert(x, DType::kS32);
  return EmitAllReduce(x, std::move(axes), ops::kPsum);
}
Value Pmax(Value x, AxisList axes) { return EmitAllReduce(x, std::move(axes), ops::kPmax); }
Value Pmin(Value x, AxisList axes) { return EmitAllReduce(x, std::move(axes), ops::kPmin); }

Value AllGather(Value x, AxisList axes, int dimension, bool tiled, std::string_view to) {
  if (to != "reduced") x = CastToVarying(x, axes, ops::kAllGather);
  return x.builder().Emit1(ops::kAllGather, {x},
                           {{"axes", std::move(axes)},
                            {"all_gather_dimension", int64_t{dimension}},
                            {"tiled", tiled},
                            {"to", std::string(to)}});
}

Value PsumScatter(Value x, AxisList axes, int scatter_dimension, bool tiled) {
  if (x.dtype() == DType::kBool) x = Convert(x, DType::kS32);
  x = CastToVarying(x, axes, ops::kPsumScatter);
  return x.builder().Emit1(ops::kPsumScatter, {x},
                           {{"axes", std::move(axes)},
                            {"scatter_dimension", int64_t{scatter_dimension}},
                            {"tiled", tiled}});
}

Value Ppermute(Value x, AxisList axes, std::vector<std::pair<int64_t, int64_t>> perm) {
  x = CastToVarying(x, axes, ops::kPpermute);
  std::vector<int64_t> flat;
  for (const auto& [source, destination] : perm) {
    flat.push_back(source);
    flat.push_back(destination);
  }
  return x.builder().Emit1(ops::kPpermute, {x},
                           {{"axes", std::move(axes)}, {"perm", std::move(flat)}});
}

Value AllToAll(Value x, AxisList axes, int split_dimension, int concat_dimension, bool tiled) {
  x = CastToVarying(x, axes, ops::kAllToAll);
  return x.builder().Emit1(ops::kAllToAll, {x},
                           {{"axes", std::move(axes)},
                            {"split_dimension", int64_t{split_dimension}},
                            {"concat_dimension", int64_t{concat_dimension}},
                            {"tiled", tiled}});
}

Value AxisIndex(Builder& b, AxisList axes) {
  return b.Emit1(ops::kAxisIndex, {}, {{"axes", std::move(axes)}});
}

}  // namespace tessera::ir
