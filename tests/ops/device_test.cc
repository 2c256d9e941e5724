// device = evaluator: every row on accelerators, through their plugin. On the fakes, whose kernels
// run on the emulator; with TESSERA_DEVICE_TEST_PLUGIN on the devices of that plugin, as many as
// there are: rows that need more are left out, and counted.
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

// The devices, opened once and closed after the last test.
class Devices {
 public:
  static Devices& Get() {
    static auto* const devices = new Devices;
    return *devices;
  }

  void Close() { open_.clear(); }

  // None if there are too few.
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
      count_ = kFakeDevices;
    }
  }

  const tessera_device_api* api_ = nullptr;
  int32_t count_ = 0;
  std::vector<std::shared_ptr<worker::Backend>> open_;
};

class CloseDevices final : public ::testing::Environment {
 public:
  void TearDown() override { Devices::Get().Close(); }
};
[[maybe_unused]] const auto* const kCloseDevices =
    ::testing::AddGlobalTestEnvironment(new CloseDevices);

class DeviceTest : public OpTest {};

TEST_P(DeviceTest, DevicesGiveWhatTheEvaluatorGives) {
  int left_out = 0;
  ForRows([&](const Sample& s) -> std::string {
    std::string why;
    const absl::Status status = CatchStatus([&] {
      why = DifferenceOnBackends(s, /*ulps_min=*/2, [&](int shards) {
        std::vector<ShardDevice> on = Devices::Get().For(shards);
        left_out += on.empty();
        return on;
      });
    });
    return status.ok() ? why : status.ToString();
  });
  RecordProperty("left_out", left_out);
  if (left_out > 0) std::cout << left_out << " rows left out\n";
  if (left_out == static_cast<int>(SamplesOf(op()).size()))
    GTEST_SKIP() << "no row runs on these devices";
}
TESSERA_FOR_EVERY_OP(DeviceTest);

}  // namespace
}  // namespace tessera::ir::samples
