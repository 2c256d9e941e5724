// Tests the plugin's monitor on the fake NVML, whose knobs set what GPUs report.
#include "worker/cuda/testing/device_fixture.h"
#include "worker/device/reading.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::HasSubstr;

constexpr char kGpu0[] = "GPU-fa4e0000-0000-0000-0000-000000000000";
constexpr char kGpu1[] = "GPU-fa4e0000-0000-0000-0000-000000000001";
constexpr char kMig1[] = "MIG-fa4e0000-0000-0000-0000-000000000001";
constexpr int32_t kOurPid = 4242;

class MonitorTest : public FakesTest {
 protected:
  void TearDown() override {
    if (monitor_ != nullptr) api().monitor_close(monitor_);
    FakesTest::TearDown();
  }
  void Open(std::vector<const char*> ids) {
    ASSERT_EQ(api().monitor_open(ids.data(), static_cast<int32_t>(ids.size()), &monitor_),
              TESSERA_OK)
        << ErrorText();
  }
  tessera_device_reading Read(int32_t device) {
    tessera_device_reading reading = {};
    EXPECT_EQ(api().monitor_read(monitor_, device, IsOurs, &reading), TESSERA_OK) << ErrorText();
    return reading;
  }
  static int IsOurs(int32_t pid) { return pid == kOurPid ? 1 : 0; }

  tessera_monitor* monitor_ = nullptr;
};

TEST_F(MonitorTest, TheIdsOfDevicesAreTheirUuids) {
  char id[64];
  ASSERT_EQ(api().device_id(1, id, sizeof id), TESSERA_OK) << ErrorText();
  EXPECT_STREQ(id, kGpu1);
  EXPECT_NE(api().device_id(7, id, sizeof id), TESSERA_OK);
}

TEST_F(MonitorTest, ReadsEachFigure) {
  SetFake("nvml_device", 1);
  SetFake("nvml_utilization", 42);
  SetFake("nvml_pid", kOurPid);
  SetFake("nvml_others_bytes", int64_t{3} << 30);
  SetFake("nvml_throttle", 0x40 | 0x8);
  SetFake("nvml_ecc_uncorrected", 2);
  Open({kGpu0, kGpu1});
  const tessera_device_reading r = Read(1);
  EXPECT_DOUBLE_EQ(r.utilization, 0.42);
  EXPECT_EQ(r.memory_total_bytes, 16.0 * (1 << 30));
  EXPECT_EQ(r.memory_used_bytes, 4.0 * (1 << 30));
  EXPECT_EQ(r.memory_worker_bytes, 1.0 * (1 << 30));
  EXPECT_EQ(r.memory_others_bytes, 3.0 * (1 << 30));
  EXPECT_DOUBLE_EQ(r.power_watts, 123.5);
  EXPECT_EQ(r.power_limit_watts, 700);
  EXPECT_EQ(r.temperature_celsius, 45);
  EXPECT_EQ(r.memory_temperature_celsius, 51);
  EXPECT_EQ(r.clock_hertz, 1980e6);
  EXPECT_EQ(r.memory_clock_hertz, 2619e6);
  EXPECT_EQ(r.throttled_by_power, 0);
  EXPECT_EQ(r.throttled_by_temperature, 1);
  EXPECT_EQ(r.throttled_by_power_brake, 0);
  EXPECT_EQ(r.throttled_by_hardware, 0);
  EXPECT_EQ(r.ecc_corrected, 0);
  EXPECT_EQ(r.ecc_uncorrected, 2);
  EXPECT_EQ(r.rows_pending, 0);
  EXPECT_EQ(r.rows_failed, 0);
  EXPECT_EQ(r.link_sent_bytes, 8192);
  EXPECT_EQ(r.link_received_bytes, 8192);
  EXPECT_EQ(r.link_errors, 3);
  EXPECT_EQ(Read(0).ecc_uncorrected, 0);
}

TEST_F(MonitorTest, WhatIsUnknownIsMinusOne) {
  SetFake("nvml_others_bytes", int64_t{3} << 30);
  SetFake("nvml_no_links", 1);
  Open({kGpu0});
  const tessera_device_reading r = Read(0);
  // No process is that of the worker, so pids may mean nothing here.
  EXPECT_EQ(r.memory_worker_bytes, -1);
  EXPECT_EQ(r.memory_others_bytes, -1);
  EXPECT_EQ(r.link_sent_bytes, -1);
  EXPECT_EQ(r.link_errors, -1);
}

TEST_F(MonitorTest, AMigDeviceHasItsMemoryAndTheOtherFiguresOfItsGpu) {
  SetFake("nvml_device", 1);
  Open({kMig1});
  const tessera_device_reading r = Read(0);
  EXPECT_EQ(r.memory_total_bytes, 16.0 * (1 << 30));
  EXPECT_EQ(r.temperature_celsius, 45);
  SetFake("nvml_xid", 79);
  int32_t device = -1;
  int64_t code = 0;
  ASSERT_EQ(api().monitor_wait(monitor_, 1000, &device, &code), TESSERA_OK) << ErrorText();
  EXPECT_EQ(device, 0);
  EXPECT_EQ(code, 79);
}

TEST_F(MonitorTest, ErrorsAreReportedOnceAndForEachDeviceOfTheGpu) {
  SetFake("nvml_device", 1);
  Open({kGpu0, kGpu1, kMig1});
  int32_t device = -1;
  int64_t code = 0;
  EXPECT_EQ(api().monitor_wait(monitor_, 1, &device, &code), TESSERA_NOT_READY);
  SetFake("nvml_xid", 48);
  for (const int32_t expected : {1, 2}) {
    ASSERT_EQ(api().monitor_wait(monitor_, 1000, &device, &code), TESSERA_OK) << ErrorText();
    EXPECT_EQ(device, expected);
    EXPECT_EQ(code, 48);
  }
  EXPECT_EQ(api().monitor_wait(monitor_, 1, &device, &code), TESSERA_NOT_READY);
}

TEST_F(MonitorTest, ALostGpuIsSaidToBeLost) {
  Open({kGpu0, kGpu1});
  SetFake("nvml_lost", 1);
  tessera_device_reading reading = {};
  EXPECT_EQ(api().monitor_read(monitor_, 0, IsOurs, &reading), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("NVML: GPU is lost"));
  Read(1);
}

TEST_F(MonitorTest, WithoutADriverOrADeviceThereIsNoMonitor) {
  const char* ids[] = {"GPU-x"};
  EXPECT_EQ(api().monitor_open(ids, 1, &monitor_), TESSERA_UNAVAILABLE);
  EXPECT_THAT(ErrorText(), HasSubstr("NVML has no device GPU-x: Not Found"));
}

}  // namespace
}  // namespace tessera::worker::cuda
