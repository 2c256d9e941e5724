// Imports the custom calls that JAX writes for CPUs: linear algebra, named by LAPACK's routines,
// and approx_top_k.
//
// The results of a routine are the results of JAX's call of it. They include `info`: 0, or the way
// in which it failed. The letters of its arguments are 8-bit numbers in the dictionary
// mhlo.backend_config.
// Reference: jaxlib/cpu/lapack_kernels.h.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "ir/ops/rules/linear_algebra.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

uint32_t ConfigAttr(const OpReader& op, std::string_view name) {
  const Artifact& a = op.artifact();
  const uint32_t attr = InDictionary(a, InDictionary(a, op.carried(), "mhlo.backend_config"), name);
  if (attr == kNone) op.Malformed(absl::StrCat("has no ", ToAbsl(name), " in mhlo.backend_config"));
  return attr;
}
char Letter(const OpReader& op, std::string_view name) {
  return static_cast<char>(IntOf(op.artifact(), ConfigAttr(op, name), op.Name()));
}
// Returns whether the letter is `yes`. Throws if it is neither `yes` nor `no`.
bool IsLetter(const OpReader& op, std::string_view name, char yes, char no) {
  const char letter = Letter(op, name);
  if (letter != yes && letter != no)
    op.Malformed(absl::StrCat("has ", ToAbsl(name), " ", static_cast<int>(letter), "; expected ",
                              static_cast<int>(yes), " or ", static_cast<int>(no)));
  return letter == yes;
}
// A target consists of kBegin, the letter for the type of elements, the routine, and kEnd.
constexpr std::string_view kBegin = "lapack_", kEnd = "_ffi";
char TypeLetter(std::string_view target) { return target[kBegin.size()]; }

// Checks the numbers of operands and results, and that the operands are matrices of the type in the
// target.
void CheckOperands(const OpReader& op, int operands, int results) {
  if (op.num_operands() != operands || op.num_results() != results)
    op.Malformed(absl::StrCat("has ", op.num_operands(), " operands and ", op.num_results(),
                              " results; expected ", operands, " and ", results));
  for (const Value& x : op.in)
    if (x.rank() == 0) op.Malformed("has a scalar as an operand");
  if (operands == 1 && op.in[0].rank() < 2) op.Malformed("has an operand that is not a matrix");
  constexpr std::pair<char, DType> kTypes[] = {
      {'s', DType::kF32}, {'d', DType::kF64}, {'c', DType::kC64}, {'z', DType::kC128}};
  for (const auto& [letter, dtype] : kTypes)
    if (TypeLetter(op.Text("call_target_name")) == letter && op.in[0].dtype() != dtype)
      op.Malformed(absl::StrCat("has an operand of ", ToAbsl(DTypeName(op.in[0].dtype())),
                                "; expected ", ToAbsl(DTypeName(dtype))));
}
bool IsComplexOp(const OpReader& op) { return IsComplex(op.in[0].dtype()); }
// Returns zeros for a result that is not used and, as the op says, not computed.
Value UnusedResult(const OpReader& op, int result) { return Zeros(op.b(), op.ResultType(result)); }

// Returns 1 for each matrix whose result begins with a NaN, as the results of our ops do after a
// failure. The result of one matrix lies along the last `last` dims of x.
Value InfoOf(Value x, int last) {
  Dims batch(x.shape().begin(), x.shape().end() - last);
  if (x.type().num_elements() == 0) return Zeros(x.builder(), MakeType(DType::kS32, batch));
  Dims limit = batch;
  limit.insert(limit.end(), last, 1);
  const Value corner = Reshape(Slice(x, Dims(x.rank(), 0), std::move(limit)), batch);
  const Value first = ops::RealPart(corner);
  return Convert(Compare(first, first, "NE"), DType::kS32);
}

Results Potrf(const OpReader& op) {
  CheckOperands(op, 1, 2);
  const Value l = Cholesky(op.in[0], IsLetter(op, "uplo", 'L', 'U'));
  return {l, InfoOf(l, 2)};
}

