// The wire form of api::GpuReading, for the messages that have one.
#pragma once
#include "ir/api/gpu_reading.h"
#include "ir/serial/fields.h"
#include "tessera/v1/cluster.pb.h"

namespace tessera::ir::serial {

TESSERA_FIELDS(api::GpuReading, v1::GpuReading, utilization, memory_used_bytes, memory_others_bytes,
               power_watts, temperature_celsius, throttled)

}  // namespace tessera::ir::serial
