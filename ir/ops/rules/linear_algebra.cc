// The rules that all ops of linear algebra share, and functions on batches of matrices from which
// their derivatives are built. The OpDefs in solves.cc, factorizations.cc and eigen.cc get the
// rules from LinearAlgebra().
#include "ir/ops/rules/linear_algebra.h"

#include <algorithm>
#include <complex>
#include <limits>
#include <utility>

#include "ir/lapack/lapack.h"

namespace tessera::ir::ops {
namespace {

Value IotaLike(Value like, int dim) {
  Type at = like.type();
  at.dtype = DType::kS32;
  at.weak = false;
  return ShardedLike(Iota(like.builder(), DType::kS32, like.shape(), dim), at);
}
Value Triangle(Value x, int64_t k, std::string_view direction) {
  const Value rows = IotaLike(x, x.rank() - 2);
  const Value shifted = rows + FullLike(rows, static_cast<double>(k));
  const Value inside = Compare(shifted, IotaLike(x, x.rank() - 1), direction);
  return Select(inside, x, Zeros(x.builder(), x.type()));
}
// Repeats vectors along a new dim, which is the last or the last but one. `kept` is the dim that
// the vectors' own elements take.
Value Repeated(Value x, Value like, int kept) {
  DimList dims = DimsExcept(like.rank() - 2, {});
  dims.push_back(kept);
  return BroadcastLike(x, like.type(), std::move(dims));
}

}  // namespace

absl::Status CheckMatrix(const InferContext& c, size_t i, int min_rank) {
  const Type& t = c.in[i];
  if (t.rank() < min_rank)
    return TypeError(c, "operand ", i, " is ", t.ToString(), "; expected at least ", min_rank,
                     " dims, the last of which form ", min_rank == 2 ? "matrices" : "vectors");
  if (t.dtype != DType::kF32 && t.dtype != DType::kF64 && !IsComplex(t.dtype))
    return TypeError(c, "does not accept dtype ", ToAbsl(DTypeName(t.dtype)),
                     "; expected f32, f64, c64 or c128");
  if (t.dtype != c.in[0].dtype)
    return TypeError(c, "operand ", i, " is ", t.ToString(), ", operand 0 is ", c.in[0].ToString(),
                     "; expected equal dtypes");
  for (int d = std::max(t.rank() - 2, 0); d < t.rank(); ++d)
    if (t.shape[d] > std::numeric_limits<int32_t>::max())
      return ValueError(c, "operand ", i, " is ", t.ToString(),
                        "; expected matrices of less than 2^31 rows and columns");
  return absl::OkStatus();
}

absl::Status CheckSizeForLapack(const InferContext& c) {
  constexpr int64_t kSideMax = int64_t{1} << 24;
  if (std::max(NumRows(c.in[0]), NumCols(c.in[0])) <= kSideMax) return absl::OkStatus();
  return ValueError(c, "the operand is ", c.in[0].ToString(), "; expected matrices of at most ",
                    kSideMax, " rows and columns, for which LAPACK can count its scratch memory");
}

absl::Status CheckSquare(const InferContext& c, size_t i) {
  TESSERA_RETURN_IF_ERROR(CheckMatrix(c, i));
  if (NumRows(c.in[i]) == NumCols(c.in[i])) return absl::OkStatus();
  return ValueError(c, "operand ", i, " is ", c.in[i].ToString(), "; expected square matrices");
}

DType RealDType(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}

Type WithBatchDimsOfFirst(const InferContext& c, DType dtype, const Dims& last) {
  Dims shape(c.in[0].shape.begin(), c.in[0].shape.end() - 2);
  shape.insert(shape.end(), last.begin(), last.end());
  return MakeType(dtype, std::move(shape));
}

Signature BatchFactors(const InferContext& c, absl::Span<const Type> out, int core_rank) {
  Signature s;
  FactorList batch;
  for (int d = 0; d < c.in[0].rank() - core_rank; ++d)
    batch.push_back(s.Add(FactorKind::kPassThrough, c.in[0].shape[d]));
  const auto of = [&](const Type& t) {
    TensorFactors factors;
    for (int d = 0; d < t.rank(); ++d)
      factors.push_back({d < static_cast<int>(batch.size())
                             ? batch[d]
                             : s.Add(FactorKind::kReplicated, t.shape[d])});
    return factors;
  };
  for (const Type& t : c.in) s.operands.push_back(of(t));
  for (const Type& t : out) s.results.push_back(of(t));
  return s;
}

absl::Status BatchSharding(const InferContext& c, std::vector<Type>* out, int core_rank) {
  const int num_batch = c.in[0].rank() - core_rank;
  for (const Type& t : c.in) {
    for (int d = 0; d < t.rank(); ++d) {
      if (d < num_batch ? t.axes_of(d) == c.in[0].axes_of(d) : t.axes_of(d).empty()) continue;
      return d < num_batch
                 ? ShardingError(c, "got operands whose batches are sharded differently: ",
                                 TypesToString(c.in), "; reshard them alike")
                 : ShardingError(c, "dim ", d, " of ", t.ToString(),
                                 " belongs to its matrices and is sharded; reshard the operand to "
                                 "leave the matrices whole");
    }
  }
  if (!c.in[0].is_sharded()) return absl::OkStatus();
  for (Type& t : *out) {
    t.sharding.assign(t.rank(), {});
    for (int d = 0; d < num_batch; ++d) t.sharding[d] = c.in[0].axes_of(d);
  }
  return absl::OkStatus();
}

Batched BatchMatrices(const RuleContext& c, absl::Span<const int> dims, int64_t size) {
  std::vector<Value> in;
  for (size_t i = 0; i < c.in.size(); ++i) in.push_back(BatchInFront(c, dims, i, size));
  std::vector<Value> out = c.b.Emit(c.def, MatchVarying(std::move(in)), c.attrs);
  return {out, std::vector<int>(out.size(), 0)};
}

Cost MatrixCost(const InferContext& c, absl::Span<const Type> out) {
  Cost cost;
  for (const Type& t : c.in) cost.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : out) cost.bytes += static_cast<double>(t.num_bytes());
  const Type& x = c.in[0];
  const auto elements = static_cast<double>(x.num_elements());
  const int64_t shorter = x.rank() < 2 ? 1 : std::min(NumRows(x), NumCols(x));
  cost.flops = elements * static_cast<double>(std::max<int64_t>(shorter, 1));
  // A solve adds `shorter` flops for each element of the right-hand sides.
  for (size_t i = 1; i < c.in.size(); ++i)
    cost.flops += static_cast<double>(c.in[i].num_elements()) * static_cast<double>(shorter);
  return cost;
}

