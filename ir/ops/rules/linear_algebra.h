// Shared by the ops of linear algebra. Matrices are the last two dims of an array of f32, f64, c64
// or c128, and all dims before them are a batch. Internal to ir/; stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/op_def.h"
#include "ir/ops/rules/dims.h"

namespace tessera::ir::ops {

// ---- Types. ----
// Checks that operand `i` is a batch of matrices, or, with `min_rank` 1, a batch of vectors.
absl::Status CheckMatrix(const InferContext& c, size_t i, int min_rank = 2);
absl::Status CheckSquare(const InferContext& c, size_t i);
// Checks that the matrices of operand 0 have at most 2^24 rows and columns. LAPACK's blocked
// routines cannot count their scratch memory for larger matrices.
absl::Status CheckSizeForLapack(const InferContext& c);
inline int64_t NumRows(const Type& t) { return t.shape[t.rank() - 2]; }
inline int64_t NumCols(const Type& t) { return t.shape[t.rank() - 1]; }
// Returns the dtype of a complex number's parts, or a float's own dtype.
DType RealDType(DType dtype);
// Returns the type with the batch dims of operand 0, followed by `last`.
Type WithBatchDimsOfFirst(const InferContext& c, DType dtype, const Dims& last);

// ---- Rules. ----
// The signature in which the dims of the batch pass through and all others need replication. The
// last `core_rank` dims of operand 0 are its matrices (2) or its vectors (1). The dims before them
// are the batch, and every operand and result begins with the same batch.
Signature BatchFactors(const InferContext& c, absl::Span<const Type> out, int core_rank);
// JAX's sharding rule: matrices must be unsharded, and the batches of all operands must be sharded
// alike. The batches of the results are then sharded in the same way.
absl::Status BatchSharding(const InferContext& c, std::vector<Type>* out, int core_rank);
template <int kCoreRank>
Signature BatchFactorsRule(const InferContext& c, absl::Span<const Type> out) {
  return BatchFactors(c, out, kCoreRank);
}
template <int kCoreRank>
absl::Status BatchShardingRule(const InferContext& c, std::vector<Type>* out) {
  return BatchSharding(c, out, kCoreRank);
}
Batched BatchMatrices(const RuleContext& c, absl::Span<const int> dims, int64_t size);
// Counts, for each matrix of operand 0, rows times columns times the smaller of the two as flops.
// Each element of a further operand adds the smaller number once more.
Cost MatrixCost(const InferContext& c, absl::Span<const Type> out);
// The maximum number of matrices of a batch that an evaluation computes at the same time.
inline constexpr int64_t kMatricesAtOnceMax = 8;
// Returns the scratch memory of an evaluation in bytes: MatricesAtOnce times the bytes for one
// matrix of the batch. These are a copy of one matrix of every operand and result, and the memory
// that LAPACK needs for a matrix of operand 0.
int64_t MatrixScratch(const InferContext& c, absl::Span<const Type> out);
// Returns how many matrices of the batch an evaluation computes at the same time.
int64_t MatricesAtOnce(const InferContext& c);
// Return OpDef::uninterrupted for a batch: the operations for all matrices. If a matrix takes
// little time, the result is that of one matrix, because the evaluation polls between two matrices.
// MatrixOperations counts `per_product` operations of f32 for each of the products of MatrixCost
// for operand 0, and some for each element that is copied and transposed. BatchOperations counts
// `per_matrix` operations of f32 for each of `count` matrices.
double MatrixOperations(const InferContext& c, absl::Span<const Type> out, double per_product);
double BatchOperations(const InferContext& c, double per_matrix, double count);
// Returns the number of matrices in an array whose last two dims are those of a matrix.
double CountOfMatrices(const Type& t);

template <int kCoreRank = 2>
consteval OpDef LinearAlgebra(OpDef d) {
  d.family = Family::kContraction;
  d.lowering = Lowering::kHost;
  d.factors = BatchFactorsRule<kCoreRank>;
  d.sharding = BatchShardingRule<kCoreRank>;
  d.varying = Derived{};
  d.batch = BatchMatrices;
  d.partition = Derived{};
  d.cost = MatrixCost;
  if (!d.scratch) d.scratch = MatrixScratch;
  if (!d.uninterrupted) throw "op that calls LAPACK does not say for how long";
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) d.transpose = Refused{"it is not linear"};
  return Checked(d);
}

// ---- Matrices as values. ----
Value MatrixTranspose(Value x);
Value Adjoint(Value x);  // the conjugate of the transpose
Value Matmul(Value x, Value y);
// Tril keeps the elements [i, j] with i + k >= j, and Triu those with i + k <= j. The others become
// zero.
Value Tril(Value x, int64_t k = 0);
Value Triu(Value x, int64_t k = 0);
// Returns symmetric matrices, or Hermitian ones if x is complex, of which x holds one triangle: the
// elements on and below the diagonal if `lower`, else those on and above it. The other elements of
// x are ignored.
Value Symmetrized(Value x, bool lower);
// DiagonalOf returns the diagonals of square matrices. DiagonalMask returns bools in the shape of
// `like`, which are true on the diagonal from row `first` on.
Value DiagonalOf(Value x);
Value DiagonalMask(Value like, int64_t first = 0);
// Repeat vectors to matrices of the shape of `like`. In the result of RepeatAsRows every row is the
// vector, in the result of RepeatAsColumns every column.
Value RepeatAsRows(Value x, Value like);
Value RepeatAsColumns(Value x, Value like);
// RealPart returns the real part of x, Scaled returns x times `by`, and Over returns x divided by
// `by`. x may be real or complex, but `by` is real.
Value RealPart(Value x);
Value Scaled(Value by, Value x);
Value Over(Value x, Value by);
// Return the rows of each matrix in the order of `rows`, and its columns in the order of `columns`.
Value TakeRows(Value x, Value rows);
Value TakeColumns(Value x, Value columns);
// Returns the y of a y = b, or, with `adjoint`, of a^H y = b, found by an LU factorization of a.
Value SolvedByLu(Value a, Value b, bool adjoint = false);

}  // namespace tessera::ir::ops
