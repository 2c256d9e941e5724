// The state of a GPU, as its worker's daemon reads it about once a second.
#pragma once

namespace tessera::api {

// A figure is -1 if it is unknown.
struct GpuReading {
  double utilization = -1;  // fraction of the last sampling period in which a kernel ran: 0 to 1
  double memory_used_bytes = -1;    // by all processes and the driver
  double memory_others_bytes = -1;  // by processes that are not of this worker
  double power_watts = -1;
  double temperature_celsius = -1;
  bool throttled = false;  // whether its clocks are lower than they could be: power or temperature
  bool operator==(const GpuReading&) const = default;
};

}  // namespace tessera::api
