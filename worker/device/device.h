// A device of a plugin, with owning types for its handles and statuses for its error codes. The
// table is the plugin's tessera_device_api (device_api.h). Device is thread-safe, like the
// functions of the table. It outlives every handle made from it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/device/device_api.h"

namespace tessera::worker::device {

// Owns a handle of type `T`, and destroys it with the table's function for it.
template <class T, void (*tessera_device_api::*kDestroy)(T*)>
class Handle {
 public:
  Handle() = default;
  Handle(const tessera_device_api* api, T* handle) : api_(api), handle_(handle) {}
  Handle(Handle&& other) noexcept : api_(other.api_), handle_(std::exchange(other.handle_, {})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() {
    if (handle_ != nullptr) (api_->*kDestroy)(handle_);
  }
  T* get() const { return handle_; }

 private:
  const tessera_device_api* api_ = nullptr;
  T* handle_ = nullptr;
};
using StreamHandle = Handle<tessera_stream, &tessera_device_api::stream_destroy>;
using EventHandle = Handle<tessera_event, &tessera_device_api::event_destroy>;
using ModuleHandle = Handle<tessera_module, &tessera_device_api::module_unload>;
using GraphHandle = Handle<tessera_graph, &tessera_device_api::graph_destroy>;
using MatmulHandle = Handle<tessera_matmul, &tessera_device_api::matmul_destroy>;
using CommHandle = Handle<tessera_comm, &tessera_device_api::comm_destroy>;

class Device {
 public:
  // Opens a device. The table must outlive the device.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const tessera_device_api* api,
                                                      int32_t ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { api_->close(context_); }

  const tessera_device_api& api() const { return *api_; }
  tessera_context* context() const { return context_; }
  const tessera_device_info& info() const { return info_; }
  const std::string& name() const { return name_; }  // for example "gpu:0"

  // Returns the status of a call that returned `code`, which must not be TESSERA_NOT_READY. The
  // kind of an error is OUT_OF_MEMORY, NOT_IMPLEMENTED, PEER_FAILED, WORKER_LOST (sticky) or
  // INTERNAL. The message of the error has the device's name, `what` and the plugin's text.
  absl::Status Check(int code, const char* what) const;

  absl::StatusOr<StreamHandle> NewStream(bool high_priority) const;
  // Returns an event that is reached once everything that is enqueued on `stream` so far has ended.
  absl::StatusOr<EventHandle> RecordEvent(const StreamHandle& stream) const;
  absl::StatusOr<bool> IsReached(const EventHandle& event) const;

 private:
  Device(const tessera_device_api* api, std::string name, tessera_context* context)
      : api_(api), name_(std::move(name)), context_(context) {}

  const tessera_device_api* const api_;
  const std::string name_;
  tessera_context* const context_;
  tessera_device_info info_ = {};
};

}  // namespace tessera::worker::device
