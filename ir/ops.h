// The ops as functions on Values. Rules and the SDK build programs with them.
//
// The functions insert the implicit casts of JAX's public API: a weak literal takes the dtype of
// the other operand, and an invarying operand gets `pvary` if another operand varies. Elementwise
// ops of two operands broadcast scalars and, between arrays of the same rank, dims of size 1, as
// lax does. Broadcasting between different ranks is done by the client (client/numpy.h). All
// functions throw StatusException.
#pragma once
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/array.h"
#include "ir/builder.h"
#include "ir/checkpoint_policy.h"
#include "ir/gather_scatter.h"
#include "ir/precision.h"
#include "ir/program.h"

namespace tessera::ir {

namespace ops {
#define TESSERA_OP(Symbol, wire, lax) extern const OpDef k##Symbol;
#define TESSERA_UNARY TESSERA_OP
#define TESSERA_BINARY TESSERA_OP
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP
}  // namespace ops

// ---- elementwise.cc ----
#define TESSERA_OP(Symbol, wire, lax)
#define TESSERA_UNARY(Symbol, wire, lax) Value Symbol(Value x);
#define TESSERA_BINARY(Symbol, wire, lax) Value Symbol(Value x, Value y);
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP
inline Value operator-(Value x) { return Neg(x); }
inline Value operator+(Value x, Value y) { return Add(x, y); }
inline Value operator-(Value x, Value y) { return Sub(x, y); }
inline Value operator*(Value x, Value y) { return Mul(x, y); }
inline Value operator/(Value x, Value y) { return Div(x, y); }
// Applies an op without attributes to operands that agree (see Harmonize). Arithmetic and functions
// of complex numbers are composed of ops on their real and imaginary parts (ops/rules/complex.cc).
Value Elementwise(const OpDef& def, std::vector<Value> operands);
// `direction` is one of StableHLO's EQ NE LT LE GT GE. Compare compares floats by value: with a NaN
// on either side only NE is true. CompareTotalOrder uses the total order, in which -0 is below 0, a
// NaN with its sign bit set is below all numbers, and any other NaN is above them.
Value Compare(Value x, Value y, std::string_view direction);
Value CompareTotalOrder(Value x, Value y, std::string_view direction);
// Returns the elements of `on_true` where `pred` is true and those of `on_false` elsewhere. `pred`
// is a bool array: a scalar, or of the shape of the cases.
Value Select(Value pred, Value on_true, Value on_false);
Value Clamp(Value min, Value x, Value max);  // min and max: scalars or of x's shape
Value Convert(Value x, DType dtype);  // not weak; returns x itself if x already has that type
// Reinterprets the bits of x. If an element of x has more bits than `dtype`, it becomes several
// elements along a new last dim, the lowest bits first. If it has fewer bits, the elements along
// the last dim together become one element.
Value BitcastConvert(Value x, DType dtype);
Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits);
Value Square(Value x);
Value IntegerPow(Value x, int64_t y);  // functions.cc
Value StopGradient(Value x);
// Returns x under a name by which the policies of Checkpoint know it.
Value CheckpointName(Value x, std::string name);
// Inserts the casts by which operands agree in dtype (weak types), in shape (scalars and dims of
// size 1 are broadcast) and in the axes along which they vary.
std::vector<Value> Harmonize(std::vector<Value> operands);
// Returns x on a mesh with Explicit axes, with its dims sharded as `dims` says (empty: not at all),
// and unreduced and reduced along the given Explicit axes. The summands along an axis are added up
// if x is unreduced along it and the result is not. Reference: jax.sharding.reshard.
Value Reshard(Value x, DimAxes dims, const AxisSet& unreduced = {}, const AxisSet& reduced = {});
// Returns x as a value that is reduced along `axes`, which are Manual or Explicit. Requires: the
// shards of x along these axes are equal.
Value ReducedAlong(Value x, const AxisSet& axes);
// Makes only the varying axes agree: each operand gets `pvary` over the axes along which another
// operand varies and it does not.
std::vector<Value> MatchVarying(std::vector<Value> operands);

