// What an op is: one constant of type OpDef, complete at compile time.
//
// A rule is a pure function over IR types and values: no I/O, no device, no globals, no clock. Each
// is written, derived from the family, or unsupported with a reason the user reads; an unset rule
// does not compile (Checked).  Rules see the op with inputs and outputs already mapped into the
// destination program.  They throw StatusException on user errors (docs/decisions/0001).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/builder.h"
#include "ir/collective.h"
#include "ir/op_kinds.h"
#include "ir/program.h"
#include "ir/scalar_graph.h"

namespace tessera::ir {

// ---- What inference sees. --------------------------------------------------------------------
struct InferContext {
  const OpDef& def;
  const Scope& scope;
  absl::Span<const Type> in;
  const Attrs& attrs;
  absl::Span<const FunctionRef> regions;
};
// Shape, dtype and weak flag of each result.  Shardings and manual axes types come from the next
// two rules; an op whose infer gives them in full (regions) says so with the rule `Inferred`.
using InferFn = absl::StatusOr<std::vector<Type>> (*)(const InferContext&);
// Completes `out` (the results of infer) with Explicit shardings, or with manual axes types.
using TypeFn = absl::Status (*)(const InferContext&, std::vector<Type>* out);

// ---- Factors: the op's indices, as in einsum. --------------------------------------------------
// kPassThrough: in operands and results, and the op on shards is the op.  kReduction: in operands
// only, combined by the signature's ReduceKind.  kReplicated: need-replication, must not be
// sharded. kPermutation: in operands and results, and where it is cut the op's `partition`
// exchanges what each shard needs of the others.  Reference: Shardy's sharding rules.
enum class FactorKind : uint8_t { kPassThrough, kReduction, kReplicated, kPermutation };
struct Factor {
  FactorKind kind;
  int64_t size;
};
using FactorList = std::vector<int>;            // of one dim, major to minor
using TensorFactors = std::vector<FactorList>;  // per dim
struct Signature {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands, results;
  ReduceKind reduce = ReduceKind::kNone;

