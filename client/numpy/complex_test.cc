// Tests of functions of complex numbers and of their gradients by the real and imaginary parts.
// Expected values are those of jax.numpy 0.10.2; traced functions run on the reference evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "client/testing/evaluated.h"

namespace tessera {
namespace {

using testing::Evaluated;
using ::testing::Pointwise;
using testing::Values;

MATCHER(IsNear, "") {
  const double got = std::get<0>(arg), want = std::get<1>(arg);
  return std::abs(got - want) < 1e-9 * (1 + std::abs(want));
}
auto Near(std::vector<double> values) { return Pointwise(IsNear(), std::move(values)); }

const ir::Array& Re() {
  static const auto* const kRe = new ir::Array(ir::Array::Of(DType::kF64, {4}, {1, -2, 0.5, 0}));
  return *kRe;
}
const ir::Array& Im() {
  static const auto* const kIm = new ir::Array(ir::Array::Of(DType::kF64, {4}, {2, 1, -3, 0.25}));
  return *kIm;
}

// Checks the parts of f(re + i im), and the gradient by re and im of a weighted sum of these parts.
template <class F>
void ExpectPartsAndGradients(const F& f, std::vector<double> values,
                             std::vector<double> gradients) {
  const auto parts = [&](Array re, Array im) {
    const Array z = f(lax::complex(re, im));
    return concatenate({real(z), imag(z)});
  };
  EXPECT_THAT(Values(parts, Re(), Im()), Near(std::move(values)));
  const auto loss = [&](Array re, Array im) {
    return sum(parts(re, im) * (1.0 + arange(8, DType::kF64)));
  };
  const std::vector<ir::Array> got = Evaluated(grad<0, 1>(loss), Re(), Im());
  std::vector<double> all = got[0].ToDoubles();
  for (const double v : got[1].ToDoubles()) all.push_back(v);
  EXPECT_THAT(all, Near(std::move(gradients)));
}

TEST(ComplexTest, FunctionsAndTheirGradients) {
  ExpectPartsAndGradients([](Array z) { return exp(z); },
                          {-1.13120438376, 0.0731219655981, -1.63222168698, 0.968912421711,
                           2.471726672, 0.113880714064, -0.23266755901, 0.247403959255},
                          {11.2274289763, 0.829528215582, -6.525337974, 5.85488136088,
                           -8.12774859079, 0.21097036546, -10.7275491318, 6.76168353667});
  ExpectPartsAndGradients([](Array z) { return log(z); },
                          {0.804718956217, 0.804718956217, 1.11231177576, -1.38629436112,
                           1.10714871779, 2.67794504459, -1.40564764938, 1.57079632679},
                          {-1.8, -2.0, 2.43243243243, -32.0, 1.4, -2.0, -0.594594594595, 16.0});
  ExpectPartsAndGradients([](Array z) { return sqrt(z); },
                          {1.27201964951, 0.343560749723, 1.33067299987, 0.353553390593,
                           0.786151377757, 1.45534669023, -1.12724914397, 0.353553390593},
                          {-0.594511720132, -1.79890743995, 1.9535142048, -2.82842712475,
                           1.59794999464, 1.1117859405, 0.975373202162, 8.48528137424});
  // jax.numpy has no cube roots of complex numbers, so these values are exp(log(z) / 3).
  ExpectPartsAndGradients([](Array z) { return lax::cbrt(z); },
                          {1.21961650797, 0.820363244884, 1.29269989334, 0.545561817986,
                           0.471711267789, 1.01832219514, -0.65428985371, 0.314980262474},
                          {-0.511637979815, -1.22579029335, 1.17781411876, -4.13943132532,
                           0.85218113106, 0.131972633506, 0.274294497121, 6.26945249564});
  ExpectPartsAndGradients([](Array z) { return tanh(z); },
                          {1.16673625724, -1.01479361615, 0.469469993426, 0.0, -0.243458201186,
                           0.0338128260799, 0.111621050772, 0.255341921221},
                          {2.53851350622, 0.354430928268, 1.64253327714, 4.26079798693,
                           -2.07811101207, -0.309228817186, 5.85881669357, 8.52159597386});
  ExpectPartsAndGradients([](Array z) { return sin(z); },
                          {3.16577851322, -1.40311925062, 4.82669427481, 0.0, 1.95960104142,
                           -0.489056259041, -8.79151234349, 0.252612316808},
                          {-13.2267659887, 5.12734827887, 60.1253893987, 4.12565239952,
                           13.2155128343, -5.99010359106, 47.4379569973, 8.25130479904});
  ExpectPartsAndGradients([](Array z) { return 1.0 / z; },
                          {0.2, -0.4, 0.0540540540541, 0.0, -0.4, -0.2, 0.324324324324, -4.0},
                          {0.92, -1.2, 0.0613586559533, 64.0, 0.44, -0.4, 0.82103725347, 128.0});
  ExpectPartsAndGradients([](Array z) { return z * z; },
                          {-3.0, 3.0, -8.75, -0.0625, 4.0, -4.0, -3.0, 0.0},
                          {22.0, 4.0, -39.0, 4.0, 6.0, -28.0, 25.0, -2.0});
  ExpectPartsAndGradients([](Array z) { return lax::logistic(z); },
                          {1.02141536417, 0.0785168975771, 2.39305446841, 0.5, 0.403438706082,
                           0.097788655033, -0.512666030615, 0.0628275682876},
                          {-1.96270259096, 0.658424419311, 4.37457979655, 1.01578921335,
                           1.12516231756, 0.326622629731, -27.3188296502, 2.0315784267});
  ExpectPartsAndGradients(
      [](Array z) { return log1p(z); },
      {1.03972077084, 0.34657359028, 1.21018406433, 0.0303123109082, 0.785398163397, 2.35619449019,
       -1.10714871779, 0.244978663127},
      {-1.0, -4.0, 2.26666666667, 1.88235294118, 1.5, -2.0, 0.133333333333, 8.47058823529});
  ExpectPartsAndGradients([](Array z) { return expm1(z); },
                          {-2.13120438376, -0.926878034402, -2.63222168698, -0.0310875782894,
                           2.471726672, 0.113880714064, -0.23266755901, 0.247403959255},
                          {11.2274289763, 0.829528215582, -6.525337974, 5.85488136088,
                           -8.12774859079, 0.21097036546, -10.7275491318, 6.76168353667});
}

TEST(ComplexTest, MagnitudesAreReal) {
  const auto magnitude = [](Array re, Array im) { return abs(lax::complex(re, im)); };
  EXPECT_THAT(Values(magnitude, Re(), Im()),
              Near({2.2360679775, 2.2360679775, 3.04138126515, 0.25}));
  const auto loss = [&](Array re, Array im) {
    return sum(magnitude(re, im) * (1.0 + arange(4, DType::kF64)));
  };
  const std::vector<ir::Array> got = Evaluated(grad<0, 1>(loss), Re(), Im());
  EXPECT_THAT(got[0].ToDoubles(), Near({0.4472135955, -1.788854382, 0.493196961916, 0.0}));
  EXPECT_THAT(got[1].ToDoubles(), Near({0.894427191, 0.894427191, -2.9591817715, 4.0}));
  // Squares neither overflow nor underflow.
  const auto scaled_magnitude = [&](double x) {
    return Values(magnitude, ir::Array::Of(DType::kF64, {1}, {3 * x}),
                  ir::Array::Of(DType::kF64, {1}, {-4 * x}))[0];
  };
  EXPECT_DOUBLE_EQ(scaled_magnitude(1e300), 5e300);
  EXPECT_DOUBLE_EQ(scaled_magnitude(1e-300), 5e-300);
  EXPECT_EQ(scaled_magnitude(0), 0);
  EXPECT_EQ(scaled_magnitude(INFINITY), INFINITY);
}

TEST(ComplexTest, ProductsSumsAndComparisons) {
  const auto dot = [](Array re, Array im) {
    const Array z = lax::complex(re, im);
    const Array p = reshape(matmul(reshape(z, {2, 2}), reshape(conj(z), {2, 2})), {4});
    return concatenate({real(p), imag(p)});
  };
  EXPECT_THAT(Values(dot, Re(), Im()), Near({1.0, 0.25, -6.25, -3.9375, -5.5, -4.5, -3.875, 5.5}));
  const auto total = [](Array re, Array im) {
    const Array z = sum(lax::complex(re, im));
    return stack({real(z), imag(z)});
  };
  EXPECT_THAT(Values(total, Re(), Im()), Near({-0.5, 0.25}));
  const auto same = [](Array re, Array im) {
    return equal(lax::complex(re, im), lax::complex(re, abs(im))).astype(DType::kS32);
  };
  EXPECT_THAT(Values(same, Re(), Im()), Near({1, 1, 0, 1}));
}

// JAX has the same difference: jnp.astype(bool) compares the complex number with zero, while
// lax.convert_element_type compares only its real part.
TEST(ComplexTest, AstypeBoolTestsTheNumberAndLaxTestsTheRealPart) {
  const auto truths = [](Array re, Array im) {
    const Array z = lax::complex(re, im);
    const Array both =
        concatenate({z.astype(DType::kBool), lax::convert_element_type(z, DType::kBool)});
    return both.astype(DType::kS32);
  };
  EXPECT_THAT(Values(truths, Re(), Im()), Near({1, 1, 1, 1, 1, 1, 1, 0}));
}

}  // namespace
}  // namespace tessera
