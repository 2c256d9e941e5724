// Finds the plugin for this machine's accelerators, and counts them.
//
// A plugin stays loaded until the process ends. Thread-safe; the first call may take a second,
// while the driver starts.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "worker/device/device_api.h"

namespace tessera::worker::device {

// The path of the plugin with that file name: in this executable's directory or, if it exists only
// there, in ../lib beside it.
std::string PluginPath(const std::string& file_name);

// The table of the plugin at `path` or, if it is empty, of libtessera_cuda.so where PluginPath
// says; its device_count has answered at least 1. FAILED_PRECONDITION says in one line why there is
// none and what to do: no such file, no plugin, another version, no driver, no device.
absl::StatusOr<const tessera_device_api*> LoadDevicePlugin(const std::string& path);

}  // namespace tessera::worker::device
