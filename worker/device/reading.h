// The lines of text by which a monitor process tells its worker's daemon about devices. Each line
// is about one device. The process writes a reading of each device every second, and an error as
// soon as the driver reports it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker/device/device_api.h"

namespace tessera::worker::device {

// A reading in which every figure is unknown.
tessera_device_reading UnknownReading();

struct MonitorLine {
  enum class Kind : uint8_t {
    kReading,      // `reading` is the device's state
    kError,        // the driver has reported the error `code` about the device
    kLost,         // the device is lost; `text` is the reason
    kUnavailable,  // no device can be monitored; `text` is the reason
  };
  Kind kind = Kind::kReading;
  int32_t device = 0;  // index in the monitor's list of devices
  tessera_device_reading reading = UnknownReading();
  int64_t code = 0;
  std::string text;
};

// Returns the line with its line break. Unknown figures and line breaks of the text are left out.
std::string FormatLine(const MonitorLine& line);
// Parses a line, without its line break. Returns nullopt if it is none of these lines. A figure
// whose name is not known is ignored.
std::optional<MonitorLine> ParseLine(std::string_view line);

}  // namespace tessera::worker::device
