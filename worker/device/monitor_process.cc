// The main functions of the children that list and monitor devices. worker/main.cc calls them;
// worker/rpc/worker_daemon.cc and worker/daemon/device_monitor.cc start the children.
#include "worker/device/monitor_process.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "worker/device/plugin.h"
#include "worker/device/reading.h"

namespace tessera::worker::device {
namespace {

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Returns whether the process is a child of this process's parent, and thus an executor of the same
// worker.
int IsSibling(int32_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return 0;
  // The name of the program is in parentheses and may have spaces.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  int64_t parent = 0;
  return fields.size() > 1 && absl::SimpleAtoi(fields[1], &parent) && parent == getppid() ? 1 : 0;
}

// Waits until `when` or until the reader has closed its end. Returns false in the latter case.
bool AwaitTime(int fd, absl::Time when) {
  for (absl::Duration left; (left = when - SteadyNow()) > absl::ZeroDuration();) {
    pollfd reader = {fd, 0, 0};  // POLLERR, which is always reported, means that it is closed
    if (poll(&reader, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0) return false;
  }
  return true;
}

// Reads all devices once and writes a line about each. Returns false if the reader is gone.
bool WriteReadings(const tessera_device_api& api, tessera_monitor* monitor, int32_t num_devices,
                   int fd) {
  for (int32_t d = 0; d < num_devices; ++d) {
    MonitorLine line;
    line.device = d;
    if (api.monitor_read(monitor, d, IsSibling, &line.reading) != TESSERA_OK) {
      line.kind = MonitorLine::Kind::kLost;
      line.text = api.error_text();
    }
    if (!WriteAll(fd, FormatLine(line))) return false;
  }
  return true;
}

// Writes the errors that come until `when`. Returns false if the reader is gone.
bool WriteErrorsUntil(const tessera_device_api& api, tessera_monitor* monitor, absl::Time when,
                      int fd) {
  for (absl::Duration left; (left = when - SteadyNow()) > absl::ZeroDuration();) {
    MonitorLine line;
    line.kind = MonitorLine::Kind::kError;
    const auto timeout_ms = static_cast<int32_t>(absl::ToInt64Milliseconds(left)) + 1;
    switch (api.monitor_wait(monitor, timeout_ms, &line.device, &line.code)) {
      case TESSERA_OK:
        if (!WriteAll(fd, FormatLine(line))) return false;
        break;
      case TESSERA_NOT_READY:
        break;
      default:
        // There are no errors to wait for. The next reading says which device is lost, if any is.
        return AwaitTime(fd, when);
    }
  }
  return AwaitTime(fd, SteadyNow());
}

}  // namespace

// A process sees at most one MIG device, so the driver cannot list those that CUDA_VISIBLE_DEVICES
// permits.
int ListDevices(const std::string& plugin, int fd) {
  const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && absl::StartsWith(visible, "MIG-"))
    return WriteAll(fd, absl::StrCat(absl::StrReplaceAll(visible, {{",", "\n"}}), "\n")) ? 0 : 1;
  const absl::StatusOr<const tessera_device_api*> api = LoadDevicePlugin(plugin);
  if (!api.ok()) return WriteAll(fd, absl::StrCat("! ", api.status().message())) ? 0 : 1;
  int32_t count = 0;
  std::string out;
  int code = (*api)->device_count(&count);
  for (int32_t d = 0; code == TESSERA_OK && d < count; ++d) {
    char id[64];
    code = (*api)->device_id(d, id, sizeof id);
    if (code == TESSERA_OK) absl::StrAppend(&out, id, "\n");
  }
  if (code != TESSERA_OK) out = absl::StrCat("! ", (*api)->error_text());
  return WriteAll(fd, out) ? 0 : 1;
}

// Alternates between reading all devices and waiting for errors until the next reading is due. The
// process ends when the daemon has closed its end of the pipe, which each write and each wait
// notices.
int MonitorDevices(const std::string& plugin, const std::vector<std::string>& ids,
                   absl::Duration interval, int fd) {
  const auto give_up = [fd](absl::string_view why) {
    MonitorLine line;
    line.kind = MonitorLine::Kind::kUnavailable;
    line.text = std::string(why);
    WriteAll(fd, FormatLine(line));
    return 1;
  };
  const absl::StatusOr<const tessera_device_api*> loaded = OpenDevicePlugin(plugin);
  if (!loaded.ok()) return give_up(loaded.status().message());
  const tessera_device_api& api = **loaded;
  std::vector<const char*> names;
  names.reserve(ids.size());
  for (const std::string& id : ids) names.push_back(id.c_str());
  const auto num_devices = static_cast<int32_t>(ids.size());
  tessera_monitor* monitor = nullptr;
  if (api.monitor_open(names.data(), num_devices, &monitor) != TESSERA_OK)
    return give_up(api.error_text());
  absl::Time next = SteadyNow();
  while (WriteReadings(api, monitor, num_devices, fd)) {
    next = std::max(next + interval, SteadyNow());
    if (!WriteErrorsUntil(api, monitor, next, fd)) break;
  }
  api.monitor_close(monitor);
  return 0;
}

}  // namespace tessera::worker::device
