// The ids of the fake GPUs and of their MIG devices, which the fake driver and the fake NVML agree
// on: "GPU-fa4e0000-0000-0000-0000-000000000002" is GPU 2, and "MIG-fa4e..." is its MIG device.
#pragma once
#include <cstdlib>
#include <cstring>
#include <string>

namespace tessera::fakes {

inline constexpr char kGpuPrefix[] = "GPU-fa4e0000-0000-0000-0000-0000000000";
inline constexpr char kMigPrefix[] = "MIG-fa4e0000-0000-0000-0000-0000000000";

// Returns the number of the GPU, or -1 if the id is not that of a fake GPU or MIG device.
inline int DeviceOfId(const char* id) {
  const size_t length = strlen(kGpuPrefix);
  if (strncmp(id, kGpuPrefix, length) != 0 && strncmp(id, kMigPrefix, length) != 0) return -1;
  char* end = nullptr;
  const long device = strtol(id + length, &end, 16);
  return end == id + length + 2 && *end == '\0' ? static_cast<int>(device) : -1;
}

}  // namespace tessera::fakes
