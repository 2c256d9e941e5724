// Tests of linear algebra: values, factors whose products must give the matrix again, gradients
// against finite differences, and errors. Expected values are those of jax.numpy.linalg and
// jax.lax.linalg 0.10.2.
#include "client/linalg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "client/numpy.h"
#include "client/testing/evaluated.h"
#include "client/transform.h"

namespace tessera {
namespace {

using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing::Values;

ir::Array Matrix(std::vector<double> values, Dims shape) {
  return ir::Array::Of(DType::kF64, std::move(shape), std::move(values));
}
const ir::Array& General() {
  static const auto* const kMatrix = new ir::Array(Matrix({2, 1, 0, 1, 3, -1, 0.5, 0, 4}, {3, 3}));
  return *kMatrix;
}
const ir::Array& Positive() {
  static const auto* const kMatrix = new ir::Array(Matrix({4, 1, 0, 1, 3, 1, 0, 1, 2}, {3, 3}));
  return *kMatrix;
}
const ir::Array& Tall() {
  static const auto* const kMatrix = new ir::Array(Matrix({1, 2, 3, 4, 5, 7}, {3, 2}));
  return *kMatrix;
}
const ir::Array& RightHandSide() {
  static const auto* const kVector = new ir::Array(Matrix({1, 2, 3}, {3}));
  return *kVector;
}
Array Weights(Dims shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return reshape(arange(n, DType::kF64), std::move(shape));
}

MATCHER(IsNear, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) < 1e-9; }
auto Near(std::vector<double> values) { return Pointwise(IsNear(), std::move(values)); }

TEST(LinalgTest, Solves) {
  const auto solved = [](Array a, Array b) { return linalg::solve(a, b); };
  EXPECT_THAT(Values(solved, General(), RightHandSide()),
              Near({0.0512820512821, 0.897435897436, 0.74358974359}));
  EXPECT_THAT(
      Values([](Array a) { return linalg::inv(a); }, General()),
      Near({0.615384615385, -0.205128205128, -0.0512820512821, -0.230769230769, 0.410256410256,
            0.102564102564, -0.0769230769231, 0.025641025641, 0.25641025641}));
  const auto loss = [](Array a, Array b) { return sum(linalg::solve(a, b) * Weights({3})); };
  EXPECT_THAT(
      Values(grad(loss), General(), RightHandSide()),
      Near({0.0197238658777, 0.34516765286, 0.285996055227, -0.0236686390533, -0.414201183432,
            -0.343195266272, -0.0315581854043, -0.552268244576, -0.457593688363}));
  // One case has a batch on both sides, another one matrix for all right-hand sides.
  const ir::Array two = Matrix({2, 0, 0, 4, 1, 1, 0, 1}, {2, 2, 2}),
                  rights = Matrix({2, 4, 3, 1}, {2, 2, 1});
  EXPECT_THAT(Values(solved, two, rights), Near({1, 1, 2, 1}));
  const auto each = vmap([](Array a, Array b) { return linalg::solve(a, b); });
  EXPECT_THAT(Values(each, two, Matrix({2, 4, 3, 1}, {2, 2})), Near({1, 1, 2, 1}));
}

TEST(LinalgTest, Determinants) {
  EXPECT_THAT(Values([](Array a) { return linalg::det(a); }, General()), Near({19.5}));
  const auto parts = [](Array a) {
    const auto [sign, logarithm] = linalg::slogdet(-a);
    return stack({sign, logarithm});
  };
  EXPECT_THAT(Values(parts, General()), Near({-1, 2.97041446557}));
  EXPECT_THAT(Values(grad([](Array a) { return linalg::det(a); }), General()),
              Near({12, -4.5, -1.5, -4, 8, 0.5, -1, 2, 5}));
  EXPECT_THAT(
      Values(grad([](Array a) { return linalg::slogdet(a).second; }), General()),
      Near({0.615384615385, -0.230769230769, -0.0769230769231, -0.205128205128, 0.410256410256,
            0.025641025641, -0.0512820512821, 0.102564102564, 0.25641025641}));
}

// Large matrices are factored by blocks; the last block is narrower.
TEST(LinalgTest, LargeMatricesAreFactoredByBlocks) {
  for (const auto& [rows, cols] : {std::pair{520, 520}, {560, 515}, {515, 560}}) {
    const int64_t m = rows, n = cols, k = std::min(m, n);
    std::vector<double> a;
    for (int64_t i = 0; i < m * n; ++i) a.push_back(std::sin(static_cast<double>(i * i % 9973)));
    const std::vector<ir::Array> got = Evaluated(
        [](Array x) {
          const auto f = lax::linalg::lu(x);
          return std::vector<Array>{f.lu, f.pivots, f.permutation};
        },
        ir::Array::Of(DType::kF64, {m, n}, a));
    const std::vector<double> lu = got[0].ToDoubles(), permutation = got[2].ToDoubles();
    double largest_error = 0, largest_factor = 0;
    for (int64_t i = 0; i < m; ++i) {
      std::vector<double> row(n);
      for (int64_t p = 0; p < std::min(i + 1, k); ++p) {
        const double l = p == i ? 1 : lu[i * n + p];
        largest_factor = std::max(largest_factor, std::abs(l));
        for (int64_t j = p; j < n; ++j) row[j] += l * lu[p * n + j];
      }
      const auto from = static_cast<int64_t>(permutation[i]);
      for (int64_t j = 0; j < n; ++j)
        largest_error = std::max(largest_error, std::abs(row[j] - a[from * n + j]));
    }
    EXPECT_LT(largest_error, 1e-11);
    EXPECT_EQ(largest_factor, 1);  // the pivots are the largest elements
  }
}

TEST(LinalgTest, CholeskyReadsBothTriangles) {
  EXPECT_THAT(Values([](Array a) { return linalg::cholesky(a); }, Positive()),
              Near({2, 0, 0, 0.5, 1.65831239518, 0, 0, 0.603022689156, 1.27920429813}));
  EXPECT_THAT(Values([](Array a) { return linalg::cholesky(a, /*upper=*/true); }, Positive()),
              Near({2, 0.5, 0, 0, 1.65831239518, 0.603022689156, 0, 0, 1.27920429813}));
  EXPECT_THAT(Values(grad([](Array a) {
                       return sum(linalg::cholesky(a) * Weights({3, 3}));
                     }),
                     Positive()),
              Near({-0.134247366692, 0.536989466769, 1.2566227688, 0.536989466769, 0.852042132924,
                    0.973508924814, 1.2566227688, 0.973508924814, 3.12694383988}));
  // A matrix that is not positive definite has no factor.
  const std::vector<double> none = Values([](Array a) { return linalg::cholesky(-a); }, Positive());
  for (const size_t i : {0, 3, 4, 6, 7, 8}) EXPECT_TRUE(std::isnan(none[i])) << i;
}

TEST(LinalgTest, Factorizations) {
  const auto qr = [](Array a) {
    const auto [q, r] = linalg::qr(a);
    return concatenate({q, r});
  };
  EXPECT_THAT(Values(qr, Tall()),
              Near({-0.169030850946, 0.948683298051, -0.507092552837, -0.316227766017,
                    -0.845154254729, 0, -5.9160797831, -8.28251169634, 0, 0.632455532034}));
  EXPECT_THAT(
      Values(grad([](Array a) {
               return sum(linalg::qr(a).second * Weights({2, 2}));
             }),
             Tall()),
      Near({-4.08588836238, 2.67701904321, 1.36196278746, -1.45577585089, 0, -0.845154254729}));
  const auto reconstructed = [](Array a) {
    const linalg::Svd full = linalg::svd(a);
    const Array rows = full.u[{Slice{}, Slice{0, 2}}];
    return matmul(rows * full.s, full.vh);
  };
  EXPECT_THAT(Values(reconstructed, Tall()), Near({1, 2, 3, 4, 5, 7}));
  EXPECT_THAT(Values([](Array a) { return linalg::svdvals(a); }, Tall()),
              Near({10.1914282571, 0.367137685944}));
  EXPECT_THAT(Values(grad([](Array a) { return sum(linalg::svdvals(a) * Weights({2})); }), Tall()),
              Near({-0.765027050134, 0.544343442797, 0.278222130869, -0.197964755041,
                    0.0348196712362, -0.0247754111628}));
  EXPECT_THAT(Values([](Array a) { return linalg::pinv(a); }, Tall()),
              Near({-2.07142857143, 0.785714285714, 0.142857142857, 1.5, -0.5, 0}));
  EXPECT_THAT(Values(grad([](Array a) {
                       return sum(linalg::pinv(a) * Weights({2, 3}));
                     }),
                     Tall()),
              Near({4.15306122449, -3.64285714286, -6.82653061224, 5.07142857143, 3.05102040816,
                    -2.21428571429}));
  EXPECT_THAT(Values([](Array a) { return linalg::norm(a); }, Tall()), Near({10.1980390272}));
}

TEST(LinalgTest, EigenvaluesAscend) {
  const auto parts = [](Array a) {
    const auto [w, v] = linalg::eigh(a);
    return concatenate({expand_dims(w, 0), matmul(v * w, transpose(v))});
  };
  EXPECT_THAT(Values(parts, Positive()),
              Near({1.26794919243, 3, 4.73205080757, 4, 1, 0, 1, 3, 1, 0, 1, 2}));
  EXPECT_THAT(
      Values(grad([](Array a) { return sum(linalg::eigvalsh(a) * Weights({3})); }), Positive()),
      Near({1.57735026919, 0.57735026919, 0, 0.57735026919, 1, 0.57735026919, 0, 0.57735026919,
            0.42264973081}));
}

TEST(LaxLinalgTest, SolvesTriangularAndTridiagonalSystems) {
  EXPECT_THAT(Values(
                  [](Array a) {
                    return lax::linalg::triangular_solve(a, ones({2, 3}, DType::kF64));
                  },
                  General()),
              Near({0.5, 1.0 / 6, 7.0 / 24, 0.5, 1.0 / 6, 7.0 / 24}));
  EXPECT_THAT(Values(
                  [](Array dl, Array d, Array du) {
                    return lax::linalg::tridiagonal_solve(dl, d, du, ones({3, 1}, DType::kF64));
                  },
                  Matrix({0, 1, 2}, {3}), Matrix({4, 5, 6}, {3}), Matrix({1, 1, 0}, {3})),
              Near({0.216981132075, 0.132075471698, 0.122641509434}));
}

// ---- Complex matrices: z is General() + i Positive() / 2. ----

Array ComplexMatrix(Array re, Array im) { return complex(re, im / 2.0); }
// Returns the real and imaginary parts of the results as one array.
Array Parts(const std::vector<Array>& xs) {
  std::vector<Array> out;
  for (const Array& x : xs) {
    const bool is_complex = ir::IsComplex(x.dtype());
    out.push_back(reshape(is_complex ? real(x) : x.astype(DType::kF64), {-1}));
    if (is_complex) out.push_back(reshape(imag(x), {-1}));
  }
  return concatenate(out);
}
template <class F>
std::vector<double> ValuesForComplex(const F& f) {
  return Values([&](Array re, Array im) { return Parts({f(ComplexMatrix(re, im))}); }, General(),
                Positive());
}
Array AdjointOf(const Array& x) {
  return ir::IsComplex(x.dtype()) ? conj(swapaxes(x, -1, -2)) : swapaxes(x, -1, -2);
}
Array Product(const std::vector<Array>& xs) { return linalg::multi_dot(xs); }
// Distance returns how far a is from b, DistanceFromUnitary how far q is from having orthonormal
// columns.
Array Distance(const Array& a, const Array& b) { return max(abs(a - b)); }
Array DistanceFromUnitary(const Array& q) {
  const Array product = matmul(AdjointOf(q), q);
  return Distance(product, eye(product.dim(0), product.dtype()));
}
// Checks the distances for a real and for a complex matrix.
template <class F>
void ExpectSmall(const F& distances) {
  EXPECT_THAT(Values([&](Array x) { return stack(distances(x)); }, General()),
              ::testing::Each(::testing::Lt(1e-12)));
  EXPECT_THAT(Values([&](Array re, Array im) { return stack(distances(ComplexMatrix(re, im))); },
                     General(), Positive()),
              ::testing::Each(::testing::Lt(1e-12)));
}
// Checks that the gradient of f, a real function of a complex matrix, agrees with finite
// differences.
template <class F>
void ExpectGradient(const F& f) {
  const auto of_parts = [&](Array re, Array im) { return f(ComplexMatrix(re, im)); };
  const std::vector<ir::Array> got = Evaluated(grad<0, 1>(of_parts), General(), Positive());
  ASSERT_EQ(got.size(), 2u);
  constexpr double kStep = 1e-6;
  for (int part = 0; part < 2; ++part) {
    std::vector<double> want;
    for (int64_t i = 0; i < General().num_elements(); ++i) {
      const auto moved = [&](double by) {
        std::vector<ir::Array> at = {General(), Positive()};
        at[part].Set(i, at[part].At(i) + by);
        return Values(of_parts, at[0], at[1])[0];
      };
      want.push_back((moved(kStep) - moved(-kStep)) / (2 * kStep));
    }
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[part].At(static_cast<int64_t>(i)), want[i], 1e-7 * (1 + std::abs(want[i])))
          << "part " << part << ", element " << i;
  }
}
Array Hermitian(const Array& z) { return matmul(z, AdjointOf(z)); }

