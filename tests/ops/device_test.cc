// Proves that accelerators give the results of the evaluator for every sample. A sample, or row, is
// one op with given attributes and operands: a test case (samples.h). By default the test uses fake
// devices, whose kernels run on the SIMT emulator. If TESSERA_DEVICE_TEST_PLUGIN names a plugin,
// the test uses the plugin's devices instead. It leaves out, and counts, the rows that need more
// devices than the plugin has. The devices of a plugin round the factors of f32 products if the
// row's precision allows it. The fakes round only if a test tells them to.
#include <cstdlib>
#include <iostream>

#include "tests/ops/on_backends.h"
#include "tests/ops/op_test.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/device_backend.h"
#include "worker/device/plugin.h"

namespace tessera::ir::samples {
namespace {

constexpr int kFakeDevices = 8;

// The devices under test. They are opened at first use and closed after the last test.
class Devices {
 public:
  static Devices& Get() {
    static auto* const devices = new Devices;
    return *devices;
  }

  void Close() { open_.clear(); }
  bool are_fakes() const { return are_fakes_; }

  // Returns one device for each shard, or an empty list if there are too few devices.
  std::vector<ShardDevice> For(int shards) {
    std::vector<ShardDevice> on;
    if (shards > count_) return on;
    while (static_cast<int>(open_.size()) < shards) {
      worker::device::DeviceBackendOptions options;
      options.ordinal = static_cast<int32_t>(open_.size());
      options.memory_bytes = 64 << 20;
      options.collective_timeout = absl::Seconds(30);
      open_.push_back(ValueOrThrow(worker::device::MakeDeviceBackend(api_, options)));
    }
    for (int i = 0; i < shards; ++i) on.push_back({open_[i], 0});
    return on;
  }

 private:
  Devices() {
    if (const char* plugin = std::getenv("TESSERA_DEVICE_TEST_PLUGIN"); plugin != nullptr) {
      api_ = ValueOrThrow(worker::device::LoadDevicePlugin(plugin));
      api_->device_count(&count_);
    } else {
      worker::cuda::SetFake("devices", kFakeDevices);
      api_ = &worker::cuda::FakeDevices();
      are_fakes_ = true;
      count_ = kFakeDevices;
    }
  }

  const tessera_device_api* api_ = nullptr;
  int32_t count_ = 0;
  bool are_fakes_ = false;
  std::vector<std::shared_ptr<worker::Backend>> open_;
};

class CloseDevices final : public ::testing::Environment {
 public:
  void TearDown() override { Devices::Get().Close(); }
};
[[maybe_unused]] const auto* const kCloseDevices =
    ::testing::AddGlobalTestEnvironment(new CloseDevices);

class DeviceTest : public OpTest {};

// Returns how the results of a row on the devices differ from those of the evaluator, or "".
std::string DifferenceOnDevices(const Sample& s, bool tf32, int* left_out) {
  std::string why;
  const absl::Status status = CatchStatus([&] {
    const auto devices_for = [&](int shards) {
      std::vector<ShardDevice> on = Devices::Get().For(shards);
      *left_out += on.empty();
      return on;
    };
    why = DifferenceOnBackends(s, /*ulps_min=*/2, devices_for, tf32);
  });
  return status.ok() ? why : status.ToString();
}

TEST_P(DeviceTest, DevicesGiveWhatTheEvaluatorGives) {
  int left_out = 0;
  const bool tf32 = !Devices::Get().are_fakes();
  ForEachSample([&](const Sample& s) { return DifferenceOnDevices(s, tf32, &left_out); });
  RecordProperty("left_out", left_out);
  if (left_out > 0) std::cout << left_out << " rows left out\n";
  if (left_out == static_cast<int>(SamplesOf(op()).size()))
    GTEST_SKIP() << "no row runs on these devices";
}
TESSERA_FOR_EVERY_OP(DeviceTest);

// If the devices round factors to TF32, results stay within the bound for rounding, and many exceed
// the bound without rounding. Rows of the highest precision must stay within the bound without
// rounding.
TEST(DeviceTf32Test, ErrorsOfProductsMatchTf32Rounding) {
  if (!Devices::Get().are_fakes()) GTEST_SKIP() << "devices of a plugin always round";
  worker::cuda::SetFake("cublaslt_rounds", 1);
  int exact = 0, rounded = 0, left_out = 0;
  for (const OpDef* def : {&ops::kDotGeneral, &ops::kConvolution})
    for (const Sample* s : SamplesOf(*def)) {
      const bool may = MayRoundToTf32(*s);
      EXPECT_EQ(DifferenceOnDevices(*s, /*tf32=*/true, &left_out), "") << s->name;
      const bool differs = !DifferenceOnDevices(*s, /*tf32=*/false, &left_out).empty();
      EXPECT_TRUE(may || !differs) << s->name;
      (differs ? rounded : exact) += 1;
    }
  worker::cuda::SetFake("cublaslt_rounds", 0);
  EXPECT_GT(rounded, 20);
  EXPECT_GT(exact, 20);
}

}  // namespace
}  // namespace tessera::ir::samples