  // Returns the index of the new factor.
  int Add(FactorKind kind, int64_t size) {
    factors.push_back({kind, size});
    return static_cast<int>(factors.size()) - 1;
  }
};
using FactorsFn = Signature (*)(const InferContext&, absl::Span<const Type> out);

// ---- What a transform's rule sees. -------------------------------------------------------------
struct RuleContext {
  Builder& b;
  const OpDef& def;
  const Attrs& attrs;
  absl::Span<const FunctionRef> regions;
  std::vector<Value> in, out;  // in the destination program; transpose gets no linear operands
  std::vector<Type> in_types, out_types;  // of the source op
  MappedAxis batch = {};                  // for batching rules: what is mapped
};
// Tangents of the results from tangents of the operands; a default Value is a symbolic zero.  `out`
// holds the primal results already.  For region ops (jvp_emits_primals) `out` is empty and the rule
// returns the primal results followed by the tangents.
using JvpFn = std::vector<Value> (*)(const RuleContext&, Values tangents);
// Cotangents of the linear operands from those of the results.  `linear[i]` marks the operands to
// differentiate; entries for others are ignored.
using TransposeFn = std::vector<Value> (*)(const RuleContext&, Values cotangents,
                                           const std::vector<bool>& linear);
// `in` are batched values; dims[i] is the batch dim of operand i or -1.  Returns the results and
// the batch dim of each (or -1).
struct Batched {
  std::vector<Value> values;
  std::vector<int> dims;
};
// `size` is that of c.batch.
using BatchFn = Batched (*)(const RuleContext&, absl::Span<const int> dims, int64_t size);
// `in` are shards, sharded as factor_axes say; returns the results' shards (reductions completed).
struct PartitionContext {
  const Signature& signature;
  const std::vector<AxisList>& factor_axes;  // per factor, major to minor
  std::vector<Type> local_out;               // local types of the results
};
using PartitionFn = std::vector<Value> (*)(const RuleContext&, const PartitionContext&);
// The attributes of the op on shards; for derived partition of ops whose attributes hold sizes.
using LocalizeFn = Attrs (*)(const RuleContext&, const PartitionContext&);
// The operands of the op on shards, with what each shard needs of the others; for derived partition
// of ops whose windows reach over the edges of blocks.
using ExchangeFn = std::vector<Value> (*)(const RuleContext&, const PartitionContext&);
// Splits an op with regions into a known part, which needs no tangents, and an unknown one
// (transform/partial_eval.h calls it).  `known` marks operands; emits the known part through
// `known_b`, the rest through `unknown_b`; ops without the rule are known iff all operands are.
struct PartialEvalContext;
using PartialEvalFn = void (*)(PartialEvalContext&);

// How values flow between an op and one of its regions, for the planner's sharding propagation.
// Reference: Shardy's data-flow edges.
struct DataFlowEdge {
  int outer = 0, inner = 0;  // index of the op's operand (result), of the region's param (result)
  bool leading_dim = false;  // outer has a dim 0 that inner lacks (scan's xs and ys)
  DimAxes prefix = {};       // axes that shard outer and are Manual inside; empty: none
};
struct RegionDataFlow {
  std::vector<DataFlowEdge> operands, results;
  std::vector<std::pair<int, int>> carries;  // region param, region result of the same sharding
};
inline constexpr int64_t kUnknownTripCount = -1;
struct DataFlow {
  std::vector<RegionDataFlow> regions;  // of each region
  AxisList manual_axes;                 // Manual inside; partitioning inlines such a body
  // How often the body runs; kUnknownTripCount with a predicate.
  int64_t trip_count = 1;
  bool reverse = false;   // iterates over leading dims from the end
  int branch_index = -1;  // the operand, an s32, that chooses among branches
};
using DataFlowFn = DataFlow (*)(const InferContext&);
// The types of a derivative rule's params, from the op's operands and the regions before the rule.
// Requires: those regions are as the op's inference wants them.
using RuleParamsFn = std::vector<Type> (*)(const InferContext&, size_t region);
// The attributes of the op on those of its operands and results that are kept. The two of a carry
// go together.
using KeepFn = Attrs (*)(const Attrs&, const std::vector<bool>& operands,
                         const std::vector<bool>& results);
// The attributes of an op that takes one more constant of region `k`, as its operand and the
// region's param of these indices.
struct AddedConstant {
  Attrs attrs;
  int operand = 0, param = 0;
};
using AddConstantFn = AddedConstant (*)(const Attrs&, size_t k);
// The sharding that an op fixes for its result 0, or null.
using FixedShardingFn = const PartitionSpec* (*)(const Attrs&);

// ---- Index maps: a result as strided copies. ----------------------------------------------------
// An offset known at run time, in flat elements: stride * clamp(n, 0, max), where n is the flat
// element offset + sum(strides * j) of the operand.
struct DynamicOffset {
  int operand = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  Dims strides = {};  // per dim of the piece; none: all are 0
};
// A strided copy into the result. Its element j, at index start + step * j of the result plus the
// offsets in `write`, which have no strides, is the source's flat element offset + sum(strides * j)
// plus the offsets in `read`. The source is an operand, the literal, or an iota: the flat index
// itself, converted.
struct IndexPiece {
  static constexpr int kIota = -1, kLiteral = -2;
  int source = kIota;
  Dims start, step, shape;  // per dim of the result
  int64_t offset = 0;
  Dims strides;
  std::vector<DynamicOffset> read, write;
  // The element is the literal, a scalar, where an offset in `read` had to be clamped. Such a piece
  // is all of the result, in order, from an operand.
  bool fills = false;
};
// Together the pieces cover the result; later pieces overwrite earlier ones.
struct IndexMap {
  std::vector<IndexPiece> pieces;
  std::optional<Array> literal;
  // Offsets and strides count the real and imaginary parts of complex numbers, of which each array
  // of them has a last dim of two, in `start`, `step` and `shape` too. No piece is the literal.
  bool of_parts = false;
};
using IndexMapFn = IndexMap (*)(const InferContext&, absl::Span<const Type> out);
// Whether the piece is all of a result of type `out`, in order from the source's first element.
bool IsWhole(const IndexPiece& piece, const Type& out);

// ---- Scatters. ---------------------------------------------------------------------------------
// The operands are one for each result, which begins as it is; the indices; and the updates of each
// result. How updates are written: with a `reduce`, or a computation, each is combined with what is
// there. Index j of `shape` is the updates' flat element sum(read * j), and goes to the result's
// element sum(write * j) plus the offsets in `shifts`.
struct ScatterMap {
  Dims shape;
  // Of the first dims: no two indices that differ along them go to the same element. Along the
  // others, in row-major order, one update comes after the other.
  int num_parallel = 0;
  Dims read, write;
  std::vector<DynamicOffset> shifts;
  bool drops = false;  // an update is dropped where an offset had to be clamped
};
using ScatterMapFn = ScatterMap (*)(const InferContext&);
// ---- Sorting: results as rows of the operands in another order. --------------------------------
// The operands have one shape. A row is what lies along `dimension`; it gets the order of its keys:
// numbers ascending, -0 as +0, NaNs last, false before true. Of equals the first comes first. There
// is a result for each operand.
struct SortRule {
  int dimension = 0;
  int num_keys = 1;                   // the first operands, of which later ones decide among equals
  bool descending = false;            // in IEEE's total order: -0 below +0, NaNs by their sign
  std::optional<int64_t> first = {};  // how many elements of each sorted row are kept; else all
  bool indices = false;               // a last result, of s32, says where each stood in its row
};
using SortFn = SortRule (*)(const Attrs&);

// ---- Contractions: result[b, m, n] = sum over k of a[b, m, k] b[b, k, n].
// -------------------------- Each of the four is any number of dims. Operands and result are read
// and written at strides, in flat elements, so that windows of operand 0 may overlap.
struct ContractionMap {
  // Zeros are put before, after and between the elements of operand 0 along each dim first; without
  // them there are no entries.
  Dims low, high, interior;
  int a = 0;  // the operand that is a; the other one is b
  Dims batch, m, n, k;
  Dims a_strides;  // over batch, m, k
  Dims b_strides;  // over batch, k, n
  Dims c_strides;  // of the result, over batch, m, n
};
using ContractionMapFn = ContractionMap (*)(const InferContext&, absl::Span<const Type> out);
// The shape of operand 0 with its zeros, if any.
Dims PaddedShape(const ContractionMap& map, const Dims& shape);

struct Cost {
  double flops = 0;
  double bytes = 0;  // read and written
};
using CostFn = Cost (*)(const InferContext&, absl::Span<const Type> out);

// ---- Reference semantics. ----------------------------------------------------------------------
// Elementwise ops: out[k][i] = f(in[0][i], ...) for n elements; computed in the compute type and
// rounded to the dtype. `operand` is the dtype of the last operand (select's cases, clamp's
// bounds), `result` of result 0. Operands are already broadcast to n elements.
struct Scalar {
  void (*eval)(const Attrs&, DType operand, DType result, const void* const* in, void* const* out,
               int64_t n) = nullptr;
  // The function as a graph of scalar primitives, one root per result.
  ScalarGraph (*record)(const Attrs&, DType operand, DType result) = nullptr;
};
class Evaluator;  // eval/eval.h
struct EvalContext {
  const OpDef& def;
  const Scope& scope;
  const Attrs& attrs;
  absl::Span<const FunctionRef> regions;
  absl::Span<const Type> out_types;
  Evaluator& evaluator;
};
using EvalFn = absl::StatusOr<std::vector<Array>> (*)(const EvalContext&,
                                                      absl::Span<const Array> in);
// Bytes that evaluating takes besides the results, at most.
using ScratchFn = int64_t (*)(const InferContext&, absl::Span<const Type> out);
// Region and collective ops see every shard (mesh coordinate) at once: in[operand][shard].
using EvalShardsFn = absl::StatusOr<std::vector<Shards>> (*)(const EvalContext&,
                                                             absl::Span<const Shards> in);

// ---- Rules. ------------------------------------------------------------------------------------
template <class Fn>
struct Rule {
  enum Kind : uint8_t { kUnset, kFn, kDerived, kRefused } kind = kUnset;
  Fn fn = nullptr;
  std::string_view reason;