TEST(LinalgTest, SolvesComplexSystems) {
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::det(z); }), Near({-0.125, 35.75}));
  EXPECT_THAT(ValuesForComplex([](Array z) {
                return linalg::det(linalg::block_diag(
                    {z, complex(zeros({1, 1}, DType::kF64), full({1, 1}, 2, DType::kF64))}));
              }),
              Near({-71.5, -0.25}));
  EXPECT_THAT(ValuesForComplex([](Array z) {
                const auto [sign, logarithm] = linalg::slogdet(z);
                return stack({sign, complex(logarithm, zeros_like(logarithm))});
              }),
              Near({-0.00349648212338, 3.57655638187, 0.999993887288, 0}));
  const auto right = [] { return arange(1, 4, 1, DType::kF64); };
  for (int trans = 0; trans < 3; ++trans) {
    const std::vector<double> want[] = {{0.097900901011, 0.564763988899, 0.621587588787,
                                         -0.000342310842696, -0.477499174786, -0.225949606954},
                                        {0.091152487255, 0.411310928274, 0.726139100456,
                                         0.0696113549397, -0.365074513735, -0.324217269582},
                                        {0.091152487255, 0.411310928274, 0.726139100456,
                                         -0.0696113549397, 0.365074513735, 0.324217269582}};
    EXPECT_THAT(ValuesForComplex([&](Array z) {
                  return linalg::lu_solve(linalg::lu_factor(z), right(), trans);
                }),
                Near(want[trans]));
    const std::vector<double> triangular[] = {
        {0.25, 0.45, 0.649019607843, -0.25, -0.183333333333, -0.187254901961},
        {0.0539215686275, 0.462745098039, 0.705882352941, 0.0490196078431, -0.349019607843,
         -0.176470588235},
        {0.0539215686275, 0.462745098039, 0.705882352941, -0.0490196078431, 0.349019607843,
         0.176470588235}};
    EXPECT_THAT(ValuesForComplex([&](Array z) {
                  return linalg::solve_triangular(z, right(), {.trans = trans, .lower = true});
                }),
                Near(triangular[trans]));
  }
  EXPECT_THAT(ValuesForComplex([&](Array z) {
                const Array a = Hermitian(z) + 3.0 * eye(3, DType::kF64);
                return linalg::cho_solve(linalg::cho_factor(a, /*lower=*/true), right());
              }),
              Near({-0.0190991628942, 0.15143774816, 0.165418173541, -0.0142636756784,
                    -0.0110467615892, 0.0121190662856}));
  EXPECT_THAT(Values([&](Array a) { return linalg::cho_solve(linalg::cho_factor(a), right()); },
                     Positive()),
              Near({0.222222222222, 0.111111111111, 1.44444444444}));
  ExpectGradient([&](Array z) { return sum(abs(linalg::solve(z, right()))); });
  ExpectGradient([](Array z) { return sum(abs(linalg::cholesky(Hermitian(z)))); });
  ExpectGradient([](Array z) { return abs(linalg::det(z)) + linalg::slogdet(z).second; });
  ExpectGradient([](Array z) { return imag(linalg::slogdet(z).first); });
  ExpectGradient([](Array z) { return real(linalg::det(linalg::block_diag({z, z}))); });
  // Solve with a batch of only one operand, and with a batch of both.
  EXPECT_THAT(Values([](Array a, Array b) { return linalg::solve(a, b); },
                     Matrix({2, 0, 0, 4}, {2, 2}), Matrix({2, 4, 6, 8}, {2, 2, 1})),
              Near({1, 1, 3, 2}));
}

