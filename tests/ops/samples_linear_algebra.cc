// Samples of the ops in ir/ops/solves.cc, factorizations.cc and eigen.cc. A sample, or row, is one
// op with given attributes and operands: a test case (samples.h). Results are compared with those
// that JAX recorded, up to a multiple of the rounding error of the largest element. samples.cc
// collects the rows, and the tests of this folder check them.
#include "absl/strings/str_cat.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kC128 = DType::kC128;
constexpr DType kDTypes[] = {kF32, kF64, DType::kC64, kC128};
// Allows for the differences between LAPACK's kernels for different processors.
constexpr Tolerance kClose = Scaled(64);
constexpr const char* kReflectors = "its reflectors have no derivative";

// The matrices have dominant diagonals, so that they are well conditioned and derivatives of the
// results agree with finite differences.
void AddSolves(std::vector<Sample>& rows) {
  for (const DType d : kDTypes) {
    const auto cholesky = [&](std::string_view label, Operand x, bool lower) {
      rows.push_back(Make("cholesky", absl::StrCat(N(d), "/", ToAbsl(label)), {std::move(x)})
                         .With({{"lower", lower}})
                         .Within(kClose));
    };
    cholesky("lower", Of(d, {4, 4}, Dominant(-1, 1)), true);
    cholesky("upper", Of(d, {4, 4}, Dominant(-1, 1)), false);
    cholesky("batched", Of(d, {2, 4, 3, 3}, Dominant(-1, 1)), true);
    const auto triangular = [&](std::string_view label, Dims a, Dims b, bool left, bool lower,
                                bool unit, std::string transpose) {
      rows.push_back(
          Make("triangular_solve", absl::StrCat(N(d), "/", ToAbsl(label)),
               {Of(d, std::move(a), Dominant(-1, 1)), Of(d, std::move(b), Distinct(-2, 2))})
              .With({{"left_side", left},
                     {"lower", lower},
                     {"unit_diagonal", unit},
                     {"transpose_a", std::move(transpose)}})
              .Within(kClose)
              .Linear({{1}}));
    };
    triangular("lower", {4, 4}, {4, 3}, true, true, false, "NO_TRANSPOSE");
    triangular("upper", {4, 4}, {4, 3}, true, false, false, "NO_TRANSPOSE");
    triangular("lower_transposed", {4, 4}, {4, 3}, true, true, false, "TRANSPOSE");
    triangular("upper_transposed", {4, 4}, {4, 3}, true, false, false, "ADJOINT");
    triangular("right", {3, 3}, {4, 3}, false, true, false, "NO_TRANSPOSE");
    triangular("right_upper_transposed", {3, 3}, {4, 3}, false, false, false, "TRANSPOSE");
    triangular("adjoint", {4, 4}, {4, 3}, true, true, false, "ADJOINT");
    triangular("right_adjoint", {3, 3}, {4, 3}, false, false, false, "ADJOINT");
    triangular("unit", {4, 4}, {4, 2}, true, true, true, "NO_TRANSPOSE");
    triangular("unit_right", {2, 2}, {4, 2}, false, false, true, "TRANSPOSE");
    triangular("batched", {2, 4, 3, 3}, {2, 4, 3, 2}, true, false, false, "NO_TRANSPOSE");
    const auto tridiagonal = [&](std::string_view label, Dims diagonal, Dims b) {
      rows.push_back(Make("tridiagonal_solve", absl::StrCat(N(d), "/", ToAbsl(label)),
                          {Of(d, diagonal, Distinct(-1, 1)), Of(d, diagonal, Distinct(3, 5)),
                           Of(d, diagonal, Distinct(-1, 1)), Of(d, std::move(b), Distinct(-2, 2))})
                         .Within(kClose)
                         .Linear({{3}}));
    };
    tridiagonal("one", {5}, {5, 2});
    tridiagonal("batched", {2, 4, 3}, {2, 4, 3, 2});
    tridiagonal("single", {1}, {1, 2});
  }
  rows.push_back(
      Make("cholesky", "f64/not_definite", {Of(kF64, {2, 2, 2}, Values({4, 2, 2, 5, 1, 2, 2, 1}))})
          .With({{"lower", true}})
          .Within(kClose)
          .NotSmooth("one of them has no factor"));
  rows.push_back(Make("cholesky", "f64/empty", {Of(kF64, {2, 0, 0})}).With({{"lower", true}}));
  rows.push_back(Make("triangular_solve", "f64/no_right_side",
                      {Of(kF64, {3, 3}, Dominant(-1, 1)), Of(kF64, {3, 0})})
                     .With({{"left_side", true},
                            {"lower", true},
                            {"unit_diagonal", false},
                            {"transpose_a", std::string("NO_TRANSPOSE")}})
                     .Linear({{1}}));
}