  constexpr Rule() = default;
  constexpr Rule(Fn f)
      : kind(kFn), fn(f) {}  // NOLINT(google-explicit-constructor): rows read better
  constexpr Rule(Kind k, std::string_view why) : kind(k), reason(why) {}
  constexpr bool written() const { return kind == kFn; }
  constexpr bool derived() const { return kind == kDerived; }
  constexpr bool refused() const { return kind == kRefused; }
};
// jvp: linear in every operand at once, apply the op to the tangents.  batch: elementwise.
// partition: local op, then complete reductions.  sharding: unify by factors.  varying: all equal.
struct Derived {
  template <class Fn>
  constexpr operator Rule<Fn>() const {  // NOLINT(google-explicit-constructor)
    return {Rule<Fn>::kDerived, ""};
  }
};
struct Refused {
  std::string_view reason;
  template <class Fn>
  constexpr operator Rule<Fn>() const {  // NOLINT(google-explicit-constructor)
    return {Rule<Fn>::kRefused, reason};
  }
};

struct AttrSpec {
  std::string_view name;
  AttrKind kind;
  bool required = true;
};

inline constexpr int kAnyNumber = -1, kUnsetNumber = -2;

struct OpDef {
  std::string_view name;      // on the wire and in text: StableHLO's, or lax's where it has none
  std::string_view lax_name;  // in error texts: lax's
  Family family = Family::kUnset;
  int num_operands = kUnsetNumber;            // or kAnyNumber
  absl::Span<const RegionRole> regions = {};  // their roles
  bool repeats_region = false;                // there may be any number of the last one, but not 0
  absl::Span<const AttrSpec> attrs = {};
  Lowering lowering = Lowering::kUnset;
  InferFn infer = nullptr;
  FactorsFn factors = nullptr;
  Rule<TypeFn> sharding = {};
  Rule<TypeFn> varying = {};
  Rule<JvpFn> jvp = {};
  bool jvp_emits_primals = false;
  Rule<TransposeFn> transpose = {};
  Rule<BatchFn> batch = {};
  BatchFn batch_along = nullptr;  // collectives: for calls whose `axes` name the batch itself
  Rule<PartitionFn> partition = {};
  LocalizeFn localize = nullptr;
  ExchangeFn exchange = nullptr;
  PartialEvalFn partial_eval = nullptr;
  DataFlowFn data_flow = nullptr;        // ops with regions that are planned
  RuleParamsFn rule_params = nullptr;    // ops with derivative rules
  KeepFn keep = nullptr;                 // those whose attributes tell of operands or results
  AddConstantFn add_constant = nullptr;  // ops that repeat a region
  FixedShardingFn fixed_sharding = nullptr;
  Rule<CostFn> cost = {};
  Scalar scalar = {};                          // elementwise
  IndexMapFn index_map = nullptr;              // index maps
  ScatterMapFn scatter_map = nullptr;          // scatters
  ContractionMapFn contraction_map = nullptr;  // contractions
  EvalFn eval = nullptr;                       // others
  ScratchFn scratch = nullptr;                 // those whose eval takes memory of its own
  EvalShardsFn eval_shards = nullptr;          // regions and collectives
  ReduceKind reduce = ReduceKind::kNone;
  // Collectives, over the group that attribute `axes` names. all_gather concatenates along
  // `all_gather_dimension`; reduce_scatter splits along `scatter_dimension`; all_to_all splits
  // along `split_dimension` and concatenates along `concat_dimension`; without `tiled` that dim is
  // removed or inserted. permute's pairs are `perm`.
  CollectiveKind collective = CollectiveKind::kNone;
  SortFn sort = nullptr;  // sorts
  bool effect = false;    // is run for what it does, though nobody uses its results