TEST(LinalgTest, DeterminantsHaveADerivativeWhereTheyAreZero) {
  const auto slope = grad([](Array a) { return linalg::det(a); });
  std::vector<double> want(16, 0), elements(16, 0);
  elements[0] = 2, elements[5] = 3, elements[10] = 4;
  want[15] = 24;
  EXPECT_THAT(Values(slope, Matrix(elements, {4, 4})), Near(want));
}

TEST(LinalgTest, FactorsOfComplexMatricesAreUnitary) {
  ExpectSmall([](Array z) {
    const auto [w, v] = linalg::eigh(z);
    const Array a = (z + AdjointOf(z)) / 2.0;
    return std::vector<Array>{DistanceFromUnitary(v), Distance(matmul(a, v), v * w)};
  });
  ExpectSmall([](Array z) {
    const linalg::Svd s = linalg::svd(z);
    return std::vector<Array>{DistanceFromUnitary(s.u), DistanceFromUnitary(s.vh),
                              Distance(matmul(s.u * s.s, s.vh), z)};
  });
  ExpectSmall([](Array z) {
    const auto [q, r] = linalg::qr(z);
    const lax::linalg::Qr p = lax::linalg::qr(z, {.pivoting = true});
    return std::vector<Array>{DistanceFromUnitary(q), Distance(matmul(q, r), z),
                              DistanceFromUnitary(p.q),
                              Distance(matmul(p.q, p.r), take(z, p.p, 1))};
  });
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::svdvals(z); }),
              Near({4.49964208024, 4.05035835012, 1.96158568137}));
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::eigvalsh(z + AdjointOf(z)); }),
              Near({2.5942719174, 6.96073051522, 8.44499756738}));
  // The gradient of a function that does not depend on the phases of the vectors.
  ExpectGradient([](Array z) {
    const auto [w, v] = linalg::eigh(z);
    return sum(abs(Product({v * exp(w / 4.0), AdjointOf(v), z})));
  });
  ExpectGradient([](Array z) {
    const linalg::Svd s = linalg::svd(z, /*full_matrices=*/false);
    return sum(abs(matmul(s.u * sin(s.s), s.vh)));
  });
  ExpectGradient([](Array z) {
    const auto [q, r] = linalg::qr(z);
    return sum(abs(r)) + sum(abs(q));
  });
}