// Adds square, tall, wide and batched matrices for each factorization, and matrices without rows,
// without columns or without full rank.
void AddFactorizations(std::vector<Sample>& rows) {
  for (const DType d : kDTypes) {
    const auto label = [&](std::string_view name) { return absl::StrCat(N(d), "/", ToAbsl(name)); };
    const std::pair<const char*, Dims> shapes[] = {
        {"square", {4, 4}}, {"tall", {5, 3}}, {"wide", {3, 5}}, {"batched", {2, 4, 3, 3}}};
    for (const auto& kind : shapes) {
      const std::string_view name = kind.first;
      const Dims& shape = kind.second;
      const bool tall = shape[shape.size() - 2] >= shape.back();
      rows.push_back(Make("lu", label(name), {Of(d, shape, Distinct(-2, 2))}).Within(kClose));
      rows.push_back(Make("geqrf", label(name), {Of(d, shape, Distinct(-2, 2))})
                         .Within(kClose)
                         .NotSmooth(kReflectors));
      Dims columns(shape.begin(), shape.end() - 1);
      columns.back() = shape.back();
      rows.push_back(Make("geqp3", label(name),
                          {Of(d, shape, Distinct(-2, 2)),
                           Of(DType::kS32, std::move(columns), Values({0, 0, 1}))})
                         .Within(kClose)
                         .NotSmooth(kReflectors));
      if (tall) {
        Dims taus(shape.begin(), shape.end() - 1);
        taus.back() = shape.back() - 1;
        rows.push_back(Make("householder_product", label(name),
                            {Of(d, shape, Distinct(-2, 2)), Of(d, taus, Distinct(0, 1))})
                           .Within(kClose)
                           .NotSmooth(kReflectors));
      }
      for (const bool full : {false, true}) {
        // These values avoid a first element of 0, at which the sign of a column of q would flip.
        const auto qr = [&](std::string_view with) {
          return Make("qr", label(absl::StrCat(ToAbsl(name), full ? "/full" : "", ToAbsl(with))),
                      {Of(d, shape, Distinct(-2, 2.5))})
              .With({{"full_matrices", full}})
              .Within(kClose);
        };
        rows.push_back(qr(""));
        rows.push_back(qr("/pivoting").With({{"full_matrices", full}, {"pivoting", true}}));
      }
    }
  }
  rows.push_back(Make("lu", "f64/singular", {Of(kF64, {3, 3}, Values({1, 2, 0}))})
                     .Within(kClose)
                     .NotSmooth("u is singular"));
  rows.push_back(Make("lu", "f64/no_columns", {Of(kF64, {2, 3, 0})}));
  rows.push_back(
      Make("qr", "f64/no_columns", {Of(kF64, {2, 3, 0})}).With({{"full_matrices", true}}));
  rows.push_back(
      Make("geqp3", "f64/no_rows", {Of(kF64, {2, 0, 3}), Of(DType::kS32, {2, 3}, Ints(0, 0))})
          .NotSmooth(kReflectors)
          .Without(CheckKind::kRecorded, "JAX's pivots are the operand, which are none"));
}

