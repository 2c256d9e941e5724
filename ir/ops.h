// The ops as functions on Values: what rules and the SDK use.
//
// They insert the implicit casts of JAX's public API: a weak literal takes the other operand's
// dtype, an operand that is invarying where another varies gets `pvary`. Elementwise ops of two
// operands repeat scalars, and dims of size 1 of arrays of one rank, as lax does; numpy's
// broadcasting between ranks is the client's (client/numpy.h). All throw StatusException.
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
// An op without attributes applied to operands that agree. Arithmetic and functions of complex
// numbers are those of their parts (complex.cc).
Value Elementwise(const OpDef& def, std::vector<Value> operands);
// `direction` is StableHLO's: EQ NE LT LE GT GE. Of floats in the order of their values, in which
// NaN is none; or in the total order, where -0 is below 0 and NaN at the end of its sign.
Value Compare(Value x, Value y, std::string_view direction);
Value CompareTotalOrder(Value x, Value y, std::string_view direction);
// Elements of `on_true` where `pred` (bool; a scalar or of the cases' shape), else of `on_false`.
Value Select(Value pred, Value on_true, Value on_false);
Value Clamp(Value min, Value x, Value max);  // min and max: scalar or x's shape
Value Convert(Value x, DType dtype);         // strong; x itself if it has that type already
// The same bits. An element of more bits becomes a last dim of several, the lowest first; of fewer,
// the last dim becomes one element.
Value BitcastConvert(Value x, DType dtype);
Value ReducePrecision(Value x, int exponent_bits, int mantissa_bits);
Value Square(Value x);
Value IntegerPow(Value x, int64_t y);  // functions.cc
Value StopGradient(Value x);
Value CheckpointName(Value x, std::string name);  // x, as policies of Checkpoint know it
// Makes operands agree: weak dtypes, scalars and dims of size 1, varying axes.
std::vector<Value> Harmonize(std::vector<Value> operands);
// x on a mesh with Explicit axes, its dims sharded as `dims` (empty: not at all), unreduced and
// reduced along these Explicit axes. Where its operand is unreduced and the result is not, terms
// are added up. Reference: jax.sharding.reshard.
Value Reshard(Value x, DimAxes dims, const AxisSet& unreduced = {}, const AxisSet& reduced = {});
// x, which is equal along these Manual and Explicit axes, as reduced along them.
Value ReducedAlong(Value x, const AxisSet& axes);
// Makes only the varying axes agree: pvary up to the union.
std::vector<Value> MatchVarying(std::vector<Value> operands);

// ---- data_movement.cc ----
Value Constant(Builder& b, Array literal);  // rank 0
Value Constant(Builder& b, DType dtype, double value);
Value Full(Builder& b, DType dtype, Dims shape, double value);
// A constant of x's shape and dtype, sharding and varying axes.
Value FullLike(Value x, double value);
Value Full(Builder& b, const Type& like, double value);  // likewise from a type
Value Zeros(Builder& b, const Type& like);
Value Iota(Builder& b, DType dtype, Dims shape, int dimension);
Value BroadcastInDim(Value x, Dims shape, std::vector<int64_t> broadcast_dimensions);
Value Reshape(Value x, Dims shape);
Value Transpose(Value x, std::vector<int64_t> permutation);
Value Slice(Value x, Dims start_indices, Dims limit_indices, Dims strides = {});
Value SliceInDim(Value x, int dim, int64_t start, int64_t limit);
Value Concatenate(std::vector<Value> xs, int dimension);
// Amounts may be negative at the edges; `interior` >= 0.
Value Pad(Value x, Value padding_value, std::vector<int64_t> low, std::vector<int64_t> high,
          std::vector<int64_t> interior = {});
Value Reverse(Value x, std::vector<int64_t> dimensions);
// Composites: x with a new dim of `size` at `dim`; moving one dim; dropping or adding 1-sized dims.
Value BroadcastNewDim(Value x, int dim, int64_t size);
Value MoveDim(Value x, int from, int to);
Value Squeeze(Value x, std::vector<int64_t> dims);
Value ExpandDims(Value x, std::vector<int64_t> dims);

// ---- indexing.cc ----
// Start indices are one rank-0 integer per dim and are clamped so that the slice is within bounds.
Value DynamicSlice(Value x, std::vector<Value> starts, Dims slice_sizes);
Value DynamicUpdateSlice(Value x, Value update, std::vector<Value> starts);
// Index `i` along `dim`, which is dropped; and the inverse, which writes it.
Value DynamicIndexInDim(Value x, Value i, int dim);
Value DynamicUpdateIndexInDim(Value x, Value row, Value i, int dim);