TEST(LinalgTest, EigenSchurAndHessenbergForms) {
  ExpectSmall([](Array z) {
    const auto [w, v] = linalg::eig(z);
    const Array x = z.astype(DType::kC128);
    const std::vector<Array> left = lax::linalg::eig(z, {.compute_right_eigenvectors = false});
    return std::vector<Array>{
        Distance(matmul(x, v), v * w), Distance(w, linalg::eigvals(z)),
        Distance(matmul(AdjointOf(left[1]), x), expand_dims(left[0], 1) * AdjointOf(left[1])),
        Distance(linalg::norm(v, {.axis = 0}), ones({3}, DType::kF64))};
  });
  ExpectSmall([](Array z) {
    const auto [t, q] = linalg::schur(z);
    const auto [c, u] = linalg::schur(z, "complex");
    const Array below = where(expand_dims(arange(3), 1) > arange(3), c, zeros_like(c));
    return std::vector<Array>{
        DistanceFromUnitary(q), Distance(Product({q, t, AdjointOf(q)}), z), DistanceFromUnitary(u),
        Distance(Product({u, c, AdjointOf(u)}), z.astype(DType::kC128)), max(abs(below))};
  });
  ExpectSmall([](Array z) {
    const auto [h, q] = linalg::hessenberg(z);
    const Array below = where(expand_dims(arange(3), 1) > arange(3) + 1, h, zeros_like(h));
    return std::vector<Array>{DistanceFromUnitary(q), Distance(Product({q, h, AdjointOf(q)}), z),
                              max(abs(below))};
  });
  // The three diagonals have the eigenvalues of the matrix.
  ExpectSmall([](Array z) {
    const Array a = (z + AdjointOf(z)) / 2.0;
    std::vector<Array> out;
    for (const bool lower : {false, true}) {
      const lax::linalg::Tridiagonal t = lax::linalg::tridiagonal(a, lower);
      const Array i = expand_dims(arange(3), 1), j = arange(3);
      const Array off = take(concatenate({t.e, zeros({1}, DType::kF64)}), minimum(i, j));
      const Array whole = where(equal(i, j), t.d, where(abs(i - j) <= 1, off, 0.0));
      out.push_back(Distance(linalg::eigvalsh(whole), linalg::eigvalsh(a)));
    }
    return out;
  });
  ExpectGradient([](Array z) { return sum(abs(linalg::eigvals(z)) * 3.0); });
  ExpectGradient([](Array z) {
    const std::vector<Array> e = lax::linalg::eig(z, {.enable_eigvec_derivs = true});
    return sum(abs(e[2]) * abs(e[2]) * abs(e[2])) + sum(abs(e[1] * e[0]));
  });
  // Real matrices may have complex eigenvalues.
  EXPECT_THAT(Values(grad([](Array a) { return sum(abs(linalg::eigvals(a))); }), General()).size(),
              9u);
}

