// One device of a plugin (device_api.h) as a Backend. Device programs run asynchronously on the
// device's streams, as kernels, library calls and collectives.
//
// Launches run in the order of Enqueue. The collectives of launches run on a second stream,
// concurrently with the steps that do not depend on them (runner.h). Copies of arrays have streams
// of their own. The steps between two collectives are captured as a graph when the same buffers
// recur. A result gets the memory of a donated argument where the program allows it. A launch also
// copies each result of at most 64 KiB to a pinned buffer of the host, if one is free, so that
// reading the result needs no further call of the device.
//
// Memory. Arrays, constants and the scratch memory (scratch.h) come from one arena. Each allocation
// is reserved in the device's account, rounded up as the arena rounds it, so that the two agree.
//
// Failures. If a launch is cancelled, or if one of its collectives does not end within the timeout,
// the communicators of its collectives that have not ended are aborted, once all earlier launches
// of the device have ended. The other ranks hear of it and abort them too (group_comms.h). Launches
// that have collectives enqueued on them end with PEER_ABORTED; later launches get new ones. The
// launch ends when its device work does. If that work does not end, or if the device reports a lost
// context, the device is lost. Then `on_fatal` is called once, every launch ends with WORKER_LOST,
// and the process is expected to end.
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
#include "worker/program/build_options.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/long_steps.h"

namespace tessera::worker::device {

struct DeviceBackendOptions {
  int32_t ordinal = 0;  // the number of the device in the plugin
  // How much of the device's memory to use. 0 means nine tenths of the free memory.
  int64_t memory_bytes = 0;
  absl::Duration collective_timeout = absl::Seconds(5);
  // The time that the ranks of a new communicator have to come together. It is longer than that of
  // a collective, because the ranks load code, connect and exchange addresses meanwhile.
  absl::Duration opening_timeout = absl::Seconds(60);
  // How many communicators a generation may have beside those that are in use.
  int comms_max = 32;
  // The time that the device work of a launch may take to end after its communicators are aborted.
  absl::Duration abort_grace = absl::Seconds(3);
  // The time that a cancelled launch without communicators may take to end. It is longer, because
  // the kernels that are enqueued already run to their end.
  absl::Duration cancel_grace = absl::Seconds(30);
  // The time that an exchange may take to end after another rank has aborted its communicator.
  // That rank has usually done so for a later launch, when the exchange had ended there.
  absl::Duration peer_abort_delay = absl::Milliseconds(50);
  // Whether products of f32 whose precision is not the highest may round their operands to TF32.
  bool allow_tf32 = true;
  // The options of the code cache and of the child processes that compile. The target in the
  // options is ignored, because the device names its own.
  codegen::HostCompilerOptions codegen = {};
  // The host steps that are long, and the place where they are evaluated. See CpuBackendOptions.
  double uninterrupted_operations_max = program::kUninterruptedOperationsMax;
  LongSteps* long_steps = nullptr;
  // The number of threads that compute other host steps. 0 means as many as there are cores.
  int host_threads = 0;
  // Receives each device program and the stages of its step program. It must outlive the backend.
  // Null if there is no dump.
  DumpFolder* dump = nullptr;
  // Called on any thread after each abort of a communicator, with the time that it took. May be
  // null.
  std::function<void(absl::Duration time)> on_abort = nullptr;
  // Called once, on any thread, when the device is lost. May be null.
  std::function<void(const absl::Status&)> on_fatal = nullptr;
};

// Opens the device. `api` must outlive the backend. Returns WORKER_LOST or OUT_OF_MEMORY if the
// device does not open.
absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(const tessera_device_api* api,
                                                           const DeviceBackendOptions& options);

// Returns how many bytes of the device's memory are allocated. `backend` was made by
// MakeDeviceBackend.
int64_t BytesInUse(const Backend& backend);

}  // namespace tessera::worker::device