// ---- data_movement.cc ----
Value Constant(Builder& b, Array literal);  // `literal` has rank 0
Value Constant(Builder& b, DType dtype, double value);
Value Full(Builder& b, DType dtype, Dims shape, double value);
// Returns a constant with the shape, dtype, sharding and varying axes of x.
Value FullLike(Value x, double value);
// Returns a constant with the shape, dtype, sharding and varying axes of `like`.
Value Full(Builder& b, const Type& like, double value);
Value Zeros(Builder& b, const Type& like);
Value Iota(Builder& b, DType dtype, Dims shape, int dimension);
Value BroadcastInDim(Value x, Dims shape, std::vector<int64_t> broadcast_dimensions);
Value Reshape(Value x, Dims shape);
Value Transpose(Value x, std::vector<int64_t> permutation);
Value Slice(Value x, Dims start_indices, Dims limit_indices, Dims strides = {});
Value SliceInDim(Value x, int dim, int64_t start, int64_t limit);
Value Concatenate(std::vector<Value> xs, int dimension);
// The amounts `low` and `high` may be negative; `interior` must not be.
Value Pad(Value x, Value padding_value, std::vector<int64_t> low, std::vector<int64_t> high,
          std::vector<int64_t> interior = {});
Value Reverse(Value x, std::vector<int64_t> dimensions);
// BroadcastNewDim gives x a new dim of `size` at `dim`. MoveDim moves one dim, Squeeze drops dims
// of size 1, and ExpandDims adds dims of size 1. All four are composed of other ops.
Value BroadcastNewDim(Value x, int dim, int64_t size);
Value MoveDim(Value x, int from, int to);
Value Squeeze(Value x, std::vector<int64_t> dims);
Value ExpandDims(Value x, std::vector<int64_t> dims);

// ---- indexing.cc ----
// There is one start index, an integer of rank 0, for each dim. The start indices are clamped so
// that the slice is within bounds.
Value DynamicSlice(Value x, std::vector<Value> starts, Dims slice_sizes);
Value DynamicUpdateSlice(Value x, Value update, std::vector<Value> starts);
// DynamicIndexInDim returns the element of x at index `i` of `dim`, and drops that dim.
// DynamicUpdateIndexInDim is the inverse: it writes `row` there.
Value DynamicIndexInDim(Value x, Value i, int dim);
Value DynamicUpdateIndexInDim(Value x, Value row, Value i, int dim);

// ---- gather.cc, scatter.cc; ScatterBy: regions/scatter_by.cc ----
// `fill_value` is a scalar of x's dtype. If it is not given, it is NaN, the lowest signed number,
// the highest unsigned number, or true, depending on the dtype.
Value Gather(Value x, Value start_indices, const GatherDimensionNumbers& dims, Dims slice_sizes,
             const GatherScatterOptions& options = {}, std::optional<Array> fill_value = {});
// Updates are written in the row-major order of their index vectors. If several go to one element,
// the last one stays.
Value Scatter(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
              const GatherScatterOptions& options = {});
Value ScatterAdd(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options = {});
Value ScatterMul(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options = {});
Value ScatterMin(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options = {});
Value ScatterMax(Value x, Value indices, Value updates, const ScatterDimensionNumbers& dims,
                 const GatherScatterOptions& options = {});
// `computation` is a function of scalars: (elements..., updates...) -> (elements...). It is applied
// once for each update, in the order of the index vectors. If one of the scatters above does the
// same, that op is emitted instead.
std::vector<Value> ScatterBy(std::vector<Value> xs, Value indices, std::vector<Value> updates,
                             FunctionRef computation, const ScatterDimensionNumbers& dims,
                             const GatherScatterOptions& options = {});

