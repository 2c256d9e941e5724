// Custom calls that JAX writes for CPUs: linear algebra, by the names of LAPACK's routines, and
// approx_top_k.
//
// A routine's results are those of JAX's call of it, among them `info`: 0, or how it failed. The
// letters of its arguments are numbers of 8 bits in the dictionary mhlo.backend_config.
// Reference: jaxlib/cpu/lapack_kernels.h.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "ir/ops/linear_algebra.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;

uint32_t Configured(const OpReader& op, std::string_view name) {
  const Artifact& a = op.artifact();
  const uint32_t attr = InDictionary(a, InDictionary(a, op.carried(), "mhlo.backend_config"), name);
  if (attr == kNone) op.Malformed(absl::StrCat("has no ", ToAbsl(name), " in mhlo.backend_config"));
  return attr;
}
char Letter(const OpReader& op, std::string_view name) {
  return static_cast<char>(IntOf(op.artifact(), Configured(op, name), op.What()));
}
// Whether the letter is `yes`, and no other than `no`.
bool Is(const OpReader& op, std::string_view name, char yes, char no) {
  const char letter = Letter(op, name);
  if (letter != yes && letter != no)
    op.Malformed(absl::StrCat("has ", ToAbsl(name), " ", static_cast<int>(letter), "; expected ",
                              static_cast<int>(yes), " or ", static_cast<int>(no)));
  return letter == yes;
}
void Need(const OpReader& op, int operands, int results) {
  if (op.num_operands() != operands || op.num_results() != results)
    op.Malformed(absl::StrCat("has ", op.num_operands(), " operands and ", op.num_results(),
                              " results; expected ", operands, " and ", results));
  for (const Value& x : op.in)
    if (x.rank() == 0) op.Malformed("has a scalar as an operand");
  if (operands == 1 && op.in[0].rank() < 2) op.Malformed("has an operand that is no matrix");
}

// 1 for each matrix whose result begins with a NaN, as those of ours do that have failed. The last
// `last` dims of x are such a result.
Value InfoOf(Value x, int last) {
  Dims batch(x.shape().begin(), x.shape().end() - last);
  if (x.type().num_elements() == 0) return Zeros(x.builder(), MakeType(DType::kS32, batch));
  Dims limit = batch;
  limit.insert(limit.end(), last, 1);
  const Value first = Reshape(Slice(x, Dims(x.rank(), 0), std::move(limit)), batch);
  return Convert(Compare(first, first, "NE"), DType::kS32);
}

Results Potrf(const OpReader& op) {
  Need(op, 1, 2);
  const Value l = Cholesky(op.in[0], Is(op, "uplo", 'L', 'U'));
  return {l, InfoOf(l, 2)};
}

// Its info is the first zero on the diagonal of u, counted from 1.
Results Getrf(const OpReader& op) {
  Need(op, 1, 3);
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
    const Value places = Iota(b, DType::kS32, u.shape(), dim) + one;
    const Value none = FullLike(out.pivots, static_cast<double>(k) + 1);
    const Value first = ReduceMin(Select(Compare(u, FullLike(u, 0), "EQ"), places, none), {dim});
    info = Select(Compare(first, FullLike(first, static_cast<double>(k)), "GT"), info, first);
  }
  return {out.lu, out.pivots + one, info};
}

Results GeqrfOf(const OpReader& op) {
  Need(op, 1, 2);
  const auto [packed, taus] = Geqrf(op.in[0]);
  return {packed, taus};
}
Results Orgqr(const OpReader& op) {
  Need(op, 2, 1);
  return {HouseholderProduct(op.in[0], op.in[1])};
}

Results Syevd(const OpReader& op) {
  Need(op, 1, 3);
  if (Letter(op, "mode") != 'V') op.NotSupported("of eigenvalues without their vectors");
  const auto [v, w] = Eigh(op.in[0], Is(op, "uplo", 'L', 'U'));
  return {v, w, InfoOf(w, 1)};
}

