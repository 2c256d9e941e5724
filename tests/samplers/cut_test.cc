// Proves that every sampler gives the same bits on several devices as on one. A row (rows.h) is one
// sampler. It runs with its result sharded by the planner over two and four devices, and inside a
// shard_map, where each device draws from its own key until all samples of the device are accepted.
// The devices are an embedded cluster.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/tessera.h"
#include "tests/samplers/rows.h"

namespace tessera::samplers {
namespace {

// Rows divide the number of samples, n, by constants. This number is divisible by all of them, and
// some of the quotients are divisible by 4.
constexpr int64_t kN = 288;
constexpr uint64_t kSeed = 20;

class CutSamplersTest : public ::testing::TestWithParam<const Row*> {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 4})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }

  static Mesh Line(int64_t devices) { return make_mesh({devices}, {"x"}, {AxisType::kAuto}); }
  static ir::Array Uncut(const Array& key) {
    return jit([](const Array& k) { return GetParam()->sample(k, kN); })(key).value();
  }
};

// Returns a spec that shards over "x" the first dim whose size `devices` divides.
PartitionSpec FirstDim(const Dims& shape, int64_t devices) {
  PartitionSpec spec;
  for (int64_t size : shape) {
    const bool here = size % devices == 0;
    spec.dims.push_back(here ? ir::AxisList{"x"} : ir::AxisList{});
    if (here) return spec;
  }
  ADD_FAILURE() << "no dim is divided by " << devices;
  return spec;
}

TEST_P(CutSamplersTest, PlannedOverDevicesGivesTheSameBits) {
  const ir::Array uncut = Uncut(random::key(kSeed));
  for (const int64_t devices : {2, 4}) {
    SCOPED_TRACE(devices);
    const Mesh mesh = Line(devices);
    const Array key = put(random::key(kSeed), mesh, P());
    JitOptions options;
    options.out_shardings = FirstDim(uncut.shape(), devices);
    const auto sample = jit([](const Array& k) { return GetParam()->sample(k, kN); }, options);
    const Array cut = sample(key);
    EXPECT_TRUE(cut.sharding().Mentions("x")) << cut.sharding().ToString();
    EXPECT_TRUE(cut.value() == uncut) << cut.value().ToString() << "\n" << uncut.ToString();
  }
}

TEST_P(CutSamplersTest, InAShardMapEachDeviceDrawsFromItsKey) {
  const Mesh mesh = Line(2);
  const auto own = [](const Array& k) {
    return expand_dims(GetParam()->sample(random::fold_in(k, lax::axis_index("x")), kN), 0);
  };
  const Array key = put(random::key(kSeed), mesh, P());
  const ir::Array both = jit(shard_map(own, mesh, P(), P("x")))(key).value();
  std::string bytes;
  for (int i = 0; i < 2; ++i) {
    const ir::Array uncut = Uncut(random::fold_in(random::key(kSeed), i));
    const auto* data = reinterpret_cast<const char*>(uncut.data());
    bytes.append(data, uncut.num_bytes());
  }
  const auto* data = reinterpret_cast<const char*>(both.data());
  EXPECT_TRUE(std::string(data, both.num_bytes()) == bytes) << both.ToString();
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, CutSamplersTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tessera::samplers