// ---- reduction.cc ----
Value ReduceSum(Value x, std::vector<int64_t> dimensions);
Value ReduceProd(Value x, std::vector<int64_t> dimensions);
Value ReduceMax(Value x, std::vector<int64_t> dimensions);
Value ReduceMin(Value x, std::vector<int64_t> dimensions);
Value ReduceAnd(Value x, std::vector<int64_t> dimensions);
Value ReduceOr(Value x, std::vector<int64_t> dimensions);
Value ArgMax(Value x, int dimension, DType index_dtype = DType::kS32);
Value ArgMin(Value x, int dimension, DType index_dtype = DType::kS32);

// ---- regions/reduce.cc ----
// `computation` is an associative function of scalars: (elements..., elements...) -> (elements...).
// Each of `inits`, a scalar, is combined before all elements. If one of the reductions above does
// the same, that op is emitted instead.
std::vector<Value> Reduce(std::vector<Value> xs, std::vector<Value> inits, FunctionRef computation,
                          std::vector<int64_t> dimensions);

// ---- regions/computation.cc ----
// Applies a computation of scalars to each element of arrays of one shape, as StableHLO's `map`
// does.
std::vector<Value> MapComputation(FunctionRef computation, std::vector<Value> xs);

// ---- cumulative.cc ----
// Combines each element along `dimension` with the elements before it, or, with `reverse`, with the
// elements after it.
Value Cumsum(Value x, int dimension, bool reverse = false);
Value Cumprod(Value x, int dimension, bool reverse = false);
Value Cummax(Value x, int dimension, bool reverse = false);
Value Cummin(Value x, int dimension, bool reverse = false);
Value Cumlogsumexp(Value x, int dimension, bool reverse = false);

// ---- sort.cc; SortBy: regions/sort_by.cc ----
// Sorts arrays of one shape in ascending order along `dimension`, by the first `num_keys` of them.
// NaNs are last.
std::vector<Value> Sort(std::vector<Value> xs, int dimension, bool is_stable = true,
                        int num_keys = 1);
// Sorts arrays of one shape along `dimension` by a function of scalars, `comparator`: (left of x0,
// right of x0, left of x1, ...) -> bool. It returns whether the left elements come before the right
// ones. Equal elements keep their order. If the comparator is not an order, the resulting order is
// unspecified.
std::vector<Value> SortBy(std::vector<Value> xs, FunctionRef comparator, int dimension,
                          bool is_stable = true);
// Returns the k largest elements along `dimension`, descending, and their indices (s32). Among
// equal elements the one with the smallest index comes first. Floats are ordered by IEEE's total
// order, as in XLA: -0 is below +0; a NaN is above infinity, or below everything if its sign bit is
// set.
std::pair<Value, Value> TopK(Value x, int64_t k, int dimension);

// ---- contraction.cc ----
struct DotDims {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};
// The dims of the result are the batch dims, the free dims of lhs, then the free dims of rhs. Where
// the Explicit shardings of the operands leave the sharding of the result open, `out_sharding`
// states it. Products are added up in `preferred_element_type`, which is also the dtype of the
// result; without it, in the operands' dtype.
Value DotGeneral(Value lhs, Value rhs, const DotDims& dims,
                 const PartitionSpec* out_sharding = nullptr,
                 std::optional<DType> preferred_element_type = {},
                 Precision precision = Precision::kDefault);
Value Matmul2D(Value lhs, Value rhs);  // [m,k] x [k,n]

// ---- convolution.cc ----
// The dims of each array in a fixed order. lhs_spec and out_spec list the batch dim, the features
// and the spatial dims. rhs_spec, for the kernel, lists the features of the result, the features of
// the input and the spatial dims.
struct ConvDimensionNumbers {
  std::vector<int64_t> lhs_spec, rhs_spec, out_spec;
};
// The lists have one entry for each spatial dim. An empty list means 1 everywhere, or no padding.
struct ConvOptions {
  std::vector<int64_t> window_strides = {};
  // The numbers of zeros before and after the elements; may be negative.
  std::vector<std::pair<int64_t, int64_t>> padding = {};
  std::vector<int64_t> lhs_dilation = {}, rhs_dilation = {};  // the distance between elements
  int64_t feature_group_count = 1, batch_group_count = 1;
  std::optional<DType> preferred_element_type = {};
  const PartitionSpec* out_sharding = nullptr;
  Precision precision = Precision::kDefault;
};
Value ConvGeneralDilated(Value lhs, Value rhs, const ConvDimensionNumbers& dims,
                         ConvOptions options = {});