// Adds eigenvalues, singular values and the decompositions behind them. The vectors are unique only
// up to a sign or a phase. A row on which versions of LAPACK disagree is compared up to signs or
// not recorded.
void AddEigen(std::vector<Sample>& rows) {
  for (const DType d : kDTypes) {
    const auto label = [&](std::string_view name) { return absl::StrCat(N(d), "/", ToAbsl(name)); };
    const auto eigh = [&](std::string_view name, Dims shape, bool lower) {
      rows.push_back(Make("eigh", label(name), {Of(d, std::move(shape), Dominant(-0.25, 0.25))})
                         .With({{"lower", lower}})
                         .Within(kClose));
    };
    eigh("lower", {4, 4}, true);
    eigh("upper", {4, 4}, false);
    eigh("batched", {2, 4, 3, 3}, true);
    const std::pair<const char*, Dims> shapes[] = {
        {"square", {4, 4}}, {"tall", {5, 3}}, {"wide", {3, 5}}, {"batched", {2, 4, 3, 3}}};
    for (const auto& kind : shapes) {
      const std::string_view name = kind.first;
      const Dims& shape = kind.second;
      for (const bool full : {false, true}) {
        Sample row = Make("svd", label(absl::StrCat(ToAbsl(name), full ? "/full" : "")),
                          {Of(d, shape, Dominant(-0.5, 0.5))})
                         .With({{"full_matrices", full}, {"compute_uv", true}})
                         .Within(kClose);
        if (full && shape[shape.size() - 2] != shape.back())
          row.NotSmooth("some vectors are any that are orthogonal to the others");
        rows.push_back(std::move(row));
      }
      rows.push_back(Make("svd", label(absl::StrCat(ToAbsl(name), "/values")),
                          {Of(d, shape, Dominant(-0.5, 0.5))})
                         .With({{"full_matrices", false}, {"compute_uv", false}})
                         .Within(kClose));
      rows.push_back(
          Make("svd", label(absl::StrCat(ToAbsl(name), "/qr")), {Of(d, shape, Dominant(-0.5, 0.5))})
              .With({{"full_matrices", false},
                     {"compute_uv", true},
                     {"algorithm", std::string("QR")}})
              .Within(kClose));
    }
    const std::pair<const char*, Dims> squares[] = {
        {"one", {4, 4}}, {"single", {1, 1}}, {"batched", {2, 4, 3, 3}}};
    for (const auto& kind : squares) {
      const std::string_view name = kind.first;
      const Dims& shape = kind.second;
      // The sign of a real vector follows from how LAPACK rounds, which depends on its version and
      // on the kernels that OpenBLAS picks for the processor.
      const bool sign_depends_on_lapack = !IsComplex(d) && name != "single";
      static constexpr char kSigns[] =
          "LAPACK may choose other signs; client_linalg_test has what the vectors must be";
      const auto of = [&](const char* op, std::string_view with, Attrs attrs) {
        return Make(op, label(absl::StrCat(ToAbsl(name), ToAbsl(with))),
                    {Of(d, shape, Distinct(-2, 2))})
            .With(std::move(attrs))
            .Within(kClose);
      };
      for (const bool left : {false, true})
        for (const bool right : {false, true}) {
          Sample row = of("eig", absl::StrCat(left ? "/left" : "", right ? "/right" : ""),
                          {{"compute_left_eigenvectors", left},
                           {"compute_right_eigenvectors", right},
                           {"enable_eigvec_derivs", true}})
                           .NotSmooth("they are complex; client_linalg_test has them");
          if (sign_depends_on_lapack && (left || right)) row.UpToSigns(kSigns);
          rows.push_back(std::move(row));
        }
      for (const bool vectors : {false, true}) {
        Sample row = of("schur", vectors ? "/vectors" : "", {{"compute_schur_vectors", vectors}})
                         .NotSmooth("it has no derivative");
        if (IsComplex(d) && name != "single")
          row.Without(CheckKind::kRecorded,
                      "columns of q may turn; client_linalg_test has what they must be");
        else if (sign_depends_on_lapack && vectors)
          row.UpToSigns(kSigns);
        rows.push_back(std::move(row));
      }
      rows.push_back(of("hessenberg", "", {}).NotSmooth(kReflectors));
      for (const bool lower : {false, true})
        rows.push_back(of("tridiagonal", lower ? "/lower" : "/upper", {{"lower", lower}})
                           .NotSmooth(kReflectors));
    }
  }
  rows.push_back(
      Make("eigh", "f64/not_finite", {Of(kF64, {2, 2, 2}, Values({1, 0, 0, 3, kNan, 0, 0, 1}))})
          .With({{"lower", true}})
          .Within(kClose)
          .NotSmooth("one of them has no eigenvalues")
          .Without(CheckKind::kRecorded, "JAX gives what LAPACK makes of a NaN"));
  rows.push_back(
      Make("eig", "f64/not_finite", {Of(kF64, {2, 2, 2}, Values({1, 2, 0, 3, kNan, 0, 0, 1}))})
          .With({{"compute_left_eigenvectors", false},
                 {"compute_right_eigenvectors", true},
                 {"enable_eigvec_derivs", false}})
          .Within(kClose)
          .NotSmooth("one of them has no eigenvalues"));
  rows.push_back(Make("schur", "c128/empty", {Of(kC128, {2, 0, 0})})
                     .With({{"compute_schur_vectors", true}})
                     .NotSmooth("it has no derivative"));
  rows.push_back(Make("svd", "f64/no_columns", {Of(kF64, {2, 3, 0})})
                     .With({{"full_matrices", true}, {"compute_uv", true}})
                     .NotSmooth("the vectors are any that are orthogonal"));
}

}  // namespace

std::vector<Sample> LinearAlgebraSamples() {
  std::vector<Sample> rows;
  AddSolves(rows);
  AddFactorizations(rows);
  AddEigen(rows);
  return rows;
}

}  // namespace tessera::ir::samples