// Adds up the copies of one matrix of each operand and result, and LAPACK's own memory, for as many
// matrices as are factored at once. The sum is kept as a double, because the matrices of an empty
// batch may have any size.
int64_t MatrixScratch(const InferContext& c, absl::Span<const Type> out) {
  double bytes = 0;  // may exceed 64 bits
  const auto add = [&](const Type& t) {
    auto matrix_bytes = static_cast<double>(ByteWidth(t.dtype));
    for (int d = std::max(t.rank() - 2, 0); d < t.rank(); ++d)
      matrix_bytes *= static_cast<double>(t.shape[d]);
    bytes += matrix_bytes;
  };
  for (const Type& t : c.in) add(t);
  for (const Type& t : out) add(t);
  const Type& x = c.in[0];
  const int64_t rows = x.rank() < 2 ? 1 : NumRows(x), cols = NumCols(x);
  switch (x.dtype) {
    case DType::kF32:
      bytes += lapack::Routines<float>::ScratchBytes(rows, cols);
      break;
    case DType::kF64:
      bytes += lapack::Routines<double>::ScratchBytes(rows, cols);
      break;
    case DType::kC64:
      bytes += lapack::Routines<std::complex<float>>::ScratchBytes(rows, cols);
      break;
    default:
      bytes += lapack::Routines<std::complex<double>>::ScratchBytes(rows, cols);
  }
  return static_cast<int64_t>(std::min(bytes * static_cast<double>(MatricesAtOnce(c)), 0x1p60));
}
int64_t MatricesAtOnce(const InferContext& c) {
  int64_t most = 1;
  for (const Type& t : c.in) {
    int64_t count = 1;
    for (int d = 0; d < t.rank() - 2; ++d)
      count = std::min(count, kMatricesAtOnceMax) * std::min(t.shape[d], kMatricesAtOnceMax);
    most = std::max(most, count);
  }
  return std::min(most, kMatricesAtOnceMax);
}

double CountOfMatrices(const Type& t) {
  double count = 1;
  for (int d = 0; d < t.rank() - 2; ++d) count *= static_cast<double>(t.shape[d]);
  return count;
}

double BatchOperations(const InferContext& c, double per_matrix, double count) {
  // This is a quarter of a millisecond. Copying the matrix to another process would take a good
  // part of that.
  constexpr double kBriefMatrixOperations = 1e6;
  const DType dtype = c.in[0].dtype;
  // Twice the bytes halve the lanes of a vector, and a complex product is four real ones.
  const double slowdown = (RealDType(dtype) == DType::kF64 ? 2 : 1) * (IsComplex(dtype) ? 4 : 1);
  per_matrix *= slowdown;
  return per_matrix < kBriefMatrixOperations ? per_matrix : per_matrix * count;
}

double MatrixOperations(const InferContext& c, absl::Span<const Type> out, double per_product) {
  constexpr double kOperationsOfCopy = 8;  // for an element
  const Type& x = c.in[0];
  const auto rows = static_cast<double>(NumRows(x)), cols = static_cast<double>(NumCols(x));
  double elements = 0;
  for (const Type& t : c.in) elements += static_cast<double>(t.num_elements());
  for (const Type& t : out) elements += static_cast<double>(t.num_elements());
  const double count = std::max(CountOfMatrices(x), 1.0);
  const double per_matrix =
      per_product * rows * cols * std::min(rows, cols) + kOperationsOfCopy * elements / count;
  return BatchOperations(c, per_matrix, count);
}

