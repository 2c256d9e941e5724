// Tests which events make a device faulty.
#include "worker/daemon/device_faults.h"

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/reading.h"

namespace tessera::worker::daemon {
namespace {

using ::testing::HasSubstr;

const absl::Time kNoon = absl::FromUnixSeconds(1'796'126'400);  // 2026-12-01T12:00:00Z

tessera_device_reading ReadingWith(double tessera_device_reading::*member, double value) {
  tessera_device_reading reading = device::UnknownReading();
  reading.*member = value;
  return reading;
}

TEST(DeviceFaultsTest, AnErrorOfTheHardwareIsAFault) {
  DeviceFaults faults;
  EXPECT_EQ(faults.fault(), "");
  faults.OnError(79, kNoon);
  EXPECT_EQ(faults.fault(), "Xid 79 (the GPU has fallen off the bus) at 2026-12-01T12:00:00Z");
  faults.OnError(12345, kNoon);
  EXPECT_EQ(faults.fault(), "Xid 12345 at 2026-12-01T12:00:00Z");
}

TEST(DeviceFaultsTest, AnErrorThatProgramsCauseIsNoFault) {
  DeviceFaults faults;
  for (const int64_t xid : {13, 31, 43, 45, 68, 109}) faults.OnError(xid, kNoon);
  EXPECT_EQ(faults.fault(), "");
}

TEST(DeviceFaultsTest, ARepeatedFaultKeepsItsTextForAMinute) {
  DeviceFaults faults;
  faults.OnError(48, kNoon);
  const std::string first = faults.fault();
  faults.OnError(48, kNoon + absl::Seconds(59));
  EXPECT_EQ(faults.fault(), first);
  faults.OnError(48, kNoon + absl::Seconds(60));
  EXPECT_THAT(faults.fault(), HasSubstr("12:01:00Z"));
  faults.OnError(79, kNoon + absl::Seconds(61));
  EXPECT_THAT(faults.fault(), HasSubstr("Xid 79"));
}

TEST(DeviceFaultsTest, OnlyNewMemoryErrorsAreAFault) {
  DeviceFaults faults;
  const auto errors = [](double count) {
    return ReadingWith(&tessera_device_reading::ecc_uncorrected, count);
  };
  faults.OnReading(errors(7), kNoon);
  faults.OnReading(device::UnknownReading(), kNoon);
  faults.OnReading(errors(7), kNoon);
  EXPECT_EQ(faults.fault(), "");
  faults.OnReading(errors(9), kNoon);
  EXPECT_EQ(faults.fault(), "memory errors that ECC could not correct: 9 at 2026-12-01T12:00:00Z");
}

TEST(DeviceFaultsTest, RowsThatWaitToBeRemappedAreAFaultOnce) {
  DeviceFaults faults;
  faults.OnReading(ReadingWith(&tessera_device_reading::rows_pending, 1), kNoon);
  EXPECT_THAT(faults.fault(), HasSubstr("needs a reset at 2026-12-01T12:00:00Z"));
  const std::string first = faults.fault();
  faults.OnReading(ReadingWith(&tessera_device_reading::rows_pending, 1), kNoon + absl::Hours(1));
  EXPECT_EQ(faults.fault(), first);
  faults.OnReading(ReadingWith(&tessera_device_reading::rows_failed, 1), kNoon + absl::Hours(2));
  EXPECT_THAT(faults.fault(), HasSubstr("needs to be replaced"));
}

TEST(DeviceFaultsTest, ALostDeviceIsAFaultEachTimeThatItIsLost) {
  DeviceFaults faults;
  faults.OnLost("NVML: GPU is lost", kNoon);
  EXPECT_EQ(faults.fault(), "the GPU is lost: NVML: GPU is lost at 2026-12-01T12:00:00Z");
  const std::string first = faults.fault();
  faults.OnLost("NVML: GPU is lost", kNoon + absl::Hours(1));
  EXPECT_EQ(faults.fault(), first);
  faults.OnReading(device::UnknownReading(), kNoon + absl::Hours(2));
  faults.OnLost("NVML: GPU is lost", kNoon + absl::Hours(3));
  EXPECT_THAT(faults.fault(), HasSubstr("15:00:00Z"));
}

}  // namespace
}  // namespace tessera::worker::daemon
