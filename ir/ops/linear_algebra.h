// What the ops of linear algebra share: matrices are the last two dims, of f32, f64, c64 or
// c128, and all dims before them are a batch. Internal to ir/; stateless; thread-safe.
#pragma once
#include <cstdint>

#include "ir/op_def.h"
#include "ir/ops/dims.h"

namespace tessera::ir::ops {

// ---- Types. ----
// Checks that operand `i` is a batch of matrices; `min_rank` 1: of vectors.
absl::Status CheckMatrix(const InferContext& c, size_t i, int min_rank = 2);
absl::Status CheckSquare(const InferContext& c, size_t i);
// Checks that operand 0 is no larger than what LAPACK's blocked routines can count memory for.
absl::Status CheckWorkspace(const InferContext& c);
inline int64_t RowsOf(const Type& t) { return t.shape[t.rank() - 2]; }
inline int64_t ColsOf(const Type& t) { return t.shape[t.rank() - 1]; }
// The dtype of a complex number's parts, and of a float: itself.
DType RealDType(DType dtype);
// The batch dims of operand 0, then `last`.
Type OfBatch(const InferContext& c, DType dtype, const Dims& last);

// ---- Rules. ----
// The last `kLast` dims of operand 0 are its matrices, or its vectors; those before them are the
// batch, with which every operand and result begins.
Signature BatchFactors(const InferContext& c, absl::Span<const Type> out, int last);
// As JAX's: matrices are whole, and batches alike.
absl::Status BatchSharding(const InferContext& c, std::vector<Type>* out, int last);
template <int kLast>
Signature FactorsOfBatch(const InferContext& c, absl::Span<const Type> out) {
  return BatchFactors(c, out, kLast);
}
template <int kLast>
absl::Status ShardingOfBatch(const InferContext& c, std::vector<Type>* out) {
  return BatchSharding(c, out, kLast);
}
Batched BatchMatrices(const RuleContext& c, absl::Span<const int> dims, int64_t size);
// Rows times columns times the shorter of them, of each matrix of operand 0.
Cost MatrixCost(const InferContext& c, absl::Span<const Type> out);
// Evaluations factor up to this many matrices of a batch at the same time.
inline constexpr int64_t kMatricesAtOnceMax = 8;
// For each of these: copies of one matrix of each operand and result, and what LAPACK takes for one
// of operand 0.
int64_t MatrixScratch(const InferContext& c, absl::Span<const Type> out);
int64_t MatricesAtOnce(const InferContext& c);

template <int kLast = 2>
consteval OpDef LinearAlgebra(OpDef d) {
  d.family = Family::kContraction;
  d.lowering = Lowering::kHost;
  d.factors = FactorsOfBatch<kLast>;
  d.sharding = ShardingOfBatch<kLast>;
  d.varying = Derived{};
  d.batch = BatchMatrices;
  d.partition = Derived{};
  d.cost = MatrixCost;
  if (!d.scratch) d.scratch = MatrixScratch;
  if (d.transpose.kind == Rule<TransposeFn>::kUnset) d.transpose = Refused{"it is not linear"};
  return Checked(d);
}

// ---- Matrices as values. ----
Value MatrixTranspose(Value x);
Value Adjoint(Value x);  // the conjugate of its transpose
Value Matmul(Value x, Value y);
// Elements [i, j] with i + k >= j, or, of Triu, i + k <= j; zeros elsewhere.
Value Tril(Value x, int64_t k = 0);
Value Triu(Value x, int64_t k = 0);
// The symmetric, or Hermitian, matrix that the triangle on and below the diagonal, or above it,
// stands for.
Value Symmetrized(Value x, bool lower);
// Of square matrices: their diagonals, and the bools of where these are, from row `first` on.
Value DiagonalOf(Value x);
Value OnDiagonal(Value like, int64_t first = 0);
// Vectors as matrices of one row, or of one column, repeated to the shape of `like`.
Value AsRows(Value x, Value like);
Value AsColumns(Value x, Value like);
// Of real and complex x alike: its real part, and it times, and divided by, real numbers.
Value RealPart(Value x);
Value Scaled(Value by, Value x);
Value Over(Value x, Value by);
// The rows of each matrix in the order of `rows`, and its columns.
Value TakeRows(Value x, Value rows);
Value TakeColumns(Value x, Value columns);
// The y of a y = b, or, with `adjoint`, of a^H y = b, by lu.
Value SolvedByLu(Value a, Value b, bool adjoint = false);

}  // namespace tessera::ir::ops
