// One device of a plugin (device_api.h) as a Backend: device programs run as kernels, library calls
// and exchanges on the device's streams, asynchronously.
//
// Launches run in the order of Enqueue. Their exchanges run on a second stream, concurrently with
// the steps that do not depend on them (runner.h); copies of arrays have streams of their own. The
// steps between two exchanges, once seen again with the same buffers, are recorded as a graph and
// launched by one call. Results are given the memory of donated arguments where the program allows
// it. Results of at most 64 KiB are copied to the host along with the launch, so that reading them
// needs no call of the device.
//
// Failures. A launch that is cancelled, or whose exchange stands still beyond the timeout, is
// broken: its communicators are aborted, and it ends when the device does. A device that does not
// end, and one that reports that its context is lost, is fatal: `on_fatal` is told once, every
// launch ends with WORKER_LOST, and the process is expected to end.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/codegen/host_code.h"
#include "worker/device/device_api.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

struct DeviceBackendOptions {
  int32_t ordinal = 0;       // which device of the plugin
  int64_t memory_bytes = 0;  // to take of it; 0: nine tenths of what is free
  absl::Duration collective_timeout = absl::Seconds(5);
  // How long a broken launch may take to leave the device.
  absl::Duration abort_grace = absl::Seconds(3);
  // The same where there is nothing to abort: kernels that are enqueued run to their end.
  absl::Duration cancel_grace = absl::Seconds(30);
  // Where compiled code is kept between runs, and which child compiles; the target is the device's.
  codegen::HostCompilerOptions codegen = {};
  // Called once, on any thread, when the device is lost. May be null.
  std::function<void(const absl::Status&)> on_fatal;
};

// Opens the device. `api` outlives the backend. WORKER_LOST or OUT_OF_MEMORY if it does not open.
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(const tessera_device_api* api,
                                                           const DeviceBackendOptions& options);

}  // namespace tessera::worker::device
