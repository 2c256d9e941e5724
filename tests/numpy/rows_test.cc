// Proves that values, dtypes and derivatives of the functions of jax.numpy agree with those of JAX,
// in the reference evaluator and on a cluster of two devices in this process, and that wrong
// arguments are refused. A row is one function with recorded inputs (rows.h). The expected results
// are the recording of scripts/record_numpy.py.
#include "tests/numpy/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/hex.h"
#include "base/testing/datadriven.h"
#include "base/testing/ulps.h"
#include "client/testing/evaluated.h"

namespace tessera::numpy_rows {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

const std::map<std::string, nlohmann::json>& AllRecorded() {
  static const auto* const kAll = [] {
    auto* all = new std::map<std::string, nlohmann::json>;
    std::ifstream in(SourcePath("tests/numpy/recorded.jsonl"));
    for (std::string line; std::getline(in, line);) {
      nlohmann::json j = nlohmann::json::parse(line);
      if (j.contains("name")) (*all)[j["name"]] = j;
    }
    return all;
  }();
  return *kAll;
}

ir::Array ArrayOf(const nlohmann::json& j) {
  const std::map<std::string, DType> dtypes = {{"f32", kF32}, {"f64", kF64},  {"s32", kS32},
                                               {"s64", kS64}, {"u32", kU32},  {"bool", kBool},
                                               {"c64", kC64}, {"c128", kC128}};
  ir::Array a(dtypes.at(j["dtype"]), j["shape"].get<Dims>());
  const std::string bytes = BytesFromHex(j["hex"].get<std::string>()).value();
  EXPECT_EQ(bytes.size(), static_cast<size_t>(a.num_bytes()));
  std::memcpy(a.MutableData(), bytes.data(), bytes.size());
  return a;
}
// Returns complex numbers as an array of floats: the real and the imaginary part of each element.
// Returns any other array unchanged.
ir::Array Parts(const ir::Array& a) {
  if (!ir::IsComplex(a.dtype())) return a;
  return ir::Array(a.dtype() == kC64 ? kF32 : kF64, {2 * a.num_elements()}, a.bytes());
}

void ExpectNear(const ir::Array& got, const ir::Array& want, double ulps, double scale) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(ir::DTypeName(got.dtype()), ir::DTypeName(want.dtype()));
  const int digits = want.dtype() == kF64 || want.dtype() == kC128 ? 52 : 23;
  const ir::Array have = Parts(got), expected = Parts(want);
  double worst = 0;
  for (int64_t i = 0; i < expected.num_elements(); ++i)
    worst = std::max(worst, DistanceInUlps(have.At(i), expected.At(i), digits, scale));
  EXPECT_LE(worst, ulps) << got.ToString() << "\nJAX: " << want.ToString();
}

class NumpyRowsTest : public ::testing::TestWithParam<const Row*> {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 2})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }
  void SetUp() override {
    const auto found = AllRecorded().find(GetParam()->name);
    ASSERT_NE(found, AllRecorded().end()) << "not recorded; run scripts/record_numpy.py";
    recorded_ = found->second;
  }
  std::vector<ir::Array> Inputs(bool x64) const {
    std::vector<ir::Array> out;
    for (const nlohmann::json& j : recorded_["inputs"]) {
      const ir::Array a = ArrayOf(j);
      const bool narrowed = !x64 && (a.dtype() == kF64 || a.dtype() == kC128);
      out.push_back(narrowed ? ir::ConvertArray(a, a.dtype() == kF64 ? kF32 : kC64) : a);
    }
    return out;
  }
  template <class F>
  std::vector<ir::Array> Run(const F& f, const std::vector<ir::Array>& inputs) const {
    std::vector<Array> types;
    for (const ir::Array& a : inputs) types.push_back(abstract(a.shape(), a.dtype()));
    const auto traced = tessera::trace(f, types);
    auto out = ir::Evaluate(*traced.fn(), inputs);
    EXPECT_TRUE(out.ok()) << out.status();
    return out.ok() ? *out : std::vector<ir::Array>{};
  }
  // Like Run, but runs the row on a cluster of two devices.
  std::vector<ir::Array> RunOnCluster(const std::vector<ir::Array>& inputs) const {
    std::vector<Array> in;
    for (const ir::Array& a : inputs) in.push_back(put(a));
    std::vector<ir::Array> out;
    for (const Array& a : jit(GetParam()->f)(in)) out.push_back(a.value());
    return out;
  }
  void ExpectValues(bool x64, bool on_cluster = false) const {
    if (!recorded_.contains(x64 ? "x64" : "x32")) return;
    const Row& row = *GetParam();
    const std::vector<ir::Array> got =
        on_cluster ? RunOnCluster(Inputs(x64)) : Run(row.f, Inputs(x64));
    const nlohmann::json& want = recorded_[x64 ? "x64" : "x32"];
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE("result " + std::to_string(i));
      ExpectNear(got[i], ArrayOf(want[i]), x64 ? row.ulps64 : row.ulps32, row.scale);
    }
  }
  nlohmann::json recorded_;
};