TEST(LinalgTest, FunctionsOfMatrices) {
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::expm(z); }),
              Near({-9.22553580003, -8.47510873845, -1.71891883384, -11.8206537615, -0.594647377691,
                    -26.9852397268, -3.51829160484, -17.9816653548, 35.9911510069, 7.42859493621,
                    10.9297280664, -13.2898874476, 5.95755685416, 17.4209737438, -26.5355186336,
                    9.06867423055, 11.1467309098, 34.6074248417}));
  EXPECT_THAT(Values(grad([](Array a) { return sum(linalg::expm(a)); }), General()),
              Near({24.8762465155, 18.6192765158, 51.7457570101, 30.5181506709, 23.5549111519,
                    61.074489194, 13.8204473923, 8.68016344984, 34.4739047624}));
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::sqrtm(z); }),
              Near({1.52255591675, 0.319048561322, 0.0189586947836, 0.323126378802, 1.76246002782,
                    -0.234395900979, 0.129740003755, 0.0122784970415, 2.0222537874, 0.649020150606,
                    0.0470898930785, -0.0175283021645, 0.036286833256, 0.426113054877,
                    0.175617038959, -0.0452598335567, 0.132101350092, 0.255145990446}));
  // Two eigenvalues are 0.
  EXPECT_THAT(Values([](Array a) { return real(linalg::sqrtm(a)); },
                     Matrix({0, 0, 0, 0, 4, 0, 0, 0, 0}, {3, 3})),
              Near({0, 0, 0, 0, 2, 0, 0, 0, 0}));
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::matrix_power(z, 3); }),
              Near({-16.875, -3, -11.25, -8.625, 6.625, -46, 6.25, -9.875, 50.375, 27.125, 31.625,
                    -5.625, 31.625, 42.875, -10.125, 16.625, 20.875, 40.625}));
  EXPECT_THAT(
      Values([](Array a) { return linalg::matrix_power(a, -2); }, General()),
      Near({0.429980276134, -0.211702827087, -0.0657462195924, -0.244575936884, 0.218277449047,
            0.0802103879027, -0.0729783037475, 0.0328731097962, 0.0723208415516}));
  const auto polar = [](Array a) {
    const auto [u, p] = linalg::polar(a);
    return Parts({u, p});
  };
  EXPECT_THAT(Values(polar, Tall()),
              Near({-0.639345916091, 0.720977272977, 0.56256443281, 0.201653455412, 0.52417369117,
                    0.662968819607, 3.66921583819, 4.64078173725, 4.64078173725, 6.88935010485}));
  ExpectSmall([](Array z) {
    const auto [u, p] = linalg::polar(z, "left");
    return std::vector<Array>{DistanceFromUnitary(u), Distance(matmul(p, u), z),
                              Distance(p, AdjointOf(p))};
  });
}