// The info of getrf is the position of the first zero on the diagonal of u, counted from 1.
Results Getrf(const OpReader& op) {
  CheckOperands(op, 1, 3);
  const LuResult out = Lu(op.in[0]);
  Builder& b = op.b();
  const int dim = out.pivots.rank() - 1;
  const int64_t k = out.pivots.dim(dim);
  const Value one = FullLike(out.pivots, 1);
  Dims square = out.lu.shape(), batch(square.begin(), square.end() - 2);
  square[dim] = square[dim + 1] = k;
  Value info = Zeros(b, MakeType(DType::kS32, batch));
  if (out.pivots.type().num_elements() > 0) {
    const Value u = ops::DiagonalOf(Slice(out.lu, Dims(out.lu.rank(), 0), std::move(square)));
    const Value positions = Iota(b, DType::kS32, u.shape(), dim) + one;
    const Value none = FullLike(out.pivots, static_cast<double>(k) + 1);
    const Value size = Abs(u);
    const Value is_zero = Compare(size, FullLike(size, 0), "EQ");
    const Value first = ReduceMin(Select(is_zero, positions, none), {dim});
    info = Select(Compare(first, FullLike(first, static_cast<double>(k)), "GT"), info, first);
  }
  return {out.lu, out.pivots + one, info};
}

Results GeqrfOf(const OpReader& op) {
  CheckOperands(op, 1, 2);
  const auto [packed, taus] = Geqrf(op.in[0]);
  return {packed, taus};
}
// The pivots are passed in and out in LAPACK's form.
Results Geqp3Of(const OpReader& op) {
  CheckOperands(op, 2, 3);
  const Geqp3Result out = Geqp3(op.in[0], op.in[1]);
  return {out.packed, out.pivots, out.taus};
}
Results Orgqr(const OpReader& op) {
  CheckOperands(op, 2, 1);
  return {HouseholderProduct(op.in[0], op.in[1])};
}

// Computes the product of the reflectors as a matrix, then multiplies by it.
Results Ormqr(const OpReader& op) {
  CheckOperands(op, 3, 1);
  Value a = op.in[0];
  const Value taus = op.in[1], c = op.in[2];
  const int rank = a.rank();
  if (rank < 2 || c.rank() != rank || taus.rank() != rank - 1)
    op.Malformed("does not have reflectors and a matrix as operands");
  const auto flag = [&](std::string_view name) {
    return BoolOf(op.artifact(), ConfigAttr(op, name), op.Name(name));
  };
  const bool is_left = flag("left"), is_transposed = flag("transpose");
  const int64_t m = a.dim(rank - 2), n = a.dim(rank - 1);
  if (n < m) {
    Dims none(rank, 0), high(rank, 0);
    high[rank - 1] = m - n;
    a = Pad(a, Zeros(op.b(), MakeType(a.dtype(), {})), none, std::move(high), none);
  } else if (n > m) {
    Dims limit = a.shape();
    limit[rank - 1] = m;
    a = Slice(a, Dims(rank, 0), std::move(limit));
  }
  Value q = HouseholderProduct(a, taus);
  if (is_transposed && IsComplexOp(op)) q = Conj(q);
  DotDims dims;
  for (int d = 0; d < rank - 2; ++d) {
    dims.lhs_batch.push_back(d);
    dims.rhs_batch.push_back(d);
  }
  const int64_t q_dim = is_left == is_transposed ? rank - 2 : rank - 1;
  dims.lhs_contract = {is_left ? q_dim : rank - 1};
  dims.rhs_contract = {is_left ? rank - 2 : q_dim};
  return {DotGeneral(is_left ? q : c, is_left ? c : q, dims, nullptr, {}, Precision::kHighest)};
}

Results Syevd(const OpReader& op) {
  CheckOperands(op, 1, 3);
  if (Letter(op, "mode") != 'V') op.NotSupported("computes eigenvalues without their vectors");
  const auto [v, w] = Eigh(op.in[0], IsLetter(op, "uplo", 'L', 'U'));
  return {v, w, InfoOf(w, 1)};
}

// The first result is the overwritten operand. Vectors that are not computed are zeros.
Results SvdBy(const OpReader& op, std::string_view algorithm) {
  CheckOperands(op, 1, 5);
  const bool with_vectors = Letter(op, "mode") != 'N';
  const bool is_full = with_vectors && IsLetter(op, "mode", 'A', 'S');
  const Results out = Svd(op.in[0], is_full, with_vectors, algorithm);
  const Value info = InfoOf(out[0], 1);
  if (with_vectors) return {op.in[0], out[0], out[1], out[2], info};
  const Value u = UnusedResult(op, 2);
  return {op.in[0], out[0], u, UnusedResult(op, 3), info};
}
Results Gesdd(const OpReader& op) { return SvdBy(op, ""); }
Results Gesvd(const OpReader& op) { return SvdBy(op, "QR"); }

