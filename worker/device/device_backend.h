// One device of a plugin (device_api.h) as a Backend: device programs run as kernels, library calls
// and collectives on the device's streams, asynchronously.
//
// Launches run in the order of Enqueue. Their collectives run on a second stream, concurrently with
// the steps that do not depend on them (runner.h); copies of arrays have streams of their own. The
// steps between two collectives are captured as a graph when the same buffers recur. Results alias
// donated arguments where the program allows it. Results of at most 64 KiB are copied to the host
// as part of the launch, so that reading them needs no call of the device.
//
// Failures. The communicators of a launch that is cancelled, or whose collective makes no progress
// within the timeout, are aborted; the launch ends when its device work does. If that does not end,
// or the device reports a lost context, the device is lost: `on_fatal` is called once, every launch
// ends with WORKER_LOST, and the process is expected to end.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/dump_folder.h"
#include "worker/codegen/host_code.h"
#include "worker/device/device_api.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

struct DeviceBackendOptions {
  int32_t ordinal = 0;       // which device of the plugin
  int64_t memory_bytes = 0;  // how much of the device's to use; 0: nine tenths of what is free
  absl::Duration collective_timeout = absl::Seconds(5);
  // How long the device work of a launch may take to end after its communicators are aborted.
  absl::Duration abort_grace = absl::Seconds(3);
  // The same for a launch without communicators, whose enqueued kernels run to their end.
  absl::Duration cancel_grace = absl::Seconds(30);
  // Whether products of f32 whose precision is not the highest may round what they multiply to
  // TF32.
  bool allow_tf32 = true;
  // The code cache and the compiling child; the target is the device's.
  codegen::HostCompilerOptions codegen = {};
  // Receives each device program and what it becomes; outlives the backend. Null: no dump.
  DumpFolder* dump = nullptr;
  // Called once, on any thread, when the device is lost. May be null.
  std::function<void(const absl::Status&)> on_fatal;
};

// Opens the device. `api` outlives the backend. WORKER_LOST or OUT_OF_MEMORY if it does not open.
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(const tessera_device_api* api,
                                                           const DeviceBackendOptions& options);

}  // namespace tessera::worker::device