// ---- sliding_window.cc; ReduceWindow, SelectAndScatter: regions/reduce_window.cc ----
// Returns the windows of x along `dimensions`. In the result each of these dims counts windows, and
// one additional dim for each, behind x's own dims, counts the elements of a window. For the i-th
// of these dims, a window has window_dimensions[i] elements that are window_dilations[i] apart, and
// the next window begins window_strides[i] later.
Value SlidingWindowView(Value x, std::vector<int64_t> dimensions,
                        std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
                        std::vector<int64_t> window_dilations);
// The windows along each dim. The padding may be negative.
struct WindowDimensions {
  std::vector<int64_t> sizes, strides, base_dilations, dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;

  // Returns the number of elements of a window.
  int64_t elements_per_window() const;
};
// Combines the elements of arrays of one shape over each window, as Reduce does. Composite: the
// arrays are padded by the initial values, then reduced over their windows. If the computation has
// no reduction op of its own, windows of up to kWindowElementsInTurnMax elements are combined one
// element after the other, so that the computation need not be associative.
inline constexpr int64_t kWindowElementsInTurnMax = 64;
std::vector<Value> ReduceWindow(std::vector<Value> xs, std::vector<Value> inits,
                                FunctionRef computation, const WindowDimensions& window);
// Returns an array of x's shape that is filled with `init` and into which `scatter` combines the
// elements of `source`. Each element of `source` goes to the element of x that `select`, applied
// pairwise, keeps from its window; elements beyond x's ends are not considered. Composite: a
// reduction over windows finds the positions, and a scatter writes there.
Value SelectAndScatter(Value x, Value source, Value init, FunctionRef select, FunctionRef scatter,
                       const WindowDimensions& window);

// ---- complex.cc ----
// Functions of complex numbers (c64 or c128) and of their parts (f32 or f64).
Value Real(Value x);
Value Imag(Value x);
Value Complex(Value re, Value im);
Value Conj(Value x);

// ---- solves.cc ----
// Cholesky returns the lower factor l of x = l l^H, or, with `lower` false, the upper factor u of x
// = u^H u. The other triangle of x is not read. The result is NaN where x is not positive definite.
// In this and all functions of linear algebra below, the last two dims are those of a matrix, of
// f32, f64, c64 or c128; the dims before them are a batch. x^H is the conjugate of x's transpose.
Value Cholesky(Value x, bool lower = true);
struct TriangularSolveOptions {
  bool left_side = true;                      // solves op(a) y = b for y, otherwise y op(a) = b
  bool lower = false;                         // which triangle of a is read
  bool transpose = false, conjugate = false;  // op(a) is a, its transpose, its conjugate, or both
  bool unit_diagonal = false;                 // the diagonal of a is all ones, and is not read
};
Value TriangularSolve(Value a, Value b, const TriangularSolveOptions& options = {});
// Solves t x = b for x. b is [..., n, k], and t is given by its diagonals, each [..., n]: row i of
// t is below[i], diagonal[i], above[i]. The first element of `below` and the last of `above` are
// not part of t. The result is NaN where t is singular.
Value TridiagonalSolve(Value below, Value diagonal, Value above, Value b);