// ---- gather.cc, scatter.cc ----
// `fill_value`, a scalar of x's dtype, is NaN, the lowest signed or the highest unsigned number, or
// true if it is not given.
Value Gather(Value x, Value start_indices, const GatherDimensionNumbers& dims, Dims slice_sizes,
             const GatherScatterOptions& options = {}, std::optional<Array> fill_value = {});
// Updates are written in the order of their index vectors, row-major: the last of several stays.
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
// `computation`, of scalars: (elements..., updates...) -> (elements...). It is applied once for
// each update, in the order of the index vectors. Emits one of the above where that is the same.
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

// ---- reduce.cc ----
// `computation`, of scalars: (elements..., elements...) -> (elements...), associative. Each of
// `inits`, a scalar, comes before all elements. Emits one of the above where that is the same.
std::vector<Value> Reduce(std::vector<Value> xs, std::vector<Value> inits, FunctionRef computation,
                          std::vector<int64_t> dimensions);

// ---- computation.cc ----
// A computation of scalars applied to each element of arrays of one shape: StableHLO's `map`.
std::vector<Value> MapComputation(FunctionRef computation, std::vector<Value> xs);

// ---- cumulative.cc ----
// Each element along `dimension` combined with those before it; `reverse`: with those after it.
Value Cumsum(Value x, int dimension, bool reverse = false);
Value Cumprod(Value x, int dimension, bool reverse = false);
Value Cummax(Value x, int dimension, bool reverse = false);
Value Cummin(Value x, int dimension, bool reverse = false);
Value Cumlogsumexp(Value x, int dimension, bool reverse = false);

// ---- sort.cc ----
// Arrays of one shape in ascending order along `dimension`, by the first `num_keys` of them; NaNs
// are last.
std::vector<Value> Sort(std::vector<Value> xs, int dimension, bool is_stable = true,
                        int num_keys = 1);
// Arrays of one shape in the order of `comparator`, of scalars: (left of x0, right of x0, left of
// x1, ...) -> bool, whether left comes first. Equals stay in their order. A comparator that orders
// nothing gives them in some order.
std::vector<Value> SortBy(std::vector<Value> xs, FunctionRef comparator, int dimension,
                          bool is_stable = true);
// The k largest along `dimension`, descending, and their indices (s32); of equals the first comes
// first. Floats are in IEEE's total order, as in XLA: -0 is below +0, and NaN above infinity, or,
// if it has a sign, below all.
std::pair<Value, Value> TopK(Value x, int64_t k, int dimension);

// ---- contraction.cc ----
struct DotDims {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
};
// Result dims: batch, lhs free, rhs free.  `out_sharding` decides an Explicit ambiguity.  Products
// are added up as `preferred_element_type`, which the result then has; none: the operands' dtype.
Value DotGeneral(Value lhs, Value rhs, const DotDims& dims,
                 const PartitionSpec* out_sharding = nullptr,
                 std::optional<DType> preferred_element_type = {},
                 Precision precision = Precision::kDefault);
Value Matmul2D(Value lhs, Value rhs);  // [m,k] x [k,n]

// ---- convolution.cc ----
// The dims of each: of the batch, of features, then the spatial ones; a kernel's, rhs, are those of
// the result's features, of the input's, then the spatial ones.
struct ConvDimensionNumbers {
  std::vector<int64_t> lhs_spec, rhs_spec, out_spec;
};
// Per spatial dim; what is empty is 1 everywhere, or no padding.
struct ConvOptions {
  std::vector<int64_t> window_strides = {};
  std::vector<std::pair<int64_t, int64_t>> padding = {};      // before and after; may be negative
  std::vector<int64_t> lhs_dilation = {}, rhs_dilation = {};  // the distance between elements
  int64_t feature_group_count = 1, batch_group_count = 1;
  std::optional<DType> preferred_element_type = {};
  const PartitionSpec* out_sharding = nullptr;
  Precision precision = Precision::kDefault;
};
Value ConvGeneralDilated(Value lhs, Value rhs, const ConvDimensionNumbers& dims,
                         ConvOptions options = {});

// ---- sliding_window.cc ----
// x with its windows along `dimensions` as dims behind its own. Of dim i of these a window has
// window_dimensions[i] elements, window_dilations[i] apart, and is window_strides[i] from the next.
Value SlidingWindowView(Value x, std::vector<int64_t> dimensions,
                        std::vector<int64_t> window_dimensions, std::vector<int64_t> window_strides,
                        std::vector<int64_t> window_dilations);
// Per dim; the padding may be negative.
struct WindowDimensions {
  std::vector<int64_t> sizes, strides, base_dilations, dilations;
  std::vector<std::pair<int64_t, int64_t>> padding;