// The first result is what is left of the operand. Vectors that are not computed are zeros.
Results Gesdd(const OpReader& op) {
  Need(op, 1, 5);
  const bool vectors = Letter(op, "mode") != 'N';
  const bool full = vectors && Is(op, "mode", 'A', 'S');
  const Results out = Svd(op.in[0], full, vectors);
  const Value info = InfoOf(out[0], 1);
  if (vectors) return {op.in[0], out[0], out[1], out[2], info};
  return {op.in[0], out[0], Zeros(op.b(), op.ResultType(2)), Zeros(op.b(), op.ResultType(3)), info};
}

Results Trsm(const OpReader& op) {
  Need(op, 2, 1);
  const char transpose = Letter(op, "trans_x");
  if (transpose != 'N' && transpose != 'T' && transpose != 'C')
    op.Malformed("has a trans_x that is not N, T or C");
  return {TriangularSolve(op.in[0], op.in[1],
                          {.left_side = Is(op, "side", 'L', 'R'),
                           .lower = Is(op, "uplo", 'L', 'U'),
                           .transpose = transpose != 'N',
                           .unit_diagonal = Is(op, "diag", 'U', 'N')})};
}

// The first three results are what is left of the diagonals.
Results Gtsv(const OpReader& op) {
  Need(op, 4, 5);
  const Value x = TridiagonalSolve(op.in[0], op.in[1], op.in[2], op.in[3]);
  return {op.in[0], op.in[1], op.in[2], x, InfoOf(x, 2)};
}

// By the routine's name without the letter for the type of elements; of complex numbers some have
// another one.
constexpr ImportRow kRoutines[] = {{"geqrf", GeqrfOf}, {"gesdd", Gesdd}, {"gesvd", Gesdd},
                                   {"getrf", Getrf},   {"gtsv", Gtsv},   {"heevd", Syevd},
                                   {"orgqr", Orgqr},   {"potrf", Potrf}, {"syevd", Syevd},
                                   {"trsm", Trsm},     {"ungqr", Orgqr}};

}  // namespace

const ImportRow* FindLapack(std::string_view target) {
  constexpr std::string_view kBegin = "lapack_", kEnd = "_ffi", kTypes = "sdcz";
  if (target.size() < kBegin.size() + 1 + kEnd.size() ||
      target.substr(0, kBegin.size()) != kBegin ||
      target.substr(target.size() - kEnd.size()) != kEnd ||
      kTypes.find(target[kBegin.size()]) == std::string_view::npos)
    return nullptr;
  target.remove_prefix(kBegin.size() + 1);
  target.remove_suffix(kEnd.size());
  const auto* const row = std::find_if(std::begin(kRoutines), std::end(kRoutines),
                                       [&](const ImportRow& r) { return r.name == target; });
  return row == std::end(kRoutines) ? nullptr : row;
}

// Operands: x, the indices of its elements, and an initial value of each, which precede all. The
// computation says which of two comes first.
std::vector<Value> ImportApproxTopK(const OpReader& op) {
  if (op.num_operands() != 4 || op.num_results() != 2)
    op.NotSupported(
        "of ApproxTopK has other operands than values, indices and an initial one each");
  const Artifact& a = op.artifact();
  const int64_t dim = IntOf(a, Configured(op, "reduction_dim"), op.What());
  if (dim < 0 || dim >= op.in[0].rank()) op.Malformed("has no such reduction_dim");
  const Type result = op.ResultType();
  if (result.rank() != op.in[0].rank()) op.Malformed("has a result of another rank");
  const int64_t k = result.shape[dim];
  if (k < 0 || k > op.in[0].dim(static_cast<int>(dim)))
    op.NotSupported("of ApproxTopK keeps more elements than there are");
  std::vector<Value> out = SortBy(op.First(2), op.CalledComputation(), static_cast<int>(dim));
  for (Value& x : out) x = SliceInDim(x, static_cast<int>(dim), 0, k);
  return out;
}

}  // namespace tessera::ir::stablehlo
