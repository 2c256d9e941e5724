// Expected values are those of jax.numpy.linalg and jax.lax.linalg 0.10.2.
#include "client/linalg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
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
const ir::Array& Right() {
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
  EXPECT_THAT(Values(solved, General(), Right()),
              Near({0.0512820512821, 0.897435897436, 0.74358974359}));
  EXPECT_THAT(
      Values([](Array a) { return linalg::inv(a); }, General()),
      Near({0.615384615385, -0.205128205128, -0.0512820512821, -0.230769230769, 0.410256410256,
            0.102564102564, -0.0769230769231, 0.025641025641, 0.25641025641}));
  const auto loss = [](Array a, Array b) { return sum(linalg::solve(a, b) * Weights({3})); };
  EXPECT_THAT(
      Values(grad(loss), General(), Right()),
      Near({0.0197238658777, 0.34516765286, 0.285996055227, -0.0236686390533, -0.414201183432,
            -0.343195266272, -0.0315581854043, -0.552268244576, -0.457593688363}));
  // A batch of both, and one matrix for all.
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
  // Of a matrix that has none.
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
  const auto remade = [](Array a) {
    const linalg::Svd full = linalg::svd(a);
    const Array rows = full.u[{Slice{}, Slice{0, 2}}];
    return matmul(rows * full.s, full.vh);
  };
  EXPECT_THAT(Values(remade, Tall()), Near({1, 2, 3, 4, 5, 7}));
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

TEST(LaxLinalgTest, TrianglesAndDiagonals) {
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

TEST(LinalgTest, ErrorsSayWhatIsExpected) {
  const auto error_of = [](auto f, const Dims& shape) {
    return std::string(ErrorOf([&] { trace(f, abstract(shape)); }).what());
  };
  EXPECT_THAT(error_of([](Array a) { return linalg::inv(a); }, {2, 3}),
              HasSubstr("linalg.inv: expected square matrices, got 2 rows and 3 columns"));
  EXPECT_THAT(error_of([](Array a) { return linalg::svdvals(a); }, {3}),
              HasSubstr("linalg.svdvals: expected an array of at least 2 dims, got 1"));
  EXPECT_THAT(error_of([](Array a) { return linalg::solve(a, ones({2})); }, {3, 3}),
              HasSubstr("linalg.solve: b has 2 rows; expected 3, as many as a"));
  EXPECT_THAT(error_of([](Array a) { return linalg::solve(a, sum(a)); }, {3, 3}),
              HasSubstr("linalg.solve: b has 1 rows; expected 3, as many as a"));
  EXPECT_THAT(error_of([](Array a) { return linalg::qr(a, "r").first; }, {3, 3}),
              HasSubstr("linalg.qr: mode is 'r'; expected reduced or complete"));
  EXPECT_THAT(error_of([](Array a) { return linalg::cholesky(a.astype(DType::kBF16)); }, {3, 3}),
              HasSubstr("cholesky: does not accept dtype bf16; expected f32, f64, c64 or c128"));
  const auto wide = [](Array a) { return sum(linalg::svd(a).u); };
  EXPECT_THAT(error_of(grad(wide), {2, 3}),
              HasSubstr("vectors beyond the singular values have none"));
}

}  // namespace
}  // namespace tessera
