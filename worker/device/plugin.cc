// Loads the plugin of an accelerator. The executor (worker/rpc/executor_process.cc) calls
// LoadDevicePlugin to find out whether the machine has devices. The error is meant for the person
// who starts the worker, so it says what to install or correct.
#include "worker/device/plugin.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera::worker::device {
namespace {

constexpr char kCudaPlugin[] = "libtessera_cuda.so";
constexpr char kEntry[] = "tessera_device_api";

absl::Status NoDevicesError(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("GPU plugin ", path, ": ", why));
}

}  // namespace

std::string PluginPath(const std::string& file_name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path directory = program.parent_path();
  const std::filesystem::path beside = directory / file_name;
  const std::filesystem::path installed = directory.parent_path() / "lib" / file_name;
  const bool use_installed =
      !std::filesystem::exists(beside, error) && std::filesystem::exists(installed, error);
  return (use_installed ? installed : beside).string();
}

absl::StatusOr<const tessera_device_api*> LoadDevicePlugin(const std::string& path) {
  const std::string file = path.empty() ? PluginPath(kCudaPlugin) : path;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return NoDevicesError(file,
                          absl::StrCat("it does not load: ", dlerror(),
                                       "; install it, or set TESSERA_CUDA_PLUGIN to its path"));
  }
  const auto entry = reinterpret_cast<tessera_device_api_fn>(dlsym(library, kEntry));
  if (entry == nullptr) {
    return NoDevicesError(file,
                          absl::StrCat("it has no symbol ", kEntry,
                                       ", so it is not a plugin; correct TESSERA_CUDA_PLUGIN"));
  }
  const tessera_device_api* const api = entry(TESSERA_DEVICE_API_VERSION);
  if (api == nullptr || api->version != TESSERA_DEVICE_API_VERSION) {
    return NoDevicesError(file,
                          absl::StrCat("it does not speak version ", TESSERA_DEVICE_API_VERSION,
                                       " of the device interface; install the plugin and the "
                                       "worker from the same release"));
  }
  int32_t count = 0;
  if (api->device_count(&count) != TESSERA_OK) return NoDevicesError(file, api->error_text());
  return api;
}

}  // namespace tessera::worker::device