  int64_t places() const;  // the elements of a window
};
// Arrays of one shape, combined over each window as by Reduce; those of up to this many places by a
// computation that has no reduction of its own, which may not be associative, in turn. Composite:
// padded by the initial values, then reduced over their windows.
inline constexpr int64_t kPlacesInTurnMax = 64;
std::vector<Value> ReduceWindow(std::vector<Value> xs, std::vector<Value> inits,
                                FunctionRef computation, const WindowDimensions& window);
// `init` everywhere, to which `scatter` combines each element of `source` at the element of x that
// `select`, of two of them, keeps among those of its window; what is beyond x's ends is none.
// Composite: a reduction over windows finds the places, and a scatter writes there.
Value SelectAndScatter(Value x, Value source, Value init, FunctionRef select, FunctionRef scatter,
                       const WindowDimensions& window);

// ---- complex.cc ----
// Complex numbers, c64 or c128, and their parts, f32 or f64.
Value Real(Value x);
Value Imag(Value x);
Value Complex(Value re, Value im);
Value Conj(Value x);

// ---- solves.cc ----
// Matrices are the last two dims, of f32, f64, c64 or c128; those before them are a batch. x^H is
// the conjugate of x's transpose. The lower factor l of x = l l^H, or, with `lower` false, the
// upper one of u^H u; the other triangle of x is not read. NaNs where x is not positive definite.
Value Cholesky(Value x, bool lower = true);
struct TriangularSolveOptions {
  bool left_side = true;                      // the y of op(a) y = b, else of y op(a) = b
  bool lower = false;                         // which triangle of a is read
  bool transpose = false, conjugate = false;  // op(a) is a, its transpose, conjugate, or both
  bool unit_diagonal = false;                 // the diagonal of a is of ones, and not read
};
Value TriangularSolve(Value a, Value b, const TriangularSolveOptions& options = {});
// The x of t x = b, [..., n, k], t by its diagonals, [..., n]. Row i of t is below[i], diagonal[i]
// and above[i]: the first of `below` and the last of `above` are none. NaNs where t is singular.
Value TridiagonalSolve(Value below, Value diagonal, Value above, Value b);

// ---- factorizations.cc ----
// x of [..., m, n], with rows swapped, is l u: l, of ones on the diagonal, is below that of `lu`,
// and u on and above it. Row i was swapped with row pivots[i], in turn; `permutation` has the rows
// of x in their order after that.
struct LuResult {
  Value lu, pivots, permutation;
};
LuResult Lu(Value x);
// r of x = q r, and below it the reflectors whose product is q; and their factors, taus.
std::pair<Value, Value> Geqrf(Value x);
Value HouseholderProduct(Value a, Value taus);
// Geqrf of x with its columns in the order `pivots`, s32, counted from 1, by which r's diagonal
// descends. Columns where `first`, s32, is not 0 come before all others.
struct Geqp3Result {
  Value packed, pivots, taus;
};
Geqp3Result Geqp3(Value x, Value first);
// q and r; of q the first min(m, n) columns, or with full_matrices all m.
std::pair<Value, Value> Qr(Value x, bool full_matrices = false);
// And the columns of x, s32, in the order in which they are q r.
struct PivotedQrResult {
  Value q, r, pivots;
};
PivotedQrResult PivotedQr(Value x, bool full_matrices = false);

// ---- eigen.cc ----
// The eigenvectors of x = x^H, as columns, and its eigenvalues, which are real, ascending. One
// triangle is read.
std::pair<Value, Value> Eigh(Value x, bool lower = true);
// s, descending, and with compute_uv u and vt, of x = u diag(s) vt. `algorithm`: "", by dividing
// and conquering, or "QR", by qr steps.
std::vector<Value> Svd(Value x, bool full_matrices, bool compute_uv,
                       std::string_view algorithm = "");
// The eigenvalues of any square x, and its left eigenvectors, v^H x = w v^H, and right ones,
// x v = w v, as columns of length 1; all are complex. The vectors have derivatives only if these
// are asked for: they are right where no eigenvalue is repeated.
struct EigOptions {
  bool left = true, right = true, enable_eigvec_derivs = false;
};
std::vector<Value> Eig(Value x, const EigOptions& options = {});
// t, triangular, or of real x with blocks of 2 on its diagonal, and q if asked for, of x = q t q^H.
std::vector<Value> Schur(Value x, bool compute_schur_vectors = true);
// h of x = q h q^H, with zeros below the diagonal that is below the main one, where the reflectors
// stand whose product is q; and their factors, taus.
std::pair<Value, Value> Hessenberg(Value x);
// As Hessenberg, of x = x^H: h has three diagonals, and is real. One triangle is read, and written.
struct TridiagonalResult {
  Value packed, diagonal, off_diagonal, taus;
};
TridiagonalResult Tridiagonal(Value x, bool lower = true);

