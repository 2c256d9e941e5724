// Finds the plugin for this machine's accelerators, and counts them.
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
// PluginPath. The plugin has counted at least one device. Otherwise returns FAILED_PRECONDITION,
// which says in one line why there is no device and what to do: no such file, not a plugin, another
// version, no driver, or no device.
absl::StatusOr<const tessera_device_api*> LoadDevicePlugin(const std::string& path);

}  // namespace tessera::worker::device
