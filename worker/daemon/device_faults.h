// Decides from what a monitor tells about a device whether the device is faulty. A faulty device
// gets no new programs until an operator permits it.
//
// A device is faulty after an error of the driver (for NVIDIA, an Xid) that no program can cause,
// after a memory error that ECC could not correct, when a row of its memory waits to be remapped or
// could not be, and when it is lost. Errors that programs cause, such as an access outside an
// array, do not make it faulty.
//
// Pure: the caller gives the time. Thread-compatible.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "worker/device/device_api.h"

namespace tessera::worker::daemon {

class DeviceFaults {
 public:
  // `wall` is the time of the event, for the text.
  void OnReading(const tessera_device_reading& reading, absl::Time wall);
  void OnError(int64_t xid, absl::Time wall);
  void OnLost(std::string_view why, absl::Time wall);

  // Returns the last fault and its time: "Xid 79 (the GPU has fallen off the bus) at
  // 2026-12-01T15:31:36Z". Returns "" if there has been none. Two faults have different texts,
  // except that a fault that is repeated within a minute keeps its text.
  const std::string& fault() const { return fault_; }

 private:
  void Add(std::string words, absl::Time wall);

  std::string fault_;
  std::string words_;  // the fault without its time
  absl::Time at_ = absl::InfinitePast();
  double ecc_uncorrected_ = -1;  // the last known number; -1 before the first reading
  bool rows_pending_ = false, rows_failed_ = false, lost_ = false;
};

// Returns "Xid 79 (the GPU has fallen off the bus)", or only the number of an unknown Xid.
std::string DescribeXid(int64_t xid);

}  // namespace tessera::worker::daemon