TEST(LinalgTest, NormsOfEachOrder) {
  const linalg::NormOrder orders[] = {{}, "fro", "nuc", 1, -1, 2, -2, HUGE_VAL, -HUGE_VAL};
  const auto of_matrix = [&](Array x) {
    std::vector<Array> out;
    for (const linalg::NormOrder& ord : orders) out.push_back(linalg::norm(x, {.ord = ord}));
    return stack(out);
  };
  EXPECT_THAT(Values(of_matrix, Tall()), Near({10.1980390272, 10.1980390272, 10.558565943, 13, 9,
                                               10.1914282571, 0.367137685944, 12, 3}));
  EXPECT_THAT(ValuesForComplex(of_matrix),
              Near({6.36396103068, 6.36396103068, 10.5115861117, 5.24113961437, 4.4464611135,
                    4.49964208024, 1.96158568137, 5.59016994375, 3.9464611135}));
  const linalg::NormOrder of_vectors[] = {{}, 0, 1, 2, 3, -1, HUGE_VAL, -HUGE_VAL};
  const auto of_vector = [&](Array x) {
    std::vector<Array> out;
    for (const linalg::NormOrder& ord : of_vectors)
      out.push_back(linalg::norm(x - 1.5, {.ord = ord}));
    return stack(out);
  };
  EXPECT_THAT(Values(of_vector, RightHandSide()), Near({1.65831239518, 3, 2.5, 1.65831239518,
                                                        1.53615841284, 0.214285714286, 1.5, 0.5}));
  EXPECT_THAT(Values([](Array x) { return linalg::norm(x, {.axis = 0}); }, Tall()),
              Near({5.9160797831, 8.30662386292}));
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::norm(z, {.ord = 1, .axis = 1}); }),
              Near({3.9464611135, 5.59016994375, 5.12310562562}));
  const auto kept = trace(
      [](Array x) {
        return linalg::norm(x, {.ord = 1, .axis = {2, 0}, .keepdims = true});
      },
      abstract({2, 3, 4}));
  EXPECT_EQ(kept.fn()->result_types()[0].shape, (Dims{1, 3, 1}));
  const linalg::NormOrder of_condition[] = {{}, 2, -2, 1, "fro", HUGE_VAL};
  EXPECT_THAT(ValuesForComplex([&](Array z) {
                std::vector<Array> out;
                for (const linalg::NormOrder& p : of_condition) out.push_back(linalg::cond(z, p));
                return stack(out);
              }),
              Near({2.29387995792, 2.29387995792, 0.435942603075, 3.0740093798, 3.87226831451,
                    3.15955083141}));
  EXPECT_THAT(Values([](Array a) { return linalg::matrix_rank(a); },
                     Matrix({1, 2, 3, 2, 4, 6, 1, 0, 1}, {3, 3})),
              Near({2}));
}