// For real matrices the eigenvalues come as two results, their parts. Derivatives were taken by JAX
// before the program was exported; ours are of the eigenvalues only.
Results Geev(const OpReader& op) {
  const bool is_complex = op.in.size() == 1 && IsComplexOp(op);
  CheckOperands(op, 1, is_complex ? 4 : 5);
  const bool with_left = IsLetter(op, "compute_left", 'V', 'N'),
             with_right = IsLetter(op, "compute_right", 'V', 'N');
  const Results out = Eig(op.in[0], {.left = with_left, .right = with_right});
  Results results;
  if (is_complex) {
    results = {out[0]};
  } else {
    const Value re = Real(out[0]);
    results = {re, Imag(out[0])};
  }
  const int next = static_cast<int>(results.size());
  results.push_back(with_left ? out[1] : UnusedResult(op, next));
  results.push_back(with_right ? out.back() : UnusedResult(op, next + 1));
  results.push_back(InfoOf(out[0], 1));
  return results;
}

// Returns, along the last dim, the element before or after each element, and zeros at the end.
Value Shifted(Value x, int64_t before) {
  ops::DimList low(x.rank(), 0), high = low;
  low.back() = before;
  high.back() = -before;
  return Pad(x, Constant(x.builder(), x.dtype(), 0), std::move(low), std::move(high));
}
// Returns the imaginary parts of the eigenvalues of t. A block of 2, [a b; c a], on the diagonal of
// t gives sqrt(|b c|) and its negative. All other eigenvalues are real and give 0.
Value ImaginaryEigenvalues(Value t) {
  const int rows = t.rank() - 2, cols = t.rank() - 1;
  const int64_t n = t.dim(cols);
  const Value zero =
      Zeros(t.builder(), MakeType(t.dtype(), Dims(t.shape().begin(), t.shape().end() - 1)));
  if (n < 2) return zero;
  // Returns the diagonal above the main one, or the one below it.
  const auto beside = [&](int dim) {
    const Value first = SliceInDim(t, dim, 1, n);
    return ops::DiagonalOf(SliceInDim(first, dim == rows ? cols : rows, 0, n - 1));
  };
  const Value above = Sqrt(Abs(beside(cols))), below = Sqrt(Abs(beside(rows)));
  ops::DimList none(zero.rank(), 0), high = none;
  high.back() = 1;
  const Value product = Pad(above * below, Constant(t.builder(), t.dtype(), 0), none, high);
  return product - Shifted(product, 1);
}

// Sorting is refused, as JAX does. The number of sorted eigenvalues is 0.
Results Gees(const OpReader& op) {
  const bool is_complex = op.in.size() == 1 && IsComplexOp(op);
  CheckOperands(op, 1, is_complex ? 5 : 6);
  const bool with_vectors = IsLetter(op, "mode", 'V', 'N');
  if (Letter(op, "sort") != 'N') op.NotSupported("computes eigenvalues in an order");
  const Results out = Schur(op.in[0], with_vectors);
  Results results = {out[0], with_vectors ? out[1] : UnusedResult(op, 1), ops::DiagonalOf(out[0])};
  if (!is_complex) results.push_back(ImaginaryEigenvalues(out[0]));
  const Value info = InfoOf(out[0], 2);
  results.push_back(Zeros(op.b(), info.type()));
  results.push_back(info);
  return results;
}

// Only whole matrices are reduced, as JAX asks for.
Results Gehrd(const OpReader& op) {
  CheckOperands(op, 1, 3);
  const int64_t n = op.in[0].dim(op.in[0].rank() - 1);
  const Artifact& a = op.artifact();
  if (IntOf(a, ConfigAttr(op, "low"), op.Name()) != 1 ||
      IntOf(a, ConfigAttr(op, "high"), op.Name()) != n)
    op.NotSupported(absl::StrCat("reduces other rows than 1 to ", n));
  const auto [packed, taus] = Hessenberg(op.in[0]);
  return {packed, taus, UnusedResult(op, 2)};
}
Results Sytrd(const OpReader& op) {
  CheckOperands(op, 1, 5);
  const TridiagonalResult out = Tridiagonal(op.in[0], IsLetter(op, "uplo", 'L', 'U'));
  return {out.packed, out.diagonal, out.off_diagonal, out.taus, UnusedResult(op, 4)};
}

