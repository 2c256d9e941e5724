// Tests that the monitor's state follows a process, which is a shell script here.
#include "worker/daemon/device_monitor.h"

#include <atomic>

#include "base/testing/processes.h"
#include "base/testing/stopwatch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

DeviceMonitorOptions Running(const std::string& script) {
  DeviceMonitorOptions options;
  options.binary = "/bin/sh";
  options.args = {"-c", script};
  options.num_devices = 2;
  options.worker = "w0";
  options.backoff_min = absl::Milliseconds(10);
  return options;
}

TEST(DeviceMonitorTest, KeepsTheLastReadingAndTheFaultOfEachDevice) {
  std::atomic<int64_t> errors{0};
  DeviceMonitorOptions options = Running(
      "echo reading 0 utilization=0.5 >&3; echo reading 1 power_watts=300 >&3;"
      "echo error 1 31 >&3; echo error 1 79 >&3; echo reading 9 power_watts=1 >&3;"
      "echo nonsense >&3; exec sleep 60 >&3");
  options.on_error = [&](int32_t device, int64_t code) { errors += 1000 * device + code; };
  const DeviceMonitor monitor(std::move(options));
  ASSERT_TRUE(Eventually([&] { return !monitor.state(1).fault.empty(); }));
  EXPECT_THAT(monitor.state(1).fault, HasSubstr("Xid 79"));
  EXPECT_EQ(monitor.state(0).fault, "");
  EXPECT_EQ(monitor.state(0).reading.utilization, 0.5);
  EXPECT_EQ(monitor.state(0).reading.power_watts, -1);
  EXPECT_EQ(monitor.state(1).reading.power_watts, 300);
  EXPECT_TRUE(Eventually([&] { return errors == 1031 + 1079; }));
}

TEST(DeviceMonitorTest, AProcessThatEndsIsFollowedByAnother) {
  const std::string file = ::testing::TempDir() + "/device_monitor_test.starts";
  std::remove(file.c_str());
  const DeviceMonitor monitor(
      Running("echo >>" + file + "; echo reading 0 utilization=0.$(wc -l <" + file + ") >&3"));
  EXPECT_TRUE(Eventually([&] { return monitor.state(0).reading.utilization >= 0.3; }));
}

TEST(DeviceMonitorTest, ASilentProcessIsReplaced) {
  const std::string file = ::testing::TempDir() + "/device_monitor_test.silent";
  std::remove(file.c_str());
  DeviceMonitorOptions options =
      Running("echo >>" + file + "; echo reading 0 utilization=0.$(wc -l <" + file +
              ") >&3; exec sleep 60 >&3");
  options.silence_max = absl::Milliseconds(50);
  const DeviceMonitor monitor(std::move(options));
  EXPECT_TRUE(Eventually([&] { return monitor.state(0).reading.utilization >= 0.2; }));
}

TEST(DeviceMonitorTest, ALostDeviceHasAFaultAndNoReading) {
  const DeviceMonitor monitor(Running(
      "echo reading 0 utilization=0.5 >&3; echo lost 0 NVML: GPU is lost >&3; exec sleep 60 >&3"));
  ASSERT_TRUE(Eventually([&] { return !monitor.state(0).fault.empty(); }));
  EXPECT_THAT(monitor.state(0).fault, HasSubstr("the GPU is lost: NVML: GPU is lost at "));
  EXPECT_EQ(monitor.state(0).reading.utilization, -1);
}

TEST(DeviceMonitorTest, AMonitorThatCannotReadDevicesStopsAtOnce) {
  const testing::Stopwatch watch;
  {
    const DeviceMonitor monitor(Running("echo unavailable 0 no NVML >&3; exec sleep 60 >&3"));
    EXPECT_EQ(monitor.state(0).read_at, absl::InfinitePast());
  }
  EXPECT_LT(watch.Elapsed(), absl::Seconds(20));
}

}  // namespace
}  // namespace tessera::worker
