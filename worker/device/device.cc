// Turns a plugin's error codes into statuses, and makes streams and events. The rest of this folder
// reaches the plugin's table through Device.
#include "worker/device/device.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker::device {
namespace {

ErrorKind KindOfCode(int code) {
  switch (code) {
    case TESSERA_OUT_OF_MEMORY:
      return ErrorKind::kOutOfMemory;
    case TESSERA_UNSUPPORTED:
      return ErrorKind::kNotImplemented;
    case TESSERA_PEER:
      return ErrorKind::kPeerFailed;
    case TESSERA_STICKY:
    case TESSERA_UNAVAILABLE:
      return ErrorKind::kWorkerLost;
    default:
      return ErrorKind::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const tessera_device_api* api,
                                                     int32_t ordinal) {
  std::string name = absl::StrCat(api->kind, ":", ordinal);
  tessera_context* context = nullptr;
  if (const int code = api->open(ordinal, &context); code != TESSERA_OK) {
    return MakeError(KindOfCode(code),
                     absl::StrCat(name, ": it does not open: ", api->error_text()));
  }
  std::unique_ptr<Device> device(new Device(api, std::move(name), context));
  TESSERA_RETURN_IF_ERROR(device->Check(api->info(context, &device->info_), "properties"));
  return device;
}

absl::Status Device::Check(int code, const char* what) const {
  if (code == TESSERA_OK) return absl::OkStatus();
  return MakeError(KindOfCode(code), absl::StrCat(name_, ": ", what, ": ", api_->error_text()));
}

absl::StatusOr<StreamHandle> Device::NewStream(bool high_priority) const {
  tessera_stream* stream = nullptr;
  TESSERA_RETURN_IF_ERROR(
      Check(api_->stream_create(context_, high_priority ? 1 : 0, &stream), "a stream"));
  return StreamHandle(api_, stream);
}

absl::StatusOr<EventHandle> Device::RecordEvent(const StreamHandle& stream) const {
  tessera_event* event = nullptr;
  TESSERA_RETURN_IF_ERROR(Check(api_->event_create(context_, &event), "an event"));
  EventHandle handle(api_, event);
  TESSERA_RETURN_IF_ERROR(Check(api_->event_record(event, stream.get()), "recording an event"));
  return handle;
}

absl::StatusOr<bool> Device::IsReached(const EventHandle& event) const {
  const int code = api_->event_query(event.get());
  if (code == TESSERA_NOT_READY) return false;
  TESSERA_RETURN_IF_ERROR(Check(code, "work on the device"));
  return true;
}

}  // namespace tessera::worker::device
