// Writes linear algebra that StableHLO has no ops for as JAX does for CPUs: custom calls named like
// LAPACK's routines. Ops of StableHLO then turn the results of the routine into the results of our
// op.
//
// Reference: jax/_src/lax/linalg.py; jaxlib/cpu/lapack_kernels.h.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "ir/ops/rules/linear_algebra.h"
#include "ir/stablehlo/exporter.h"

namespace tessera::ir::stablehlo {
namespace {

using Results = std::vector<Value>;
using NamedAttrs = Module::NamedAttrs;
using ops::RealDType;

// Returns "lapack_", the letter for the type of elements, the routine, and "_ffi".
std::string TargetOf(DType dtype, std::string_view real, std::string_view complex) {
  const char letter = dtype == DType::kF32   ? 's'
                      : dtype == DType::kF64 ? 'd'
                      : dtype == DType::kC64 ? 'c'
                                             : 'z';
  return absl::StrCat("lapack_", std::string(1, letter), ToAbsl(IsComplex(dtype) ? complex : real),
                      "_ffi");
}
uint32_t LetterAttr(Exporter& out, char letter) { return out.module().Int(letter, DType::kU8); }
Type BatchType(const SourceOp& op, DType dtype, const Dims& last = {}) {
  Dims shape(op.in_type(0).shape.begin(), op.in_type(0).shape.end() - 2);
  shape.insert(shape.end(), last.begin(), last.end());
  return MakeType(dtype, std::move(shape));
}
Type InfoType(const SourceOp& op) { return BatchType(op, DType::kS32); }
std::vector<Type> WithoutShardings(const std::vector<Type>& types) {
  std::vector<Type> out;
  for (const Type& t : types) out.push_back(MakeType(t.dtype, t.shape));
  return out;
}
// Writes the call of a routine on the op's operands and returns its results.
ValueIds CallRoutine(Exporter& out, const SourceOp& op, std::string_view real,
                     std::string_view complex, const std::vector<Type>& results,
                     const NamedAttrs& config) {
  return out.CustomCall(TargetOf(op.in_type(0).dtype, real, complex), op.in,
                        WithoutShardings(op.in_types()), WithoutShardings(results), config);
}
// Writes the ops that `make` builds on the results of a call.
ValueIds WriteOnResults(Exporter& out, const ValueIds& in, const std::vector<Type>& types,
                        absl::FunctionRef<Results(const Results&)> make) {
  Builder b(Scope{}, "results");
  Results params;
  for (const Type& t : types) params.push_back(b.Param(MakeType(t.dtype, t.shape)));
  return out.Inline(*b.Build(make(params)), in);
}
// Returns x, or NaNs for the members of the batch whose `info`, LAPACK's result code, is not 0. The
// leading dims of x are that batch.
Value UnlessFailed(Value info, Value x) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Value failed = Compare(info, FullLike(info, 0), "NE");
  ops::DimList dims = ops::DimsExcept(info.rank(), {});
  failed = BroadcastInDim(failed, x.shape(), std::move(dims));
  if (!IsComplex(x.dtype())) return Select(failed, FullLike(x, nan), x);
  const Value none = FullLike(Real(x), nan);
  return Select(failed, Complex(none, none), x);
}
// Returns the first `count` results, with NaNs where the last result, info, is not 0.
Results KeptUnlessFailed(const Results& in, size_t count) {
  Results out;
  for (size_t i = 0; i < count; ++i) out.push_back(UnlessFailed(in.back(), in[i]));
  return out;
}

// ---- Factorizations. ----------------------------------------------------------------------------

// Returns the element of x that `here` marks along the last dim, broadcast to `shape`.
Value Picked(Value here, Value x, const Dims& shape) {
  const int last = x.rank() - 1;
  const Value found = ReduceSum(Select(here, x, FullLike(x, 0)), {last});
  return BroadcastInDim(found, shape, ops::DimsExcept(last, {}));
}
Value Positions(Value x) { return Iota(x.builder(), DType::kS32, x.shape(), x.rank() - 1); }
// Returns the permutation that results from swapping row i with row pivots[i], one after the other.
Value PermutationOf(Value pivots, int64_t rows) {
  const int last = pivots.rank() - 1;
  Dims shape = pivots.shape();
  shape[last] = rows;
  const Type count = MakeType(DType::kS32, {}), rows_type = MakeType(DType::kS32, shape);
  const std::vector<Type> carry = {count, rows_type, MakeType(DType::kS32, pivots.shape())};
  Builder has_next(Scope{}, "is_left"), swap(Scope{}, "swap");
  Results in;
  for (const Type& t : carry) in.push_back(has_next.Param(t));
  const FunctionRef predicate = has_next.Build(
      {Compare(in[0], FullLike(in[0], static_cast<double>(pivots.dim(last))), "LT")});
  in.clear();
  for (const Type& t : carry) in.push_back(swap.Param(t));
  const Value positions = Positions(in[1]);
  const Value pivot_positions = Positions(in[2]);
  const Value i_per_pivot = BroadcastInDim(in[0], pivots.shape(), {});
  const Value j = Picked(Compare(pivot_positions, i_per_pivot, "EQ"), in[2], shape);
  const Value is_i = Compare(positions, BroadcastInDim(in[0], shape, {}), "EQ");
  const Value is_j = Compare(positions, j, "EQ");
  const Value at_i = Picked(is_i, in[1], shape);
  const Value at_j = Picked(is_j, in[1], shape);
  const Value next = in[0] + FullLike(in[0], 1);
  const Value moved = Select(is_j, at_i, in[1]);
  const FunctionRef body = swap.Build({next, Select(is_i, at_j, moved), in[2]});
  Builder& b = pivots.builder();
  const Value first = ir::Constant(b, DType::kS32, 0);
  const Value order = Iota(b, DType::kS32, shape, last);
  return While(b, predicate, body, {first, order, pivots}, 0, 0)[1];
}

ValueIds WriteLu(Exporter& out, const SourceOp& op) {
  const std::vector<Type> types = {op.out_type(0), op.out_type(1), InfoType(op)};
  const ValueIds found = CallRoutine(out, op, "getrf", "getrf", types, {});
  const int64_t rows = ops::NumRows(op.in_type(0));
  return WriteOnResults(out, found, types, [&](const Results& in) -> Results {
    const Value pivots = in[1] - FullLike(in[1], 1);
    return {in[0], pivots, PermutationOf(pivots, rows)};
  });
}

ValueIds WriteGeqrf(Exporter& out, const SourceOp& op) {
  return CallRoutine(out, op, "geqrf", "geqrf", op.out_types(), {});
}
ValueIds WriteGeqp3(Exporter& out, const SourceOp& op) {
  return CallRoutine(out, op, "geqp3", "geqp3", op.out_types(), {});
}
ValueIds WriteHouseholderProduct(Exporter& out, const SourceOp& op) {
  return CallRoutine(out, op, "orgqr", "ungqr", op.out_types(), {});
}

// Composes qr of geqrf or geqp3 and householder_product.
Results ExpandQr(const RuleContext& c) {
  const Value x = c.in[0];
  const int rows = x.rank() - 2, cols = x.rank() - 1;
  const int64_t m = x.dim(rows), n = x.dim(cols);
  const bool is_full = c.attrs.Bool("full_matrices");
  const bool is_pivoted = c.attrs.Has("pivoting") && c.attrs.Bool("pivoting");
  Builder& b = x.builder();
  if (m == 0 || n == 0) {
    const Value none = Zeros(b, MakeType(x.dtype(), c.out_types[0].shape));
    const Value on_diagonal = ops::DiagonalMask(none);
    Results out = {Select(on_diagonal, FullLike(none, 1), none)};
    for (size_t r = 1; r < c.out_types.size(); ++r)
      out.push_back(Zeros(b, MakeType(c.out_types[r].dtype, c.out_types[r].shape)));
    return out;
  }
  Value r, taus, pivots;
  if (is_pivoted) {
    Dims shape = x.shape();
    shape.erase(shape.begin() + rows);
    const Geqp3Result found = Geqp3(x, Zeros(b, MakeType(DType::kS32, std::move(shape))));
    r = found.packed;
    taus = found.taus;
    pivots = found.pivots - FullLike(found.pivots, 1);
  } else {
    std::tie(r, taus) = Geqrf(x);
  }
  Value q = r;
  if (m < n) {
    q = SliceInDim(r, cols, 0, m);
  } else if (is_full) {
    ops::DimList low(x.rank(), 0), high = low;
    high[cols] = m - n;
    q = Pad(r, ir::Constant(b, x.dtype(), 0), std::move(low), std::move(high));
  } else {
    r = SliceInDim(r, rows, 0, n);
  }
  q = HouseholderProduct(q, taus);
  Results out = {q, ops::Triu(r)};
  if (is_pivoted) out.push_back(pivots);
  return out;
}
ValueIds WriteQr(Exporter& out, const SourceOp& op) {
  return out.Inline(*Expanded(op, ExpandQr), op.in);
}

ValueIds WriteTridiagonalSolve(Exporter& out, const SourceOp& op) {
  std::vector<Type> types = op.in_types();
  const Dims& shape = op.in_type(3).shape;
  types.push_back(MakeType(DType::kS32, Dims(shape.begin(), shape.end() - 2)));
  const ValueIds found = CallRoutine(out, op, "gtsv", "gtsv", types, {});
  return WriteOnResults(out, found, types,
                        [](const Results& in) -> Results { return {UnlessFailed(in[4], in[3])}; });
}

// ---- Eigenvalues and singular values. -----------------------------------------------------------

ValueIds WriteEigh(Exporter& out, const SourceOp& op) {
  const std::vector<Type> types = {op.out_type(0), op.out_type(1), InfoType(op)};
  const ValueIds found =
      CallRoutine(out, op, "syevd", "heevd", types,
                  {{"mode", LetterAttr(out, 'V')},
                   {"uplo", LetterAttr(out, op.attrs().Bool("lower") ? 'L' : 'U')}});
  return WriteOnResults(out, found, types,
                        [](const Results& in) { return KeptUnlessFailed(in, 2); });
}

// The singular vectors of an empty matrix are the identity.
Results ExpandEmptySvd(const RuleContext& c) {
  Results out;
  for (const Type& t : c.out_types) {
    const Value none = Zeros(c.b, MakeType(t.dtype, t.shape));
    const bool is_square = !out.empty() && ops::NumRows(t) == ops::NumCols(t);
    if (!is_square || t.num_elements() == 0) {
      out.push_back(none);
      continue;
    }
    const Value on_diagonal = ops::DiagonalMask(none);
    out.push_back(Select(on_diagonal, FullLike(none, 1), none));
  }
  return out;
}
ValueIds WriteSvd(Exporter& out, const SourceOp& op) {
  const Type& x = op.in_type(0);
  const int64_t m = ops::NumRows(x), n = ops::NumCols(x), k = std::min(m, n);
  if (k == 0) return out.Inline(*Expanded(op, ExpandEmptySvd), op.in);
  const bool with_vectors = op.attrs().Bool("compute_uv"),
             is_full = op.attrs().Bool("full_matrices");
  const bool uses_qr = op.attrs().Has("algorithm");
  const std::vector<Type> types = {x, op.out_type(0), BatchType(op, x.dtype, {m, is_full ? m : k}),
                                   BatchType(op, x.dtype, {is_full ? n : k, n}), InfoType(op)};
  const char* const routine = uses_qr ? "gesvd" : "gesdd";
  const ValueIds found = CallRoutine(out, op, routine, routine, types,
                                     {{"mode", LetterAttr(out, !with_vectors ? 'N'
                                                               : is_full     ? 'A'
                                                                             : 'S')}});
  return WriteOnResults(out, found, types, [&](const Results& in) {
    const Results of_svd(in.begin() + 1, in.end());
    return KeptUnlessFailed(of_svd, with_vectors ? 3 : 1);
  });
}

ValueIds WriteEig(Exporter& out, const SourceOp& op) {
  const Type& x = op.in_type(0);
  const bool with_left = op.attrs().Bool("compute_left_eigenvectors"),
             with_right = op.attrs().Bool("compute_right_eigenvectors"),
             is_complex = IsComplex(x.dtype);
  const Type& w = op.out_type(0);
  const Type vectors = MakeType(w.dtype, x.shape);
  std::vector<Type> types = {MakeType(x.dtype, w.shape)};
  if (!is_complex) types.push_back(types[0]);
  types.insert(types.end(), {vectors, vectors, InfoType(op)});
  const uint32_t left_letter = LetterAttr(out, with_left ? 'V' : 'N');
  const ValueIds found = CallRoutine(
      out, op, "geev", "geev", types,
      {{"compute_left", left_letter}, {"compute_right", LetterAttr(out, with_right ? 'V' : 'N')}});
  return WriteOnResults(out, found, types, [&](const Results& in) {
    const size_t next = is_complex ? 1 : 2;
    Results results = {is_complex ? in[0] : Complex(in[0], in[1])};
    if (with_left) results.push_back(in[next]);
    if (with_right) results.push_back(in[next + 1]);
    const size_t count = results.size();
    results.push_back(in.back());
    return KeptUnlessFailed(results, count);
  });
}

ValueIds WriteSchur(Exporter& out, const SourceOp& op) {
  const Type& x = op.in_type(0);
  const bool with_vectors = op.attrs().Bool("compute_schur_vectors");
  const Type w = BatchType(op, x.dtype, {ops::NumCols(x)}), info = InfoType(op);
  std::vector<Type> types = {x, x, w};
  if (!IsComplex(x.dtype)) types.push_back(w);
  types.insert(types.end(), {info, info});
  const uint32_t mode = LetterAttr(out, with_vectors ? 'V' : 'N');
  const ValueIds found =
      CallRoutine(out, op, "gees", "gees", types, {{"mode", mode}, {"sort", LetterAttr(out, 'N')}});
  return WriteOnResults(out, found, types, [&](const Results& in) {
    return KeptUnlessFailed(in, with_vectors ? 2 : 1);
  });
}

ValueIds WriteHessenberg(Exporter& out, const SourceOp& op) {
  std::vector<Type> types = op.out_types();
  types.push_back(InfoType(op));
  const int64_t n = ops::NumCols(op.in_type(0));
  const uint32_t high = out.module().Int(n, DType::kS32);
  ValueIds found = CallRoutine(out, op, "gehrd", "gehrd", types,
                               {{"high", high}, {"low", out.module().Int(1, DType::kS32)}});
  found.pop_back();
  return found;
}
ValueIds WriteTridiagonal(Exporter& out, const SourceOp& op) {
  std::vector<Type> types = op.out_types();
  types.push_back(InfoType(op));
  ValueIds found = CallRoutine(out, op, "sytrd", "hetrd", types,
                               {{"uplo", LetterAttr(out, op.attrs().Bool("lower") ? 'L' : 'U')}});
  found.pop_back();
  return found;
}

constexpr ExportRow kRows[] = {{&ops::kLu, WriteLu},
                               {&ops::kGeqrf, WriteGeqrf},
                               {&ops::kGeqp3, WriteGeqp3},
                               {&ops::kHouseholderProduct, WriteHouseholderProduct},
                               {&ops::kQr, WriteQr},
                               {&ops::kTridiagonalSolve, WriteTridiagonalSolve},
                               {&ops::kEigh, WriteEigh},
                               {&ops::kSvd, WriteSvd},
                               {&ops::kEig, WriteEig},
                               {&ops::kSchur, WriteSchur},
                               {&ops::kHessenberg, WriteHessenberg},
                               {&ops::kTridiagonal, WriteTridiagonal}};

}  // namespace

absl::Span<const ExportRow> LapackRows() { return kRows; }

}  // namespace tessera::ir::stablehlo
