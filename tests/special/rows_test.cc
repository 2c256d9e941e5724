// Proves that values and derivatives of special functions agree with those of JAX. A row is one
// function with its points (rows.h). Each row is run in the reference evaluator and compared with
// the recording of scripts/record_special.py.
#include "tests/special/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/hex.h"
#include "base/testing/datadriven.h"
#include "base/testing/ulps.h"
#include "client/testing/evaluated.h"

namespace tessera::special_rows {
namespace {

template <class T>
std::vector<T> Numbers(const std::string& hex) {
  const std::string bytes = BytesFromHex(hex).value();
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
const std::map<std::string, nlohmann::json>& AllRecorded() {
  static const std::map<std::string, nlohmann::json> kAll = [] {
    std::map<std::string, nlohmann::json> all;
    std::ifstream in(SourcePath("tests/special/recorded.jsonl"));
    for (std::string line; std::getline(in, line);) {
      nlohmann::json j = nlohmann::json::parse(line);
      if (j.contains("name")) all[j["name"]] = j;
    }
    return all;
  }();
  return kAll;
}

class SpecialTest : public ::testing::TestWithParam<const Row*> {
 protected:
  void SetUp() override {
    const auto found = AllRecorded().find(GetParam()->name);
    ASSERT_NE(found, AllRecorded().end()) << "not recorded; run scripts/record_special.py";
    recorded_ = found->second;
    ASSERT_EQ(recorded_["python"], GetParam()->python) << "recorded for another row; record again";
    for (size_t i = 0; i < GetParam()->points.size(); ++i) {
      const std::vector<double> points = Numbers<double>(recorded_["points"][i]);
      ASSERT_EQ(std::memcmp(points.data(), GetParam()->points[i].data(), points.size() * 8), 0)
          << "recorded at other points; run scripts/record_special.py";
    }
  }
  // Returns the points, rounded to f32, as one array of `dtype` for each argument of the function.
  std::vector<ir::Array> Points(DType dtype) const {
    std::vector<ir::Array> out;
    for (const std::vector<double>& column : GetParam()->points) {
      std::vector<double> rounded;
      for (double x : column) rounded.push_back(static_cast<float>(x));
      out.push_back(testing::Vec(rounded, dtype));
    }
    return out;
  }
  template <class F>
  std::vector<double> Run(const F& f, DType dtype) const {
    const std::vector<ir::Array> x = Points(dtype);
    switch (x.size()) {
      case 1:
        return testing::Values([&](Array a) { return f({a}); }, x[0]);
      case 2:
        return testing::Values([&](Array a, Array b) { return f({a, b}); }, x[0], x[1]);
      default:
        return testing::Values(
            [&](Array a, Array b, Array c) {
              return f({a, b, c});
            },
            x[0], x[1], x[2]);
    }
  }
  std::string At(size_t i) const {
    std::string out;
    for (const std::vector<double>& column : GetParam()->points)
      out += (out.empty() ? "" : ", ") + std::to_string(column[i]);
    return GetParam()->name + "(" + out + ")";
  }
  nlohmann::json recorded_;
};

TEST_P(SpecialTest, ValuesInF64) {
  const std::vector<double> want = Numbers<double>(recorded_["f64"]);
  const std::vector<double> got = Run(GetParam()->f, kF64);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(DistanceInUlps(got[i], want[i], 52, GetParam()->scale, Subnormals::kAreZero),
              GetParam()->ulps64)
        << At(i) << " = " << got[i] << ", JAX: " << want[i];
}

TEST_P(SpecialTest, ValuesInF32) {
  const std::vector<double> exact = Numbers<double>(recorded_["f64"]);
  const std::vector<float> jax = Numbers<float>(recorded_["f32"]);
  const std::vector<double> got = Run(GetParam()->f, kF32);
  ASSERT_EQ(got.size(), exact.size());
  std::set<std::string> wrong;
  for (const Row::WrongInF32& at : GetParam()->wrong_in_f32) wrong.insert(at.point);
  for (size_t i = 0; i < exact.size(); ++i) {
    SCOPED_TRACE(
        absl::StrCat(At(i), " = ", got[i], ", in f64 ", exact[i], ", JAX's f32: ", jax[i]));
    const double distance = DistanceInUlps(got[i], static_cast<float>(exact[i]), 23,
                                           GetParam()->scale, Subnormals::kAreZero);
    if (wrong.erase(At(i)) == 0) {
      EXPECT_LE(distance, GetParam()->ulps32);
      continue;
    }
    EXPECT_GT(distance, GetParam()->ulps32) << "it is no longer wrong; take it from the list";
    EXPECT_EQ(DistanceInUlps(got[i], jax[i], 23, GetParam()->scale, Subnormals::kAreZero), 0);
  }
  EXPECT_THAT(wrong, ::testing::IsEmpty()) << "no such points";
}

// A function of f16 or bf16 computes in f32 and rounds the result.
TEST_P(SpecialTest, NarrowFloatsAreRounded) {
  for (const DType dtype : {kF16, kBF16}) {
    const Row& row = *GetParam();
    // Computing with the same numbers in f32 must give the same results before rounding.
    std::vector<ir::Array> narrow, wide;
    for (const std::vector<double>& column : row.points) {
      narrow.push_back(testing::Vec(column, dtype));
      wide.push_back(testing::Vec(narrow.back().ToDoubles()));
    }
    const auto run = [&](const std::vector<ir::Array>& x) {
      return x.size() == 1   ? testing::Values([&](Array a) { return row.f({a}); }, x[0])
             : x.size() == 2 ? testing::Values(
                                   [&](Array a, Array b) {
                                     return row.f({a, b});
                                   },
                                   x[0], x[1])
                             : testing::Values(
                                   [&](Array a, Array b, Array c) {
                                     return row.f({a, b, c});
                                   },
                                   x[0], x[1], x[2]);
    };
    const std::vector<double> want = testing::Vec(run(wide), dtype).ToDoubles(), got = run(narrow);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
          << At(i) << " of " << ir::DTypeName(dtype) << " = " << got[i] << ", of f32 " << want[i];
  }
}

// Derivatives in forward mode and in reverse mode are compared with separate recordings, because
// they may round differently.
TEST_P(SpecialTest, Derivatives) {
  const Row& row = *GetParam();
  for (size_t d = 0; d < row.derivatives.size(); ++d) {
    const int along = row.derivatives[d];
    const std::vector<double> want = Numbers<double>(recorded_["slopes"][d]);
    const std::vector<double> want_backward = Numbers<double>(recorded_["backward"][d]);
    const double scale = std::max(row.scale, row.derivative_scale);
    // Takes the derivative in forward mode and in reverse mode.
    const std::vector<double> forward = Run(
        [&](std::vector<Array> x) {
          return jvp(
                     [&](Array v) {
                       std::vector<Array> in = x;
                       in[along] = v;
                       return row.f(in);
                     },
                     std::tuple(x[along]), std::tuple(ones_like(x[along])))
              .second;
        },
        kF64);
    const std::vector<double> backward = Run(
        [&](std::vector<Array> x) {
          return grad([&](Array v) {
            std::vector<Array> in = x;
            in[along] = v;
            return sum(row.f(in));
          })(x[along]);
        },
        kF64);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_LE(DistanceInUlps(forward[i], want[i], 52, scale, Subnormals::kAreZero),
                row.ulps_derivative)
          << "d " << At(i) << " / d " << along << " = " << forward[i] << ", JAX: " << want[i];
      EXPECT_LE(DistanceInUlps(backward[i], want_backward[i], 52, scale, Subnormals::kAreZero),
                row.ulps_derivative)
          << "backward, d " << At(i) << " / d " << along << " = " << backward[i]
          << ", JAX: " << want_backward[i];
    }
  }
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, SpecialTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

// The expected numbers are JAX's second derivatives in f64. JAX applies its derivative rules twice;
// at 0, where pieces of a rule meet, that may differ from the true second derivative, as it does
// for i0.
TEST(SpecialSecondDerivativesTest, OfOneArgument) {
  struct Case {
    std::string name;
    Array (*f)(const Arg&);
    std::vector<double> at, want;
  };
  for (const Case& c : std::vector<Case>{
           {"erfcx", special::erfcx, {0, 0.7, 50}, {2, 0.5029533019700686, 9.01621711907677e-06}},
           {"i0", special::i0, {0, 0.5, -9}, {1.5, 0.547694759959531, 979.0422742317124}},
           {"i0e", special::i0e, {0, 0.25, -8}, {0.5, 0.9933585520952293, 0.0018107654667171014}},
           {"i1", special::i1, {0, 0.5, 9.5}, {1, 0.1940820070354201, 1510.6285541871725}},
           {"i1e", special::i1e, {0, 0.5, -8}, {0, -0.39024983720839623, -0.001220026378160691}}}) {
    const std::vector<double> got = testing::Values(
        [&](Array x) {
          return grad([&](Array y) { return sum(grad([&](Array z) { return sum(c.f(z)); })(y)); })(
              x);
        },
        testing::Vec(c.at, kF64));
    for (size_t i = 0; i < c.at.size(); ++i)
      EXPECT_NEAR(got[i], c.want[i], 1e-12 * std::max(1e-2, std::fabs(c.want[i])))
          << c.name << " at " << c.at[i];
  }
}

// Returns the derivative of f by argument `first` and then by argument `second`, at (1.5, 2).
template <class F>
double Second(const F& f, int first, int second) {
  const auto by = [](const auto& g, int i, const Array& a, const Array& x) {
    return i == 0 ? grad([&](Array v) { return g(v, x); })(a)
                  : grad([&](Array v) { return g(a, v); })(x);
  };
  const auto once = [&](const Array& a, const Array& x) { return by(f, first, a, x); };
  return testing::Values([&](Array a, Array x) { return by(once, second, a, x); },
                         testing::Host({1.5}, {}, kF64), testing::Host({2}, {}, kF64))[0];
}

TEST(SpecialSecondDerivativesTest, IncompleteGammasHaveTheMixedOneByXFirst) {
  const auto lower = [](const Array& a, const Array& x) { return special::gammainc(a, x); };
  const auto upper = [](const Array& a, const Array& x) { return special::gammaincc(a, x); };
  EXPECT_NEAR(Second(lower, 1, 0), 0.141814229004713, 1e-14);
  EXPECT_NEAR(Second(upper, 1, 0), -0.141814229004713, 1e-14);
  EXPECT_NEAR(Second(lower, 1, 1), -0.16197289953956412, 1e-14);
  EXPECT_NEAR(Second(upper, 1, 1), 0.16197289953956412, 1e-14);
  for (const int second : {0, 1}) {
    const Error error = testing::ErrorOf([&] { Second(lower, 0, second); });
    EXPECT_NE(
        std::string(error.what()).find("Differentiation rule for 'igamma_grad_a' not implemented"),
        std::string::npos)
        << error.what();
  }
}

// Differentiates by one argument at points where the derivative by the other argument is infinite
// or undefined.
TEST(SpecialSecondDerivativesTest, AnInfiniteDerivativeByTheOtherArgumentIsLeftOut) {
  const ir::Array a = testing::Vec({0.5, 0}, kF64), x = testing::Vec({0, 2}, kF64);
  const std::vector<double> by_a = testing::Values(
      [](Array a, Array x) {
        return jvp([&](Array v) { return special::gammainc(v, x); }, std::tuple(a),
                   std::tuple(full_like(a, 1)))
            .second;
      },
      a, x);
  EXPECT_EQ(by_a[0], 0);
  const std::vector<double> by_x = testing::Values(
      [](Array a, Array x) {
        return jvp([&](Array v) { return special::gammainc(a, v); }, std::tuple(x),
                   std::tuple(full_like(x, 1)))
            .second;
      },
      a, x);
  EXPECT_EQ(by_x[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(by_x[1], 0);
}

TEST(SpecialRowsTest, NothingElseIsRecorded) { EXPECT_EQ(AllRecorded().size(), Rows().size()); }

}  // namespace
}  // namespace tessera::special_rows