// ---- random.cc ----
// One block of the cipher per element: u32; keys are scalars or of the counters' shape.  Reference:
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
std::pair<Value, Value> Threefry2x32(Value key0, Value key1, Value count0, Value count1);

// ---- collectives.cc ----
Value Psum(Value x, AxisList axes);
Value Pmax(Value x, AxisList axes);
Value Pmin(Value x, AxisList axes);
// `dimension`: where blocks are concatenated (tiled) or the new dim is inserted.  `to`: "varying",
// "invarying" or "reduced".
Value AllGather(Value x, AxisList axes, int dimension, bool tiled, std::string_view to = "varying");
Value PsumScatter(Value x, AxisList axes, int scatter_dimension, bool tiled);
Value Ppermute(Value x, AxisList axes, std::vector<std::pair<int64_t, int64_t>> perm);
Value AllToAll(Value x, AxisList axes, int split_dimension, int concat_dimension, bool tiled);
Value AxisIndex(Builder& b, AxisList axes);  // s32, row-major over `axes`

// ---- casts.cc ----
// What x is along Manual axes, by name: from invarying to varying or to reduced, from varying to
// unreduced, from reduced to varying. x itself for no axes, and where types are not tracked.
Value Pvary(Value x, const AxisSet& axes);
Value Preduced(Value x, const AxisSet& axes);
Value VaryUnreducedCast(Value x, const AxisSet& axes);
Value ReducedVaryCast(Value x, const AxisSet& axes);

// ---- control.cc ----
std::vector<Value> Call(Builder& b, FunctionRef f, Values args, std::string_view name = "");
std::vector<Value> Checkpoint(Builder& b, FunctionRef f, Values args,
                              const CheckpointPolicy& policy = {});
std::vector<Value> OptimizationBarrier(Builder& b, Values xs);
// f: (consts..., carry..., x slices...) -> (carry..., y slices...).  Operands: consts, carry, xs.
std::vector<Value> Scan(Builder& b, FunctionRef f, Values operands, int num_consts, int num_carry,
                        int64_t length, bool reverse = false);
// Runs branch `index` (s32, clamped) on the operands.
std::vector<Value> Case(Value index, std::vector<FunctionRef> branches, Values operands);
// predicate: (its consts, carry...) -> bool; body: (its consts, carry...) -> (carry...). Operands:
// the predicate's consts, the body's, the carry.
std::vector<Value> While(Builder& b, FunctionRef predicate, FunctionRef body, Values operands,
                         int num_predicate_consts, int num_body_consts);
// The scope of a body, and the types of the arguments' shards in it; throws the boundary's errors.
Scope ManualScope(const Scope& outer, const AxisList& manual_axes, bool check_vma);
std::vector<Type> ManualShardTypes(const Scope& outer, absl::Span<const Type> args,
                                   const std::vector<PartitionSpec>& in_specs,
                                   const AxisList& manual_axes, bool check_vma);
// Casts results that vary by their out_spec and not in the body.
std::vector<Value> ManualComputation(Builder& b, FunctionRef body, Values args,
                                     std::vector<PartitionSpec> in_specs,
                                     std::vector<PartitionSpec> out_specs, AxisList manual_axes,
                                     bool check_vma = true);
Value ShardingConstraint(Value x, PartitionSpec spec);

// ---- custom_derivatives.cc ----
// f: (consts, args) -> results. rule: (consts, args, tangents of the inexact args) -> (results,
// tangents of the inexact results). Operands: consts, args. The consts have no tangents.
std::vector<Value> CustomJvpCall(Builder& b, FunctionRef f, FunctionRef rule, Values operands,
                                 int num_consts);
// f: (consts, args) -> results. fwd: (consts, args) -> (results, residuals). bwd: (consts,
// residuals, cotangents of the inexact results) -> cotangents of the inexact args.
std::vector<Value> CustomVjpCall(Builder& b, FunctionRef f, FunctionRef fwd, FunctionRef bwd,
                                 Values operands, int num_consts);

// ---- custom_linear_solve.cc ----
// The x of matvec(consts, x) = b, which solve(consts, b) finds; matvec is linear in x. The
// transposed functions, (consts, x) -> x, are both given or both null. Operands: consts, b.
struct LinearSolveFns {
  FunctionRef solve, matvec, transpose_solve, transpose_matvec;
};
std::vector<Value> CustomLinearSolve(Builder& b, const LinearSolveFns& fns, Values operands,
                                     int num_consts);

}  // namespace tessera::ir
