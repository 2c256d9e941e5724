// Defines what an op is: one constant of type OpDef, complete at compile time.
//
// A rule is a pure function over IR types and values: no I/O, no device, no globals, no clock. Each
// rule is written, derived from the family, or unsupported with a reason that the user reads; an
// unset rule does not compile (Checked). The rules of transforms see the op with operands and
// results already mapped into the function that the transform builds. Rules throw StatusException
// on user errors (docs/decisions/0001).
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/collective.h"
#include "ir/op_kinds.h"
#include "ir/program.h"
#include "ir/scalar_graph.h"
#include "ir/value.h"

namespace tessera::ir {

// ---- The inputs of inference. ----------------------------------------------------------------
struct InferContext {
  const OpDef& def;
  const Scope& scope;
  absl::Span<const Type> in;
  const Attrs& attrs;
  absl::Span<const FunctionRef> regions;
};
// Infers shape, dtype and weak flag of each result. Shardings and manual axes types come from the
// rules `sharding` and `varying` of OpDef. An op with regions infers complete types itself; its
// `sharding` and `varying` are then the rule `KeepInferredTypes` (ops/rules/family.h), which
// changes nothing.
using InferFn = absl::StatusOr<std::vector<Type>> (*)(const InferContext&);
// Adds to `out`, the types that inference returned, their Explicit shardings or their manual axes
// types.
using TypeFn = absl::Status (*)(const InferContext&, std::vector<Type>* out);

// ---- Factors: the op's indices, as in einsum. --------------------------------------------------
// The kinds of factors. kPassThrough: the index is in operands and results, and each device applies
// the same op to its shards. kReduction: the index is in operands only, and the signature's
// ReduceKind combines the elements along it. kReplicated: the index must not be sharded (Shardy's
// need-replication). kPermutation: the index is in operands and results; where it is sharded, the
// op's `partition` exchanges the data that a shard needs from other shards. Reference: Shardy's
// sharding rules.
enum class FactorKind : uint8_t { kPassThrough, kReduction, kReplicated, kPermutation };
struct Factor {
  FactorKind kind;
  int64_t size;
};
using FactorList = std::vector<int>;            // the factors of one dim, major to minor
using TensorFactors = std::vector<FactorList>;  // the factors of each dim
// The factors of an op, and for each operand and result the factors that its dims consist of. A
// FactorList holds indices into `factors`.
struct Signature {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands, results;
  ReduceKind reduce = ReduceKind::kNone;

