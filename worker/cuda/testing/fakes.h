// For tests: the plugin over the fake driver, NCCL and cuBLASLt of tests/fakes, and their knobs.
//
// One plugin and one set of fakes a process; the knobs are shared by its tests, so a fixture resets
// them. Any thread.
#pragma once
#include <cstdint>
#include <string>

#include "worker/device/device_api.h"

namespace tessera::worker::cuda {

// The image of the fake driver's own kernels: add_f32(out, a, b, n), fill_u32(out, value, n),
// gate() (waits for the knob), poke(out, offset), shape(out).
inline constexpr char kTestImage[] = "tessera test kernels";

// Where the plugin and the fakes were built.
std::string PluginPath();
std::string FakePath(const std::string& name);  // "cuda", "nccl", "cublaslt"

// Makes the plugin find the fakes, by the environment: before it is used, and in children, too.
void PointPluginAtFakes();

// The plugin's table, over the fakes. Ends the process if there is none.
const tessera_device_api& FakeDevices();

// A knob of tests/fakes/knobs.def.
void SetFake(const std::string& knob, int64_t value);
int64_t GetFake(const std::string& knob);
// Waits until the knob is at least `least`; false if it is not within a minute.
bool AwaitFake(const std::string& knob, int64_t least);
// All knobs as they were built, and no violations.
void ResetFakes();
// What was done wrongly since the last call, a line each. With violation_abort=0.
std::string FakeViolations();

}  // namespace tessera::worker::cuda