  // The role of region i; an op that repeats a region may have more of them than `regions`.
  constexpr RegionRole RoleOf(size_t i) const {
    return i < regions.size() ? regions[i] : regions.back();
  }
  constexpr bool has_planned_regions() const {
    return !regions.empty() && regions[0] != RegionRole::kComputation &&
           regions[0] != RegionRole::kRule;
  }
  // All regions but the first are then rules; without a planned region the first one is too.
  constexpr bool has_rules() const {
    return !regions.empty() && regions.back() == RegionRole::kRule;
  }
};

consteval OpDef Checked(OpDef d) {
  if (d.name.empty() || d.lax_name.empty()) throw "op has no name";
  if (d.family == Family::kUnset) throw "op has no family";
  if (d.num_operands == kUnsetNumber) throw "op has no number of operands";
  if (d.lowering == Lowering::kUnset) throw "op has no lowering";
  if (!d.infer) throw "op has no inference";
  if (!d.factors) throw "op has no factor signature";
  if (d.sharding.kind == Rule<TypeFn>::kUnset) throw "op has no Explicit-sharding rule";
  if (d.varying.kind == Rule<TypeFn>::kUnset) throw "op has no varying-axes rule";
  if (d.jvp.kind == Rule<JvpFn>::kUnset) throw "op has no jvp rule";
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) throw "op has no transpose rule";
  if (d.batch.kind == Rule<BatchFn>::kUnset) throw "op has no batching rule";
  if (d.partition.kind == Rule<PartitionFn>::kUnset) throw "op has no partition rule";
  if (d.cost.kind == Rule<CostFn>::kUnset) throw "op has no cost rule";
  const bool computes = !d.regions.empty() && d.regions[0] == RegionRole::kComputation;
  for (size_t i = 0; i < d.regions.size(); ++i) {
    if (computes != (d.regions[i] == RegionRole::kComputation))
      throw "op has computations beside other regions";
    if (d.has_rules() && i > 0 && d.regions[i] != RegionRole::kRule)
      throw "op with derivative rules has more than one other region";
  }
  if (d.has_rules() != (d.rule_params != nullptr))
    throw "op has no types for the params of its rules, or has them without rules";
  if (d.has_planned_regions() != (d.data_flow != nullptr))
    throw "op has no data flow, or has one without regions to plan";
  if (d.has_planned_regions() && !d.partial_eval) throw "op with regions has no partial evaluation";
  if (!d.scalar.eval && !d.index_map && !d.contraction_map && !d.eval && !d.eval_shards)
    throw "op has no evaluator";
  // The lowering promises a backend certain fields.
  if ((d.lowering == Lowering::kScalar) != (d.scalar.record != nullptr))
    throw "op has no scalar graph, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kRegion) != d.has_planned_regions())
    throw "op has no region, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kReduce || d.lowering == Lowering::kContract ||
       d.lowering == Lowering::kScan) &&
      d.reduce == ReduceKind::kNone && !(d.lowering == Lowering::kReduce && computes))
    throw "op has no combiner";
  if (computes && !d.eval) throw "op with a computation has no evaluator";
  if ((d.lowering == Lowering::kIndexMap || d.lowering == Lowering::kDynamicIndex) !=
      (d.index_map != nullptr))
    throw "op has no index map, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kScatter) != (d.scatter_map != nullptr))
    throw "op has no scatter map, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kContract) != (d.contraction_map != nullptr))
    throw "op has no contraction map, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kSort) != (d.sort != nullptr))
    throw "op has no order of its rows, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kHost || d.lowering == Lowering::kSort ||
       d.lowering == Lowering::kScan || d.lowering == Lowering::kScatter) &&
      !d.eval)
    throw "op may be the host's, and has no evaluator";
  if ((d.lowering == Lowering::kCollective) != (d.collective != CollectiveKind::kNone))
    throw "op has no kind of collective, or has one and is lowered otherwise";
  if ((d.collective != CollectiveKind::kNone) != (d.batch_along != nullptr))
    throw "op has no rule for collectives along a batch, or has one and is no collective";
  if (InfoOf(d.collective).combines && d.reduce == ReduceKind::kNone)
    throw "op has no combiner for what it exchanges";
  if (d.has_planned_regions() && d.jvp.written() && !d.jvp_emits_primals)
    throw "op has no primals: the jvp of an op with regions emits them";
  return d;
}