  // Adds a factor and returns its index.
  int Add(FactorKind kind, int64_t size) {
    factors.push_back({kind, size});
    return static_cast<int>(factors.size()) - 1;
  }
};
using FactorsFn = Signature (*)(const InferContext&, absl::Span<const Type> out);

// ---- The inputs of a transform's rule. --------------------------------------------------------
struct RuleContext {
  Builder& b;
  const OpDef& def;
  const Attrs& attrs;
  absl::Span<const FunctionRef> regions;
  std::vector<Value> in, out;  // in the function being built; transpose: linear ones are absent
  std::vector<Type> in_types, out_types;  // types in the source program
  MappedAxis batch = {};                  // for batching rules: the axis that is mapped
};
// Returns the tangents of the results, given the tangents of the operands. A default Value is a
// symbolic zero. `out` already holds the primal results, except for ops with regions
// (jvp_emits_primals): their `out` is empty, and the rule returns the primal results followed by
// the tangents.
using JvpFn = std::vector<Value> (*)(const RuleContext&, Values tangents);
// Returns the cotangents of the linear operands, given the cotangents of the results. `linear[i]`
// marks the operands to differentiate. The returned entries of other operands are ignored.
using TransposeFn = std::vector<Value> (*)(const RuleContext&, Values cotangents,
                                           const std::vector<bool>& linear);
// Returns the batched results and the batch dim of each, or -1 for a result that is not batched.
// The context's `in` holds the operands; dims[i] is the batch dim of operand i, or -1 if it is not
// batched.
struct Batched {
  std::vector<Value> values;
  std::vector<int> dims;
};
// `size` is the size of the context's `batch`.
using BatchFn = Batched (*)(const RuleContext&, absl::Span<const int> dims, int64_t size);
// The input of a partition rule beside its RuleContext, whose `in` are shards of the operands,
// sharded as factor_axes say. The rule returns the shards of the results, with reductions
// completed.
struct PartitionContext {
  const Signature& signature;
  const std::vector<AxisList>& factor_axes;  // the axes of each factor, major to minor
  std::vector<Type> local_out;               // local types of the results
};
using PartitionFn = std::vector<Value> (*)(const RuleContext&, const PartitionContext&);
// Returns the attributes of the op when it is applied to shards. An op with a derived partition
// needs this rule if its attributes hold sizes of dims.
using LocalizeFn = Attrs (*)(const RuleContext&, const PartitionContext&);
// Returns the operands of the op when it is applied to shards, extended by the data that each shard
// needs from other shards. An op with a derived partition needs this rule if its windows reach over
// the edges of blocks.
using ExchangeFn = std::vector<Value> (*)(const RuleContext&, const PartitionContext&);
// Splits an op with regions into a known part, which needs no tangents, and an unknown part
// (transform/partial_eval.h calls it). `known` marks the known operands. The rule emits the known
// part through `known_b` and the rest through `unknown_b`. An op without this rule is known if all
// its operands are known.
struct PartialEvalContext;
using PartialEvalFn = void (*)(PartialEvalContext&);

// Describes how values flow between an op and one of its regions. The planner propagates shardings
// along these edges. Reference: Shardy's data-flow edges.
struct DataFlowEdge {
  // `outer` is the index of an operand or a result of the op, `inner` that of the matching param or
  // result of the region.
  int outer = 0, inner = 0;
  bool leading_dim = false;  // outer has a dim 0 that inner lacks, such as xs and ys of a scan
  DimAxes prefix = {};       // axes that shard outer and are Manual inside; empty if there are none
};
struct RegionDataFlow {
  std::vector<DataFlowEdge> operands, results;
  // Pairs of a region's param and result that share a sharding.
  std::vector<std::pair<int, int>> carries;
};
inline constexpr int64_t kUnknownTripCount = -1;
struct DataFlow {
  std::vector<RegionDataFlow> regions;  // one entry for each region
  AxisList manual_axes;  // axes that are Manual in the region; partitioning inlines such a body
  // How often the body runs, or kUnknownTripCount if the op has a predicate.
  int64_t trip_count = 1;
  bool reverse = false;   // the loop goes through leading dims from the end
  int branch_index = -1;  // index of the operand, an s32, that chooses the branch
};
using DataFlowFn = DataFlow (*)(const InferContext&);
// Returns the types of a derivative rule's params, given the op's operands and the regions before
// the rule. Requires: the op's inference has accepted those regions.
using RuleParamsFn = std::vector<Type> (*)(const InferContext&, size_t region);
// Returns the attributes of the op after some of its operands and results have been dropped. The
// masks mark the ones that are kept. The operand and the result of a carry are kept or dropped
// together.
using KeepFn = Attrs (*)(const Attrs&, const std::vector<bool>& operands,
                         const std::vector<bool>& results);
// The attributes of an op after it has got one more constant for region `k`, and the indices of the
// new operand and of the new param of the region.
struct AddedConstant {
  Attrs attrs;
  int operand = 0, param = 0;
};
using AddConstantFn = AddedConstant (*)(const Attrs&, size_t k);
// The attributes of an op with planned regions after it has got more operands and results, and the
// places of these: how many of the op's former operands come after the new ones, and how many of
// its results. The regions get the params and results in the same places, except that a predicate
// gets no results.
struct AddedValues {
  Attrs attrs;
  int operands_after = 0, results_after = 0;
};
// The new operands of a loop are carries, so there are as many new results. If manual axes are
// Manual in the region, the shards of each new value are concatenated along its dim 0, over these
// axes in the order of the mesh.
using AddValuesFn = AddedValues (*)(const InferContext&, int num_operands, int num_results);
// Returns how many calls of the host an op with an effect makes when it runs.
using NumCallsFn = int64_t (*)(const InferContext&);
// Returns the sharding that an op fixes for its result 0, or null if it fixes none.
using FixedShardingFn = const PartitionSpec* (*)(const Attrs&);

// ---- Index maps: a result described as strided copies. ------------------------------------------
// An offset that is known only at run time, in flat elements: stride * clamp(n, 0, max). Here j is
// an index within a piece of an IndexMap, and n is the element of the operand at the flat index
// offset + sum(strides * j).
struct DynamicOffset {
  int operand = 0;
  int64_t max = 0;
  int64_t stride = 0;
  int64_t offset = 0;
  Dims strides = {};  // per dim of the piece; if empty, all are 0
};
// A strided copy into the result. The element with index j of the piece goes to the index start +
// step * j of the result, moved by the offsets in `write`, which have no strides. It is read from
// the source at the flat index offset + sum(strides * j) plus the offsets in `read`. The source is
// an operand, the literal, or an iota, which yields the flat index itself, converted to the
// result's dtype.
struct IndexPiece {
  static constexpr int kIota = -1, kLiteral = -2;
  int source = kIota;       // index of an operand, or kIota or kLiteral
  Dims start, step, shape;  // per dim of the result
  int64_t offset = 0;
  Dims strides;
  std::vector<DynamicOffset> read, write;
  // If true, an element gets the value of the literal, a scalar, where an offset in `read` had to
  // be clamped. A piece that is filled covers all of the result, in order, and its source is an
  // operand.
  bool fills = false;
};
// The pieces together cover the result. Later pieces overwrite earlier ones.
struct IndexMap {
  std::vector<IndexPiece> pieces;
  std::optional<Array> literal;
  // Whether the map is about the real and imaginary parts of complex numbers. Offsets and strides
  // then count parts, and each complex array has an additional last dim of size two, also in
  // `start`, `step` and `shape`. No piece of such a map is the literal.
  bool indexes_complex_parts = false;
};
using IndexMapFn = IndexMap (*)(const InferContext&, absl::Span<const Type> out);
// Returns whether the piece alone fills a result of type `out` with the elements of its source in
// order, beginning with the first one.
bool IsWhole(const IndexPiece& piece, const Type& out);

// ---- Scatters. ---------------------------------------------------------------------------------
// The operands of a scatter are one array for each result, then the indices, then the updates of
// each result. A result begins as a copy of its array. A ScatterMap says which element each update
// goes to. An op with a `reduce` or a computation combines the update with that element; any other
// op overwrites it. The update for index j of `shape` is the element of the updates at the flat
// index sum(read * j). It goes to the element of the result at the flat index sum(write * j), moved
// by the offsets in `shifts`.
struct ScatterMap {
  Dims shape;
  // How many leading dims of `shape` are parallel: two indices that differ along them never go to
  // the same element. Along the other dims the updates are applied one after the other, in
  // row-major order.
  int num_parallel = 0;
  Dims read, write;
  std::vector<DynamicOffset> shifts;
  bool drops = false;  // an update is dropped if an offset had to be clamped
};
using ScatterMapFn = ScatterMap (*)(const InferContext&);
// ---- Sorting: results as rows of the operands in another order. --------------------------------
// The operands have the same shape, and each yields one result. A row is the elements along
// `dimension`. All operands are reordered alike, by the keys of their rows. Unless `descending`,
// numbers ascend, -0 counts as +0, NaNs are last, and false comes before true. Equal keys keep
// their order.
struct SortRule {
  int dimension = 0;
  // The number of leading operands that are keys; a later key decides among equals.
  int num_keys = 1;
  bool descending = false;  // descending, in IEEE's total order: -0 below +0, NaNs by their sign
  // The number of elements that are kept of each sorted row; all of them if absent.
  std::optional<int64_t> kept = {};
  bool returns_indices = false;  // adds a last result, of s32: the former index of each element
};
using SortFn = SortRule (*)(const Attrs&);

// ---- Contractions: result[b, m, n] = sum over k of a[b, m, k] b[b, k, n]. ----------------------
// Each of b, m, n and k stands for any number of dims. Operands and result are read and written at
// strides, in flat elements, so that windows of operand 0 may overlap.
struct ContractionMap {
  // The numbers of zeros that are first put before, after and between the elements of operand 0
  // along each dim. Empty if there are no zeros.
  Dims low, high, interior;
  int a = 0;  // index of the operand that is a; the other operand is b
  Dims batch, m, n, k;
  Dims a_strides;  // strides of a over batch, m, k
  Dims b_strides;  // strides of b over batch, k, n
  Dims c_strides;  // strides of the result over batch, m, n
};
using ContractionMapFn = ContractionMap (*)(const InferContext&, absl::Span<const Type> out);
// Returns the shape of operand 0 including the zeros of `map`.
Dims PaddedShape(const ContractionMap& map, const Dims& shape);

struct Cost {
  double flops = 0;
  double bytes = 0;  // bytes read and written
};
using CostFn = Cost (*)(const InferContext&, absl::Span<const Type> out);

// ---- Reference semantics. ----------------------------------------------------------------------
// The meaning of an elementwise op: out[k][i] = f(in[0][i], ...) for n elements, computed in the
// compute type and rounded to the dtype. `operand` is the dtype of the last operand (the cases of
// select, the bounds of clamp), and `result` the dtype of result 0. Operands are already broadcast
// to n elements.
struct Scalar {
  void (*eval)(const Attrs&, DType operand, DType result, const void* const* in, void* const* out,
               int64_t n) = nullptr;
  // Records the function as a graph of scalar primitives, with one root for each result.
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
// Returns an upper bound of the bytes that the evaluation of the op allocates besides the results.
using ScratchFn = int64_t (*)(const InferContext&, absl::Span<const Type> out);
// Returns about how many operations (eval/uninterrupted.h) the evaluation of the op does between
// two polls of EvalOptions::check_cancel. For example, nothing can interrupt a call of a library.
using UninterruptedFn = double (*)(const InferContext&, absl::Span<const Type> out);
// Ops with regions and collectives see the shards of all mesh coordinates at once:
// in[operand][shard].
using EvalShardsFn = absl::StatusOr<std::vector<Shards>> (*)(const EvalContext&,
                                                             absl::Span<const Shards> in);

// ---- Rules. ------------------------------------------------------------------------------------
// A rule of an op: unset, a function, derived, or refused. If a rule is refused, the op has none:
// errors say that the rule is not implemented, and give `reason`.
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
// A rule with the value Derived{} is derived from the family. jvp: the op is linear in all operands
// at once, so it is applied to the tangents. batch: the op is elementwise. partition: the op runs
// on local shards, then reductions are completed. sharding: the shardings of the operands are
// unified factor by factor. varying: all operands must vary over the same axes.
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
  // Name on the wire and in text: StableHLO's, or lax's if StableHLO has none.
  std::string_view name;
  std::string_view lax_name;  // lax's name, for error texts
  Family family = Family::kUnset;
  int num_operands = kUnsetNumber;            // a number, or kAnyNumber
  absl::Span<const RegionRole> regions = {};  // roles of the regions
  bool repeats_region = false;  // the last region may occur any number of times, but at least once
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
  // The batching rule of a collective whose `axes` name the mapped axis itself. Here and below, a
  // comment that names ops says which ops set the field.
  BatchFn batch_along = nullptr;
  Rule<PartitionFn> partition = {};
  LocalizeFn localize = nullptr;
  ExchangeFn exchange = nullptr;
  PartialEvalFn partial_eval = nullptr;
  DataFlowFn data_flow = nullptr;        // ops whose regions are planned
  RuleParamsFn rule_params = nullptr;    // ops with derivative rules
  KeepFn keep = nullptr;                 // ops with attributes about operands or results
  AddConstantFn add_constant = nullptr;  // ops that repeat a region
  // Ops with planned regions that need not keep their attributes when they get more operands and
  // results, or that do not take these as the last ones.
  AddValuesFn add_values = nullptr;
  FixedShardingFn fixed_sharding = nullptr;
  Rule<CostFn> cost = {};
  Scalar scalar = {};                          // elementwise ops
  IndexMapFn index_map = nullptr;              // ops that are index maps
  ScatterMapFn scatter_map = nullptr;          // scatters
  ContractionMapFn contraction_map = nullptr;  // contractions
  EvalFn eval = nullptr;                       // ops without scalar, index_map and contraction_map
  ScratchFn scratch = nullptr;                 // ops whose eval takes additional memory
  UninterruptedFn uninterrupted = nullptr;     // ops whose eval calls a library or works in pieces
  EvalShardsFn eval_shards = nullptr;          // ops with regions and collectives
  ReduceKind reduce = ReduceKind::kNone;
  // The kind of a collective over the group that attribute `axes` names. all_gather concatenates
  // along `all_gather_dimension`; reduce_scatter splits along `scatter_dimension`; all_to_all
  // splits along `split_dimension` and concatenates along `concat_dimension`; without `tiled` that
  // dim is removed or inserted. The pairs of a permute are the attribute `perm`.
  CollectiveKind collective = CollectiveKind::kNone;
  SortFn sort = nullptr;    // sorting ops
  bool has_effect = false;  // the op has an effect, so it is run even if nobody uses its results
  NumCallsFn num_calls = nullptr;  // ops with an effect that may make several calls; else one

