// Finds the plugin for this machine's accelerators, and the devices in it.
//
// A plugin stays loaded until the process ends. Thread-safe. The first call may take a second,
// while the driver starts.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/device_api.h"

namespace tessera::worker::device {

// Returns the path of the plugin with this file name. It is in this executable's directory or, if
// it exists only there, in ../lib beside that directory.
std::string PluginPath(const std::string& file_name);

// Returns the table of the plugin at `path` or, if `path` is empty, of libtessera_cuda.so at its
// PluginPath. Otherwise returns FAILED_PRECONDITION, which says in one line what is wrong and what
// to do: no such file, not a plugin, or another version. Does not start the driver.
absl::StatusOr<const tessera_device_api*> OpenDevicePlugin(const std::string& path);

// Like OpenDevicePlugin, but the plugin has also counted at least one device. If there is no driver
// or no device, the error says so.
absl::StatusOr<const tessera_device_api*> LoadDevicePlugin(const std::string& path);

struct FoundDevice {
  const tessera_device_api* api = nullptr;
  int32_t ordinal = 0;  // for tessera_device_api::open
};

// Loads the plugin and finds the device with this id, which may be that of a MIG device. A process
// that uses a MIG device sees no other device, so the function then sets CUDA_VISIBLE_DEVICES; call
// it before anything starts the driver. Returns FAILED_PRECONDITION if the driver does not show the
// device.
absl::StatusOr<FoundDevice> FindDevice(const std::string& path, const std::string& id);

}  // namespace tessera::worker::device