// ---- factorizations.cc ----
// The factors l and u of x, [..., m, n], with its rows permuted. l, with ones on the diagonal, is
// the part of `lu` below the diagonal, and u is the part on and above it. For i = 0, 1, ... in
// turn, row i was swapped with row pivots[i]. `permutation` lists the rows of x in their order
// after the swaps.
struct LuResult {
  Value lu, pivots, permutation;
};
LuResult Lu(Value x);
// Factors x = q r. Returns an array that holds r on and above the diagonal and, below it, the
// Householder reflectors whose product is q; and taus, the scalar factors of the reflectors.
// HouseholderProduct returns q, given the two results.
std::pair<Value, Value> Geqrf(Value x);
Value HouseholderProduct(Value a, Value taus);
// The results of Geqrf (packed, taus) for x with its columns in the order `pivots` (s32, counted
// from 1), which makes the absolute values on r's diagonal descend. Columns where `first` (s32) is
// not 0 come before all others.
struct Geqp3Result {
  Value packed, pivots, taus;
};
Geqp3Result Geqp3(Value x, Value first);
// Returns q and r. q has its first min(m, n) columns, or all m with full_matrices.
std::pair<Value, Value> Qr(Value x, bool full_matrices = false);
// The factors q and r of x with its columns reordered, and the order of the columns of x (s32).
struct PivotedQrResult {
  Value q, r, pivots;
};
PivotedQrResult PivotedQr(Value x, bool full_matrices = false);

// ---- eigen.cc ----
// Returns the eigenvectors of x = x^H, as columns, and its eigenvalues, which are real and ascend.
// Only the triangle of x that `lower` selects is read.
std::pair<Value, Value> Eigh(Value x, bool lower = true);
// Returns s, descending, and with compute_uv also u and vt, of x = u diag(s) vt. `algorithm` is ""
// for divide and conquer, or "QR" for QR steps.
std::vector<Value> Svd(Value x, bool full_matrices, bool compute_uv,
                       std::string_view algorithm = "");
// Returns the eigenvalues of any square x, then its left eigenvectors (v^H x = w v^H) and right
// eigenvectors (x v = w v) as columns of length 1. All are complex. The vectors have derivatives
// only with enable_eigvec_derivs: these derivatives are right only where no eigenvalue is repeated.
struct EigOptions {
  bool left = true, right = true, enable_eigvec_derivs = false;
};
std::vector<Value> Eig(Value x, const EigOptions& options = {});
// Returns t, and with compute_schur_vectors also q, of x = q t q^H. t is triangular, or for real x
// has blocks of 2 on its diagonal.
std::vector<Value> Schur(Value x, bool compute_schur_vectors = true);
// Returns h of x = q h q^H, and taus, the scalar factors of the Householder reflectors whose
// product is q. h is zero below its first subdiagonal; the reflectors are stored there.
std::pair<Value, Value> Hessenberg(Value x);
// Like Hessenberg, for x = x^H: h is real and has three diagonals. Only one triangle is read and
// written.
struct TridiagonalResult {
  Value packed, diagonal, off_diagonal, taus;
};
TridiagonalResult Tridiagonal(Value x, bool lower = true);

// ---- random.cc ----
// Computes, for each element, one block of the cipher Threefry-2x32. All operands are u32; the keys
// are scalars or have the counters' shape. Reference: Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3" (2011).
std::pair<Value, Value> Threefry2x32(Value key0, Value key1, Value count0, Value count1);

// ---- collectives.cc ----
Value Psum(Value x, AxisList axes);
Value Pmax(Value x, AxisList axes);
Value Pmin(Value x, AxisList axes);
// `dimension` is the dim in which blocks are concatenated (tiled) or the position of the new dim.
// `to` is the state of the result along `axes`: "varying", "invarying" or "reduced".
Value AllGather(Value x, AxisList axes, int dimension, bool tiled, std::string_view to = "varying");
Value PsumScatter(Value x, AxisList axes, int scatter_dimension, bool tiled);
Value Ppermute(Value x, AxisList axes, std::vector<std::pair<int64_t, int64_t>> perm);
Value AllToAll(Value x, AxisList axes, int split_dimension, int concat_dimension, bool tiled);
Value AxisIndex(Builder& b, AxisList axes);  // s32, row-major over `axes`

