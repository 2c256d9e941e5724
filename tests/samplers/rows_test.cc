// Proves that every sampler gives the samples of JAX. A row is one sampler (rows.h). The first
// samples of each row, computed in the reference evaluator, are compared with the samples that
// scripts/check_samplers recorded.
#include "tests/samplers/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/hex.h"
#include "base/testing/datadriven.h"
#include "client/testing/evaluated.h"

namespace tessera::samplers {
namespace {

struct Recorded {
  std::string python, dtype, bytes;
  uint64_t seed = 0;
  int64_t n = 0;
  Dims shape;
};
const std::map<std::string, Recorded>& AllRecorded() {
  static const std::map<std::string, Recorded> kAll = [] {
    std::map<std::string, Recorded> all;
    std::ifstream in(SourcePath("tests/samplers/recorded.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json j = nlohmann::json::parse(line);
      if (!j.contains("name")) continue;  // the line that names the JAX version
      all[j["name"]] = {.python = j["python"],
                        .dtype = j["dtype"],
                        .bytes = BytesFromHex(j["hex"].get<std::string>()).value(),
                        .seed = j["seed"],
                        .n = j["n"],
                        .shape = j["shape"].get<Dims>()};
    }
    return all;
  }();
  return kAll;
}

int MantissaBits(DType dtype) {
  return dtype == kF64 || dtype == kC128 ? 52 : dtype == kF16 ? 10 : dtype == kBF16 ? 7 : 23;
}

class SamplersTest : public ::testing::TestWithParam<const Row*> {};

// The recording must be of the same Python text as the row, so that a row that was changed is
// recorded again.
TEST_P(SamplersTest, AreThoseOfJax) {
  const Row& row = *GetParam();
  const auto found = AllRecorded().find(row.name);
  ASSERT_NE(found, AllRecorded().end()) << "not recorded; run scripts/check_samplers --record";
  const Recorded& want = found->second;
  ASSERT_EQ(want.python, row.python)
      << "recorded for another row; run scripts/check_samplers --record";
  const std::vector<ir::Array> got = testing::Evaluated(
      [&](Array) { return row.sample(random::key(want.seed), want.n); }, testing::Vec({0}));
  ASSERT_EQ(got.size(), 1);
  EXPECT_EQ(std::string(ir::DTypeName(got[0].dtype())), want.dtype);
  EXPECT_EQ(got[0].shape(), want.shape);
  ASSERT_EQ(got[0].num_bytes(), static_cast<int64_t>(want.bytes.size()));
  ir::Array jax(got[0].dtype(), got[0].shape());
  std::copy(want.bytes.begin(), want.bytes.end(), reinterpret_cast<char*>(jax.MutableData()));
  ir::Array ours = got[0];
  if (row.ulps == 0) {
    EXPECT_TRUE(ours == jax) << ours.ToString() << "\n" << jax.ToString();
    return;
  }
  const int digits = MantissaBits(ours.dtype());
  if (ir::IsComplex(ours.dtype())) {
    // Compares the real and imaginary parts as twice as many floats.
    const DType part = ours.dtype() == kC64 ? kF32 : kF64;
    const Dims parts = {2 * ours.num_elements()};
    ours = ir::Array(part, parts, ours.bytes());
    jax = ir::Array(part, parts, jax.bytes());
  }
  for (int64_t i = 0; i < jax.num_elements(); ++i) {
    // XLA flushes subnormal numbers to zero.
    const double least = digits == 52 ? 0x1p-1022 : digits == 23 ? 0x1p-126 : 0;
    const auto at = [&](const ir::Array& a) { return std::fabs(a.At(i)) < least ? 0.0 : a.At(i); };
    const double x = at(ours), y = at(jax);
    if (x == y) continue;
    const double unit = std::ldexp(std::max(std::fabs(y), row.scale), -digits);
    EXPECT_LE(std::fabs(x - y), row.ulps * unit) << "sample " << i << ": " << x << ", JAX: " << y;
  }
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, SamplersTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

TEST(SamplersTest, NothingElseIsRecorded) { EXPECT_EQ(AllRecorded().size(), Rows().size()); }

}  // namespace
}  // namespace tessera::samplers