// Whether the op, or one in its regions, is run for what it does.
inline bool HasEffects(const Op& op) {
  if (op.def->effect) return true;
  for (const FunctionRef& region : op.regions)
    if (region->effects) return true;
  return false;
}

// Every op of ops.def, in order; lookup by wire name (null when unknown).
absl::Span<const OpDef* const> AllOps();
const OpDef* FindOp(std::string_view wire_name);

// Derived rules, called by the generic walks when a rule is `Derived{}`.
namespace derive {
absl::Status ShardingByFactors(const InferContext&, std::vector<Type>* out);
absl::Status VaryingAllEqual(const InferContext&, std::vector<Type>* out);
// Its parts: operands vary over the same axes; and the axes along which operands are reduced, where
// each must be reduced or unreduced.
absl::Status CheckVaryingEqual(const InferContext&);
absl::StatusOr<AxisSet> ReducedOf(const InferContext&);
std::vector<Value> LinearJvp(const RuleContext&, Values tangents);
Batched ElementwiseBatch(const RuleContext&, absl::Span<const int> dims, int64_t size);
// An operand that is the same for the whole batch, with a batch dim of this size at `dim`: sharded,
// and varying, as those of batched values are.
Value WithBatchDim(const RuleContext&, Value x, int dim, int64_t size);
std::vector<Value> PartitionByFactors(const RuleContext&, const PartitionContext&);
// The combination of what the shards along `axes` have. Requires: `kind` is a reduction's that is
// not an index.
Value Complete(Value local, ReduceKind kind, const AxisList& axes);
Cost CostByFactors(const InferContext&, absl::Span<const Type> out);
// Evaluates an op with an index map.
absl::StatusOr<std::vector<Array>> EvalIndexMap(const EvalContext&, absl::Span<const Array> in);
// What operand 0, of shape `from`, fills of an array of shape `to` that it is padded to, as op pad
// says; nullopt: nothing.
std::optional<IndexPiece> PadPiece(const Dims& from, const Dims& to, const Dims& low,
                                   const Dims& interior);
// Evaluates a contraction: floats are summed in double, integers modulo 2^64.
absl::StatusOr<std::vector<Array>> EvalContraction(const EvalContext&, absl::Span<const Array> in);
}  // namespace derive

// Throws the error of an unsupported rule:
// "Differentiation rule for 'pmax' not implemented: <reason> (model.cc:41)".
[[noreturn]] void ThrowRefused(std::string_view what, const OpDef& def, std::string_view reason,
                               const Site& site);
// Operand i, for a transpose rule that reads it.  Throws if it is linear too: the op is then not
// linear in its operands, as in x * x.
Value NonLinearOperand(const RuleContext& c, int i);

}  // namespace tessera::ir