// ---- casts.cc ----
// Casts that change how x varies along Manual axes: from invarying to varying or to reduced, from
// varying to unreduced, from reduced to varying. They return x itself if there are no axes, or if
// manual axes types are not tracked (Scope::check_vma).
Value Pvary(Value x, const AxisSet& axes);
Value Preduced(Value x, const AxisSet& axes);
Value VaryUnreducedCast(Value x, const AxisSet& axes);
Value ReducedVaryCast(Value x, const AxisSet& axes);

// ---- regions/control.cc, scan.cc, case.cc, while.cc, manual_computation.cc ----
std::vector<Value> Call(Builder& b, FunctionRef f, Values args, std::string_view name = "");
std::vector<Value> Checkpoint(Builder& b, FunctionRef f, Values args,
                              const CheckpointPolicy& policy = {});
std::vector<Value> OptimizationBarrier(Builder& b, Values xs);
// f is (consts..., carry..., x slices...) -> (carry..., y slices...). The operands are consts,
// carry, xs.
std::vector<Value> Scan(Builder& b, FunctionRef f, Values operands, int num_consts, int num_carry,
                        int64_t length, bool reverse = false);
// Runs the branch with the number `index` (s32, clamped) on the operands.
std::vector<Value> Case(Value index, std::vector<FunctionRef> branches, Values operands);
// predicate is (its consts..., carry...) -> bool, and body is (its consts..., carry...) ->
// (carry...). The operands are the consts of the predicate, the consts of the body, and the carry.
std::vector<Value> While(Builder& b, FunctionRef predicate, FunctionRef body, Values operands,
                         int num_predicate_consts, int num_body_consts);
// ManualScope returns the scope of a body. ManualShardTypes returns the types of the arguments'
// shards in that scope. Both throw the error of a manual_computation whose axes, arguments or specs
// do not fit together.
Scope ManualScope(const Scope& outer, const AxisList& manual_axes, bool check_vma);
std::vector<Type> ManualShardTypes(const Scope& outer, absl::Span<const Type> args,
                                   const std::vector<PartitionSpec>& in_specs,
                                   const AxisList& manual_axes, bool check_vma);
// A result whose out_spec names an axis along which it does not vary in the body is cast to
// varying.
std::vector<Value> ManualComputation(Builder& b, FunctionRef body, Values args,
                                     std::vector<PartitionSpec> in_specs,
                                     std::vector<PartitionSpec> out_specs, AxisList manual_axes,
                                     bool check_vma = true);
Value ShardingConstraint(Value x, PartitionSpec spec);

// ---- regions/custom_derivatives.cc ----
// f is (consts, args) -> results. rule is (consts, args, tangents of the inexact args) -> (results,
// tangents of the inexact results). The operands are consts, args. The consts have no tangents.
std::vector<Value> CustomJvpCall(Builder& b, FunctionRef f, FunctionRef rule, Values operands,
                                 int num_consts);
// f is (consts, args) -> results. fwd is (consts, args) -> (results, residuals). bwd is (consts,
// residuals, cotangents of the inexact results) -> cotangents of the inexact args.
std::vector<Value> CustomVjpCall(Builder& b, FunctionRef f, FunctionRef fwd, FunctionRef bwd,
                                 Values operands, int num_consts);

// ---- regions/custom_linear_solve.cc ----
// Returns the x that solves matvec(consts, x) = b; solve(consts, b) computes it. matvec is linear
// in x. The transposed functions, (consts, x) -> x, are both given or both null. The operands are
// consts, b.
struct LinearSolveFns {
  FunctionRef solve, matvec, transpose_solve, transpose_matvec;
};
std::vector<Value> CustomLinearSolve(Builder& b, const LinearSolveFns& fns, Values operands,
                                     int num_consts);

}  // namespace tessera::ir
