// The functions of Tessera's extension: calls of the host, Ctrl-C, cancellations, and the states of
// devices. The Python package tessera_jax calls them with ctypes, so texts are written into memory
// that it gives.
#include "client/pjrt/tessera_extension.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "client/pjrt/device_states.h"
#include "client/pjrt/host_callbacks.h"
#include "client/pjrt/interrupt.h"
#include "client/pjrt/live_runs.h"
#include "client/pjrt/status.h"

namespace tessera::pjrt {
namespace {

// How old the state of a device may be that the user is shown. A program that shows all devices
// then asks the coordinator once.
constexpr absl::Duration kStateAgeMax = absl::Milliseconds(100);
constexpr absl::Duration kStateWait = absl::Seconds(1);

// Writes as much of the text as there is room for, and a zero.
void WriteText(std::string_view text, char* to, size_t size) {
  if (size == 0) return;
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

int64_t CancelRuns(char* error, size_t error_size) {
  int64_t count = -1;
  const absl::Status status = CatchExceptions([&count]() -> absl::Status {
    const absl::StatusOr<int64_t> cancelled = CancelAllRuns();
    if (cancelled.ok()) count = *cancelled;
    return cancelled.status();
  });
  if (!status.ok()) WriteText(MessageOf(status), error, error_size);
  return count;
}

void WriteDeviceState(int64_t device, char* state, size_t state_size, char* why, size_t why_size) {
  DeviceState found{DeviceState::kUnknown, "this process has no client of a cluster"};
  const absl::Status status = CatchExceptions([&] {
    if (const std::shared_ptr<DeviceStates> states = LatestDeviceStates())
      found = states->Get(device, kStateAgeMax, kStateWait);
    return absl::OkStatus();
  });
  if (!status.ok()) found = {DeviceState::kUnknown, std::string(status.message())};
  WriteText(NameOf(found.kind), state, state_size);
  WriteText(found.why, why, why_size);
}

}  // namespace

const TesseraExtension kTessera = {
    {sizeof(TesseraExtension), kTesseraExtension, nullptr},
    SetHostCallbacks,
    SetInterruptFilter,
    CancelRuns,
    WriteDeviceState,
};

}  // namespace tessera::pjrt