// ---- Matrices as values. ----

Value MatrixTranspose(Value x) {
  DimList order = DimsExcept(x.rank(), {});
  std::swap(order[x.rank() - 2], order[x.rank() - 1]);
  return Transpose(x, std::move(order));
}

Value Adjoint(Value x) {
  const Value transposed = MatrixTranspose(x);
  return IsComplex(x.dtype()) ? Conj(transposed) : transposed;
}

Value Matmul(Value x, Value y) {
  DotDims dims;
  for (int d = 0; d < x.rank() - 2; ++d) {
    dims.lhs_batch.push_back(d);
    dims.rhs_batch.push_back(d);
  }
  dims.lhs_contract = {x.rank() - 1};
  dims.rhs_contract = {y.rank() - 2};
  return DotGeneral(x, y, dims, nullptr, {}, Precision::kHighest);
}

Value Tril(Value x, int64_t k) { return Triangle(x, k, "GE"); }
Value Triu(Value x, int64_t k) { return Triangle(x, k, "LE"); }

Value Symmetrized(Value x, bool lower) {
  // The diagonal of a Hermitian matrix is real.
  if (IsComplex(x.dtype())) {
    const Value re = Symmetrized(Real(x), lower), im = Imag(x);
    const Value off = lower ? Tril(im, -1) : Triu(im, 1);
    return Complex(re, off - MatrixTranspose(off));
  }
  const Value kept = lower ? Tril(x) : Triu(x);
  return kept + MatrixTranspose(lower ? Tril(x, -1) : Triu(x, 1));
}

Value DiagonalMask(Value like, int64_t first) {
  const Value rows = IotaLike(like, like.rank() - 2);
  const Value diagonal = Compare(rows, IotaLike(like, like.rank() - 1), "EQ");
  if (first == 0) return diagonal;
  return And(diagonal, Compare(rows, FullLike(rows, static_cast<double>(first)), "GE"));
}
Value DiagonalOf(Value x) {
  const Value on = DiagonalMask(x);
  return ReduceSum(Select(on, x, Zeros(x.builder(), x.type())), {x.rank() - 1});
}

Value RepeatAsRows(Value x, Value like) { return Repeated(x, like, like.rank() - 1); }
Value RepeatAsColumns(Value x, Value like) { return Repeated(x, like, like.rank() - 2); }

Value RealPart(Value x) { return IsComplex(x.dtype()) ? Real(x) : x; }
Value Scaled(Value by, Value x) {
  if (!IsComplex(x.dtype())) return by * x;
  const Value re = by * Real(x);
  return Complex(re, by * Imag(x));
}
Value Over(Value x, Value by) {
  if (!IsComplex(x.dtype())) return x / by;
  const Value re = Real(x) / by;
  return Complex(re, Imag(x) / by);
}

Value TakeRows(Value x, Value rows) {
  const int batch = x.rank() - 2;
  GatherDimensionNumbers dims;
  dims.offset_dims = {batch + 1};
  dims.collapsed_slice_dims = {batch};
  dims.start_index_map = {batch};
  Dims single;
  for (int d = 0; d < batch; ++d) {
    dims.operand_batching_dims.push_back(d);
    dims.start_indices_batching_dims.push_back(d);
    single.push_back(std::min<int64_t>(x.dim(d), 1));
  }
  single.push_back(std::min<int64_t>(x.dim(batch), 1));
  single.push_back(x.dim(batch + 1));
  return Gather(x, ExpandDims(rows, {rows.rank()}), dims, std::move(single),
                {.mode = GatherScatterMode::kPromiseInBounds});
}
Value TakeColumns(Value x, Value columns) {
  const Value taken = TakeRows(MatrixTranspose(x), columns);
  return MatrixTranspose(taken);
}

Value SolvedByLu(Value a, Value b, bool adjoint) {
  const LuResult lu = Lu(a);
  if (!adjoint) {
    const Value permuted = TakeRows(b, lu.permutation);
    const Value y = TriangularSolve(lu.lu, permuted, {.lower = true, .unit_diagonal = true});
    return TriangularSolve(lu.lu, y);
  }
  const Value y = TriangularSolve(lu.lu, b, {.transpose = true, .conjugate = true});
  const Value x = TriangularSolve(
      lu.lu, y, {.lower = true, .transpose = true, .conjugate = true, .unit_diagonal = true});
  const int last = lu.permutation.rank() - 1;
  const Value positions = Iota(a.builder(), DType::kS32, lu.permutation.shape(), last);
  const Value back = ShardedLike(positions, lu.permutation.type());
  return TakeRows(x, Sort({lu.permutation, back}, last)[1]);
}

}  // namespace tessera::ir::ops
