// Keeps the state of a worker's devices, as a monitor process (worker/device/monitor_process.h)
// reads it. If the process ends or is silent, another one is started after a wait. The process may
// hang in the driver for as long as a broken device does, without the daemon noticing it.
//
// Thread-safe. The destructor waits for the process for at most a second.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "worker/daemon/device_faults.h"
#include "worker/device/reading.h"

namespace tessera {
class ChildProcess;
}

namespace tessera::worker {

struct DeviceMonitorOptions {
  std::string binary = "/proc/self/exe";
  std::vector<std::string> args;  // arguments by which the binary becomes a monitor process
  int num_devices = 0;
  std::string worker;  // name of the worker, for the log
  // A process that writes nothing for this long is replaced.
  absl::Duration silence_max = absl::Seconds(30);
  // The wait before the process that follows another one; it doubles up to the maximum, unless the
  // other one has read something.
  absl::Duration backoff_min = absl::Seconds(1);
  absl::Duration backoff_max = absl::Minutes(1);
  // Called on the monitor's thread for each error that the driver reports. Must not block.
  std::function<void(int32_t device, int64_t code)> on_error = [](int32_t, int64_t) {};
};

class DeviceMonitor {
 public:
  struct DeviceState {
    tessera_device_reading reading = device::UnknownReading();  // the last one
    absl::Time read_at = absl::InfinitePast();  // by SteadyNow; InfinitePast if there is none
    std::string fault;                          // DeviceFaults::fault
  };

  explicit DeviceMonitor(DeviceMonitorOptions options);
  DeviceMonitor(const DeviceMonitor&) = delete;
  DeviceMonitor& operator=(const DeviceMonitor&) = delete;
  ~DeviceMonitor();

  DeviceState state(int32_t device) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs one process to its end. Returns the reason for which it ended. Sets `has_read` if it has
  // read a device.
  absl::Status RunProcess(bool* has_read) ABSL_LOCKS_EXCLUDED(mu_);
  // Kills the process and waits for it for a second. A process that the kernel does not end is
  // left.
  static void EndProcess(ChildProcess child);
  // Returns the reason if the line says that no device can be monitored.
  absl::Status Handle(const device::MonitorLine& line) ABSL_LOCKS_EXCLUDED(mu_);
  bool stopping() const ABSL_LOCKS_EXCLUDED(mu_);

  const DeviceMonitorOptions options_;
  UniqueFd wake_;  // eventfd that ends a wait for the process

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  struct Device {
    DeviceState state;
    daemon::DeviceFaults faults;
  };
  std::vector<Device> devices_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last, since it uses the members above
};

}  // namespace tessera::worker
