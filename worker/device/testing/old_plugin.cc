// A plugin that speaks no version of the device interface: what a worker meets beside a plugin of
// another release.
#include "worker/device/device_api.h"

extern "C" const tessera_device_api* OldEntry(uint32_t version) asm("tessera_device_api");

const tessera_device_api* OldEntry(uint32_t) { return nullptr; }
