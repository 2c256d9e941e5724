// For tests: the plugin on top of the fake driver, NCCL, cuBLASLt and NVML of tests/fakes, and the
// knobs of these fakes.
//
// A process has one plugin and one set of fakes. All its tests share the knobs, so a fixture resets
// them. Any thread may call these functions.
#pragma once
#include <cstdint>
#include <string>

#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// The image of the fake driver's own kernels: add_f32(out, a, b, n), fill_u32(out, value, n),
// gate() (which waits for the knob), poke(out, offset), shape(out).
inline constexpr char kTestImage[] = "tessera test kernels";

// Return the paths of the plugin and of the fakes in the build folder.
std::string PluginPath();
// `name` is "cuda", "nccl", "cublaslt" or "nvml".
std::string FakePath(const std::string& name);

// Sets environment variables by which the plugin finds the fakes. Must be called before the plugin
// is used; child processes inherit the variables.
void PointPluginAtFakes();

// Returns the plugin's table, which runs on the fakes. Ends the process if there is no table.
const tessera_device_api& FakeDevices();

// Set and get a knob of tests/fakes/knobs.def.
void SetFake(const std::string& knob, int64_t value);
int64_t GetFake(const std::string& knob);
// Waits until the knob is at least `least`. Returns false if that does not happen within a minute.
bool AwaitFake(const std::string& knob, int64_t least);
// Resets all knobs to their built-in values, and forgets the violations.
void ResetFakes();
// Returns the violations since the last call, one per line. Requires violation_abort=0.
std::string FakeViolations();

}  // namespace tessera::worker::cuda