TEST_P(NumpyRowsTest, ValuesInF64) { ExpectValues(true); }
TEST_P(NumpyRowsTest, ValuesInF32) { ExpectValues(false); }

TEST_P(NumpyRowsTest, ValuesOnACluster) { ExpectValues(false, /*on_cluster=*/true); }

// Takes the gradient of the sum of all float results by all float inputs.
TEST_P(NumpyRowsTest, DerivativesInF64) {
  if (!recorded_.contains("grads")) return;
  const std::vector<ir::Array> inputs = Inputs(true);
  const auto slopes = [&](const std::vector<Array>& all) {
    std::vector<Array> by;
    for (const Array& x : all)
      if (x.dtype() == kF64) by.push_back(x);
    const auto total = [&](const std::vector<Array>& floats) {
      std::vector<Array> in;
      size_t next = 0;
      for (const Array& x : all) in.push_back(x.dtype() == kF64 ? floats[next++] : x);
      Array out = zeros({}, kF64);
      for (const Array& y : GetParam()->f(in))
        if (ir::IsFloat(y.dtype())) out = out + sum(y);
      return out;
    };
    return grad(total)(by);
  };
  const std::vector<ir::Array> got = Run(slopes, inputs);
  ASSERT_EQ(got.size(), recorded_["grads"].size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("by input " + std::to_string(i));
    ExpectNear(got[i], ArrayOf(recorded_["grads"][i]), GetParam()->ulps_grads,
               std::max(1.0, GetParam()->scale));
  }
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, NumpyRowsTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

TEST(NumpyRowsTest, AllThatIsRecordedIsCompared) {
  std::set<std::string> recorded, rows;
  for (const auto& [name, j] : AllRecorded()) recorded.insert(name);
  for (const Row& row : Rows()) EXPECT_TRUE(rows.insert(row.name).second) << row.name;
  EXPECT_EQ(rows, recorded);
}

// ---- Errors. ------------------------------------------------------------------------------------

template <class F>
void ExpectRefused(ErrorKind kind, const char* phrase, const F& f) {
  const Array m = abstract({3, 4}), z = abstract({3}, kC64);
  const Error e = ErrorOf([&] { trace(f, m, z); });
  EXPECT_EQ(e.kind(), kind) << phrase << "\n" << e.what();
  EXPECT_THAT(e.what(), HasSubstr(phrase));
}
constexpr ErrorKind kValue = ErrorKind::kValueError, kType = ErrorKind::kTypeError;
#define TESSERA_REFUSED(kind, phrase, expression) \
  ExpectRefused(kind, phrase,                     \
                []([[maybe_unused]] Array m, [[maybe_unused]] Array z) { return expression; })

TEST(NumpyRefusalsTest, Ufuncs) {
  TESSERA_REFUSED(kType, "fabs does not support complex-valued inputs", fabs(z));
  TESSERA_REFUSED(kType, "floor_divide does not support complex", floor_divide(z, 2));
  TESSERA_REFUSED(kType, "hypot does not support complex", hypot(z, z));
  TESSERA_REFUSED(kType, "incompatible shapes", logaddexp(m, zeros({3})));
}
// In the expressions, m is a 3 x 4 matrix of f32 and z a vector of three c64.
TEST(NumpyRefusalsTest, Shapes) {
  TESSERA_REFUSED(kValue, "out of bounds", moveaxis(m, 2, 0));
  TESSERA_REFUSED(kValue, "Inconsistent number of elements", moveaxis(m, {0, 1}, 0));
  TESSERA_REFUSED(kValue, "repeated axis in `source`", moveaxis(m, {0, 0}, {0, 1}));
  TESSERA_REFUSED(kValue, "repeated axis in `destination`", moveaxis(m, {0, 1}, {0, 0}));
  TESSERA_REFUSED(kValue, "at least two-dimensional", matrix_transpose(z));
  TESSERA_REFUSED(kValue, "equal division: rest is 1", split(m, 2));
  TESSERA_REFUSED(kValue, "one or more", array_split(m, 0));
  TESSERA_REFUSED(kValue, "ascending order", split(m, {2, 1}));
  TESSERA_REFUSED(kValue, "none greater than the size", split(m, {1, 4}));
  TESSERA_REFUSED(kValue, "expected 0 or more", tile(m, {-1}));
  TESSERA_REFUSED(kValue, "expected 0 or more", repeat(m, -1));
  TESSERA_REFUSED(kValue, "a number for each element", repeat(m, std::vector<int64_t>{1, 2}, 0));
  TESSERA_REFUSED(kValue, "a number for each element", repeat(m, zeros({2}, kS32), 3, 0));
  TESSERA_REFUSED(kType, "a vector of integers is expected", repeat(m, z, 3, 0));
  TESSERA_REFUSED(kValue, "2 shifts and 3 axes", roll(m, {1, 2}, {0, 1, 0}));
  TESSERA_REFUSED(kValue, "Axes must be different", rot90(m, 1, {0, -2}));
  TESSERA_REFUSED(ErrorKind::kNotImplemented, "mode is 'mean'", pad(m, 1, "mean"));
  TESSERA_REFUSED(kValue, "has 3 pairs", pad(m, {{1, 1}, {1, 1}, {1, 1}}));
  TESSERA_REFUSED(kValue, "can't contain negative values", pad(m, -1));
  TESSERA_REFUSED(kValue, "can't extend empty axis", pad(zeros({0}), 1, "edge"));
  TESSERA_REFUSED(kValue, "axis1 and axis2 can not be same", diagonal(m, 0, 1, -1));
  TESSERA_REFUSED(kValue, "must be 1d or 2d", diag(zeros({2, 2, 2})));
  TESSERA_REFUSED(kValue, "at least 2D", tril(z));
  TESSERA_REFUSED(kValue, "must be non-negative", linspace(0, 1, -1));
  TESSERA_REFUSED(kValue, "out of bounds", logspace(0, 1, 3, 10, {.axis = 1}));
  TESSERA_REFUSED(kValue, "'xy' and 'ij'", meshgrid({z}, "yx"));
  TESSERA_REFUSED(kValue, "must be 1D", meshgrid({m}));
  TESSERA_REFUSED(kValue, "Need at least one array", hstack({}));
}
TEST(NumpyRefusalsTest, Statistics) {
  TESSERA_REFUSED(kValue, "equal shapes are expected", average(m, zeros({4}), 0));
  TESSERA_REFUSED(kValue, "method can only be", quantile(m, 0.5, 0, "cubic"));
  TESSERA_REFUSED(kValue, "q must have rank <= 1", quantile(m, m));
  TESSERA_REFUSED(kValue, "does not support complex", median(z));
  TESSERA_REFUSED(kValue, "more than 2 dimensions", cov(zeros({2, 2, 2})));
  TESSERA_REFUSED(kValue, "order must be non-negative", diff(m, -1));
  TESSERA_REFUSED(kValue, "at least 2 elements", gradient(zeros({1}), 1, 0));
  TESSERA_REFUSED(kValue, "y's shape or a vector", trapezoid(m, zeros({3})));
  TESSERA_REFUSED(kValue, "one-dimensional arrays of equal size",
                  interp(m, zeros({3}), zeros({2})));
}
TEST(NumpyRefusalsTest, Products) {
  TESSERA_REFUSED(kValue, "axes must match", vecdot(m, z));
  TESSERA_REFUSED(kValue, "matrices and vectors", matvec(z, z));
  TESSERA_REFUSED(kValue, "vectors and matrices", vecmat(z, z));
  TESSERA_REFUSED(kType, "exceeds input ranks", tensordot(m, z, 2));
  TESSERA_REFUSED(kType, "equal length", tensordot(m, m, {{0, 1}, {0}}));
  TESSERA_REFUSED(kType, "differ: 3 and 4", tensordot(m, m, {{0}, {1}}));
  TESSERA_REFUSED(kValue, "either 2 or 3", cross(m, m));
}
TEST(NumpyRefusalsTest, Linalg) {
  TESSERA_REFUSED(kValue, "reduced, complete, r or raw", linalg::qr(m, "full"));
  TESSERA_REFUSED(kValue, "'L' or 'U'", linalg::eigh(eye(2), "l").first);
  TESSERA_REFUSED(kValue, "tensorinv: ind is 0", linalg::tensorinv(m, 0));
  TESSERA_REFUSED(kValue, "tensorinv: ind is 1", linalg::tensorinv(m, 1));
  TESSERA_REFUSED(kValue, "begin with b's dims", linalg::tensorsolve(m, zeros({4})));
  TESSERA_REFUSED(kValue, "must not be empty", linalg::cond(zeros({0, 3})));
  TESSERA_REFUSED(kValue, "zero-size array", linalg::norm(zeros({0}), {.ord = -HUGE_VAL}));
  TESSERA_REFUSED(kValue, "zero-size array", linalg::norm(zeros({0, 3}), {.ord = -2}));
  TESSERA_REFUSED(kValue, "a norm of vectors", linalg::vector_norm(m, {.ord = "fro"}));
  TESSERA_REFUSED(kValue, "at least 2 dims", linalg::matrix_norm(z));
  TESSERA_REFUSED(kValue, "at least 2 dims", linalg::trace(z));
}

}  // namespace
}  // namespace tessera::numpy_rows