TEST(LinalgTest, LeastSquaresAndPseudoInverses) {
  const auto least = [](Array a, Array b) {
    const linalg::Lstsq out = linalg::lstsq(a, b);
    return Parts({out.x, out.residuals, out.rank, out.s});
  };
  EXPECT_THAT(Values(least, Tall(), RightHandSide()),
              Near({-0.0714285714286, 0.5, 0.0714285714286, 2, 10.1914282571, 0.367137685944}));
  ExpectSmall([](Array z) {
    const Array p = linalg::pinv(z);
    return std::vector<Array>{Distance(p, linalg::inv(z))};
  });
  // The derivative also exists if singular values are equal.
  const auto loss = [](Array a) { return sum(linalg::pinv(a) * Weights({2, 3})); };
  EXPECT_THAT(Values(grad(loss), Matrix({1, 0, 0, 1, 0, 0}, {3, 2})), Near({0, -1, -3, -4, 2, 5}));
  ExpectGradient([](Array z) { return sum(abs(linalg::pinv(z))); });
  EXPECT_THAT(Values(
                  [](Array a, Array b, Array c, Array d) {
                    return linalg::multi_dot({a, b, c, d});
                  },
                  RightHandSide(), General(), Positive(), Tall()),
              Near({273.5, 393}));
}

