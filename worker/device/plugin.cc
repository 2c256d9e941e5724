// Loads the plugin of an accelerator. The executor (worker/rpc/executor_process.cc) calls
// LoadDevicePlugin to find out whether the machine has devices. The error is meant for the person
// who starts the worker, so it says what to install or correct.
#include "worker/device/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace tessera::worker::device {
namespace {

constexpr char kCudaPlugin[] = "libtessera_cuda.so";
constexpr char kEntry[] = "tessera_device_api";

absl::Status NoDevicesError(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("GPU plugin ", path, ": ", why));
}

std::string FileOf(const std::string& path) {
  return path.empty() ? PluginPath(kCudaPlugin) : path;
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

absl::StatusOr<const tessera_device_api*> OpenDevicePlugin(const std::string& path) {
  const std::string file = FileOf(path);
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
  return api;
}

absl::StatusOr<const tessera_device_api*> LoadDevicePlugin(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const tessera_device_api* const api, OpenDevicePlugin(path));
  int32_t count = 0;
  if (api->device_count(&count) != TESSERA_OK)
    return NoDevicesError(FileOf(path), api->error_text());
  return api;
}

absl::StatusOr<FoundDevice> FindDevice(const std::string& path, const std::string& id) {
  const bool is_mig = absl::StartsWith(id, "MIG-");
  if (is_mig) setenv("CUDA_VISIBLE_DEVICES", id.c_str(), /*overwrite=*/1);
  TESSERA_ASSIGN_OR_RETURN(const tessera_device_api* const api, LoadDevicePlugin(path));
  if (is_mig) return FoundDevice{api, 0};
  int32_t count = 0;
  api->device_count(&count);
  std::vector<std::string> present;
  for (int32_t d = 0; d < count; ++d) {
    char text[64];
    if (api->device_id(d, text, sizeof text) != TESSERA_OK)
      return NoDevicesError(FileOf(path), api->error_text());
    if (id == text) return FoundDevice{api, d};
    present.emplace_back(text);
  }
  return NoDevicesError(FileOf(path),
                        absl::StrCat("the driver does not show ", id, " any more; it shows ",
                                     absl::StrJoin(present, ", "), "; check nvidia-smi and dmesg"));
}

}  // namespace tessera::worker::device
