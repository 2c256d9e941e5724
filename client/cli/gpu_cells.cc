// Formats api::GpuReading for tables.
#include "client/cli/gpu_cells.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace tessera::cli {
namespace {

constexpr char kGpu[] = "gpu";

// Returns the figure by the format, or "" if it is unknown.
template <class Format>
std::string Known(const Json& gpu, const char* field, const Format& format) {
  const double value = NumberOf(gpu, field);
  return gpu.contains(field) && value < 0 ? "" : format(value);
}

}  // namespace

bool AnyGpu(const Json& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](const Json& d) { return !ChildOf(d, kGpu).empty(); });
}

const std::vector<std::string>& GpuTitles() {
  static const auto* const titles =
      new std::vector<std::string>{">BUSY", ">USED", ">OTHERS", ">POWER", ">TEMP", "THROTTLED"};
  return *titles;
}

std::vector<std::string> GpuCells(const Json& device) {
  const Json& gpu = ChildOf(device, kGpu);
  if (gpu.empty()) return std::vector<std::string>(GpuTitles().size());
  const auto bytes = [](double value) { return BytesText(value); };
  return {Known(gpu, "utilization", [](double v) { return absl::StrFormat("%.0f%%", 100 * v); }),
          Known(gpu, "memoryUsedBytes", bytes),
          Known(gpu, "memoryOthersBytes", bytes),
          Known(gpu, "powerWatts", [](double v) { return absl::StrFormat("%.0f W", v); }),
          Known(gpu, "temperatureCelsius", [](double v) { return absl::StrFormat("%.0f C", v); }),
          FlagOf(gpu, "throttled") ? "yes" : ""};
}

}  // namespace tessera::cli