Results Trsm(const OpReader& op) {
  CheckOperands(op, 2, 1);
  const char transpose = Letter(op, "trans_x");
  if (transpose != 'N' && transpose != 'T' && transpose != 'C')
    op.Malformed("has a trans_x that is not N, T or C");
  return {TriangularSolve(op.in[0], op.in[1],
                          {.left_side = IsLetter(op, "side", 'L', 'R'),
                           .lower = IsLetter(op, "uplo", 'L', 'U'),
                           .transpose = transpose != 'N',
                           .conjugate = transpose == 'C',
                           .unit_diagonal = IsLetter(op, "diag", 'U', 'N')})};
}

// The first three results are the overwritten diagonals.
Results Gtsv(const OpReader& op) {
  CheckOperands(op, 4, 5);
  const Value x = TridiagonalSolve(op.in[0], op.in[1], op.in[2], op.in[3]);
  return {op.in[0], op.in[1], op.in[2], x, InfoOf(x, 2)};
}

// The routines by their names without the letter for the type of elements. Some exist only for real
// numbers, and some only for complex ones.
struct Routine {
  std::string_view types;
  ImportRow row;
};
constexpr Routine kRoutines[] = {
    {"sdcz", {"gees", Gees}},     {"sdcz", {"geev", Geev}},     {"sdcz", {"gehrd", Gehrd}},
    {"sdcz", {"geqp3", Geqp3Of}}, {"sdcz", {"geqrf", GeqrfOf}}, {"sdcz", {"gesdd", Gesdd}},
    {"sdcz", {"gesvd", Gesvd}},   {"sdcz", {"getrf", Getrf}},   {"sdcz", {"gtsv", Gtsv}},
    {"cz", {"heevd", Syevd}},     {"cz", {"hetrd", Sytrd}},     {"sd", {"orgqr", Orgqr}},
    {"sd", {"ormqr", Ormqr}},     {"sdcz", {"potrf", Potrf}},   {"sd", {"syevd", Syevd}},
    {"sd", {"sytrd", Sytrd}},     {"sdcz", {"trsm", Trsm}},     {"cz", {"ungqr", Orgqr}},
    {"cz", {"unmqr", Ormqr}}};

}  // namespace

const ImportRow* FindLapack(std::string_view target) {
  if (target.size() < kBegin.size() + 1 + kEnd.size() ||
      target.substr(0, kBegin.size()) != kBegin ||
      target.substr(target.size() - kEnd.size()) != kEnd)
    return nullptr;
  const char letter = TypeLetter(target);
  target.remove_prefix(kBegin.size() + 1);
  target.remove_suffix(kEnd.size());
  const auto* const routine =
      std::find_if(std::begin(kRoutines), std::end(kRoutines), [&](const Routine& r) {
        return r.row.name == target && r.types.find(letter) != std::string_view::npos;
      });
  return routine == std::end(kRoutines) ? nullptr : &routine->row;
}

// The operands are x, the indices of its elements, and an initial value for each, which precedes
// all elements. The computation says which of two elements comes first.
std::vector<Value> ImportApproxTopK(const OpReader& op) {
  if (op.num_operands() != 4 || op.num_results() != 2)
    op.NotSupported(
        "of ApproxTopK has other operands than values, indices and an initial value for each");
  const Artifact& a = op.artifact();
  const int64_t dim = IntOf(a, ConfigAttr(op, "reduction_dim"), op.Name());
  if (dim < 0 || dim >= op.in[0].rank()) op.Malformed("has no such reduction_dim");
  const Type result = op.ResultType();
  if (result.rank() != op.in[0].rank())
    op.Malformed("has a result whose rank differs from the operand's");
  const int64_t k = result.shape[dim];
  if (k < 0 || k > op.in[0].dim(static_cast<int>(dim)))
    op.NotSupported("of ApproxTopK keeps more elements than its operand has");
  std::vector<Value> out =
      SortBy(op.FirstOperands(2), op.CalledComputation(), static_cast<int>(dim));
  for (Value& x : out) x = SliceInDim(x, static_cast<int>(dim), 0, k);
  return out;
}

}  // namespace tessera::ir::stablehlo
