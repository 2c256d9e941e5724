// Proves that values and derivatives of nn.h and optim.h agree with those of jax.nn and Optax. A
// row is one function with recorded inputs (rows.h). Each row is traced and run in the reference
// evaluator, and compared with the recording of scripts/record_nn.py.
#include "tests/nn/rows.h"

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

namespace tessera::nn_rows {
namespace {

using ::testing::HasSubstr;

const std::map<std::string, nlohmann::json>& AllRecorded() {
  static const auto* const kAll = [] {
    auto* all = new std::map<std::string, nlohmann::json>;
    std::ifstream in(SourcePath("tests/nn/recorded.jsonl"));
    for (std::string line; std::getline(in, line);) {
      nlohmann::json j = nlohmann::json::parse(line);
      if (j.contains("name")) (*all)[j["name"]] = j;
    }
    return all;
  }();
  return *kAll;
}

ir::Array ArrayOf(const nlohmann::json& j) {
  const std::map<std::string, DType> dtypes = {
      {"f32", kF32}, {"f64", kF64}, {"s32", kS32}, {"u32", kU32}, {"bool", kBool}};
  ir::Array a(dtypes.at(j["dtype"]), j["shape"].get<Dims>());
  const std::string bytes = BytesFromHex(j["hex"].get<std::string>()).value();
  EXPECT_EQ(bytes.size(), static_cast<size_t>(a.num_bytes()));
  std::memcpy(a.MutableData(), bytes.data(), bytes.size());
  return a;
}

void ExpectNear(const ir::Array& got, const ir::Array& want, double ulps, double scale) {
  ASSERT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.dtype(), want.dtype());
  const int digits = want.dtype() == kF64 ? 52 : 23;
  double worst = 0;
  for (int64_t i = 0; i < want.num_elements(); ++i)
    worst =
        std::max(worst, DistanceInUlps(got.At(i), want.At(i), digits, scale, Subnormals::kAreZero));
  EXPECT_LE(worst, ulps) << got.ToString() << "\nJAX: " << want.ToString();
}

class NnTest : public ::testing::TestWithParam<const Row*> {
 protected:
  void SetUp() override {
    const auto found = AllRecorded().find(GetParam()->name);
    ASSERT_NE(found, AllRecorded().end()) << "not recorded; run scripts/record_nn.py";
    recorded_ = found->second;
  }
  // Returns the recorded inputs, with floats converted to `dtype`.
  std::vector<ir::Array> Inputs(DType dtype) const {
    std::vector<ir::Array> out;
    for (const nlohmann::json& j : recorded_["inputs"]) {
      const ir::Array a = ArrayOf(j);
      out.push_back(a.dtype() == kF64 ? ir::ConvertArray(a, dtype) : a);
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
  void ExpectValues(DType dtype, const char* name, double ulps) const {
    if (!recorded_.contains(name)) return;
    const Row& row = *GetParam();
    const auto got =
        Run([&](const std::vector<Array>& x) { return row.f(dtype, x); }, Inputs(dtype));
    ASSERT_EQ(got.size(), 1u);
    ExpectNear(got[0], ArrayOf(recorded_[name]), ulps, row.scale);
  }
  nlohmann::json recorded_;
};

TEST_P(NnTest, ValuesInF64) { ExpectValues(kF64, "f64", GetParam()->ulps64); }
TEST_P(NnTest, ValuesInF32) { ExpectValues(kF32, "f32", GetParam()->ulps32); }

// Compares the gradients of the sum of all elements of the result.
TEST_P(NnTest, DerivativesInF64) {
  if (!recorded_.contains("grads")) return;
  const std::vector<ir::Array> inputs = Inputs(kF64);
  // Differentiates by the float inputs. They are moved to the front of the arguments.
  std::vector<ir::Array> floats, others;
  for (const ir::Array& a : inputs) (a.dtype() == kF64 ? floats : others).push_back(a);
  std::vector<size_t> order;  // index of each input among floats, then others
  for (size_t i = 0, f = 0, o = 0; i < inputs.size(); ++i)
    order.push_back(inputs[i].dtype() == kF64 ? f++ : floats.size() + o++);
  const auto slopes = [&](const std::vector<Array>& all) {
    const std::vector<Array> by(all.begin(), all.begin() + static_cast<int64_t>(floats.size()));
    const auto total = [&](const std::vector<Array>& x) {
      std::vector<Array> in;
      for (const size_t i : order) in.push_back(i < x.size() ? x[i] : all[i]);
      return sum(GetParam()->f(kF64, in));
    };
    return grad(total)(by);
  };
  std::vector<ir::Array> sorted = floats;
  sorted.insert(sorted.end(), others.begin(), others.end());
  const std::vector<ir::Array> got = Run(slopes, sorted);
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
INSTANTIATE_TEST_SUITE_P(Rows, NnTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

TEST(NnRowsTest, AllThatIsRecordedIsCompared) {
  std::set<std::string> recorded, rows;
  for (const auto& [name, j] : AllRecorded()) recorded.insert(name);
  for (const Row& row : Rows()) rows.insert(row.name);
  EXPECT_EQ(rows, recorded);
}

// ---- Errors. ------------------------------------------------------------------------------------

void ExpectError(const std::function<void()>& f, ErrorKind kind, const std::string& text) {
  const Error e = testing::ErrorOf(f);
  EXPECT_EQ(e.kind(), kind) << e.what();
  EXPECT_THAT(e.what(), HasSubstr(text));
}
// Expects that tracing `f` on an array of the type of `like` fails.
void ExpectErrorOf(const std::function<Array(Array)>& f, const Array& like, ErrorKind kind,
                   const std::string& text) {
  ExpectError([&] { tessera::trace(f, like); }, kind, text);
}

// A wrong argument is refused while the function is traced, with a message that says what is
// expected.
TEST(NnErrorsTest, OfBadArguments) {
  constexpr ErrorKind kValue = ErrorKind::kValueError, kType = ErrorKind::kTypeError;
  const Array odd = abstract({2, 3}), ints = abstract({3}, kS32), heads = abstract({2, 5, 3, 4});
  ExpectErrorOf([](Array x) { return nn::glu(x); }, odd, kValue, "divisible by 2");
  ExpectErrorOf([](Array x) { return nn::one_hot(x, 3, kF32, 2); }, ints, kValue, "out of bounds");
  ExpectErrorOf([](Array x) { return nn::dot_product_attention(x, x, x); }, ints, kValue, "3 dims");
  ExpectErrorOf(
      [](Array x) {
        return nn::dot_product_attention(x, x, x[Slice{0, 1}]);
      },
      heads, kValue, "value is f32[1,5,3,4]; f32[2,5,3,4] is expected");
  ExpectErrorOf(
      [](Array x) {
        const Array two = x[{Slice{}, Slice{}, Slice{0, 2}}];
        return nn::dot_product_attention(x, two, two);
      },
      heads, kValue, "multiple of key/value heads, but got 3 vs 2");
  ExpectErrorOf([](Array x) { return nn::dot_product_attention(x, x, x, {.mask = x}); }, heads,
                kValue, "mask is f32[2,5,3,4]");
  const Array key = abstract({2}, kU32);
  ExpectErrorOf([](Array k) { return nn::initializers::he_normal()(k, {3}); }, key, kValue,
                "Must be at least 2D");
  ExpectErrorOf([](Array k) { return nn::initializers::orthogonal()(k, {3}); }, key, kValue,
                "at least a 2D shape");
  ExpectErrorOf(
      [](Array k) {
        return nn::initializers::variance_scaling(1, "fan", "normal")(k, {3, 3});
      },
      key, kValue, "invalid mode");
  ExpectErrorOf(
      [](Array k) {
        return nn::initializers::variance_scaling(1, "fan_in", "flat")(k, {3, 3});
      },
      key, kValue, "invalid distribution");
  ExpectErrorOf([](Array x) { return optim::l2_loss(x); }, ints, kType, "floats are expected");
  ExpectErrorOf([](Array x) { return optim::l2_loss(x, x[0]); }, odd, kValue,
                "equal shapes are expected");
  ExpectErrorOf([](Array x) { return optim::softmax_cross_entropy_with_integer_labels(x, x); }, odd,
                kType, "integers are expected");
  ExpectError([] { optim::cosine_decay_schedule(0.1, 0); }, kValue, "decay_steps is 0");
  ExpectError([] { optim::piecewise_constant_schedule(1, {{3, -1}}); }, kValue, "non-negative");
  ExpectError([] { optim::join_schedules({}, {}); }, kValue, "one schedule more than boundaries");
}

// A state must come from the same chain of transformations, and its trees must fit the gradients.
TEST(NnErrorsTest, OfStatesOfOtherOptimizersAndParameters) {
  constexpr ErrorKind kValue = ErrorKind::kValueError;
  using Tree = std::vector<Array>;
  const auto after = [](const optim::GradientTransformation& made,
                        const optim::GradientTransformation& used, const Tree& grads) {
    return [=] {
      tessera::trace(
          [&](const Array& p) {
            Tree g;
            for (const Array& a : grads) g.push_back(zeros(a.shape()) + 0 * p[0]);
            return used.update(g, made.init(Tree{p})).first;
          },
          abstract({3}));
    };
  };
  const Tree one = {abstract({3})}, two = {abstract({3}), abstract({3})}, other = {abstract({4})};
  const optim::GradientTransformation adam = optim::adam(0.1), sgd = optim::sgd(0.1);
  ExpectError(after(sgd, adam, one), kValue,
              "a state of 1 transformations is given to a chain of 2");
  ExpectError(after(optim::sgd(0.1, 0.9), adam, one), kValue,
              "state[0] does not belong to scale_by_adam");
  ExpectError(after(adam, adam, two), kValue, "trees of different structure");
  ExpectError(after(adam, adam, other), kValue, "equal shapes are expected");
  ExpectError(after(optim::adamw(0.1), optim::adamw(0.1), one), kValue,
              "add_decayed_weights needs the parameters");
}

}  // namespace
}  // namespace tessera::nn_rows
