// A plugin that speaks no version of the device interface, like a plugin of another release.
// plugin_test.cc loads it.
#include "worker/device/device_api.h"

extern "C" const tessera_device_api* OldEntry(uint32_t version) asm("tessera_device_api");

const tessera_device_api* OldEntry(uint32_t) { return nullptr; }