TEST(LinalgTest, ToeplitzAndBlockDiagonalMatrices) {
  EXPECT_THAT(Values([](Array c, Array r) { return linalg::toeplitz(c, r); }, RightHandSide(),
                     Matrix({9, 8, 7, 6}, {4})),
              Near({1, 8, 7, 6, 2, 1, 8, 7, 3, 2, 1, 8}));
  EXPECT_THAT(ValuesForComplex([](Array z) { return linalg::toeplitz(take(z, 0, 0)); }),
              Near({2, 1, 0, 1, 2, 1, 0, 1, 2, 2, -0.5, 0, 0.5, 2, -0.5, 0, 0.5, 2}));
  EXPECT_THAT(Values(
                  [](Array a, Array b) {
                    return linalg::block_diag({a, b});
                  },
                  RightHandSide(), Tall()),
              Near({1, 2, 3, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 4, 0, 0, 0, 5, 7}));
}

TEST(LinalgTest, FunctionsWithoutDerivativesRefuseGrad) {
  const auto error_of = [](auto f) {
    return std::string(ErrorOf([&] { trace(f, abstract({3, 3})); }).what());
  };
  EXPECT_THAT(error_of(grad([](Array a) { return sum(linalg::schur(a).first); })),
              HasSubstr("Differentiation rule for 'schur' not implemented"));
  EXPECT_THAT(error_of(grad([](Array a) { return sum(linalg::hessenberg(a).first); })),
              HasSubstr("Differentiation rule for 'hessenberg' not implemented"));
  EXPECT_THAT(error_of(grad([](Array a) { return sum(abs(linalg::eig(a).second)); })),
              HasSubstr("ask for them with enable_eigvec_derivs"));
}

TEST(LinalgTest, ErrorsSayWhatIsExpected) {
  const auto error_of = [](auto f, const Dims& shape) {
    return std::string(ErrorOf([&] { trace(f, abstract(shape)); }).what());
  };
  EXPECT_THAT(error_of([](Array a) { return linalg::inv(a); }, {2, 3}),
              HasSubstr("linalg.inv: expected square matrices, got 2 rows and 3 columns"));
  EXPECT_THAT(error_of([](Array a) { return linalg::svdvals(a); }, {3}),
              HasSubstr("linalg.svdvals: expected an array of at least 2 dims, got 1"));
  EXPECT_THAT(error_of([](Array a) { return linalg::solve(a, ones({2})); }, {3, 3}),
              HasSubstr("linalg.solve: b has 2 rows; expected 3, the number of rows of a"));
  EXPECT_THAT(error_of([](Array a) { return linalg::solve(a, sum(a)); }, {3, 3}),
              HasSubstr("linalg.solve: b has 1 rows; expected 3, the number of rows of a"));
  EXPECT_THAT(error_of([](Array a) { return linalg::qr(a, "full").first; }, {3, 3}),
              HasSubstr("linalg.qr: mode is 'full'; expected reduced, complete, r or raw"));
  EXPECT_THAT(error_of([](Array a) { return linalg::cholesky(a.astype(DType::kBF16)); }, {3, 3}),
              HasSubstr("cholesky: does not accept dtype bf16; expected f32, f64, c64 or c128"));
  EXPECT_THAT(error_of([](Array a) { return linalg::norm(a, {.ord = 3}); }, {3, 3}),
              HasSubstr("linalg.norm: ord is 3; expected fro, nuc, 1, 2, infinity"));
  EXPECT_THAT(error_of([](Array a) { return linalg::norm(a, {.ord = "fro"}); }, {3}),
              HasSubstr("linalg.norm: ord is 'fro'; expected a number for a norm of vectors"));
  EXPECT_THAT(error_of(
                  [](Array a) {
                    return linalg::multi_dot({a, a});
                  },
                  {2, 3}),
              HasSubstr("linalg.multi_dot: array 0 has 3 columns; expected 2, the number of rows "
                        "of the next array"));
  const auto wide = [](Array a) { return sum(linalg::svd(a).u); };
  EXPECT_THAT(error_of(grad(wide), {2, 3}),
              HasSubstr("the vectors beyond the singular values have no derivatives"));
}

}  // namespace
}  // namespace tessera