  // Returns the role of region i. An op that repeats a region may have more regions than `regions`
  // lists.
  constexpr RegionRole RoleOf(size_t i) const {
    return i < regions.size() ? regions[i] : regions.back();
  }
  constexpr bool has_planned_regions() const {
    return !regions.empty() && regions[0] != RegionRole::kComputation &&
           regions[0] != RegionRole::kRule;
  }
  // Whether the op has derivative rules. All regions but the first are then rules; the first is one
  // too if the op has no planned region.
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
  const bool has_computations = !d.regions.empty() && d.regions[0] == RegionRole::kComputation;
  for (size_t i = 0; i < d.regions.size(); ++i) {
    if (has_computations != (d.regions[i] == RegionRole::kComputation))
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
  // The lowering promises a backend that certain fields are set.
  if ((d.lowering == Lowering::kScalar) != (d.scalar.record != nullptr))
    throw "op has no scalar graph, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kRegion) != d.has_planned_regions())
    throw "op has no region, or has one and is lowered otherwise";
  if ((d.lowering == Lowering::kReduce || d.lowering == Lowering::kContract ||
       d.lowering == Lowering::kScan) &&
      d.reduce == ReduceKind::kNone && !(d.lowering == Lowering::kReduce && has_computations))
    throw "op has no combiner";
  if (has_computations && !d.eval) throw "op with a computation has no evaluator";
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

// Returns whether the op, or an op in its regions, has an effect.
inline bool HasEffects(const Op& op) {
  if (op.def->has_effect) return true;
  for (const FunctionRef& region : op.regions)
    if (region->has_effects) return true;
  return false;
}

// Derived rules that emit no ops. They are called when a rule is `Derived{}`. ops/rules/derived.h
// has those that emit ops.
namespace derive {
absl::Status ShardingByFactors(const InferContext&, std::vector<Type>* out);
absl::Status VaryingAllEqual(const InferContext&, std::vector<Type>* out);
// The two parts of VaryingAllEqual. CheckVaryingEqual checks that all operands vary over the same
// axes. CommonReducedAxes returns the axes along which operands are reduced; along these each
// operand must be reduced or unreduced.
absl::Status CheckVaryingEqual(const InferContext&);
absl::StatusOr<AxisSet> CommonReducedAxes(const InferContext&);
Cost CostByFactors(const InferContext&, absl::Span<const Type> out);
// Evaluates an op that has an index map.
absl::StatusOr<std::vector<Array>> EvalIndexMap(const EvalContext&, absl::Span<const Array> in);
// Returns the piece that operand 0, of shape `from`, fills when it is padded to shape `to` as the
// op pad says. Returns nullopt if it fills nothing.
std::optional<IndexPiece> PadPiece(const Dims& from, const Dims& to, const Dims& low,
                                   const Dims& interior);
// Evaluates a contraction. Floats are summed in double, integers modulo 2^64.
absl::StatusOr<std::vector<Array>> EvalContraction(const EvalContext&, absl::Span<const Array> in);
}  // namespace derive

}  // namespace tessera::ir
